"""A tuning run as people read it, and as data: the gain of each backend, how to get it, and what to ship."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shootout.contract import Arm
from shootout.report import table
from shootout.report.figures import Cell, ends_of, error_of, share, stack_tables
from shootout.report.screen import INDENT, labelled, typed
from shootout.results.document import SCHEMA, Ratio, Row, as_json
from shootout.study import reproduce
from shootout.tune.results import Found, TunedTarget, Tuning
from shootout.tune.settings import describe_setting
from shootout.units import duration

_STYLES = {
    TunedTarget.BETTER: "green",
    TunedTarget.NONE_BETTER: "cyan",
    TunedTarget.CANT_TELL: "yellow",
    TunedTarget.FAILED: "red",
}


def render(tuning: Tuning, width: int) -> RenderableType:
    """Render the gains, the words to get them, the last race, and what was tried."""
    found = list(tuning.found.values())
    parts: list[RenderableType] = [Text("What each backend gains over its defaults", style="bold")]
    parts += _gain_tables(found, width)
    parts += [Text(_tell_reason(one)) for one in found if one.conclusion.reason]
    better = [one.ship for one in found if one.held]
    for arm in better:
        command = f"shootout run {reproduce.words(arm, tuning.given)}"
        parts += labelled("To get it:", [typed(command, width - INDENT)], width)
    if tuning.final:
        parts += [Text(""), table.render_tables(tuning.final, width)]
    if not tuning.complete:
        parts.append(Text("This tuning is unfinished; run the same command again to go on.", style="yellow"))
    return Group(*parts)


def _tell_reason(one: Found) -> str:
    _, reason, fix = one.conclusion
    return f"{one.target}: {reason}.{f' Fix: {fix}' if fix else ''}"


def _gain_tables(found: Sequence[Found], width: int) -> list[Table]:
    lines = [_gain_line(one) for one in found]
    headers = [name for name in lines[0] if any(str(line[name]) for line in lines)]
    flush = set(headers) - {"default", "best", "tried"}
    return stack_tables(headers, lines, width, left=flush, long=("setting", "gain"))


def _gain_line(one: Found) -> dict[str, Cell]:
    told = [row.fidelity for row in (one.default_row, one.row) if row and row.fidelity]
    if not one.best or one.best.target.precision == one.default.target.precision:
        told = []  # before and after are the same
    errors = [error_of(figures) for figures in told]
    shares = [share(figures.accuracy) for figures in told if figures.accuracy is not None]
    return {
        "target": one.target,
        "gain": Text(verdict(one), style=_STYLES.get(one.conclusion.outcome, "dim")),
        "setting": describe_setting(one.default, one.best) if one.best else "",
        "default": _time_text(one.default_row),
        "best": _time_text(one.row),
        "error": " to ".join(errors),
        "accuracy": " to ".join(shares),
        "tried": str(len(one.tried)) if one.tried else "",
    }


def verdict(one: Found) -> str:
    """Return `1.9x faster [1.8, 2.0]`, or what there is to say instead."""
    if one.gain is None or one.conclusion.outcome is not TunedTarget.BETTER:
        return str(one.conclusion.outcome)
    return f"{1 / one.gain.value:.3g}x faster{ends_of(*_speedup_bounds(one.gain))}"


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
        "targets": [_target_data(one, tuning.given) for one in tuning.found.values()],
        "stages": {name: document.model_dump(mode="json", by_alias=True) for name, document in documents.items()},
    }


def _target_data(one: Found, given: Sequence[str]) -> dict[str, Any]:
    low, high = _speedup_bounds(one.gain) if one.gain else (None, None)

    def setting(arm: Arm) -> dict[str, Any]:
        return {
            "setting": describe_setting(one.default, arm),
            "target": str(arm.target),
            "threads": arm.threads,
            "options": dict(arm.options),
            "words": reproduce.words(arm, given),
        }

    return {
        "target": one.target,
        "outcome": str(one.conclusion.outcome),
        "verdict": verdict(one),
        "reason": one.conclusion.reason or None,
        "fix": one.conclusion.fix or None,
        "times_faster": {"value": 1 / one.gain.value, "low": low, "high": high} if one.gain else None,
        "gain": as_json(one.gain),
        "default": setting(one.default),
        "best": setting(one.best) if one.best else None,
        "ship": setting(one.ship),
        "fidelity": {
            name: as_json(row.fidelity if row else None)
            for name, row in (("default", one.default_row), ("best", one.row))
        },
        "tried": [{**asdict(tried), "ratio": as_json(tried.ratio)} for tried in one.tried],
    }
