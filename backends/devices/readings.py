"""Read what only a GPU tells of an arm, beside its verdict: context, steps of a call, events, memory, energy.

Runs in the worker, before the first timed call or after the last. Nothing of it enters a verdict: those come from the
host's clock with the device waited for, for GPUs as for CPUs.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from statistics import fmean, median
from typing import Any, TypeVar

from shootout.backends.devices.cuda import UsedGpu, compute_growth
from shootout.core import clock
from shootout.core.adapter import GpuSide, Session
from shootout.core.constants import LEAD_IN_CALLS, LEAD_IN_NS
from shootout.core.contract import Arrays
from shootout.core.errors import ArmFailed, explained
from shootout.core.messages import Energy, OnGpu

T = TypeVar("T")
CALLS = 30
LONGEST_S = 0.5
FEWEST = 3
"""A figure rests on so many calls; on fewer, but not on less than `FEWEST`, where they take longer than `LONGEST_S`."""
IN_A_ROW = 4
"""Calls put between events at a time."""
SETTLE_S = 1.0
"""Before idle power is read: drivers report the mean over up to a second, which must not hold earlier calls."""
IDLE_S = 1.0
IDLE_SAMPLES = 20
BUSY_S = 0.3
"""Calls that come before the first reading of the energy counter: what it shows lags behind a little."""


def read_gpu(session: Session, buffers: Sequence[Arrays], *, unsynchronized: bool, energy_s: float) -> OnGpu:
    """Look at a loaded session's calls from the device's side.

    Args:
        buffers: input sets to rotate through.
        unsynchronized: also see what a timer shows that doesn't wait for the device.
        energy_s: seconds of calls for the energy of one; 0: leave it out.

    What can't be told, since the session or the driver doesn't or since telling broke, is None; the latter is in
    `faults`.
    """
    readings = _Readings(session, buffers)
    clock.lead_in(readings.call, len(buffers), calls=LEAD_IN_CALLS, ns=LEAD_IN_NS)
    stage_ns, compute_ns, fetch_ns = readings.steps_ns()
    side, faults = session.gpu or GpuSide(), list[str]()
    event_ns = _try_reading(faults, "events", partial(readings.event_ns, side.event_ns)) if side.event_ns else None
    energy = _try_reading(faults, "energy", lambda: readings.energy(energy_s)) if energy_s else None
    held = _try_reading(faults, "allocator", partial(_read_allocator, side.allocator)) if side.allocator else None
    return OnGpu(
        stage_ns=stage_ns,
        compute_ns=compute_ns,
        fetch_ns=fetch_ns,
        event_ns=event_ns,
        dispatch_ns=readings.dispatch_ns() if unsynchronized else None,
        copies=str(side.copies),
        allocator_held_bytes=held[0] if held else None,
        allocator_peak_bytes=held[1] if held else None,
        energy=energy,
        faults=tuple(faults),
    )


def _try_reading(faults: list[str], what: str, ask: Callable[[], T]) -> T | None:
    """Read an optional part of a session. A part that breaks is noted in `faults`, and the measurement stays good."""
    try:
        return ask()
    except Exception as error:
        traceback.print_exc()
        faults.append(f"{what}: {explained(error)}")
        return None


def _read_allocator(ask: Callable[[], tuple[int, int]]) -> tuple[int, int]:
    held, peak = check_amounts(ask())
    return int(held), int(peak)


def check_amounts(given: Iterable[Any]) -> list[float]:
    """Return numbers that a session tells.

    Raises:
        ArmFailed: one is no finite amount, or negative.
    """
    try:
        numbers = [float(one) for one in given]
    except (TypeError, ValueError, OverflowError) as error:
        raise ArmFailed(f"it tells no amounts: {explained(error)}") from None
    if wrong := [one for one in numbers if not math.isfinite(one) or one < 0]:
        raise ArmFailed(f"{wrong[0]} is not an amount")
    return numbers


class _Readings:
    """The readings of one session."""

    def __init__(self, session: Session, buffers: Sequence[Arrays]) -> None:
        self._session, self._buffers = session, buffers

    def call(self, slot: int) -> Arrays:
        """Call end to end on an input buffer."""
        raw = self._session.execute(self._stage_inputs(slot))
        self._session.synchronize()
        return self._session.fetch(raw)

    def steps_ns(self) -> tuple[float, ...]:
        """Return the nanoseconds of staging, computing and fetching, waiting for the device after each."""
        calls_ns = []
        for slot in self._rotate_slots():
            read = clock.read_steps(self._list_steps(slot), self._buffers[slot])
            calls_ns.append([ended - began for _, began, ended in read])
        return tuple(float(median(step)) for step in zip(*calls_ns, strict=True))

    def dispatch_ns(self) -> float:
        """Return the nanoseconds until `execute` returns; the device is idle before each call."""
        calls_ns = []
        for slot in self._rotate_slots():
            staged = self._stage_inputs(slot)
            ((_, began, ended),) = clock.read_steps([("execute", self._session.execute)], staged)
            self._session.synchronize()
            calls_ns.append(ended - began)
        return float(median(calls_ns))

    def event_ns(self, read: Callable[[Any, int], list[float]]) -> float:
        """Return the nanoseconds of `execute` by the device's own clock."""
        told_ns = (ns for slot in self._rotate_slots() for ns in read(self._stage_inputs(slot), IN_A_ROW))
        return float(median(check_amounts(told_ns)))

    def energy(self, seconds: float) -> Energy | None:
        """Return the energy of calls end to end, one after the other; None if the driver doesn't count it."""
        gpu = UsedGpu.open()
        idle_w = _read_idle_w(gpu) if gpu.energy_mj() is not None else None
        if idle_w is None:
            return None
        self._keep_calling(BUSY_S)
        before = gpu.energy_mj()
        with clock.Stopwatch() as watch:
            calls = self._keep_calling(seconds)
        total_mj = compute_growth(before, gpu.energy_mj())
        if total_mj is None:
            return None
        return Energy(calls=calls, seconds=watch.seconds, total_mj=float(total_mj), idle_w=idle_w)

    def _list_steps(self, slot: int) -> list[tuple[str, Callable[[Any], Any]]]:
        session = self._session
        return [
            ("stage", self._wait_after(lambda inputs: session.stage(inputs, slot))),
            ("compute", self._wait_after(session.execute)),
            ("fetch", self._wait_after(session.fetch)),
        ]

    def _rotate_slots(self) -> Iterator[int]:
        """Yield buffers in rotation, one for each call that a figure rests on."""
        spent = clock.Deadline(LONGEST_S)
        for index in range(CALLS):
            if index >= FEWEST and not spent.allows(0.0):
                return
            yield index % len(self._buffers)

    def _stage_inputs(self, slot: int) -> Any:
        """Return a handle with its inputs on the device."""
        staged = self._session.stage(self._buffers[slot], slot)
        self._session.synchronize()
        return staged

    def _wait_after(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(given: Any) -> Any:
            result = step(given)
            self._session.synchronize()
            return result

        return run

    def _keep_calling(self, seconds: float) -> int:
        """Call for so many seconds; return the number of calls, of which the last ended after them."""
        over, calls = clock.Deadline(seconds), 0
        while over.allows(0.0):
            self.call(calls % len(self._buffers))
            calls += 1
        return calls


def _read_idle_w(gpu: UsedGpu) -> float | None:
    """Return the mean power in watts while nothing runs."""
    clock.sleep(SETTLE_S)
    samples = []
    for _ in range(IDLE_SAMPLES):
        samples.append(gpu.power_w())
        clock.sleep(IDLE_S / IDLE_SAMPLES)
    known_w = [watts for watts in samples if watts is not None]
    return fmean(known_w) if known_w else None
