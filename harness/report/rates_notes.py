"""Rates as people read them: the columns and notes that throughput and serving add to a table."""

from __future__ import annotations

from collections.abc import Sequence

from shootout.contract import Scenario
from shootout.results.document import Rate, Row
from shootout.units import duration


def cells(row: Row) -> dict[str, str]:
    """The columns, empty where the row has no rate."""
    found = row.serve
    limit = f"{'holds' if found.holds else 'BREAKS'} {duration(found.limit_ns)}" if found else ""
    return {
        "items/s": rate(row.items_per_s) if row.items_per_s and not found else "",
        "requests/s": rate(found.rate_per_s) if found else "",
        "p99": duration(found.p99_ns) if found else "",
        "limit": limit,
        "idle": duration(found.unloaded_ns) if found else "",
    }


def rate(found: Rate) -> str:
    """A rate with its interval, where it has one."""
    ends = f" [{figure(found.low)}, {figure(found.high)}]" if found.low < found.high else ""
    return figure(found.value) + ends


def figure(value: float) -> str:
    """Three digits, whole from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def notes(rows: Sequence[Row]) -> list[str]:
    """What the times of these rows are, and how late the harness itself was."""
    found = []
    if any(row.scenario == Scenario.THROUGHPUT for row in rows):
        found.append("time is wall time per item, all instances together.")
    served = [row.serve for row in rows if row.serve]
    if served:
        what = "the time per request at the highest rate that held the limit" if served[0].searched else "p99"
        late = max(one.start_late_ns for one in served)
        found.append(
            f"time is {what}; latencies count from a request's arrival, p99 is its 99 % upper bound; "
            f"a free instance began up to {duration(late)} after the arrival."
        )
    return found
