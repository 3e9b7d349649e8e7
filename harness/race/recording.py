"""A generation on disk: its raw samples, then its lines in the journal, before anything else happens."""

from __future__ import annotations

from pathlib import Path

from shootout.journal import samples
from shootout.journal.journal import Journal
from shootout.journal.records import Played, Rounds
from shootout.race.protocols import Generation, Performance
from shootout.race.queue import Entrant
from shootout.race.race import block_medians
from shootout.results import gpu, rates
from shootout.study.plan import PlannedGroup


def record(out: Path, file: Journal, one: Entrant, generation: Generation) -> list[Played]:
    """Write the generation that a group has just played; its lines go out at once, closed by their `rounds` line.

    Args:
        out: the run folder.

    Returns:
        A line for each performance, in their order.
    """
    name = f"samples/g{one.index}-{generation.index:03}.parquet"
    samples.write(out, name, [(p.arm.label, p.turns) for p in generation.performances])
    rounds = Rounds(
        group=one.group.record.name,
        generation=generation.index,
        tried=generation.rounds,
        voided=tuple(generation.voids),
        wall_s=one.last_s,
    )
    lines = [_played(one.group, generation, p, name) for p in generation.performances]
    file.append(*lines, rounds)
    if one.known.record.pairs:  # else a large grid would pile up in memory
        one.known.add(lines, rounds)
    return lines


def _played(group: PlannedGroup, generation: Generation, found: Performance, name: str) -> Played:
    return Played(
        group=group.record.name,
        arm=found.arm.label,
        generation=generation.index,
        load_s=found.loaded.load_s,
        first_call_s=found.loaded.first_call_s,
        warm_up_calls=found.warm_up.calls,
        steady_from=found.warm_up.steady_from,
        executed=found.verified.executed,
        fidelity=found.verified.fidelity,
        per_reading={scope.value: calls for scope, calls in found.tuned.per_reading.items()},
        block_median_ns=block_medians(found),
        canary_reference_ns=found.canary_ns,
        canary_ns=tuple(turn.canary_ns for turn in found.turns),
        rss_before_bytes=found.loaded.rss_before_bytes,
        rss_after_bytes=found.loaded.rss_after_bytes,
        peak_rss_bytes=found.peak_rss_bytes,
        samples=name,
        cpus=found.loaded.cpus,
        os_threads=found.loaded.os_threads,
        served=rates.served(generation, found),
        gpu=gpu.played(found),
    )
