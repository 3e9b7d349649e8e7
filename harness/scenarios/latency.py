"""One call after the other, each on the next of a few inputs."""

from __future__ import annotations

from typing import ClassVar

from shootout.core.scenario import Scenario, StudyOption

CHUNK = StudyOption(
    help="how long the input of one call lasts, for the real-time factor.",
    above=0.0,
    most=1e9,
    unit="ms",
    flag="--chunk",
    use="is compared with the time of one call",
    is_dropped=False,
)


class Latency(Scenario):
    """One call after the other: the time of a call, end to end and of its computing alone."""

    name = "latency"
    measures = "the time of a call, end to end and of its computing alone"
    options: ClassVar = {"chunk_ms": CHUNK}
