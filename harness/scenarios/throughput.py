"""As many items as fit into a second of wall time, of several sessions at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

from shootout.core.adapter import Built, Session
from shootout.core.contract import Arm, Array
from shootout.core.scenario import Scenario, Terms
from shootout.core.worker.blocks import Caller
from shootout.scenarios.concurrent import INSTANCES, WINDOW_NS, open_instances, spread_instances

if TYPE_CHECKING:  # a worker doesn't load it
    from shootout.core.study.group import GroupRecord

BATCHES = (1, 8, 64)
"""The candidates where the study names no batch: a few that lie far apart."""


class Throughput(Scenario):
    """Sessions that call as fast as they can at once. Each target's best batch and number of sessions is looked for."""

    name = "throughput"
    measures = "items a second, of several sessions at once"
    options: ClassVar = {"instances": INSTANCES}
    selects = divides_threads = True
    fills_turns = is_by_call = is_one_call = False
    objective = "rate"
    block_ns = WINDOW_NS

    def explain_times(self, rows: Sequence[Any]) -> str:  # noqa: ARG002
        """Explain that its time is an item's."""
        return "time is wall time per item, all instances together."

    def items(self, arm: Arm) -> int:  # noqa: ARG002
        """Return 1: its time is of an item."""
        return 1

    def spread(self, arm: Arm, batches: Sequence[int], options: Mapping[str, Any]) -> list[Arm]:
        """Return the arm with each batch, and with 1, 2, 4 … sessions and as many as there are threads."""
        powers = [2**n for n in range(arm.threads.bit_length())]
        counts = options["instances"] or dict.fromkeys([*powers, arm.threads])
        return spread_instances(arm, [*product(batches or BATCHES, counts)], "batch={batch}, instances={instances}")

    def shape(self, record: GroupRecord, runnable: Sequence[Arm]) -> GroupRecord:
        """Return a group that only selects, if some target has several settings to choose from; else the same."""
        from shootout.core.contract import family

        if len({family(arm.label) for arm in runnable}) == len(runnable):
            return record
        arms, baseline = tuple(arm for arm in record.arms if not arm.control), record.baseline
        return record.model_copy(update={"arms": arms, "baseline": None, "comparisons": 0, "selects_for": baseline})

    def open(self, built: Built, sessions: Sequence[Session], _seed: int) -> Caller:
        """Return what calls with all sessions at once."""
        return open_instances(built, sessions)

    def terms(self, record: GroupRecord, _options: object, _served: object, _restart_s: float) -> Terms:
        """Return successive halving for a group that looks for the best settings."""
        from shootout.scenarios.halving import survivors

        return Terms(rule=survivors if record.selects_for is not None else None)

    def find_next_group(self, record: GroupRecord, blocks: Mapping[str, Mapping[int, Array]]) -> GroupRecord | None:
        """Return the group that measures the best settings again."""
        from shootout.scenarios.halving import confirmation

        return confirmation(record, blocks)
