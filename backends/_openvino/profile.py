"""How long each node takes, by OpenVINO's own counters.

They give the mean over all calls of a compiled model, each call cut down to whole microseconds. So the first calls,
which make and warm the kernels, are subtracted; and of a model whose nodes are too short for the counters no time is
given at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from shootout.contract import Arrays
from shootout.trace_events import Event, in_a_row

WARM_CALLS = 5
CALLS = range(5, 101)
"""At least and at most so many are profiled, by how long the first one takes."""
BUDGET_US = 1_000_000
FINEST_US = 10
"""Nodes must take this on the average: what is cut off is then a tenth at most."""


def node_ns(compiled: Any, inputs: Arrays) -> dict[str, float]:
    """Nanoseconds of each node in one call; empty where the counters are too coarse.

    Args:
        compiled: made with PERF_COUNT, not yet run.
        inputs: one input set.
    """
    request = compiled.create_infer_request()
    request.infer(dict(inputs))
    first = _means_us(request)
    calls = min(CALLS[-1], max(CALLS[0], BUDGET_US // max(1, sum(first.values()))))
    before = _after(request, WARM_CALLS - 1, WARM_CALLS)
    total = _after(request, calls, WARM_CALLS + calls)
    found = {name: max(0.0, us - before.get(name, 0)) / calls for name, us in total.items()}
    if sum(found.values()) < FINEST_US * len(first):
        return {}
    return {name: us * 1e3 for name, us in found.items()}


def profile(compiled: Any, inputs: Arrays) -> list[Event]:
    """One call's nodes in the order in which they run, each as long as it takes on the average of some calls.

    Args:
        compiled: made with PERF_COUNT.
        inputs: one input set.
    """
    request = compiled.create_infer_request()
    for _ in range(1 + CALLS[0]):
        request.infer(dict(inputs))
    ran = [one for one in request.profiling_info if one.status.name == "EXECUTED"]
    return in_a_row([(one.node_type, one.real_time.total_seconds() * 1e6) for one in ran], 0.0, track="openvino")


def _after(request: Any, calls: int, so_far: int) -> dict[str, float]:
    """Microseconds of each node since the model was compiled, after some more calls (`so_far` with them)."""
    for _ in range(calls):
        request.infer()
    return {name: us * so_far for name, us in _means_us(request).items()}


def _means_us(request: Any) -> Mapping[str, int]:
    found = Counter[str]()
    for one in request.profiling_info:
        found[one.node_name] += one.real_time.microseconds + 1_000_000 * one.real_time.seconds
    return Counter({name: us for name, us in found.items() if us})
