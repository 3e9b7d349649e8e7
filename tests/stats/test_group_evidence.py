"""What a group's arms say of any two of them: the others' spread, shared α, the floor; on planted restarts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from support.races import simulation

from shootout.core.contract import Array
from shootout.core.stats.goals import Goal
from shootout.core.stats.group_evidence import GroupEvidence, Rules, log_ratios
from shootout.core.stats.verdicts import Verdict, compare, make_pair


def played(x: Array) -> dict[str, dict[int, Array]]:
    """Blocks of arms with these log ratios to "base", shape (arms, restarts); restarts of NaN were not played."""
    arms = {f"arm {i}": {g: np.exp([v]) for g, v in enumerate(one) if np.isfinite(v)} for i, one in enumerate(x)}
    return {"base": {g: np.ones(1) for g in range(x.shape[1])}} | arms


def rules(comparisons: int = 1, *, baseline: str | None = "base", goal: Goal | None = None) -> Rules:
    return Rules(
        baseline=baseline,
        control=None,
        comparisons=comparisons,
        max_restarts=20,
        bias_floor=0.005,
        goal=goal or Goal(),
    )


def verdicts(x: Array, **of: object) -> list[Verdict]:
    """Of each arm beside the base; α is shared by all."""
    group = GroupEvidence(played(x), replace(rules(len(x)), **of))  # type: ignore[arg-type] # fields of Rules
    found = [group.compare(f"arm {i}", "base") for i in range(len(x))]
    return [one.verdict if one else Verdict.CANT_TELL for one in found]


def test_the_other_arms_say_how_far_restarts_spread():
    rng = np.random.default_rng(4)
    x = rng.normal(0.0, 0.01, (9, 3))
    group = GroupEvidence(played(x), rules())
    found, wanted = group.pair("arm 0", "base"), make_pair(x[0], x[1:])
    assert (found.mean, found.own, found.typical) == pytest.approx((wanted.mean, wanted.own, wanted.typical))
    rivals = group.pair("arm 0", "arm 1")
    assert (rivals.typical, rivals.others) == (pytest.approx(make_pair(x[0], x[2:]).typical), 7)


def test_a_wild_arm_among_quiet_ones_is_not_believed_after_two_restarts():
    quiet, wild = np.random.default_rng(2).normal(0, 0.005, (8, 2)), np.array([0.0, 0.6])
    assert verdicts(np.vstack([quiet, wild]))[-1] is Verdict.CANT_TELL
    assert verdicts(np.vstack([quiet, np.array([0.9, 0.901])]))[-1] is Verdict.SLOWER


def test_order_names_and_swapped_arms_change_nothing():
    x = np.random.default_rng(7).normal(0.05, 0.02, (5, 4))
    ahead, back = GroupEvidence(played(x), rules()), GroupEvidence(dict(reversed(played(x).items())), rules())
    assert ahead.compare("arm 3", "base") == back.compare("arm 3", "base")
    one, other = ahead.compare("arm 1", "arm 2"), ahead.compare("arm 2", "arm 1")
    assert one is not None is not other
    assert one.value == pytest.approx(1 / other.value)
    scaled = {label: {g: 1e6 * v for g, v in blocks.items()} for label, blocks in played(x).items()}
    again = GroupEvidence(scaled, rules()).compare("arm 1", "arm 2")
    assert again is not None
    assert (again.low, again.high) == pytest.approx((one.low, one.high), rel=1e-6)


def test_a_pair_of_many_has_its_share_of_the_error():
    blocks = played(np.random.default_rng(3).normal(0.004, 0.004, (1, 6)))
    alone, of_many = (GroupEvidence(blocks, rules(n)).compare("arm 0", "base") for n in (1, 28))
    wanted = compare(make_pair(log_ratios(blocks["arm 0"], blocks["base"])), comparisons=28, bias_floor=0.005)
    assert of_many == wanted
    assert of_many.low < alone.low < alone.high < of_many.high


def test_answered_pairs_leave_their_share_to_the_others():
    """Two arms of nine are far away and answered."""
    rng = np.random.default_rng(8)
    x = rng.normal(0, 0.02, (9, 6)) + np.array([*[0.004] * 7, 1.0, 1.0])[:, None]
    assert GroupEvidence(played(x), rules(9)).open_questions == 7
    limit = rules(9, goal=Goal(aim="limit", within=0.05))
    assert GroupEvidence(played(x), limit).open_questions == 9, "answers about a limit leave nothing"
    assert GroupEvidence(played(x[:7]), rules(9)).open_questions == 9, "nothing is answered"


def test_the_best_is_asked_for_beside_the_arm_that_is_fastest_now():
    rng = np.random.default_rng(9)
    x = rng.normal(0, 0.01, (4, 5)) + np.array([-0.5, -0.5, 1.0, 2.0])[:, None]
    best = rules(20, goal=Goal(aim="best"))
    # All four beside the base; beside the faster of arms 0 and 1: arms 2 and 3, the base being counted already.
    assert GroupEvidence(played(x), best).open_questions == 20 - 4 - 2
    assert GroupEvidence(played(x), best, unsound={"arm 2"}).open_questions == 20 - 4 - 1
    barred = GroupEvidence(played(x), best, barred={"arm 2"})
    assert barred.open_questions == 20 - 4 - 2, "a policy changes no verdict"
    assert barred.out_of_question == {"arm 2"}


@pytest.mark.long
@pytest.mark.parametrize("noise", simulation.NOISES)
def test_a_mixed_list_seldom_has_any_false_verdict(noise: str):
    """Nine arms, three of them equal to the base. A verdict on those is wrong, on the others a wrong direction."""
    rng = np.random.default_rng(11)
    truth = np.array([0.0, 0.0, 0.0, 0.02, -0.02, 0.05, 0.3, -0.3, 1.0])
    wrong = 0
    for _ in range(8):
        x = simulation.tapes(noise, (9,), rng, sd=0.03)[:, :8] + truth[:, None]
        for n in (2, 3, 5, 8):
            found = verdicts(x[:, :n], bias_floor=0.0)
            signs = np.array([{"slower": 1, "faster": -1}.get(one, 0) for one in found])
            if np.any(signs * np.sign(truth) < 0) or np.any(signs[truth == 0]):
                wrong += 1
                break
    assert wrong <= 1


def test_the_floor_is_at_least_what_the_baselines_copy_shows():
    """The copy, arm 0, is 3 % off: then 2 % more is no verdict, nothing is the same, and the copy itself is judged."""
    x = np.log(np.array([[1.03, 1.031, 1.03, 1.029], [1.02, 1.021, 1.02, 1.019], [1.0, 1.001, 1.0, 0.999]]))
    beside = GroupEvidence(played(x), replace(rules(), control="arm 0"))
    assert beside.bias_floor == pytest.approx(0.03, rel=1e-3)
    assert GroupEvidence(played(x), rules()).bias_floor == 0.005
    assert verdicts(x, control="arm 0", comparisons=1) == [Verdict.SLOWER, Verdict.CANT_TELL, Verdict.CANT_TELL]
    assert verdicts(x, comparisons=1)[1:] == [Verdict.SLOWER, Verdict.SAME]


def test_a_restart_s_ratio_is_the_median_over_its_rounds():
    """One disturbed round moves a mean, and must not move the ratio."""
    arm, base = {0: np.array([2.0, 2.0, 900.0]), 3: np.array([4.0])}, {0: np.ones(3), 1: np.ones(3), 3: np.ones(1)}
    assert np.exp(log_ratios(arm, base)).tolist() == pytest.approx([2.0, 4.0])
    assert math.isclose(math.exp(log_ratios(arm, base)[1]), 4.0)


def test_as_many_questions_are_counted_as_rows_are_open_beside_what_may_ship():
    """A rounding arm beats all rows, and all beat the baseline, so every question of the race is answered."""
    x = np.vstack([np.random.default_rng(5).normal(-1.6, 0.01, (9, 4)), np.full((1, 4), -3.2)])
    arms = [f"arm {i}" for i in range(10)]
    given = replace(rules(2 * 11 - 3, goal=Goal(aim="best")), exact=frozenset({"base", *arms[:9]}))
    group = GroupEvidence(played(x), given)
    fastest = min(arms[:9], key=lambda label: float(np.mean(x[arms.index(label)])))
    rows = [group.compare(label, fastest) for label in arms[:9] if label != fastest]
    is_open = [one is not None and one.verdict is Verdict.CANT_TELL for one in rows]
    assert all(one and one.decided for one in (group.compare(label, "base") for label in arms))
    assert group.open_questions >= sum(is_open) > 6
    assert GroupEvidence(played(x), replace(given, exact=frozenset())).open_questions == 6
