"""A GPU and its session without either: work is queued, takes its time once it is waited for, and is noted down."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from shootout.backends.devices.cuda import UsedGpu
from shootout.core import clock
from shootout.core.adapter import GpuSide
from shootout.core.contract import Arrays, Executed
from shootout.core.messages import GpuState

COPY_NS, QUEUE_NS, KERNELS_NS, FETCH_NS = 9_000, 8_000, 21_000, 7_000
STAGE_NS = 1_000
"""What `stage` costs the host; QUEUE_NS likewise of `execute`."""
IDLE_W, CALL_MJ = 75, 5
CONTEXT_BYTES, MODEL_BYTES, OTHERS_BYTES = 500, 30, 7_000
EXECUTED = Executed(library="queued", version="0", device="cuda", threads=None, compute_nodes_by_precision={"fp32": 1})


@dataclass
class Device:
    """Time, a queue and counters; `log` holds what was asked of the session, in order."""

    now_ns: int = 0
    used_bytes: int | None = OTHERS_BYTES
    power_w: float | None = float(IDLE_W)
    calls: int = 0
    log: list[str] = field(default_factory=list)
    queue: list[tuple[str, int]] = field(default_factory=list)

    def drain(self) -> None:
        """Do what is queued."""
        for what, ns in self.queue:
            self.now_ns += ns
            self.calls += what == "kernels"
        self.queue.clear()

    def sleep(self, seconds: float) -> None:
        assert not self.queue, "idle power is read while something runs"
        self.now_ns += round(seconds * 1e9)

    def make_context(self) -> None:
        self.log.append("context")
        self.now_ns += 3 * 10**8
        if self.used_bytes is not None:
            self.used_bytes += CONTEXT_BYTES


class Session:
    """All that a session on a GPU may have. Its outputs are its inputs."""

    executed = EXECUTED

    def __init__(self, device: Device) -> None:
        self.device = device
        if device.used_bytes is not None:
            device.used_bytes += MODEL_BYTES

    def stage(self, inputs: Arrays, slot: int) -> Any:
        self._asks("stage", STAGE_NS)
        self.device.queue.append(("copy", COPY_NS))
        return slot, inputs

    def execute(self, staged: Any) -> Any:
        self._asks("execute", QUEUE_NS)
        self.device.queue.append(("kernels", KERNELS_NS))
        return staged

    def synchronize(self) -> None:
        self._asks("synchronize", 0)
        self.device.drain()

    def fetch(self, raw: Any) -> Arrays:
        assert not self.device.queue, "fetched before the device was done"
        self._asks("fetch", FETCH_NS)
        _, inputs = raw
        return {name: array.copy() for name, array in inputs.items()}

    def close(self) -> None:
        self._asks("close", 0)

    @property
    def gpu(self) -> GpuSide | None:
        return GpuSide(copies="pinned", event_ns=self.event_ns, allocator=self.allocator)

    def event_ns(self, staged: Any, calls: int) -> list[float]:
        assert not self.device.queue, "something else would run between the events"
        self._asks(f"events {calls}", 0)
        return [KERNELS_NS + index for index in range(calls)]

    def allocator(self) -> tuple[int, int]:
        return 30, 44

    def _asks(self, what: str, host_ns: int) -> None:
        self.device.log.append(what)
        self.device.now_ns += host_ns


class Plain(Session):
    """A session that tells nothing of its device."""

    @property
    def gpu(self) -> GpuSide | None:
        return None


class Nvml:
    """What the driver tells of `device`."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def state(self) -> GpuState:
        self.device.log.append("state")
        return GpuState(sm_clock_mhz=1_980)

    def used_bytes(self) -> int | None:
        return self.device.used_bytes

    def free_bytes(self) -> int | None:
        return None

    def power_w(self) -> float | None:
        return self.device.power_w

    def energy_mj(self) -> int | None:
        """The idle power all the time, and CALL_MJ more a call."""
        return round(self.device.now_ns * IDLE_W / 1e6) + CALL_MJ * self.device.calls


def plugged_in(patch: pytest.MonkeyPatch, device: Device, nvml: Nvml | None) -> None:
    """From now on the harness's clock is this device's, and its driver and contexts are these."""
    patch.setattr(clock, "now_ns", lambda: device.now_ns)
    patch.setattr(clock, "sleep", device.sleep)
    patch.setattr(clock, "quiet_collector", lambda: None)  # which is for a process that only measures
    patch.setattr(clock, "collected_once", nullcontext)
    patch.setattr("shootout.backends.devices.cuda.UsedGpu.open", lambda: nvml or UsedGpu(None, None, None))
    patch.setattr("shootout.backends.devices.cuda_driver.make_context", device.make_context)


def inputs(count: int) -> list[dict[str, np.ndarray]]:
    return [{"x": np.full((1, 4), float(index), np.float32)} for index in range(count)]
