"""What a person reads of a ranking that changes under sustained load."""

from __future__ import annotations

from support.kept_screen import hold
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


OPEN = ratio(1.12, 0.94, 1.34, Verdict.CANT_TELL)
EVEN = ratio(1.0, 0.994, 1.006, Verdict.SAME)
HOLDS = Ranking(first=(A, B), end=(A, B))
SENSED = {"mhz_first": 3_400.4, "mhz_end": 2_100.2, "celsius_first": 45.0}
STATES: dict[str, tuple[Ranking, tuple[Row, ...], str | None]] = {
    "it changes": (Ranking(first=(A, B), end=(B, A), changes=(CHANGE,)), (timed(A, SLOWS), timed(B, STEADY)), None),
    "it holds, turns of a minute": (HOLDS, (timed(A, STEADY, turn_s=60.0), timed(B, STEADY)), None),
    "it only measured otherwise": (Ranking(first=(A, B), end=(B, A)), (timed(A, STEADY), timed(B, STEADY)), None),
    "no significant change": (HOLDS, (timed(A, STEADY), timed(B, OPEN)), None),
    "no significant change, the largest is the shipped one's": (HOLDS, (timed(A, STEADY), timed(B, OPEN)), B),
    "no significant change, another is shipped": (HOLDS, (timed(A, EVEN), timed(B, OPEN)), A),
    "sensors": (HOLDS, (timed(A, STEADY), timed(B, STEADY, **SENSED)), None),
}


def test_what_is_told_of_a_ranking_is_what_is_kept():
    told = {name: [*tell_over_time(ranking, rows, ships)] for name, (ranking, rows, ships) in STATES.items()}
    hold("over-time", "\n".join("\n".join([f"== {name}", *lines, ""]) for name, lines in told.items()))
