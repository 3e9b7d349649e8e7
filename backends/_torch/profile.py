"""Torch's own profiler as trace events: every ATen operation, and on CUDA every kernel."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shootout.contract import Device
from shootout.trace_events import Event

OURS = frozenset({"cpu_op", "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "user_annotation"})
"""Kinds of events that are the model's; the rest is the profiler's."""


def profile(call: Callable[[], object], calls: int, device: Device) -> list[Event]:
    """The events of `calls` calls under the profiler; one more before it, since starting it slows the first."""
    import torch

    kinds: Any = torch.profiler.ProfilerActivity
    wanted = [kinds.CPU, kinds.CUDA] if device is Device.CUDA else [kinds.CPU]
    call()
    with torch.profiler.profile(activities=wanted) as profiler:
        for _ in range(calls):
            call()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return [event for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") in OURS]
