"""A worker's clock beside the harness's: what an honest arm shows on a busy machine, and what lies do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from support.races import fakes

from shootout.constants import MIN_ROUNDS
from shootout.contract import Arm, Scenario
from shootout.messages import Scope, Turn
from shootout.race.clock_check import ClockCheck

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
    mine, check, found = Arm(target=fakes.arm("a").target, model="m", **arm), ClockCheck(), set[str]()
    for number in range(turns):
        began = BEGAN + number * 10**9
        ended = began + int((took_ms - 1 if ended_ms is None else ended_ms) * MS)
        latency_ns = {scope: np.full(10, read_ms * MS / 2 / 10 / per_reading) for scope in Scope}
        turn = Turn(latency_ns=latency_ns, began_ns=began + int(began_ms * MS), ended_ns=ended)
        asked: Any = Asked(began, began + int(took_ms * MS))
        found.add(check.find_fault(mine, turn, asked, dict.fromkeys(Scope, per_reading)))
    return found


@pytest.mark.parametrize(
    ("read_ms", "took_ms", "began_ms"),
    [(20, 25, 1), (20, 25, 0), (20, 190, 150), (2_000, 4_000, 1), (20, 90, 1)],
    ids=["a quiet machine", "at once", "a busy one", "long calls", "a GPU's lead-in"],
)
def test_an_honest_arm_passes(read_ms: float, took_ms: float, began_ms: float):
    assert faults(read_ms, took_ms, began_ms=began_ms) == {""}


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


@pytest.mark.parametrize("arm", [{"scenario": Scenario.THROUGHPUT}, {"scenario": Scenario.SERVE}, {"cold_l2": True}])
def test_readings_that_do_not_make_up_a_turn_are_not_added_up(arm: dict[str, Any]):
    assert faults(1, 400, **arm) == {""}
    assert any("behind" in one for one in faults(1, 400, began_ms=-100, **arm))
