"""What a person reads of a ranking that changes under sustained load."""

from __future__ import annotations

from support.races.cells import row

from shootout.core.stats.verdicts import Verdict
from shootout.tell.document import Change, OverTime, Ranking, Ratio, Row
from shootout.tell.over_time import tell_over_time

A, B = "a:cpu:fp32", "b:cpu:fp32"


def ratio(value: float, low: float, high: float, verdict: Verdict) -> Ratio:
    return Ratio(value=value, low=low, high=high, verdict=verdict, restarts_needed=None, sd=0.01, restarts=3)


STEADY = ratio(1.0, 0.99, 1.01, Verdict.CANT_TELL)
SLOWS = ratio(1.31, 1.25, 1.38, Verdict.SLOWER)
CHANGE = Change(
    faster=A, slower=B, first=ratio(0.8, 0.75, 0.85, Verdict.FASTER), end=ratio(1.12, 1.06, 1.18, Verdict.SLOWER)
)


def timed(arm: str, change: Ratio, turn_s: float = 300.0, **sensors: float) -> Row:
    over_time = OverTime(turn_s=turn_s, window_s=min(60.0, turn_s / 3), first_ns=1e6, change=change, **sensors)
    return row(arm, 1e6, scenario="sustained", over_time=over_time)


def told(ranking: Ranking | None, *rows: Row, ships: str | None = None) -> list[str]:
    return [*tell_over_time(ranking, rows, ships)]


def test_a_change_is_told_with_both_intervals_and_who_slows_down():
    lines = told(Ranking(first=(A, B), end=(B, A), changes=(CHANGE,)), timed(A, SLOWS), timed(B, STEADY))
    assert lines[:3] == [
        "the ranking changes: a is 1.25x faster than b (1.18 to 1.33) in the first 60 s of a turn",
        "in the last 60 s it is 1.12x slower (1.06 to 1.18)",
        "a is 1.31x slower (1.25 to 1.38) in the last 60 s of its turns than in the first",
    ]
    assert lines[3] == "a turn is 5 min of calls without a pause, or longer"


def test_a_ranking_that_holds_says_so_and_a_turn_of_a_minute_has_shorter_ends():
    lines = told(Ranking(first=(A, B), end=(A, B)), timed(A, STEADY, turn_s=60.0), timed(B, STEADY))
    assert lines[:2] == [
        "no change of the ranking is significant, and a measured fastest in the first and last 20 s",
        "no target is significantly slower or faster in the last 20 s of its turns than in the first",
    ]


def test_an_order_that_only_measured_otherwise_is_not_told_as_a_change():
    first, *_ = told(Ranking(first=(A, B), end=(B, A)), timed(A, STEADY), timed(B, STEADY))
    assert first == "a measured fastest in the first 60 s of a turn and b in the last, but not significantly"


def test_without_a_significant_change_that_of_the_shipped_one_and_the_largest_are_told():
    open_ = ratio(1.12, 0.94, 1.34, Verdict.CANT_TELL)
    even = ratio(1.0, 0.994, 1.006, Verdict.SAME)
    rows = timed(A, STEADY), timed(B, open_)
    ranking = Ranking(first=(A, B), end=(A, B))
    largest = "in the last 60 s b measured about 1.1x slower than in the first, open"
    steady = "in the last 60 s a measured about as fast as in the first, open"
    assert told(ranking, *rows)[2:-2] == [largest]
    assert told(ranking, *rows, ships=B)[2:-2] == [largest], "once if it is the same"
    assert told(ranking, *rows, ships=A)[2:-2] == [steady, largest]
    same = "in the last 60 s a measured as fast as in the first (within 0.6 %)"
    assert told(ranking, timed(A, even), rows[1], ships=A)[2] == same
    assert not [line for line in told(ranking, timed(A, SLOWS), rows[1], ships=B) if "measured 1" in line]


def test_sensors_are_told_where_there_are_any():
    silent, sensed = timed(A, STEADY), timed(B, STEADY, mhz_first=3_400.4, mhz_end=2_100.2, celsius_first=45.0)
    ranking = Ranking(first=(A, B), end=(A, B))
    assert told(ranking, silent)[-1] == "the machine tells no clock frequency or temperature"
    assert told(ranking, silent, sensed)[-1] == "from first to last: CPU 3400 to 2100 MHz"
