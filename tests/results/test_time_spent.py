"""Where the seconds of a run went, of runs that tell each step and of older ones."""

from __future__ import annotations

import pytest
from support.races.made import GROUP

from shootout.core.journal.records import Ended, Rounds
from shootout.tell.notes import find_time_spent, tell_time


def rounds(wall_s: float, **spent_s: float) -> Rounds:
    return Rounds(group=GROUP, restart=0, tried=1, voided=(), wall_s=wall_s, spent_s=spent_s)


def ended(wall_s: float, planning_s: float = 0.0) -> Ended:
    return Ended(complete=True, why="a test", wall_s=wall_s, planning_s=planning_s)


def test_steps_are_added_up_over_restarts_and_processes():
    lines = [
        rounds(10.0, load=6.0, rounds=3.0),
        ended(30.0, 2.0),
        rounds(8.0, load=5.0, rounds=2.5, hand_off=0.25),
        ended(9.0, 1.0),
    ]
    found = find_time_spent(lines)
    assert list(found) == ["planning", "preparing", "load", "rounds", "hand_off", "racing"]
    assert found == pytest.approx(
        {"planning": 3.0, "preparing": 21.0, "load": 11.0, "rounds": 5.5, "hand_off": 0.25, "racing": 1.25}
    )
    assert tell_time(found) == [
        "Where the time went: planning 3.0 s, exports and builds 21.0 s, loading 11.0 s, rounds 5.5 s, hand-off 0.2 s, "
        "the rest of the race 1.2 s."
    ]


def test_a_run_that_was_killed_owes_nothing():
    assert find_time_spent([rounds(10.0, load=6.0)]) == pytest.approx({"load": 6.0, "racing": 4.0})
    assert find_time_spent([]) == {}
    assert tell_time({}) == []


def test_a_restart_to_come_does_not_wait_again_for_a_target_that_hung():
    found = rounds(40.0, load=6.0, hung=30.0)
    assert found.lasting_s == 10.0
    assert tell_time(find_time_spent([found])) == [
        "Where the time went: loading 6.0 s, waiting for targets that hung 30.0 s, the rest of the race 4.0 s."
    ]
