"""A worker's clock beside the harness's: what an honest arm shows on a busy machine, and what lies do."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.races import fakes

from shootout.core.constants import MIN_ROUNDS
from shootout.core.contract import Arm, Device
from shootout.core.errors import ArmFailed
from shootout.core.messages import SCOPES, TimeBin, Tuned, Turn
from shootout.core.race.live_arm import longer_than
from shootout.core.race.pace import RaceTime

MS = 1_000_000
BEGAN = 10**12


@dataclass
class Asked:
    """The harness's own readings around a turn."""

    began_ns: int
    ended_ns: int


def faults(
    read_ms: float,
    took_ms: float,
    *,
    turns: int = 12,
    began_ms: float = 1,
    ended_ms: float | None = None,
    per_reading: int = 5,
    **arm: Any,
) -> set[str]:
    """What is found in some turns of 10 readings per scope, whose calls come to `read_ms` in all.

    Args:
        began_ms: when each began by the worker's clock, counted from the harness's; likewise when it ended.
    """
    return faults_of([(read_ms, took_ms)] * turns, began_ms=began_ms, ended_ms=ended_ms, per_reading=per_reading, **arm)


def faults_of(
    turns_ms: Sequence[tuple[float, float]],
    *,
    began_ms: float = 1,
    ended_ms: float | None = None,
    per_reading: int = 5,
    device: Device = Device.CPU,
    **arm: Any,
) -> set[str]:
    """What is found in turns that differ, likewise."""
    mine, found = Arm(target=fakes.arm("a", device=device).target, model="m", **arm), set[str]()
    live = fakes.live_arm(mine, tuned=Tuned(per_reading=dict.fromkeys(SCOPES, per_reading), call_ns={}))
    for number, (read_ms, took_ms) in enumerate(turns_ms):
        began = BEGAN + number * 10**9
        ended = began + int((took_ms - 1 if ended_ms is None else ended_ms) * MS)
        latency_ns = {scope: np.full(10, read_ms * MS / 2 / 10 / per_reading) for scope in SCOPES}
        turn = Turn(latency_ns=latency_ns, began_ns=began + int(began_ms * MS), ended_ns=ended)
        asked: Any = Asked(began, began + int(took_ms * MS))
        found.add(live.find_clock_fault(turn, asked))
    return found


@pytest.mark.parametrize(
    ("read_ms", "took_ms", "began_ms", "device"),
    [
        (20, 25, 1, Device.CPU),
        (20, 25, 0, Device.CPU),
        (20, 60, 30, Device.CPU),
        (2_000, 4_000, 1, Device.CPU),
        (20, 90, 1, Device.CUDA),
    ],
    ids=["a quiet machine", "at once", "a busy one", "long calls", "a GPU's lead-in"],
)
def test_an_honest_arm_passes(read_ms: float, took_ms: float, began_ms: float, device: Device):
    assert faults(read_ms, took_ms, began_ms=began_ms, device=device) == {""}


@pytest.mark.parametrize(
    ("read_s", "fault"), [(5.9, ""), (6.5, "its calls come to 6.5 s by its own clock, and to 6 s by the harness's")]
)
def test_bins_of_a_long_turn_come_to_no_more_than_the_turn(read_s: float, fault: str):
    mine = Arm(target=fakes.arm("a").target, model="m", scenario="sustained")
    bins = (TimeBin(at_s=0.0, seconds=read_s / 2, calls=9), TimeBin(at_s=3.0, seconds=read_s / 2, calls=9))
    turn = Turn(latency_ns={}, bins=bins, began_ns=BEGAN, ended_ns=BEGAN + 6_000 * MS)
    asked: Any = Asked(BEGAN, BEGAN + 6_000 * MS)
    assert fakes.live_arm(mine).find_clock_fault(turn, asked).partition(":")[0] == fault


def test_the_best_of_all_turns_counts():
    turns = [(20, 400)] * 3 + [(20, 25)] + [(20, 400)] * 8
    assert faults_of(turns) == {""}


def test_one_turn_that_was_held_up_proves_nothing():
    assert faults(20, 10_000, turns=MIN_ROUNDS - 1) == {""}


def test_a_clock_that_runs_slowly_is_behind():
    (fault,) = faults(20, 400, began_ms=-5_000, ended_ms=-4_980)
    assert fault.startswith("its clock is 5 s behind the harness's: something in its process")


def test_a_clock_that_runs_fast_is_ahead():
    (fault,) = faults(20, 25, began_ms=1, ended_ms=60)
    assert fault.startswith("its clock is 35 ms ahead of the harness's")


def test_calls_can_t_take_longer_than_their_turn():
    (fault,) = faults(60, 25)
    assert fault.startswith("its calls come to 60 ms by its own clock, and to 25 ms by the harness's")


def test_a_clock_that_runs_slowly_within_calls_leaves_turns_unexplained():
    found = faults(20, 400)
    assert len(found - {""}) > 0
    assert all(f.startswith("its calls come to at most 5% of its ") for f in found - {""})


def test_a_clock_six_times_too_slow_within_calls_is_found_on_a_cpu():
    """An honest turn of 25 ms has 20 ms of calls: now they take 120 ms, and are read as 20 ms."""
    found = faults(20, 125) - {""}
    assert found
    assert all(fault.startswith("its calls come to at most 16% of its ") for fault in found)


def test_calls_that_are_read_alone_come_to_no_more_than_the_harness_waited():
    asked: Any = Asked(BEGAN, BEGAN + 10 * MS)
    assert longer_than(10 * MS, asked) == ""
    assert longer_than(12 * MS, asked).startswith("its calls come to 12 ms by its own clock, and to 10 ms by the harn")


def test_an_arm_whose_single_calls_take_longer_than_the_harness_waited_fails():
    stage: Any = SimpleNamespace(time=RaceTime())
    built: Any = SimpleNamespace(arm=fakes.arm("a"))
    for call_ns, fails in [(1.0, False), (3.6e12, True)]:
        process: Any = SimpleNamespace(ask=lambda *_, told=call_ns, **__: np.array([told]))
        player = fakes.Answering(process, built, stage, first=False)
        with pytest.raises(ArmFailed, match="by its own clock") if fails else nullcontext():
            player.warm(1, 1)


@pytest.mark.parametrize("arm", [{"scenario": "throughput"}, {"scenario": "serve"}])
def test_readings_that_do_not_make_up_a_turn_are_not_added_up(arm: dict[str, Any]):
    assert faults(1, 400, **arm) == {""}
    assert any("behind" in one for one in faults(1, 400, began_ms=-100, **arm))
