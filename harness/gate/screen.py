"""A gate's word as text: the first line says it, the evidence stands below."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shootout.decide.limits import Standing
from shootout.gate.evidence import Check
from shootout.gate.verdict import Gate, Outcome, tell_ratio
from shootout.units import counted

_STYLES: dict[Outcome, str] = {"pass": "bold green", "fail": "bold red", "undecided": "bold yellow"}
COLUMNS = ("evidence", "reference", "candidate", "limit", "")
MARKS = {Standing.MET: "ok", Standing.BROKEN: "BROKEN", Standing.UNKNOWN: "unknown", None: ""}


def render(gate: Gate) -> RenderableType:
    """The whole screen."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in COLUMNS:
        table.add_column(name, overflow="fold")
    for line in lines(gate):
        table.add_row(*map(Text, line))
    told = [Text(f"note: {one}", style="yellow") for one in gate.notes]
    return Group(
        Text(tell_outcome(gate), style=_STYLES[gate.outcome]),
        *(Text(f"  {one}") for one in gate.reasons),
        Text(),
        *((table, Text()) if gate.checks else ()),
        *told,
        Text(f"{gate.reference} of {gate.recorded} against {gate.candidate}; run folder: {gate.run}"),
    )


def tell_outcome(gate: Gate) -> str:
    """Return `pass  1.003 [0.991, 1.014] of the reference's time, limit 1.05 · 12 restarts, 1.2 min`.

    It also says how many of the restarts an earlier command raced.
    """
    ratio = "not raced" if gate.ratio is None else f"{tell_ratio(gate.ratio)} of the reference's time"
    earlier = gate.earlier_restarts
    before = f" ({'all' if earlier == gate.restarts else earlier} by an earlier command)" if earlier else ""
    took = f"{counted(gate.restarts, 'restart')}{before}, {gate.wall_s / 60:.1f} min"
    return f"{gate.outcome}  {ratio}, limit {gate.limit:g} · {took}"


def lines(gate: Gate) -> list[tuple[str, ...]]:
    """The evidence, a line each: name, reference, candidate, limit, standing."""
    return [_line(one) for one in gate.checks]


def _line(one: Check) -> tuple[str, ...]:
    standing = " · ".join(filter(None, [MARKS[one.standing], one.reason]))
    return one.name, one.reference or "–", one.candidate or "–", one.limit or "–", standing
