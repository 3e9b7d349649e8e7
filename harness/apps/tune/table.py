"""A tuning run as people read it, and as data: the gain of each backend, how to get it, and what to ship."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from shootout.apps.tune.results import ALONE, CONFIRMED, Tried, TunedTarget, TuneOutcome, Tuning
from shootout.apps.tune.settings import describe_precision, describe_setting
from shootout.core.contract import Arm, short
from shootout.core.units import duration
from shootout.tell import reproduce, table
from shootout.tell.columns import Cell, error_of, stack_tables
from shootout.tell.document import SCHEMA, Finding, Row, as_json, stand
from shootout.tell.limits import FIDELITY, Standing
from shootout.tell.notes import Reason, fold_reasons
from shootout.tell.ratios import tell_ratio
from shootout.tell.report import Command, Line, write_lines

_STYLES = {
    TuneOutcome.BETTER: "green",
    TuneOutcome.NONE_BETTER: "cyan",
    TuneOutcome.OVER_LIMIT: "red",
    TuneOutcome.CANT_TELL: "yellow",
    TuneOutcome.FAILED: "red",
}
_KEPT = {Standing.MET: "kept", Standing.BROKEN: "broken", Standing.UNKNOWN: "unknown"}


def render(tuning: Tuning, width: int) -> RenderableType:
    """Render the gains, the words to get them, the last race, what was tried, and the command that comes next."""
    targets = list(tuning.found.values())
    parts: list[RenderableType] = [Text("What each backend gains over its defaults", style="bold")]
    lines = [_gain_line(tuned) for tuned in targets]
    headers = [name for name in lines[0] if any(str(line[name]) for line in lines)]
    parts += stack_tables(headers, lines, width, left=set(headers) - {"default", "best", "tried"})
    for tuned in targets if tuning.limits is not None else ():
        parts += _precision_table(tuned, width)
    reasons = list[Reason]()
    for tuned in (tuned for tuned in targets if tuned.conclusion.reason):  # with the setting that led its search
        setting = describe_setting(tuned.default, tuned.best) if tuned.best else ""
        named = f"{tuned.target} with {setting}" if setting else tuned.target
        reasons.append(Reason(str(tuned.conclusion.outcome), named, tuned.conclusion.reason, tuned.conclusion.fix))
    parts += [Text(line) for _, line in fold_reasons(reasons)]
    better = [tuned for tuned in targets if tuned.held]
    if better:
        parts.append(Text("To run a backend with its faster setting:"))
        commands = [f"shootout run {reproduce.words([tuned.ship], tuning.given)}" for tuned in better]
        parts += write_lines([Line("", commands=[Command(text=command) for command in commands])], width)
    if tuning.final:
        parts += [Text(""), table.render(tuning.final, width)]
    ready = [*better, *(tuned for tuned in targets if tuned.ready)]
    if not tuning.complete:
        parts.append(Text("This tuning is unfinished; run the same command again to go on.", style="yellow"))
    elif ready and not tuning.final:
        parts += write_lines([Line("Next", commands=[Command(text=ship_words(tuning, ready[0]))])], width)
    return Group(*parts)


def _gain_line(tuned: TunedTarget) -> dict[str, Cell]:
    fidelities = [row.fidelity for row in (tuned.default_row, tuned.row) if row and row.fidelity]
    if not tuned.best or tuned.best.target.precision == tuned.default.target.precision:
        fidelities = []  # before and after are the same
    worth = next((one for one in tuned.limits if one.limit in FIDELITY), None)
    return {
        "target": short(tuned.target),
        "gain": Text(verdict(tuned), style=_STYLES.get(tuned.conclusion.outcome, "dim")),
        "default": _time_text(tuned.default_row),
        "best": _time_text(tuned.row),
        "setting": describe_setting(tuned.default, tuned.best) if tuned.best else "",
        "error": " to ".join(map(error_of, fidelities)),
        "loses": tell_loss(worth) if worth else "",
        "tried": str(len(tuned.tried)) if tuned.tried else "",
    }


def _precision_table(tuned: TunedTarget, width: int) -> list[RenderableType]:
    """Make a table of what each precision and mix gains and costs, by the search; nothing if none was tried."""
    tried = [one for one in tuned.tried if one.arm.target.precision is not tuned.default.target.precision]
    shown = [one for one in tried if one.row.end_to_end or one.was_refused]
    if not shown:
        return []
    shown.sort(key=lambda one: one.row.end_to_end.median_ns if one.row.end_to_end else math.inf)
    lines = [_precision_line(tuned, one) for one in shown]
    untimed = [one for one in tried if not one.row.end_to_end]
    reasons = [Reason("not raced", one.setting, one.row.reason or "", one.row.fix or "") for one in untimed]
    title = f"{short(tuned.target)}: what each precision gains and costs, by the search"
    return [
        Text(""),
        Text(title, style="bold"),
        *stack_tables([*lines[0]], lines, width, left={"precision"}),
        *(Text(line) for _, line in fold_reasons(reasons)),
    ]


def _precision_line(tuned: TunedTarget, tried: Tried) -> dict[str, Cell]:
    row, worth = tried.row, next((one for one in tried.limits if one.limit in FIDELITY), None)
    return {
        "precision": describe_precision(tried.arm.target),
        "time": _time_text(row),
        f"against {tuned.default.target.precision}": tell_ratio(tried.ratio) if tried.ratio else "–",
        "error": error_of(row.fidelity) if row.fidelity else "",
        "loses": tell_loss(worth) if worth else "",
        "limit": "refused" if tried.was_refused else _KEPT[stand(tried.limits)],
    }


def tell_loss(finding: Finding) -> str:
    """Write what a setting costs: `0.0012 (-0.0021 to 0.0045)`, or `1.2e-3` if it has no interval."""
    if finding.value is None:
        return ""
    ends = (finding.value, finding.low, finding.high)
    value, low, high = (None if one is None else f"{one + 0.0:.2g}" for one in ends)
    return f"{value}" + (f" ({low} to {high})" if low is not None and high is not None and low != high else "")


def ship_words(tuning: Tuning, tuned: TunedTarget) -> str:
    """Return the command that ships a target's confirmed setting, or else its default."""
    stage = CONFIRMED if tuned.held else ALONE
    groups, run = tuned.stages[stage].groups, str(Path(tuning.run) / stage)
    several = ["--group", groups[tuned.target].name] if len(groups) > 1 else []
    out = reproduce.name_free("shipped")
    return reproduce.quote(["shootout", "ship", run, "-o", out, "--target", tuned.ship.label, *several])


def verdict(tuned: TunedTarget) -> str:
    """Return `1.9x faster (1.8 to 2.0)`, `can't tell (1.1x faster to 1.2x slower)`, or what there is to say instead."""
    if tuned.gain is None or tuned.conclusion.outcome not in (TuneOutcome.BETTER, TuneOutcome.CANT_TELL):
        return str(tuned.conclusion.outcome)
    return tell_ratio(tuned.gain)


def _time_text(row: Row | None) -> str:
    return duration(row.end_to_end.median_ns) if row and row.end_to_end else ""


def as_data(tuning: Tuning) -> dict[str, Any]:
    """Return the tuning as JSON values; each stage's document is there whole."""
    documents = {name: stage.document for name, stage in tuning.stages.items()}
    return {
        "schema": SCHEMA,
        "run": tuning.run,
        "limits": tuning.limits,
        "complete": tuning.complete,
        "targets": [_target_data(tuned, tuning.given) for tuned in tuning.found.values()],
        "stages": {name: document.model_dump(mode="json", by_alias=True) for name, document in documents.items()},
    }


def _target_data(tuned: TunedTarget, given: Mapping[str, Any]) -> dict[str, Any]:
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
        "reason": tuned.conclusion.reason or None,
        "fix": tuned.conclusion.fix or None,
        "gain": as_json(tuned.gain),
        "default": setting(tuned.default),
        "best": setting(tuned.best) if tuned.best else None,
        "ship": setting(tuned.ship),
        "limits": [one.model_dump(mode="json") for one in tuned.limits],
        "tried": [
            {
                "setting": one.setting,
                "ratio": as_json(one.ratio),
                "reason": one.row.reason or "",
                "limits": [found.model_dump(mode="json") for found in one.limits],
            }
            for one in tuned.tried
        ],
    }
