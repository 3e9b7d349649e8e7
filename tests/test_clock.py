"""The bracket, the block and the rotation of buffers, on a clock that only moves when a call says so."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from array import array

import pytest

from shootout.core.clock import RARE_OBJECTS, Deadline, cpu_ns, lead_in, rare_collector, read_block


class FakeClock:
    """Time passes inside calls only; `events` keeps the order of clock readings and calls."""

    def __init__(self, call_ns: int) -> None:
        self.time_ns, self.call_ns = 1_000, call_ns
        self.events: list[str | int] = []

    def now_ns(self) -> int:
        self.events.append("clock")
        return self.time_ns

    def call(self, buffer: int) -> None:
        self.events.append(buffer)
        self.time_ns += self.call_ns

    @property
    def buffers(self) -> list[int]:
        return [event for event in self.events if isinstance(event, int)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    fake = FakeClock(call_ns=100)
    monkeypatch.setattr("shootout.core.clock.now_ns", fake.now_ns)
    return fake


def read(
    clock: FakeClock, *, buffers: int = 3, capacity: int = 50, k: int = 1, ns: int = 0, calls: int = 1
) -> list[int]:
    readings = array("q", bytes(8 * capacity))
    count = read_block(clock.call, buffers, readings, per_reading=k, block_ns=ns, min_calls=calls)
    return readings[:count].tolist()


def test_nothing_but_the_call_stands_between_the_two_clock_readings(clock: FakeClock):
    assert read(clock, calls=3) == [100, 100, 100]
    assert clock.events == ["clock", *["clock", 0, "clock"], *["clock", 1, "clock"], *["clock", 2, "clock"]]


def test_buffers_rotate(clock: FakeClock):
    read(clock, calls=7)
    assert clock.buffers == [0, 1, 2, 0, 1, 2, 0]


def test_a_block_ends_when_it_is_both_long_and_full_enough(clock: FakeClock):
    assert len(read(clock, ns=1_000, calls=2)) == 10
    assert len(read(clock, ns=150, calls=5)) == 5
    assert len(read(clock, ns=0, calls=1)) == 1


def test_a_full_array_ends_the_block(clock: FakeClock):
    assert len(read(clock, capacity=4, ns=10**9)) == 4


def test_k_calls_share_a_reading_and_go_on_through_all_buffers(clock: FakeClock):
    assert read(clock, k=4, calls=12) == [400, 400, 400]
    assert clock.buffers == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]


def test_a_lead_in_ends_at_its_calls_or_its_time(clock: FakeClock):
    lead_in(clock.call, 2, calls=3, ns=10**9)
    assert clock.buffers == [0, 1, 0]
    lead_in(clock.call, 2, calls=100, ns=150)
    assert clock.buffers == [0, 1, 0, 0, 1]
    lead_in(clock.call, 2, calls=3, ns=0)
    assert len(clock.buffers) == 6


def test_a_deadline_counts_the_work_still_to_do(clock: FakeClock):
    deadline = Deadline(1e-6)
    assert deadline.allows(0.0)
    clock.call(0)
    assert deadline.allows(0.9e-6)
    assert not deadline.allows(1.1e-6)
    clock.time_ns += 1_000
    assert not deadline.allows(0.0)
    assert Deadline(None).allows(1e9)


def test_the_collector_goes_on_but_rarely():
    before = gc.get_threshold()
    try:
        rare_collector()
        assert gc.isenabled()
        assert gc.get_threshold() == (RARE_OBJECTS, *before[1:])
    finally:
        gc.set_threshold(*before)


def test_garbage_is_collected_once_and_then_as_before():
    """In a process of its own, too."""
    code = """
import gc, weakref
from shootout.core import clock
class Cycle:
    def __init__(self):
        self.own = self
with clock.collected_once():
    inside, lost = gc.isenabled(), weakref.ref(Cycle())
    lived = lost() is not None
print(inside, lived, lost() is None, gc.isenabled(), gc.get_freeze_count() > 0)
clock.quiet_collector()
with clock.collected_once():
    pass
print(gc.isenabled())
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["False", "True", "True", "True", "True", "False"]


def test_what_imports_leave_is_never_looked_at_again():
    """In a process of its own, too."""
    code = """
import gc, weakref
from shootout.core import clock
class Cycle:
    def __init__(self):
        self.own = self
with clock.never_collected():
    inside, kept = gc.isenabled(), weakref.ref(Cycle())
late = weakref.ref(Cycle())
print(inside, gc.isenabled(), gc.get_freeze_count() > 1000)
gc.collect()
print(kept() is not None, late() is None)
gc.disable()
with clock.never_collected():
    pass
print(gc.isenabled())
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["False", "True", "True", "True", "True", "False"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has clocks of other processes")
def test_the_cpu_time_of_a_process_is_its_own_account_of_it() -> None:
    assert sum(range(100_000))
    before, told, after = time.process_time_ns(), cpu_ns(os.getpid()), time.process_time_ns()
    assert told is not None
    assert before <= told <= after
    assert cpu_ns(2**22 + 1) is None, "no process has such a number"
