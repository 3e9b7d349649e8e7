"""Measure this machine's ceilings: each library, and each memory level, in a fresh process on an arm's own CPUs.

They are kept for this machine, its versions and the number of threads. Every run's header holds them, so that its
shares of them can be shown on any machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import Any, get_type_hints

from rich.console import Group, RenderableType
from rich.text import Text

from shootout.apps.ceilings import worker as figures
from shootout.backends.devices.cpu import list_caches
from shootout.core.clock import utc_now
from shootout.core.errors import ArmFailed, ShootoutError
from shootout.core.host import environment
from shootout.core.host.folders import Scratch
from shootout.core.host.placement import Placement, child_environment
from shootout.core.host.store import read_facts, write_facts
from shootout.core.units import counted, size
from shootout.core.worker import reported
from shootout.core.worker.process import WorkerProcess
from shootout.tell.columns import make_table
from shootout.tell.machines import Bandwidth, Ceilings, Peak, ceilings_of_run, rate_of

TIMEOUT_S = 120.0
RATES, MEMORY = ("precision", "peak", "reached by"), ("memory", "holds", "read", "copy")
_NAME = "ceilings.json"
"""The facts of this machine that they are stored in."""
BEYOND_CACHES = 3
"""The working set for main memory is so many times the largest cache, and at most MEMORY_SHARE of what is free."""
MEMORY_SHARE = 0.25
UNKNOWN_CACHE_BYTES = 1 << 26
"""The size of the caches if the system tells of none; what lies beyond is main memory."""
FULL = (0.5, 0.75)
"""Working sets as shares of a cache level; a third one is FROM_BELOW times the level below."""
FROM_BELOW = 4
BUSY_LOAD = 0.7
"""A load average above this, before anything is measured, is other programs' work."""
CACHES = {"L1": "L1d", "L2": "L2", "L3": "L3"}
"""Memory levels, by their names in `hardware.caches`; main memory is `DRAM`."""


def obtain_ceilings(
    placement: Placement,
    facts: Mapping[str, Any],
    say: Callable[[str], None],
    *,
    fresh: bool = False,
    load: float | None = None,
) -> Ceilings:
    """Return the ceilings at `placement`'s threads, remembered or measured now; measuring takes a minute or more.

    The caller holds the machine's lock.

    Args:
        facts: `environment.facts()`.
        say: hears that it is measured.
        fresh: measure, whatever is remembered.
        load: the load average before anything was measured, so that our own work isn't taken for another's; None: it is
            now.

    Raises:
        ShootoutError: nothing could be measured; says why.
        UsageError: the cache can't be written.
    """
    if not fresh and (found := read_ceilings(facts).get(placement.threads)):
        return found
    say(f"measuring this machine's ceilings at {placement.threads} thread(s), a minute or more; they are remembered")
    found = measure_ceilings(placement, os.getloadavg()[0] if load is None else load)
    write_ceilings(found, facts)
    return found


def known_ceilings(
    measured_at: Iterable[int], placement: Placement, facts: Mapping[str, Any], say: Callable[[str], None]
) -> dict[str, Any]:
    """Return this machine's ceilings as a run's header holds them.

    Args:
        measured_at: thread counts at which they are measured first, where they aren't remembered: minutes. One that
            can't be measured is said and left out.
        facts: `environment.facts()`.
    """
    load = os.getloadavg()[0]
    for threads in measured_at:
        try:
            obtain_ceilings(placement.narrowed(threads), facts, say, load=load)
        except ShootoutError as error:
            say(str(error))
    return as_data(read_ceilings(facts).values())


def measure_ceilings(placement: Placement, load: float) -> Ceilings:
    """Measure the ceilings.

    Args:
        load: the load average before anything was measured.

    Raises:
        ShootoutError: no peak rate or no bandwidth could be measured; says why.
    """
    notes, peaks = list[str](), dict[str, Peak]()
    if load > BUSY_LOAD:
        busy = f"the machine was busy (load average {load:.1f})"
        notes.append(f"{busy}, so these may be too low: measure again with --fresh")
    for source in (name for name in figures.multipliers() if find_spec(name)):
        arguments = {"source": source, "threads": placement.threads}
        found = _run_fresh(placement, placement.threads, figures.peak_rates, arguments, source, notes)
        rates, faults = found or ({}, [])
        notes += [f"{source} {fault}" for fault in faults]
        for precision, rate in rates.items():
            if precision not in peaks or rate > peaks[precision].giga_ops:
                peaks[precision] = Peak(giga_ops=rate, source=source)
    levels = [(name, held) for name, own in CACHES.items() if (held := cache_held(own, placement.arms))]
    below = [0, *(held for _, held in levels)]
    bandwidth = [
        _measure_bandwidth(placement, name, held, working_sets(held, low), notes)
        for (name, held), low in zip(levels, below, strict=False)
    ]
    wanted = BEYOND_CACHES * max((held for _, held in levels), default=UNKNOWN_CACHE_BYTES)
    most = MEMORY_SHARE * environment.memory_available_bytes()
    if wanted <= most:
        bandwidth.append(_measure_bandwidth(placement, "DRAM", None, [wanted], notes))
    else:
        notes.append(f"DRAM: {wanted:,} bytes are needed to get beyond the caches, {most:,.0f} may be used")
    known = tuple(one for one in bandwidth if one)
    if not peaks or not known:
        raise ShootoutError(f"the ceilings can't be measured here: {'; '.join(notes)}")
    return Ceilings(
        threads=placement.threads,
        cpus=tuple(sorted(placement.arms)),
        measured=utc_now(),
        peaks=peaks,
        bandwidth=known,
        notes=tuple(notes),
    )


def cache_held(name: str, cpus: Iterable[int]) -> int:
    """Return the bytes in all caches called `name` of these CPUs, a shared one counted once; 0 if not known."""
    sizes: dict[str, int] = {}
    for cpu in cpus:
        seen = list_caches(environment.SYSTEM / f"devices/system/cpu/cpu{cpu}/cache")
        sizes |= {sharers or str(cpu): count for own, count, sharers in seen if own == name}
    return sum(sizes.values())


def working_sets(held: int, below: int) -> list[float]:
    """Return the bytes to walk over for a level that holds `held`, above one that holds `below` (0: none)."""
    return [share * held for share in FULL] + [float(FROM_BELOW * below)] * (0 < FROM_BELOW * below < held)


def _measure_bandwidth(
    placement: Placement, level: str, held: int | None, sets: list[float], notes: list[str]
) -> Bandwidth | None:
    each = [max(int(size / placement.threads) // 16, 1) * 16 for size in sets]  # halves of whole 64-bit numbers
    arguments = {"bytes_each": each, "threads": placement.threads}
    # The threads are ours, each with a BLAS of one thread, so that all levels are read alike.
    rates = _run_fresh(placement, 1, figures.bandwidth, arguments, level, notes)
    return Bandwidth(level=level, holds_bytes=held, read_gbs=rates[0], copy_gbs=rates[1]) if rates else None


def _run_fresh(
    placement: Placement,
    library_threads: int,
    figure: Callable[..., Any],
    arguments: Mapping[str, Any],
    what: str,
    notes: list[str],
) -> Any:
    """Run a function of `ceilings.worker` in a fresh process; return None and add a note if that fails."""
    with Scratch() as folder:
        log = folder / "worker.log"
        try:
            with WorkerProcess(child_environment(library_threads, 0), placement.arms, log) as process:
                name = f"{figure.__module__}:{figure.__name__}"
                answer = process.ask("measure", TIMEOUT_S, function=name, arguments=dict(arguments))
                return reported.check_answer(get_type_hints(figure)["return"], answer, "")
        except ArmFailed as error:
            notes.append(f"{what}: {error}")
            return None


def read_ceilings(facts: Mapping[str, Any]) -> dict[int, Ceilings]:
    """Return what was measured on this machine before, by thread count.

    Args:
        facts: the environment now (`environment.facts()`); other versions or another machine have ceilings of their
            own.
    """
    return ceilings_of_run({"ceilings": read_facts(_NAME).get(environment.fingerprint(facts))})


def write_ceilings(measured: Ceilings, facts: Mapping[str, Any]) -> None:
    """Store ceilings for this machine, beside those at other thread counts.

    Raises:
        UsageError: the cache can't be written.
    """
    everything = {**read_ceilings(facts), measured.threads: measured}
    write_facts(_NAME, {environment.fingerprint(facts): as_data(everything.values())})


def as_data(measured: Iterable[Ceilings]) -> dict[str, Any]:
    """Return ceilings by thread count as JSON values, as the header of a run holds them."""
    return {str(ceilings.threads): ceilings.model_dump(mode="json") for ceilings in measured}


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
    title = f"ceilings at {counted(ceilings.threads, 'thread')}, on CPU {cpus}, measured {ceilings.measured}"
    words = "The best of several blocks each; a copy counts bytes read and written. See docs/explain.md."
    return Group(
        Text(title, style="bold"),
        make_table(RATES, rates, left=RATES),
        Text(),
        make_table(MEMORY, memory, left=MEMORY),
        Text(words),
        *map(Text, ceilings.notes),
    )
