"""One call after the other, each on the next of a few inputs."""

from __future__ import annotations

from shootout.core.scenario import Scenario


class Latency(Scenario):
    """One call after the other: the time of a call, end to end and of its computing alone."""

    name = "latency"
    measures = "the time of a call, end to end and of its computing alone"
    options = frozenset({"chunk_ms"})
