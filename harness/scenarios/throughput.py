"""As many items as fit into a second of wall time, of several sessions at once."""

from __future__ import annotations

from shootout.core.scenario import Scenario


class Throughput(Scenario):
    """Sessions that call as fast as they can at once. Each target's best batch and number of sessions is looked for."""

    name = "throughput"
    measures = "items a second, of several sessions at once"
    options = frozenset({"instances"})
    spreads_batch = selects = True
    is_called_alone = is_by_call = False
