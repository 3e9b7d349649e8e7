"""Requests that arrive by themselves, at a given rate or at the highest whose p99 holds a limit (see `load_search`)."""

from __future__ import annotations

from shootout.core.messages import Scope
from shootout.core.scenario import Scenario


class Serve(Scenario):
    """Requests that arrive by themselves and wait for a free session."""

    name = "serve"
    measures = "the latencies of requests that arrive by themselves"
    options = frozenset({"instances", "rate", "p99_limit_ms", "enough_rate"})
    scopes = (Scope.END_TO_END,)
    is_called_alone = is_by_call = False
