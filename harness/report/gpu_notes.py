"""What the GPU told of its arms, as people read it: a line for each below the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shootout.results.document import Gpu, Holding, Row
from shootout.units import duration, size

_UNSYNCHRONISED = "a timer that doesn't wait for the GPU would show"
_NEARLY = 0.9
"""From this share of the time on, the work is as good as done when the call returns; some libraries wait by themselves.
"""


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each row on a GPU that told something; one more where the unsynchronised timer was asked for."""
    for row in rows:
        if row.gpu and (parts := [*_steps(row.gpu), *_took(row.gpu)]):
            yield f"{row.arm} on the GPU: {', '.join(parts)}."
        for fault in row.gpu.faults if row.gpu else ():
            yield f"{row.arm}: the GPU's {fault}."
        if times := _unsynchronised(row):
            shown, waited = map(duration, times)
            right = times[0] >= _NEARLY * times[1]
            words = f"nearly the {waited} of one that waits" if right else f"no latency: waited for, it takes {waited}"
            yield f"{row.arm}: {_UNSYNCHRONISED} {shown}, {words}."


def holding(found: Holding | None) -> Iterator[str]:
    """How arms on the GPU were held, and why; nothing where it wasn't tried."""
    if found:
        how = "stopped" if found.mode == "stop" else "left waiting on their pipes"
        why = f"beside stopped ones an arm takes {found.ratio:.3f} times as long as beside waiting ones"
        yield f"Arms on the GPU were {how} while another one played: {why} ({found.pairs} pairs of blocks)."


def traps(axis: str, rows: Sequence[tuple[int, Row]]) -> Iterator[str]:
    """For a sweep: what the unsynchronised timer shows at each size, a line for each arm.

    Args:
        rows: each with its size.
    """
    shown: dict[str, list[str]] = {}
    for at, row in sorted(rows, key=lambda one: one[0]):
        if times := _unsynchronised(row):
            wrong, waited = map(duration, times)
            shown.setdefault(row.arm, []).append(f"{wrong} of {waited} at {at}")
    for arm, figures in shown.items():
        yield f"{arm}: by {axis}, {_UNSYNCHRONISED} {', '.join(figures)}."


def _unsynchronised(row: Row) -> tuple[float, float] | None:
    """Nanoseconds that such a timer shows, and what the same work takes when it is waited for."""
    if row.gpu is None or row.gpu.dispatch_ns is None or row.gpu.compute_ns is None:
        return None
    return row.gpu.dispatch_ns, row.gpu.compute_ns


def _steps(gpu: Gpu) -> Iterator[str]:
    """Where the time of a call goes."""
    if gpu.event_ns is not None:
        yield f"on the device {duration(gpu.event_ns)} (events)"
    elif gpu.compute_ns is not None:
        yield f"compute {duration(gpu.compute_ns)} (host clock)"
    if gpu.stage_ns is not None and gpu.fetch_ns is not None:
        kind = f" ({gpu.copies})" if gpu.copies else ""
        yield f"copies in {duration(gpu.stage_ns)}, out {duration(gpu.fetch_ns)}{kind}"


def _took(gpu: Gpu) -> Iterator[str]:
    """Memory, clock and energy."""
    if gpu.context_bytes is not None:
        yield f"context {size(gpu.context_bytes)}"
    if gpu.loaded_bytes is not None:
        yield f"loaded {size(gpu.loaded_bytes)}"
    if gpu.sm_clock_mhz is not None:
        yield f"{gpu.sm_clock_mhz:,} MHz"
    if gpu.l2 == "cold":
        yield "L2 cache emptied before each call"
    if gpu.energy:
        yield f"{gpu.energy.above_idle_mj:.3g} mJ a call above idle ({gpu.energy.per_call_mj:.3g} in all, measured)"
