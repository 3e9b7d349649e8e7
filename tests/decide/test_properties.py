"""Whatever is measured and whatever is asked: nobody is chosen that isn't proven to meet every limit, or is beaten."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.races.candidates import question
from support.races.cells import cell, fidelity, row, timing

from shootout.apps.judge.choice import choose
from shootout.apps.judge.decide.decision import decide
from shootout.apps.judge.decide.limits import Bounds, judge_figure
from shootout.apps.judge.decide.policy import Policy, read_policy
from shootout.apps.judge.leader import usual_start_s
from shootout.core.stats.verdicts import Verdict
from shootout.tell.document import Row
from shootout.tell.limits import LIMITS, Limit, Standing

BYTES = st.one_of(st.none(), st.integers(1, 4).map(lambda count: count * 100_000_000))


@st.composite
def arms(draw: st.DrawFn) -> tuple[Row, ...]:
    made = []
    for index in range(draw(st.integers(1, 5))):
        ns = draw(st.integers(1, 20)) * 100.0
        tail = draw(st.one_of(st.none(), st.floats(1.0, 3.0)))
        time = timing(ns).model_copy(update={"p99_low_ns": tail and ns, "p99_highest_ns": tail and tail * ns})
        precision = draw(st.sampled_from(("fp32", "int8")))
        facts: dict[str, Any] = {
            "end_to_end": time,
            "fidelity": fidelity(draw(st.sampled_from((1e-7, 1e-2)))),
            "artifact_bytes": draw(st.integers(1, 4)) * 1_000_000,
            "install_bytes": draw(BYTES),
            "memory_bytes": draw(BYTES),
            "ready_s": (load_s := draw(st.floats(0.01, 3.0))) + draw(st.floats(0.0, 1.0)),
            "starts": draw(st.integers(1, 6)),
            "load_s": load_s,
            "first_call_s": 0.0,
        }
        made.append(row(f"arm{index}:cpu:{precision}", ns, **facts))
    return tuple(made)


POLICIES = st.fixed_dictionaries(
    {"objective": st.sampled_from(("latency", "size", "install"))},
    optional={
        "p99": st.sampled_from(("500ns", "1us", "3us")).map(lambda text: text.replace("500ns", "0.5us")),
        "memory": st.sampled_from(("150MB", "350MB")),
        "install": st.sampled_from(("150MB", "350MB")),
        "ready": st.sampled_from(("50ms", "1s")),
        "max-error": st.sampled_from(("1e-3", "1e-1")),
    },
)


@settings(max_examples=30)
@given(rows=arms(), keys=POLICIES, within=st.sampled_from((0.02, 0.3)))
def test_nobody_infeasible_unmeasured_or_beaten_is_ever_chosen(
    rows: tuple[Row, ...], keys: dict[str, str], within: float
):
    policy = read_policy(None, keys)
    found = decide(policy, question(*rows, within=within))
    feasible = [one for one in found.candidates if one.standing is Standing.MET]
    assert (found.exit_code == 0) is (found.chosen is not None)
    assert found.chosen is not None or not feasible
    if found.chosen is None:
        return
    chosen = found.of(found.chosen)
    assert chosen in feasible
    for finding in chosen.limits:
        bound = finding.high if LIMITS[finding.limit].side == "most" else finding.low
        assert bound is not None, "what was never measured is never met"
        assert bound <= finding.wanted if LIMITS[finding.limit].side == "most" else bound >= finding.wanted
    by_arm = {row.arm: row for row in rows}
    for other in feasible:
        if other is not chosen and other.ratio:
            assert other.ratio.verdict is not Verdict.FASTER, "known to be better, and not chosen"
            assert not _dominates(by_arm[other.arm], by_arm[chosen.arm], other.objective, chosen.objective)


@settings(max_examples=30)
@given(rows=arms(), within=st.sampled_from((0.02, 0.04, 0.3)))
def test_the_answer_of_a_run_is_the_decision_by_the_default_policy(rows: tuple[Row, ...], within: float):
    decision, answer = decide(Policy(), question(*rows, within=within)), choose(cell(*rows, within=within))
    met = {one.candidate for one in decision.candidates if one.standing is Standing.MET}
    if not met:  # speed alone chooses then, and it is said
        assert answer.ship is None or answer.ship.admitted == "alone"
        return
    assert answer.ship
    assert (answer.ship.arm, answer.chosen_by) == (decision.leader, decision.chosen_by)
    assert met == {*answer.eligible}
    for mine, its in ((answer.tied, decision.tied), (answer.unsettled, decision.unsettled)):
        assert [one.arm for one in mine] == [one.arm for one in its]


def _dominates(one: Row, other: Row, value: float | None, than: float | None) -> bool:
    """Whether it is better in the objective, and no worse in what breaks ties."""
    if (one.install_bytes is None) is not (other.install_bytes is None):
        return False
    figures = ((row.artifact_bytes or 0, row.install_bytes or 0, usual_start_s(row)) for row in (one, other))
    return bool(value and than and value < than and all(mine <= its for mine, its in zip(*figures, strict=True)))


FIGURES = st.floats(0.001, 1e9)


@settings(max_examples=100)
@given(limit=st.sampled_from(Limit), wanted=FIGURES, ends=st.tuples(FIGURES, FIGURES))
def test_a_limit_within_the_uncertainty_is_unknown(limit: Limit, wanted: float, ends: tuple[float, float]):
    low, high = sorted(ends)
    standing = judge_figure(limit, wanted, Bounds(value=low, low=low, high=high)).standing
    if low < wanted < high:
        assert standing is Standing.UNKNOWN
    elif high < wanted or low > wanted:
        good = (high < wanted) is (LIMITS[limit].side == "most")
        assert standing is (Standing.MET if good else Standing.BROKEN)
    assert judge_figure(limit, wanted, Bounds()).standing is Standing.UNKNOWN
    assert judge_figure(limit, math.inf, Bounds(low=low)).standing is not Standing.MET or LIMITS[limit].side == "least"
