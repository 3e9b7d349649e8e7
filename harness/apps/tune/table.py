"""A tuning run as people read it, and as data: the gain of each backend, how to get it, and what to ship."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from shootout.apps.tune.results import (
    ALONE,
    CONFIRMED,
    MORE_ROWS,
    SEARCH_AGAIN,
    Tried,
    TunedTarget,
    TuneOutcome,
    Tuning,
    TuningStage,
    name_row_files,
    was_refused,
)
from shootout.apps.tune.settings import describe_setting
from shootout.core.contract import Arm, NotRunKind, short
from shootout.core.exported.model import TOO_FEW
from shootout.core.units import duration, size, span
from shootout.models.onnx.layers import names_in_notes
from shootout.tell import reproduce, table
from shootout.tell.columns import Cell, error_of, fits, make_table, stack_tables
from shootout.tell.document import SCHEMA, Finding, Ratio, Row, as_json
from shootout.tell.limits import FIDELITY, Standing
from shootout.tell.notes import Reason, fold_reasons
from shootout.tell.ratios import tell_ratio
from shootout.tell.report import Command, Line
from shootout.tell.screen import fold, write_lines

SEEN = "Your rows are too few to share out, so the search has seen the rows that the limit is confirmed on: give more."
FLOATS = "left in float, by name"
"""The header of the layers that a mix leaves in float; its scheme has their numbers, and a name may be a number."""
NEXT = "Next"
"""The label of the command that comes next."""
NOT_SHOWN = ", not shown to keep the limit"
SHOWN = 3
"""The most layers left in float that a line names."""
_STYLES = {
    TuneOutcome.BETTER: "green",
    TuneOutcome.NONE_BETTER: "cyan",
    TuneOutcome.OVER_LIMIT: "red",
    TuneOutcome.CANT_TELL: "yellow",
    TuneOutcome.FAILED: "red",
}


def render(tuning: Tuning, width: int, again: str = "") -> RenderableType:
    """Render the gains, the words to get them, the last race, what was tried, and the command that comes next.

    Args:
        again: the command that tuned, without its folder and time; "" if that isn't known.
    """
    targets = list(tuning.found.values())
    parts: list[RenderableType] = [Text("What each backend gains over its defaults", style="bold")]
    parts += _gain_tables(targets, width)
    for tuned in targets if tuning.limits is not None else ():
        parts += _precision_table(tuned, width)
    reasons = (
        Reason(str(tuned.conclusion.outcome), _name_raced(tuned), tuned.conclusion.reason, tuned.conclusion.fix)
        for tuned in targets
        if tuned.conclusion.reason
    )
    parts += [Text(line) for _, line in fold_reasons(reasons)]
    better = [tuned for tuned in targets if tuned.held]
    if better:
        parts.append(Text("To run a backend with its faster setting:"))
        commands = [f"shootout run {reproduce.words(_name_arms(tuned), tuning.given)}" for tuned in better]
        parts += write_lines([Line("", commands=[Command(text=command) for command in commands])], width)
    ships = [tuned for tuned in targets if tuned.held and (tuning.limits is not None or not tuning.final)]
    if ships:
        parts.append(Text("To ship it:"))
        commands = [ship_words(tuning, tuned) for tuned in ships]
        parts += write_lines([Line("", commands=[Command(text=command) for command in commands])], width)
    if tuning.limits is not None and any(
        tuned.row and any(TOO_FEW in note for note in tuned.row.notes) for tuned in targets
    ):
        parts.append(Text(SEEN, style="yellow"))
    if tuning.limits is not None:
        spent = (f"{name} {span(stage.spent_s)}" for name, stage in tuning.stages.items())
        parts.append(Text(f"Time: {', '.join(spent)}", style="dim"))
    if tuning.final:
        parts += [Text(""), table.render(tuning.final, width)]
    if not tuning.complete:
        parts.append(Text("This tuning is unfinished; run the same command again to go on.", style="yellow"))
    if line := _tell_next(tuning, again):
        parts += write_lines([line], width)
    return Group(*parts)


def _name_arms(tuned: TunedTarget) -> list[Arm]:
    """Return the setting that holds, after the default one if a command can race both: they differ as targets alone."""
    default, best = tuned.default, tuned.ship
    is_racer = replace(default, target=best.target) == best and default.target != best.target
    return [default, best] if is_racer else [best]


def _name_raced(tuned: TunedTarget) -> str:
    """Name a target, with the setting that led its search."""
    setting = describe_setting(tuned.default, tuned.best) if tuned.best else ""
    return f"{tuned.target} with {setting}" if setting else tuned.target


def _tell_next(tuning: Tuning, again: str) -> Line | None:
    """Tell the command that comes next, if none above ships: go on, search again, or ship a target as it comes."""
    targets, goes_on = tuning.found.values(), f"{again} --out {reproduce.quote([tuning.run])}"
    if not tuning.complete:
        command = Command(text=f"{goes_on} --max-time {reproduce.MORE_TIME}")
        return Line(NEXT, commands=[command]) if again else None
    if tuning.final or any(tuned.held for tuned in targets):
        return None
    unsure = (tuned.conclusion for tuned in targets if tuned.conclusion.outcome is TuneOutcome.CANT_TELL)
    if again and any(not conclusion.lacks_rows for conclusion in unsure):
        return Line(NEXT, commands=[Command(text=f"{goes_on} --fresh")])
    ready = next((tuned for tuned in targets if tuned.ready), None)
    return Line(NEXT, _lead_to_rows(tuning), [Command(text=ship_words(tuning, ready))]) if ready else None


def _lead_to_rows(tuning: Tuning) -> list[str]:
    """Return what stands before the command to ship a default if more rows may show that a faster setting will do."""
    if not any(tuned.conclusion.lacks_rows for tuned in tuning.found.values()):
        return []
    return [f"{MORE_ROWS} {name_row_files(tuning.given)} and tune again with --fresh, or ship what keeps the limit:"]


def _gain_tables(targets: Sequence[TunedTarget], width: int) -> list[RenderableType]:
    lines = [_gain_line(tuned) for tuned in targets]
    headers = [name for name in lines[0] if any(str(line[name]) for line in lines)]
    flush = set(headers) - {"default", "best", "tried"}
    first = [name for name in ("target", "gain", "default", "best") if name in headers]
    while len(first) > 2 and not fits(make_table(first, lines), width):
        first.pop()
    return stack_tables(headers, lines, width, first=first, left=flush)


def _gain_line(tuned: TunedTarget) -> dict[str, Cell]:
    fidelities = [row.fidelity for row in (tuned.default_row, tuned.row) if row and row.fidelity]
    if not tuned.best or tuned.best.target.precision == tuned.default.target.precision:
        fidelities = []  # before and after are the same
    errors = [error_of(figures) for figures in fidelities]
    scores = [f"{figures.metric.value:.4g}" for figures in fidelities if figures.metric]
    worth = next((one for one in tuned.limits if one.limit in FIDELITY), None)
    return {
        "target": short(tuned.target),
        "gain": Text(
            verdict(tuned) + NOT_SHOWN * tuned.conclusion.lacks_rows, style=_STYLES.get(tuned.conclusion.outcome, "dim")
        ),
        "default": _time_text(tuned.default_row),
        "best": _time_text(tuned.row),
        "setting": describe_setting(tuned.default, tuned.best) if tuned.best else "",
        "error": " to ".join(errors),
        "metric": " to ".join(scores),
        "loses": tell_loss(worth) if worth else "",
        "tried": str(len(tuned.tried)) if tuned.tried else "",
    }


def _precision_table(tuned: TunedTarget, width: int) -> list[RenderableType]:
    """Make a table of what each precision and mix gains and costs, by the search; nothing if none was tried."""
    plain, first = tuned.default.target.precision, tuned.stages[ALONE]
    tried = [
        (stage, arm, stage.rows(tuned.target)[arm.label])
        for stage in tuned.searched
        for arm in stage.groups[tuned.target].arms
        if not arm.control and arm.target.precision is not plain
    ]
    shown = sorted((one for one in tried if one[2].end_to_end or was_refused(one[2])), key=lambda one: _time_ns(one[2]))
    if not shown:
        return []
    default = _precision_line(tuned, first, first.rows(tuned.target)[tuned.default.label])
    lines = [default, *(_precision_line(tuned, stage, row) for stage, _, row in shown)]
    title = f"{short(tuned.target)}: what each precision gains and costs, by the search"
    reasons = [
        Reason("not raced", describe_setting(tuned.default, arm), row.reason or "", fix or "")
        for _, arm, row in tried
        if not row.end_to_end
        for fix in [SEARCH_AGAIN if tuned.is_searched and row.cause == NotRunKind.NOT_REACHED else row.fix]
    ]
    findings = [one for stage, _, row in shown for one in stage.limits_of(tuned.target, row.arm)]
    unknown = dict.fromkeys(one.reason for one in findings if one.standing is Standing.UNKNOWN and one.reason)
    return [
        Text(""),
        Text(title, style="bold"),
        *stack_tables([*lines[0]], lines, width, left={"precision", FLOATS}),
        *(Text(line) for _, line in fold_reasons(reasons)),
        *(Text(f"unknown: {why}") for why in list(unknown)[:1]),
    ]


def _precision_line(tuned: TunedTarget, searched: TuningStage, row: Row) -> dict[str, Cell]:
    ratio, standing = searched.ratios(tuned.target).get(row.arm), searched.standing(tuned.target, row.arm)
    worth = next((one for one in searched.limits_of(tuned.target, row.arm) if one.limit in FIDELITY), None)
    layers = names_in_notes(row.notes)
    return {
        "precision": f"{row.precision}/{row.scheme}" if row.scheme else row.precision,
        "time": _time_text(row),
        f"against {tuned.default.target.precision}": tell_ratio(ratio) if ratio else "–",
        "size": "" if row.artifact_bytes is None else size(row.artifact_bytes),
        "loses": tell_loss(worth) if worth else "",
        **({"error": error_of(row.fidelity)} if tuned.refused and row.fidelity else {}),
        "limit": "refused"
        if was_refused(row)
        else {Standing.MET: "kept", Standing.BROKEN: "broken", Standing.UNKNOWN: "unknown"}[standing],
        FLOATS: ", ".join(fold(layers, SHOWN)),
    }


def _time_ns(row: Row) -> float:
    return row.end_to_end.median_ns if row.end_to_end else math.inf


def tell_loss(finding: Finding) -> str:
    """Write what a setting costs: `0.0012 (-0.0021 to 0.0045)`, or `1.2e-3` if it has no interval."""
    if finding.value is None:
        return ""
    value, low, high = (None if one is None else f"{one + 0.0:.2g}" for one in _bounds(finding))
    return f"{value}" + (f" ({low} to {high})" if low is not None and high is not None and low != high else "")


def _bounds(finding: Finding) -> tuple[float | None, float | None, float | None]:
    return finding.value, finding.low, finding.high


def ship_words(tuning: Tuning, tuned: TunedTarget) -> str:
    """Return the command that ships a target's confirmed setting, or else its default."""
    stage = CONFIRMED if tuned.held else ALONE
    groups, run = tuned.stages[stage].groups, str(Path(tuning.run) / stage)
    is_one, group = len(groups) == 1, groups[tuned.target].name
    out, several = ("shipped", []) if is_one else (f"shipped-{tuned.default.target.backend}", ["--group", group])
    free = reproduce.name_free(out)
    return reproduce.quote(["shootout", "ship", run, "-o", free, "--target", tuned.ship.label, *several])


def verdict(tuned: TunedTarget) -> str:
    """Return `1.9x faster (1.8 to 2.0)`, `can't tell (1.1x faster to 1.2x slower)`, or what there is to say instead."""
    if tuned.gain is None or tuned.conclusion.outcome not in (TuneOutcome.BETTER, TuneOutcome.CANT_TELL):
        return str(tuned.conclusion.outcome)
    return tell_ratio(tuned.gain)


def _speedup_bounds(gain: Ratio) -> tuple[float | None, float | None]:
    """Return the interval of the speedup: the ratio's, turned over."""
    return 1 / gain.high if gain.high else None, 1 / gain.low if gain.low else None


def _time_text(row: Row | None) -> str:
    return duration(row.end_to_end.median_ns) if row and row.end_to_end else ""


def as_data(tuning: Tuning) -> dict[str, Any]:
    """Return the tuning as JSON values; each stage's document is there whole."""
    documents = {name: stage.document for name, stage in tuning.stages.items()}
    return {
        "schema": SCHEMA,
        "run": tuning.run,
        "limits": tuning.limits,
        "seconds": {name: stage.spent_s for name, stage in tuning.stages.items()},
        "complete": tuning.complete,
        "targets": [_target_data(tuned, tuning.given) for tuned in tuning.found.values()],
        "stages": {name: document.model_dump(mode="json", by_alias=True) for name, document in documents.items()},
    }


def _target_data(tuned: TunedTarget, given: Mapping[str, Any]) -> dict[str, Any]:
    low, high = _speedup_bounds(tuned.gain) if tuned.gain else (None, None)

    def setting(arm: Arm) -> dict[str, Any]:
        return {
            "setting": describe_setting(tuned.default, arm),
            "target": str(arm.target),
            "threads": arm.threads,
            "options": dict(arm.options),
            "words": reproduce.words([arm], given),
        }

    return {
        "target": tuned.target,
        "outcome": str(tuned.conclusion.outcome),
        "verdict": verdict(tuned),
        "reason": tuned.conclusion.reason or None,
        "fix": tuned.conclusion.fix or None,
        "times_faster": {"value": 1 / tuned.gain.value, "low": low, "high": high} if tuned.gain else None,
        "gain": as_json(tuned.gain),
        "default": setting(tuned.default),
        "best": setting(tuned.best) if tuned.best else None,
        "ship": setting(tuned.ship),
        "fidelity": {
            name: as_json(row.fidelity if row else None)
            for name, row in (("default", tuned.default_row), ("best", tuned.row))
        },
        "limits": [one.model_dump(mode="json") for one in tuned.limits],
        "left_in_float": names_in_notes(tuned.row.notes) if tuned.row else [],
        "tried": [_tried_data(tried) for tried in tuned.tried],
    }


def _tried_data(tried: Tried) -> dict[str, Any]:
    limits = [one.model_dump(mode="json") for one in tried.limits]
    return {**asdict(tried), "ratio": as_json(tried.ratio), "limits": limits}
