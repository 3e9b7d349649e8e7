"""Read the clock. No other file does, so every time in this package has one scope, one unit and one source."""

from __future__ import annotations

import gc
import math
import resource
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import repeat
from typing import Any

now_ns = time.perf_counter_ns
"""Return monotonic nanoseconds; only their differences mean something."""
sleep = time.sleep
"""Wait for so many seconds; the CPU is free meanwhile."""
RARE_OBJECTS = 50_000
"""The number of new objects between two garbage collections: at most about 10 MB of them."""

ONE_ARM_SHARE = 0.5
_SCHEDULED = 2
"""The kind of a process's clock that counts the time for which it ran (CPUCLOCK_SCHED)."""

Call = Callable[[int], object]
"""Runs the model once on the input buffer with this index; its result is materialized on return."""


def utc_now() -> str:
    """Return the date and time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Stopwatch:
    """`with Stopwatch() as watch: ...` then `watch.seconds`; for set-up work, never for the calls under test.

    Attributes:
        began_ns, ended_ns: its two readings of the clock. All processes of a machine read the same one.
    """

    def __enter__(self) -> Stopwatch:
        self.began_ns = now_ns()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended_ns = now_ns()
        self.seconds = (self.ended_ns - self.began_ns) / 1e9


class Deadline:
    """Mark a point in time `seconds` from now; None never comes. `waited_s`: the seconds by which it was put off."""

    def __init__(self, seconds: float | None) -> None:
        self._began = now_ns()
        self.seconds = seconds
        self.waited_s = 0.0

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since it was set."""
        return (now_ns() - self._began) / 1e9

    @property
    def left_s(self) -> float:
        """Return the seconds until it comes; inf if it never does."""
        return math.inf if self.seconds is None else self.seconds - self.elapsed_s

    def put_off(self, seconds: float) -> None:
        """Let it come so many seconds later: these were not the work that it limits."""
        self._began += round(seconds * 1e9)
        self.waited_s += seconds

    def allows(self, seconds: float) -> bool:
        """Return whether work of about `seconds` still ends before it."""
        return seconds <= self.left_s

    def part(self, share: float = 1.0) -> Deadline:
        """Return a deadline after this share of the seconds left, at once if none are left."""
        return Deadline(None if self.seconds is None else max(0.0, share * self.left_s))

    def one_arm_s(self, takes_s: float = 0.0) -> float:
        """Return the most seconds that one arm may take of a step that ends then, so that the other arms get the rest.

        Args:
            takes_s: the foreseen seconds; the arm may take twice as long, if so much is left.
        """
        return min(self.left_s, max(ONE_ARM_SHARE * self.left_s, 2 * takes_s))


def cpu_ns(pid: int) -> int | None:
    """Return the CPU time that a process used so far, ended threads included; None if the system doesn't tell.

    Linux has a clock for every process (man 2 clock_gettime): in nanoseconds, while /proc/PID/stat counts 10 ms.

    Args:
        pid: of any process; 0 for this one.
    """
    if sys.platform != "linux":
        return None
    try:
        return time.clock_gettime_ns((~pid << 3) | _SCHEDULED)
    except OSError:  # it has gone, or a sandbox hides it
        return None


def spent_cpu_ns() -> int | None:
    """Return the CPU time that this process used so far, and those that it started and saw end (man 2 getrusage).

    None if the system doesn't tell. A process that it never waits for is missing.
    """
    own_ns, ended = cpu_ns(0), resource.getrusage(resource.RUSAGE_CHILDREN)
    return None if own_ns is None else own_ns + round(1e9 * (ended.ru_utime + ended.ru_stime))


def rare_collector() -> None:
    """Collect garbage rarely from now on.

    Importing a library and taking a model apart make millions of objects that stay. Python would scan them at every 700
    new ones, which is up to a fifth of a build's time.
    """
    gc.set_threshold(RARE_OBJECTS, *gc.get_threshold()[1:])


def quiet_collector() -> None:
    """Collect garbage now, and none by itself from now on, so that no scan lands in a reading.

    What survives is frozen: later calls look at new objects only. A full scan of a framework takes 0.1 s and empties
    the caches.
    """
    gc.disable()
    gc.collect()
    gc.freeze()


@contextmanager
def collected_once() -> Iterator[None]:
    """Collect no garbage inside, and all of it at the end; then the collector goes on as before.

    For loads: what a framework makes stays, so each of many scans of it finds nothing. What survives is frozen, as
    by `quiet_collector`, or the next collection would scan it again.
    """
    with never_collected():
        try:
            yield
        finally:
            gc.collect()


@contextmanager
def never_collected() -> Iterator[None]:
    """Collect no garbage inside, and freeze all that is there at the end; then the collector goes on as before.

    For imports alone. Torch leaves 250,000 objects that stay and 7,000 that don't, too small to give a page back. To
    find these took 0.13 s of CPU time, and 0.18 s behind Inductor's imports, in each restart.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def lead_in(call: Call, buffers: int, *, calls: int, ns: int) -> None:
    """Run `call` untimed until `calls` calls or `ns` nanoseconds, whichever is first; at least once."""
    began = now_ns()
    for index in range(calls):
        call(index % buffers)
        if now_ns() - began >= ns:
            return


def read_block(
    call: Call, buffers: int, readings: array[int], *, per_reading: int, block_ns: int, min_calls: int
) -> int:
    """Time calls one by one until the block has lasted `block_ns` and counted `min_calls`.

    Args:
        call: what to time; it gets the buffer index, which rotates over `buffers`.
        readings: preallocated 64-bit integers ("q"); receives nanoseconds per reading. A full array ends the block.
        per_reading: calls inside one bracket (k), more than 1 if a call is too short to read alone.

    Returns:
        How many readings were written.
    """
    if per_reading > 1:
        call = repeated(call, buffers, per_reading)
    clock = now_ns
    capacity = len(readings)
    enough = -(-min_calls // per_reading)
    count = buffer = 0
    block_began = clock()
    while count < capacity:
        began = clock()
        call(buffer)
        ended = clock()
        readings[count] = ended - began
        count += 1
        buffer = buffer + 1 if buffer + 1 < buffers else 0
        if ended - block_began >= block_ns and count >= enough:
            break
    return count


def repeated(call: Call, buffers: int, times: int) -> Call:
    """Return one call that makes `times` calls, going on through the buffers from where the last one stopped."""
    position = -1

    def several(_buffer: int) -> None:
        nonlocal position
        buffer = position
        for _ in repeat(None, times):
            buffer = buffer + 1 if buffer + 1 < buffers else 0
            call(buffer)
        position = buffer

    return several


def read_steps(steps: Sequence[tuple[str, Callable[[Any], Any]]], given: Any) -> tuple[tuple[str, int, int], ...]:
    """Run steps one after the other, each on what the one before returned.

    Returns:
        For each step its name and when it began and ended, in nanoseconds.
    """
    found = []
    for name, step in steps:
        began = now_ns()
        given = step(given)
        found.append((name, began, now_ns()))
    return tuple(found)


def seconds_to_call(call: Call, buffer: int) -> float:
    """Time one call in seconds, for first-call figures and rough estimates."""
    with Stopwatch() as watch:
        call(buffer)
    return watch.seconds
