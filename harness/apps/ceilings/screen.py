"""Write the ceilings of a machine as two tables."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from shootout.core.units import size
from shootout.tell.columns import make_table
from shootout.tell.machines import Ceilings, rate_of, threads_of

RATES, MEMORY = ("precision", "peak", "reached by"), ("memory", "holds", "read", "copy")


def render_ceilings(ceilings: Ceilings) -> RenderableType:
    """Render two tables: rates and bandwidth."""
    rates = [
        {"precision": precision, "peak": rate_of(precision, peak.giga_ops), "reached by": peak.source}
        for precision, peak in ceilings.peaks.items()
    ]
    memory = [
        {
            "memory": level.level,
            "holds": size(level.holds_bytes) if level.holds_bytes else "",
            "read": f"{level.read_gbs:.3g} GB/s",
            "copy": f"{level.copy_gbs:.3g} GB/s",
        }
        for level in ceilings.bandwidth
    ]
    cpus = ", ".join(map(str, ceilings.cpus))
    title = f"ceilings at {threads_of(ceilings.threads)}, on CPU {cpus}, measured {ceilings.measured}"
    words = "The best of several blocks each; a copy counts bytes read and written. See docs/explain.md."
    return Group(
        Text(title, style="bold"),
        make_table(RATES, rates, left=RATES),
        Text(),
        make_table(MEMORY, memory, left=MEMORY),
        Text(words),
        *map(Text, ceilings.notes),
    )
