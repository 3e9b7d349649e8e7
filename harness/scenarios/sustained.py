"""Long turns, without a pause between calls: how the time of a call changes while the machine grows hot."""

from __future__ import annotations

from shootout.core.messages import Scope
from shootout.core.scenario import Scenario


class Sustained(Scenario):
    """One call after the other, for minutes (see `over_time`)."""

    name = "sustained"
    measures = "the time of a call at the beginning and at the end of long turns"
    options = frozenset({"chunk_ms", "sustained_s"})
    scopes = (Scope.END_TO_END,)
