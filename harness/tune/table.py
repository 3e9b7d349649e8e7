"""A tuning run as people read it, and as data: the gain of each backend, how to get it, and what to ship."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shootout.contract import Arm
from shootout.journal.records import SCHEMA
from shootout.report import table
from shootout.results.document import Ratio, Row
from shootout.study import reproduce
from shootout.tune import knobs
from shootout.tune.results import Found, Outcome, Tuning
from shootout.units import duration

_STYLES = {Outcome.BETTER: "green", Outcome.NONE_BETTER: "cyan", Outcome.CANT_TELL: "yellow", Outcome.FAILED: "red"}


def render(found: Tuning, width: int) -> RenderableType:
    """The gains, the words to get them, the last race, and what was tried."""
    parts: list[RenderableType] = [Text("What each backend gains over its defaults", style="bold"), _gains(found)]
    parts += [
        Text(f"{one.target}: {one.reason}.{f' Fix: {one.fix}' if one.fix else ''}") for one in found.found if one.reason
    ]
    better = [one.ship for one in found.found if one.ship is one.best]
    parts += [Text(f"To get it: shootout run {reproduce.words(arm, found.given)}") for arm in better]
    if found.final:
        parts += [Text(""), table.render(found.final, width)]
    if not found.complete:
        parts.append(Text("This tuning is unfinished; run the same command again to go on.", style="yellow"))
    return Group(*parts)


def _gains(found: Tuning) -> Table:
    lines = [_line(one) for one in found.found]
    out = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    headers = [name for name in lines[0] if any(str(line[name]) for line in lines)]
    for name in headers:
        out.add_column(name, justify="right" if name in ("default", "best", "tried") else "left", no_wrap=True)
    for line in lines:
        out.add_row(*(line[name] for name in headers))
    return out


def _line(one: Found) -> dict[str, str | Text]:
    return {
        "target": one.target,
        "gain": Text(verdict(one), style=_STYLES.get(one.outcome, "dim")),
        "setting": knobs.setting(one.default, one.best) if one.best else "",
        "default": _time(one.default_row),
        "best": _time(one.row),
        "error": _error(one),
        "accuracy": _accuracy(one),
        "tried": str(len(one.tried)) if one.tried else "",
    }


def verdict(one: Found) -> str:
    """`1.9x faster [1.8, 2.0]`, or what there is to say instead."""
    if one.outcome is not Outcome.BETTER or one.gain is None:
        return str(one.outcome)
    low, high = _bounds(one.gain)
    return f"{1 / one.gain.value:.3g}x faster [{_number(low)}, {_number(high)}]"


def _bounds(gain: Ratio) -> tuple[float | None, float | None]:
    """The interval of how many times faster: the ratio's, turned over."""
    return 1 / gain.high if gain.high else None, 1 / gain.low if gain.low else None


def _number(value: float | None) -> str:
    return "inf" if value is None else f"{value:.3g}"


def _time(row: Row | None) -> str:
    return duration(row.end_to_end.median_ns) if row and row.end_to_end else ""


def _error(one: Found) -> str:
    """Before and after, where the precision changed."""
    if not (one.best and one.best.target.precision != one.default.target.precision):
        return ""
    errors = [row.fidelity.relative_l2 for row in (one.default_row, one.row) if row and row.fidelity]
    return " to ".join("exact" if error is None else f"{error:.1e}" for error in errors)


def _accuracy(one: Found) -> str:
    if not _error(one):
        return ""
    shares = [row.fidelity.accuracy for row in (one.default_row, one.row) if row and row.fidelity]
    return " to ".join(f"{share:.1%}" for share in shares if share is not None)


def as_data(found: Tuning) -> dict[str, Any]:
    """The tuning as JSON values; each stage's document is there whole."""
    return {
        "schema": SCHEMA,
        "run": found.run,
        "complete": found.complete,
        "targets": [_as_data(one, found.given) for one in found.found],
        "stages": {name: stage.document.model_dump(mode="json", by_alias=True) for name, stage in found.stages.items()},
    }


def _as_data(one: Found, given: Sequence[str]) -> dict[str, Any]:
    low, high = _bounds(one.gain) if one.gain else (None, None)
    faster = {"value": 1 / one.gain.value, "low": low, "high": high} if one.gain else None
    return {
        "target": one.target,
        "outcome": str(one.outcome),
        "verdict": verdict(one),
        "reason": one.reason or None,
        "fix": one.fix or None,
        "times_faster": faster,
        "gain": one.gain.model_dump(mode="json") if one.gain else None,
        "default": _setting(one, one.default, given),
        "best": _setting(one, one.best, given) if one.best else None,
        "ship": _setting(one, one.ship, given),
        "fidelity": {
            "default": _fidelity(one.default_row),
            "best": _fidelity(one.row),
        },
        "tried": [
            {**asdict(tried), "ratio": tried.ratio.model_dump(mode="json") if tried.ratio else None}
            for tried in one.tried
        ],
    }


def _setting(one: Found, arm: Arm, given: Sequence[str]) -> dict[str, Any]:
    return {
        "setting": knobs.setting(one.default, arm),
        "target": str(arm.target),
        "threads": arm.threads,
        "options": dict(arm.options),
        "words": reproduce.words(arm, given),
    }


def _fidelity(row: Row | None) -> dict[str, Any] | None:
    return row.fidelity.model_dump(mode="json") if row and row.fidelity else None
