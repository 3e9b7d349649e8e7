"""This machine's ceilings as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shootout.ceilings.model import Ceilings
from shootout.report.figures import Cell, make_table
from shootout.units import size

RATES, MEMORY = ("precision", "peak", "reached by"), ("memory", "holds", "read", "copy")


def render_ceilings(found: Ceilings) -> RenderableType:
    """Two tables: rates and bandwidth."""
    rates = [
        {"precision": precision, "peak": rate_of(precision, peak.giga_ops), "reached by": peak.source}
        for precision, peak in found.peaks.items()
    ]
    memory = [
        {
            "memory": one.level,
            "holds": size(one.holds_bytes) if one.holds_bytes else "",
            "read": f"{one.read_gbs:.3g} GB/s",
            "copy": f"{one.copy_gbs:.3g} GB/s",
        }
        for one in found.bandwidth
    ]
    cpus = ", ".join(map(str, found.cpus))
    title = f"ceilings at {threads_of(found.threads)}, on CPU {cpus}, measured {found.measured}"
    words = "The best of several blocks each; a copy counts bytes read and written. See docs/ceilings.md."
    return Group(
        Text(title, style="bold"),
        _table(RATES, rates),
        Text(),
        _table(MEMORY, memory),
        Text(words),
        *map(Text, found.notes),
    )


def _table(headers: Sequence[str], lines: Iterable[Mapping[str, Cell]]) -> Table:
    return make_table(headers, lines, left=headers)


def rate_of(precision: str, giga_ops: float) -> str:
    """A rate with its unit: operations on integers are no floating-point operations."""
    return f"{giga_ops:,.0f} {'GOP/s' if precision.startswith('int') else 'GFLOP/s'}"


def threads_of(count: int) -> str:
    """`1 thread`, `2 threads`."""
    return f"{count} thread{'s' * (count != 1)}"
