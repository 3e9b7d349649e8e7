"""Foresee how long a model of some size takes, before anything is made of it: a call, an export, a load.

Calls follow from what one of them computes. The rate of matrix products is measured once on each machine, in a process
of its own (`python -m shootout.core.exported.cost`); all other rates are of one core of a server of 2024
(docs/evidence/sizes.md shows how far off that is).
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from shootout.core import budget
from shootout.core.clock import Deadline
from shootout.core.errors import SkippedArm, UsageError
from shootout.core.exported.effort import LEAST_RUNS, Effort, product_rate
from shootout.core.exported.model import INLINE_BYTES
from shootout.core.exported.workload import Work
from shootout.core.host import child, environment, store

FACTS, RATE_TIMEOUT_S = "rates.json", 60.0
NODE_S = 8e-6
"""Seconds that a node takes which computes next to nothing."""
ELEMENT_S = 1.0e-9
"""Seconds of an element of all other nodes."""
WEIGHT_GB_S = 0.1
"""Seconds to read a GB of weights from memory, which a call can't avoid."""
EXPORT_S, EXPORT_GB_S, INLINE_GB_S = 0.8, 5.0, 28.0
"""Seconds of an export of a file, calls apart: a process that starts, a GB of weights that is copied and loaded. Of
weights in the graph itself a GB is parsed, moved and written several times.
"""
REWRITE_GB_S = 10.0
"""Seconds to round a GB of weights, write it and load it again, for each precision whose error is predicted."""
MODULE_S, MODULE_NODE_S, MODULE_GB_S = 4.5, 0.015, 18.0
"""Seconds of a torch module, of a file or from the user's code: torch is imported, nodes traced, weights written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """Describe a model by what its times follow from.

    Attributes:
        weight_bytes: in float32.
        work: of a call; None where it isn't known, and then calls count nothing.
        nodes: in its graph.
        sets: of inputs, that calls rotate through.
    """

    weight_bytes: int
    work: Work | None = None
    nodes: int = 0
    sets: int = 1

    @property
    def gb(self) -> float:
        """Return the GB of weights (10^9 bytes)."""
        return self.weight_bytes / 1e9

    @property
    def call_s(self) -> float:
        """Return the seconds of a call on one thread."""
        if not (work := self.work):
            return 0.0
        products_s = (work.flops or 0.0) / known_rate()
        read_s = WEIGHT_GB_S * work.weight_bytes / 1e9
        return max(products_s, read_s) + work.elementwise_ops * ELEMENT_S + self.nodes * NODE_S


def known_rate() -> float:
    """Return this machine's rate of matrix products on one thread, in operations a second."""
    key = environment.machine_key()
    if found := store.read_facts(FACTS).get(key):
        return float(found)
    ended = child.run("shootout.core.exported.cost", [], RATE_TIMEOUT_S, child.ONE_THREAD)
    rate = float(ended.said) if ended.code == 0 else product_rate()
    with suppress(UsageError):  # it takes a second to find out again
        store.write_facts(FACTS, {key: rate})
    return rate


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportCost:
    """Foresee what an export takes.

    Attributes:
        sets: of inputs, that there is time for; 0: there isn't even time for the fewest.
        seconds: of all of it.
    """

    sets: int
    seconds: float


def export_of(
    size: ModelSize, needs: Collection[str], leading: Collection[str], limit: Deadline, lanes: int
) -> ExportCost:
    """Foresee the export of a user's file; it decides as the export itself will.

    Args:
        needs, leading: see `Effort`.
        limit: when the run ends.
        lanes: how many calls run side by side.
    """
    effort = Effort(limit=limit, plan=budget.planned_exports(limit), needs=needs, leading=leading)
    call_s = size.call_s / lanes
    fixed_s = EXPORT_S + size.gb * (EXPORT_GB_S if size.weight_bytes > INLINE_BYTES else INLINE_GB_S)
    try:
        sets = effort.buffers(size.sets, call_s)
    except SkippedArm:
        return ExportCost(sets=0, seconds=fixed_s + LEAST_RUNS * 2 * call_s)
    if effort.is_brief:
        return ExportCost(sets=sets, seconds=fixed_s + LEAST_RUNS * sets * call_s)
    rewrites = len(effort.predicted) * size.gb * REWRITE_GB_S
    return ExportCost(sets=sets, seconds=fixed_s + rewrites + (effort.whole_s or 0.0))


def module_s(size: ModelSize) -> float:
    """Return the seconds of an export to a torch module."""
    fixed_s = MODULE_S + size.nodes * MODULE_NODE_S + size.gb * MODULE_GB_S
    return fixed_s + (2 + size.sets) * size.call_s


if __name__ == "__main__":
    child.leave_with(int(sys.argv[1]))
    print(product_rate())  # noqa: T201 - for `known_rate`
