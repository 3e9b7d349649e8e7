"""This machine's ceilings as people read them, and what a run says about them below its tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shootout.ceilings.model import Ceilings, ceilings_of_run
from shootout.contract import Device, Scenario
from shootout.results.document import Document, Row
from shootout.units import size

UNKNOWN = "run `shootout ceilings` once for each row's share of what this machine can do"


def render_ceilings(found: Ceilings) -> RenderableType:
    """Two tables: rates and bandwidth."""
    rates = Table("precision", "peak", "reached by", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for precision, peak in found.peaks.items():
        rates.add_row(precision, rate(precision, peak.giga_ops), peak.source)
    memory = Table("memory", "holds", "read", "copy", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for one in found.bandwidth:
        held = size(one.holds_bytes) if one.holds_bytes else ""
        memory.add_row(one.level, held, f"{one.read_gbs:.3g} GB/s", f"{one.copy_gbs:.3g} GB/s")
    cpus = ", ".join(map(str, found.cpus))
    title = f"ceilings at {_threads(found.threads)}, on CPU {cpus}, measured {found.measured}"
    words = "The best of several blocks each; a copy counts bytes read and written. See docs/ceilings.md."
    return Group(Text(title, style="bold"), rates, Text(), memory, Text(words), *map(Text, found.notes))


def rate(precision: str, giga_ops: float) -> str:
    """A rate with its unit: operations on integers are no floating-point operations."""
    return f"{giga_ops:,.0f} {'GOP/s' if precision.startswith('int') else 'GFLOP/s'}"


def share(row: Row) -> str:
    """A table's cell: how much of the ceiling the row reached, and what binds it; "" where that isn't known."""
    return f"{row.ceiling.share:.0%} {row.ceiling.binds}" if row.ceiling else ""


def notes(document: Document) -> list[str]:
    """The ceilings that the document's shares refer to; or how to get them, where the run looked and found none."""
    on_cpu = [row for row in document.rows if row.device == Device.CPU and row.scenario == Scenario.LATENCY]
    asked = sorted({row.threads for row in on_cpu if row.compute})
    if "ceilings" not in document.environment:
        return []
    found = ceilings_of_run(document.environment)
    lines = [_line(found[threads]) for threads in asked if threads in found]
    missing = [threads for threads in asked if threads not in found]
    return [*lines, *([_advice(missing)] if missing else [])]


def _line(found: Ceilings) -> str:
    rates = [f"{name} {rate(name, peak.giga_ops)} ({peak.source})" for name, peak in found.peaks.items()]
    memory = [f"{one.level} {one.best_gbs:.3g} GB/s" for one in found.bandwidth]
    return f"Ceilings at {_threads(found.threads)}: {', '.join(rates)}; {', '.join(memory)}."


def _advice(missing: Sequence[int]) -> str:
    return f"{UNKNOWN} ({', '.join(f'--threads {threads}' for threads in missing)})."


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count != 1)}"
