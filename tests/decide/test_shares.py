"""The chance of an error: which questions share it, and that the answers keep it. Candidates made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.races.candidates import question
from support.races.cells import fidelity, row

from shootout.apps.judge.accuracy import judge_drop
from shootout.apps.judge.decide.limits import ALPHA, judge_limits
from shootout.apps.judge.decide.policy import read_policy
from shootout.core.contract import Array
from shootout.core.messages import Scores
from shootout.tell.document import Finding, Metric, Row
from shootout.tell.limits import Limit, Standing
from shootout.tell.paired import compare_means, reach_at

PLAIN = row("plain", 1_000)
QUICK, OTHER, THIRD = (
    row(f"{name}:cpu:int8", ns, fidelity=fidelity(6e-2), memory_bytes=1)
    for name, ns in (("quick", 500), ("other", 490), ("third", 480))
)
ROWS = 3_000


def losing(arm: Row, right: Array, limit: float = 0.01) -> Row:
    """A row in which so many of the rows that plain FP32 has right are right, each 1 or 0."""
    before, after = (
        Scores(name="accuracy", rows=(1.0,) * len(right)),
        Scores(name="accuracy", rows=tuple(map(float, right))),
    )
    change = compare_means(before.rows, after.rows)
    assert change
    told, needed = judge_drop(change, before, after, limit)
    metric = Metric(
        name="accuracy", value=float(right.mean()), rows=len(right), lower_is_better=False, against="truth",
        change=change, worst=1.0, limits="drop", limit=limit,
        standing=told, rows_needed=needed,
    )  # fmt: skip
    return arm.model_copy(update={"fidelity": fidelity(6e-2, metric=metric)})


def lost(count: int) -> Array:
    """Which rows are right where so many are lost."""
    return np.arange(ROWS) >= count


QUICK, OTHER, THIRD = losing(QUICK, lost(30)), losing(OTHER, lost(45)), losing(THIRD, lost(3))


def judged(*rows: Row, **limits: Any) -> dict[str, Finding]:
    """How each candidate stands to the first limit."""
    policy = read_policy(None, {key.replace("_", "-"): value for key, value in limits.items()})
    candidates = question(*rows).candidates
    return {label: findings[0] for label, findings in judge_limits(policy, candidates).items()}


def standing(arm: Row, *others: Row, **limits: Any) -> Standing:
    return judged(PLAIN, arm, *others, **{"max_drop": "1.43pp", **limits})[arm.arm].standing


def test_what_is_known_of_a_candidate_alone_stays_known_beside_what_is_certain():
    """Thirty of 3,000 rows are lost: at most 1.43 points by an interval of 95 %, and more by a narrower share."""
    assert standing(QUICK) is Standing.MET
    assert standing(QUICK, memory="1MB", size="1GB", install="1GB") is Standing.MET, "exact limits take no share"
    assert standing(QUICK, row("another", 900), row("third", 800)) is Standing.MET, "nor what loses nothing"
    assert standing(QUICK, OTHER) is Standing.UNKNOWN, "another that is as uncertain does"


@pytest.mark.parametrize("count", [0, 5, 12, 14, 16, 20, 25, 40, 50, 60, 90])
def test_run_and_decide_say_the_same_of_a_point_of_accuracy(count: int):
    rows = [losing(one, lost(count)) for one in (QUICK, OTHER, THIRD)]
    metric = rows[0].fidelity.metric  # type: ignore[union-attr]
    assert metric
    kept = metric.standing is Standing.MET
    for limits in ({}, {"max_drop": "1pp"}, {"max_drop": "1pp", "size": "1GB"}):
        found = judged(PLAIN, *rows, **limits)
        own = next(one for one in found.values() if one.limit in (Limit.DROP, Limit.SIZE))
        assert own.limit is Limit.DROP
        assert (found[QUICK.arm].standing is Standing.MET) is kept
    looser = judged(PLAIN, *rows, max_drop="1.1pp")
    assert looser[QUICK.arm].standing is Standing.MET or not kept, "what keeps a limit keeps a looser one"
    tighter = judged(PLAIN, *rows, max_drop="0.9pp")
    broken = judged(PLAIN, *rows)[QUICK.arm].standing is Standing.BROKEN
    assert tighter[QUICK.arm].standing is Standing.BROKEN or not broken, "and what breaks it a tighter one"


@pytest.mark.long
@pytest.mark.parametrize(
    "losses",
    [[0.0201] * 4, [0.0199] * 4, [0.0201, 0.0201, 0.005, 0.06], [0.0201, 0.0199, 0.0201, 0.0199]],
    ids=["all just broken", "all just met", "some far off", "on both sides"],
)
def test_the_answers_are_wrong_as_seldom_as_is_said(losses: list[float]):
    """The worst place is beside the limit; 300 draws, so a chance of 5 % shows up to 7.5 %."""
    rng, wrong, draws = np.random.default_rng(3), 0, 300
    rows = [row(f"int{at}:cpu:int8", 500 + at, fidelity=fidelity(6e-2)) for at in range(len(losses))]
    truth = [Standing.MET if share <= 0.02 else Standing.BROKEN for share in losses]
    for _ in range(draws):
        hard = rng.random(600)  # the same images, of which a hard one is lost by all that lose as much
        drawn = [losing(one, hard >= share) for one, share in zip(rows, losses, strict=True)]
        found = judged(PLAIN, *drawn, max_drop="2pp")
        told = [found[one.arm].standing for one in rows]
        wrong += any(one not in (Standing.UNKNOWN, true) for one, true in zip(told, truth, strict=True))
    assert wrong / draws <= ALPHA + 0.025


@pytest.mark.parametrize("lost_rows", [0, 3, 45])
def test_the_interval_at_a_share_is_the_one_that_the_rows_have_at_it(lost_rows: int):
    before, after = (1.0,) * ROWS, tuple(map(float, lost(lost_rows)))
    known = compare_means(before, after)
    assert known
    for confidence in (0.95, 0.975, 0.99):
        exact = compare_means(before, after, confidence=confidence)
        assert exact
        assert reach_at(known, confidence) == pytest.approx((exact.high - exact.low) / 2)
