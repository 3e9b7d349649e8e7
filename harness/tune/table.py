"""A tuning run as people read it, and as data: the gain of each backend, how to get it, and what to ship."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from shootout.contract import Arm
from shootout.report import table
from shootout.report.columns import Cell, error_of, fits, make_table, share, stack_tables
from shootout.report.notes import Reason, fold_reasons
from shootout.report.screen import INDENT, labeled, typed
from shootout.results.document import SCHEMA, Ratio, Row, as_json
from shootout.results.wording import tell_ratio
from shootout.study import reproduce
from shootout.study.group import short
from shootout.tune.results import TunedTarget, TuneOutcome, Tuning
from shootout.tune.settings import describe_setting
from shootout.units import duration

_STYLES = {
    TuneOutcome.BETTER: "green",
    TuneOutcome.NONE_BETTER: "cyan",
    TuneOutcome.CANT_TELL: "yellow",
    TuneOutcome.FAILED: "red",
}


def render(tuning: Tuning, width: int) -> RenderableType:
    """Render the gains, the words to get them, the last race, and what was tried."""
    targets = list(tuning.found.values())
    parts: list[RenderableType] = [Text("What each backend gains over its defaults", style="bold")]
    parts += _gain_tables(targets, width)
    reasons = (
        Reason(str(tuned.conclusion.outcome), tuned.target, tuned.conclusion.reason, tuned.conclusion.fix)
        for tuned in targets
        if tuned.conclusion.reason
    )
    parts += [Text(line) for _, line in fold_reasons(reasons)]
    better = [tuned.ship for tuned in targets if tuned.held]
    if better:
        parts.append(Text("To run a backend with its faster setting:"))
    for arm in better:
        command = f"shootout run {reproduce.words(arm, tuning.given)}"
        parts += labeled("", [typed(command, width - INDENT)], width)
    if tuning.final:
        parts += [Text(""), table.render(tuning.final, width)]
    if not tuning.complete:
        parts.append(Text("This tuning is unfinished; run the same command again to go on.", style="yellow"))
    return Group(*parts)


def _gain_tables(targets: Sequence[TunedTarget], width: int) -> list[RenderableType]:
    lines = [_gain_line(tuned) for tuned in targets]
    headers = [name for name in lines[0] if any(str(line[name]) for line in lines)]
    flush = set(headers) - {"default", "best", "tried"}
    first = [name for name in ("target", "gain", "default", "best") if name in headers]
    while len(first) > 2 and not fits(make_table(first, lines), width):
        first.pop()
    return stack_tables(headers, lines, width, first=first, left=flush, long=("setting",))


def _gain_line(tuned: TunedTarget) -> dict[str, Cell]:
    fidelities = [row.fidelity for row in (tuned.default_row, tuned.row) if row and row.fidelity]
    if not tuned.best or tuned.best.target.precision == tuned.default.target.precision:
        fidelities = []  # before and after are the same
    errors = [error_of(figures) for figures in fidelities]
    shares = [share(figures.accuracy) for figures in fidelities if figures.accuracy is not None]
    return {
        "target": short(tuned.target),
        "gain": Text(verdict(tuned), style=_STYLES.get(tuned.conclusion.outcome, "dim")),
        "default": _time_text(tuned.default_row),
        "best": _time_text(tuned.row),
        "setting": describe_setting(tuned.default, tuned.best) if tuned.best else "",
        "error": " to ".join(errors),
        "accuracy": " to ".join(shares),
        "tried": str(len(tuned.tried)) if tuned.tried else "",
    }


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
        "complete": tuning.complete,
        "targets": [_target_data(tuned, tuning.given) for tuned in tuning.found.values()],
        "stages": {name: document.model_dump(mode="json", by_alias=True) for name, document in documents.items()},
    }


def _target_data(tuned: TunedTarget, given: Sequence[str]) -> dict[str, Any]:
    low, high = _speedup_bounds(tuned.gain) if tuned.gain else (None, None)

    def setting(arm: Arm) -> dict[str, Any]:
        return {
            "setting": describe_setting(tuned.default, arm),
            "target": str(arm.target),
            "threads": arm.threads,
            "options": dict(arm.options),
            "words": reproduce.words(arm, given),
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
        "tried": [{**asdict(tried), "ratio": as_json(tried.ratio)} for tried in tuned.tried],
    }
