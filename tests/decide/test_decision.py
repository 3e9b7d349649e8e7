"""What is chosen, by whom it is beaten, what isn't known, and what nobody meets. Candidates made by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from support.races.candidates import question
from support.races.cells import fidelity, row

from shootout.decide.candidates import Question
from shootout.decide.decision import Decision, decide
from shootout.decide.limits import Standing
from shootout.decide.policy import read_policy
from shootout.decide.quantities import Limit
from shootout.results.comparisons import Metric
from shootout.results.document import Rate, Row, Serving

TODAY = date(2026, 11, 22)
SLOW, FAST = row("slow", 2_000), row("fast", 500)
ROUGH = row("rough:cpu:int8", 100, fidelity=fidelity(6e-2))


def made(asked: Question, **keys: Any) -> Decision:
    return decide(read_policy(None, {key.replace("_", "-"): value for key, value in keys.items()}), asked, today=TODAY)


def test_without_limits_the_fastest_that_is_as_good_as_plain_fp32():
    found = made(question(SLOW, FAST, ROUGH))
    assert (found.outcome, found.chosen, found.exit_code) == ("chosen", FAST.arm, 0)
    assert found.of(ROUGH.arm).standing is Standing.UNKNOWN, "nobody knows what its error does to the accuracy"
    assert found.of(SLOW.arm).ratio.value == 4.0


def test_a_limit_on_the_error_is_the_users_word():
    assert made(question(SLOW, FAST, ROUGH), max_error="0.1").chosen == ROUGH.arm
    found = made(question(SLOW, FAST, ROUGH), max_error="1e-3")
    assert (found.chosen, found.of(ROUGH.arm).standing) == (FAST.arm, Standing.BROKEN)


def test_ties_go_to_the_smaller_then_to_the_sooner_ready():
    near = row("near", 505, artifact_bytes=500_000)
    found = made(question(SLOW, FAST, near))
    assert (found.outcome, found.chosen, found.chosen_by) == ("tied", near.arm, ("smaller artifact",))
    assert [one.arm for one in found.tied] == [FAST.arm]


def test_what_was_never_measured_is_unknown_and_never_met():
    found = made(question(SLOW, FAST), p99="5s")
    assert (found.outcome, found.chosen, found.exit_code) == ("undecided", None, 7)
    finding = next(one for one in found.of(FAST.arm).limits if one.limit is Limit.P99)
    assert (finding.standing, finding.value) == (Standing.UNKNOWN, None)


def test_nobody_meets_every_limit():
    found = made(question(row("a", 500, ready_s=1.0, starts=5), row("b", 900, ready_s=2.0, starts=5)), ready="500ms")
    assert (found.outcome, found.chosen, found.exit_code) == ("infeasible", None, 3)
    assert [(miss.candidate, miss.limit, miss.alone) for miss in found.misses] == [
        ("a:cpu:fp32", Limit.READY, True),
        ("b:cpu:fp32", Limit.READY, True),
    ]


@pytest.mark.parametrize(
    ("drops", "limit", "standing"),
    [(0, "2pp", Standing.MET), (30, "2pp", Standing.BROKEN), (10, "2pp", Standing.UNKNOWN), (10, "9pp", Standing.MET)],
)
def test_a_loss_of_accuracy_counts_by_its_interval_at_the_shared_level(drops: int, limit: str, standing: Standing):
    """Of 500 rows: what is met by less than the uncertainty isn't known."""
    right = {FAST.arm: "1" * 500, ROUGH.arm: "0" * drops + "1" * (500 - drops)}
    found = made(question(FAST, ROUGH, right=right), max_accuracy_drop=limit)
    assert found.of(ROUGH.arm).standing is standing


@pytest.mark.parametrize(
    ("scores", "limit", "standing", "reason"),
    [
        (Metric(name="m.py:f", value=0.8, low=0.78, high=0.82, rows=900, lower_is_better=False), "0.5", "met", None),
        (Metric(name="m.py:f", value=0.8, low=0.78, high=0.82, rows=900, lower_is_better=False), "0.9", "broken", None),
        (
            *(Metric(name="m.py:f", value=0.8, low=0.78, high=0.82, rows=900, lower_is_better=False), "0.79"),
            *("unknown", "900 labelled rows; about 3,600 would tell"),
        ),
        (
            *(Metric(name="m.py:f", value=0.8, low=0.78, high=0.82, rows=900, lower_is_better=True), "0.5"),
            *("unknown", "lower is better in m.py:f: score its negative to limit it"),
        ),
        (
            *(Metric(name="m.py:f", value=1.0, rows=40, lower_is_better=False), "0.5"),
            *("unknown", "all 40 rows have the same score"),
        ),
        (None, "0.5", "unknown", "no score of yours is measured"),
    ],
)
def test_the_users_own_score_counts_by_its_interval(
    scores: Metric | None, limit: str, standing: str, reason: str | None
):
    scored = row("own", 500, fidelity=fidelity(metric=scores))
    (finding,) = made(question(scored), min_metric=limit).of(scored.arm).limits
    assert (finding.standing, finding.reason) == (standing, reason)


def test_a_control_that_failed_leaves_nobody_first():
    found = made(question(SLOW, FAST, unvouched="the baseline came out different from a copy of itself"))
    assert (found.outcome, found.chosen) == ("undecided", None)
    assert "different from a copy" in (found.reason or "")


def test_an_arm_whose_time_is_no_ground_is_out():
    found = made(question(SLOW, FAST, withheld=lambda arm: "no steady state" if arm == FAST.arm else None))
    assert (found.chosen, found.of(FAST.arm).fault) == (SLOW.arm, "no steady state")


def test_how_stable_the_choice_is():
    near = row("near", 560)
    asked = question(SLOW, FAST, near, sd=0.1)
    often = made(asked).stability
    assert set(often) == {FAST.arm, near.arm}
    assert sum(often.values()) == pytest.approx(1.0)
    assert made(question(SLOW, FAST)).stability == {FAST.arm: 1.0}


def served(arm: str, rate: float, p99_ms: float | None, *, searched: bool = False, holds: bool = True) -> Row:
    """An arm under requests; its p99 of more than the run's own limit of 5 ms breaks that."""
    found = Serving(
        rate_per_s=Rate(value=rate, low=rate, high=rate),
        searched=searched,
        holds=holds,
        p99_ns=p99_ms and p99_ms * 1e6,
        p99_highest_ns=p99_ms and 1.1e6 * p99_ms,
        limit_ns=5e6,
        unloaded_ns=1e5,
        start_late_ns=0.0,
    )
    return row(arm, (p99_ms or 9.0) * 1e6, scenario="serve", serve=found)


@pytest.mark.parametrize(
    ("one", "standing"),
    [
        (served("a", 200, 4.0), Standing.MET),
        (served("a", 300, 4.0, searched=True), Standing.MET),  # more than the load
        (served("a", 100, 4.0), Standing.UNKNOWN),  # less
        (served("a", 200, 4.8), Standing.UNKNOWN),  # the highest generation's bound is over it
        (served("a", 200, None, holds=False), Standing.BROKEN),
        (served("a", 300, None, holds=False), Standing.UNKNOWN),  # it broke under more than the load
        (row("a", 1_000), Standing.UNKNOWN),  # one call after another
    ],
)
def test_a_p99_under_load_is_that_of_requests_at_that_rate_or_more(one: Row, standing: Standing):
    found = made(question(one), load="200/s", p99="5ms", objective="size").candidates[0]
    assert next(finding.standing for finding in found.limits if finding.limit is Limit.P99) is standing


def test_the_limit_on_p99_is_the_policys_and_not_the_runs():
    late = served("late", 200, 8.0, holds=False)
    found = made(question(late), load="200/s", p99="10ms")
    assert (found.outcome, found.candidates[0].fault) == ("chosen", None)


def test_who_met_in_any_run_is_compared_there():
    """The first one's longest race is another one, in which the second wasn't."""
    long, short = question(FAST, row("alone", 900)), question(FAST, row("other", 600))
    first = replace(long.candidates[0], plays=(*long.candidates[0].plays, *short.candidates[0].plays))
    found = made(replace(long, candidates=(first, *long.candidates[1:], short.candidates[1])))
    assert found.chosen == FAST.arm
    met, apart = found.of("other:cpu:fp32").ratio, question(FAST).candidates[0]
    assert met is not None
    assert met.generations == 5
    alone = made(replace(long, candidates=(apart, short.candidates[1]))).of("other:cpu:fp32").ratio
    assert alone is not None
    assert alone.generations == 0, "never side by side: by their own intervals"
    assert alone.low is not None
    assert met.low is not None
    assert alone.low < met.low
