"""As many items as fit into a second of wall time, of several sessions at once."""

from __future__ import annotations

from shootout.core.scenario import Opened, Scenario
from shootout.core.worker.blocks import Caller
from shootout.scenarios.concurrent import open_instances


class Throughput(Scenario):
    """Sessions that call as fast as they can at once. Each target's best batch and number of sessions is looked for."""

    name = "throughput"
    measures = "items a second, of several sessions at once"
    options = frozenset({"instances"})
    spreads_batch = selects = True
    fills_turns = is_foreseen = is_by_call = False

    def open(self, opened: Opened) -> Caller:
        """Return what calls with all sessions at once."""
        return open_instances(opened)
