"""JAX's own profiler as trace events: what the runtime does around and inside an executable."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shootout.trace_events import Event

MARK = "end: "
"""XLA marks where a kernel ended with an event of no length."""
COUNTED = "counted calls"
"""Our own event around the calls to tell of."""
FINEST = 3
"""The host tracer's level that also tells each kernel of the CPU's executor."""


def profile(call: Callable[[], object], calls: int) -> list[Event]:
    """The events of `calls` calls under the profiler; not those of one more before them, which its start slows."""
    import jax

    options: Any = jax.profiler.ProfileOptions()
    options.python_tracer_level, options.host_tracer_level = 0, FINEST
    call()
    with tempfile.TemporaryDirectory() as place:
        with jax.profiler.trace(place, profiler_options=options):
            call()
            with jax.profiler.TraceAnnotation(COUNTED):
                for _ in range(calls):
                    call()
        (path,) = Path(place).rglob("*.trace.json.gz")
        found: list[Event] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    (counted,) = [event for event in found if event.get("name") == COUNTED]
    return [event for event in found if event.get("ts", 0) > counted["ts"] and not event["name"].startswith(MARK)]
