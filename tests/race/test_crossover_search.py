"""Crossovers: what verdicts by size come to, where to look next, and simulated searches whose truth is known."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from support.races.crossings import COPY, A, B, World, crossing, group, play, tally

from shootout.contract import NotRun, NotRunKind, Scenario
from shootout.messages import Scope
from shootout.race.crossover_search import Search
from shootout.results import analysis, crossovers
from shootout.results.crossovers import At, Kind
from shootout.results.vetoes import withheld
from shootout.stats.verdicts import Verdict

LETTERS = {"a": Verdict.FASTER, "b": Verdict.SLOWER, "s": Verdict.SAME, "?": Verdict.CANT_TELL, "x": Verdict.CANT_TELL}


def points(text: str, first: int = 1) -> list[At]:
    """`a?b` → sizes 1, 2, 4 with these winners; `s` is the same, `?` undecided, `x` given up."""
    return [
        At(size=first << index, verdict=LETTERS[letter], open=letter == "?", needed=9 if letter in "?x" else None)
        for index, letter in enumerate(text)
    ]


def says(text: str) -> list[tuple[object, ...]]:
    return [(one.kind, one.low, one.high, one.below, one.above) for one in crossovers.outcomes(points(text))]


FASTER, SLOWER, SAME = Verdict.FASTER, Verdict.SLOWER, Verdict.SAME


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aabb", [(Kind.BRACKET, 2, 4, FASTER, SLOWER)]),
        ("bbaa", [(Kind.BRACKET, 2, 4, SLOWER, FASTER)]),
        ("asxb", [(Kind.BRACKET, 1, 8, FASTER, SLOWER)]),
        ("abba", [(Kind.BRACKET, 1, 2, FASTER, SLOWER), (Kind.BRACKET, 4, 8, SLOWER, FASTER)]),
        ("?ab?", [(Kind.BRACKET, 2, 4, FASTER, SLOWER)]),
        ("aaaa", [(Kind.NONE, 1, 8, FASTER, FASTER)]),
        ("aass", [(Kind.NONE, 1, 8, FASTER, SAME)]),
        ("ssss", [(Kind.NONE, 1, 8, SAME, SAME)]),
        ("aa?a", [(Kind.CANT_TELL, None, None, None, None)]),
        ("xaaa", [(Kind.CANT_TELL, None, None, None, None)]),
    ],
)
def test_only_verdicts_on_both_sides_make_a_bracket(text: str, expected: list[tuple[object, ...]]):
    assert says(text) == expected


def test_a_bracket_says_what_lies_inside_and_cant_tell_what_it_would_take():
    (inside,) = crossovers.outcomes(points("asxb"))
    assert inside.reason == "the same at 2; no verdict at 4"
    assert inside.needed == {4: 9}
    (nothing,) = crossovers.outcomes(points("aa?a"))
    assert (nothing.reason, nothing.needed) == ("no verdict at 4", {4: 9})


@pytest.mark.parametrize(
    ("text", "sizes"),
    [("a?b?", [2]), ("aab?", []), ("?ab", []), ("a??b", [2, 4]), ("a?a?", [2, 8]), ("??", [1, 2]), ("axb", [])],
)
def test_only_what_can_change_the_answer_is_wanted(text: str, sizes: list[int]):
    assert [one.size for one in crossovers.wanted(points(text))] == sizes


def test_a_bracket_is_divided_only_while_it_is_wide_and_nothing_inside_is_at_work():
    assert crossovers.next_sizes(points("ab", first=8)) == []
    assert crossovers.next_sizes(points("a?b", first=8)) == []
    ((best, *_),) = crossovers.next_sizes([points("a", first=8)[0], points("b", first=128)[0]])
    assert best == 32, "the geometric midpoint, without figures to fit"


def test_around_a_region_without_verdicts_the_sides_come_nearer_until_they_touch_it():
    known = [*points("a", first=1), *points("s", first=16), *points("b", first=1024)]
    for _ in range(20):
        asked = crossovers.next_sizes(known)
        if not asked:
            break
        size = asked[0][0]
        verdict = FASTER if size < 10 else SLOWER if size > 40 else SAME
        known = sorted([*known, At(size=size, verdict=verdict)], key=_size)
    (found,) = crossovers.outcomes(known)
    assert found.low is not None
    assert found.high is not None
    assert 10 / math.sqrt(2) <= found.low < 10 <= 40 < found.high <= 40 * math.sqrt(2) + 1


def _size(point: At) -> int:
    return point.size


def test_sizes_are_round_and_lie_strictly_between():
    assert crossovers.round_sizes(1, 2, 1.5) == ()
    assert crossovers.round_sizes(1, 3, 1.7) == (2,)
    assert crossovers.round_sizes(64, 256, 128.0)[0] == 128
    assert set(crossovers.round_sizes(64, 256, 100.0)) == {80, 96, 112, 128, 160, 192, 224}


@pytest.mark.parametrize("crossing_at", [3.0, 50.0, 900.0])
def test_the_proposal_lies_beside_the_fitted_crossing_inside_the_bracket(crossing_at: float):
    times = [(n, 100.0 + 20 * crossing_at + n * 10.0, 100.0 + n * 30.0) for n in (1, 1024)]
    assert crossovers.crossing(times) == pytest.approx(crossing_at)
    aim = crossovers.aim(1, 1024, times)
    assert 1 < aim < 1024
    assert abs(math.log2(aim / crossing_at)) < 1.3


def test_parallel_lines_propose_the_midpoint():
    assert crossovers.aim(4, 64, [(4, 100.0, 200.0), (64, 160.0, 260.0)]) == 16.0


def worlds(sd: float, count: int, seed: int) -> list[World]:
    """Lines that part by at least 5 % within an octave of where they cross."""
    rng = np.random.default_rng(seed)
    at = np.exp(rng.uniform(math.log(20), math.log(700), count))
    return [
        crossing(float(where), float(rng.choice([1.5, 2.0, 5.0])), sd=sd, seed=index) for index, where in enumerate(at)
    ]


@pytest.mark.long
@pytest.mark.parametrize("sd", [0.003, 0.01, 0.03])
def test_simulated_searches_bracket_the_true_crossover_within_an_octave(sd: float):
    found = tally(worlds(sd, 100, seed=1))
    assert found.contains >= 0.95
    assert found.misses <= 0.02
    assert found.octave >= 0.95
    assert found.restarts < 0.4 * 20 * found.sizes, "playing every size to its limit takes 20 for each"


@pytest.mark.long
def test_where_arms_are_the_same_for_more_than_an_octave_the_bracket_says_so_by_its_width():
    found = tally([crossing(8.0, 1.1, sd=0.003, seed=seed) for seed in range(10)])
    assert found.contains == 1.0
    assert found.octave < 0.5


@pytest.mark.long
@pytest.mark.parametrize(("sd", "count"), [(0.003, 40), (0.03, 10)])
def test_equal_arms_never_cross(sd: float, count: int):
    found = tally([World(a=(500.0, 10.0), b=(500.0, 10.0), sd=sd, seed=seed) for seed in range(count)])
    assert found.misses + found.contains <= 0.05
    assert found.none + found.cant_tell >= 0.95


@pytest.mark.parametrize("sd", [0.003, 0.01])
def test_lines_that_never_cross_have_no_bracket(sd: float):
    found = tally([World(a=(500.0, 10.0), b=(600.0, 12.0), sd=sd, seed=seed) for seed in range(25)])
    assert found.none >= 0.95


def raced(size: int, ratio: float, wobble: float = 0.001) -> crossovers.Group:
    """Five restarts in which `a` takes `ratio` times as long as `b`, give or take."""
    found = group(size)
    for index in range(5):
        a_ns = 1_000.0 * ratio * (1 + wobble * (index % 3 - 1))
        play(found, {A.label: a_ns, B.label: 1_000.0, COPY.label: a_ns})
    return found


def searching(ratios: dict[int, float]) -> Search:
    search = Search(axis="batch")
    groups = [raced(size, ratio) for size, ratio in ratios.items()]
    search.add(one.record for one in groups)
    for one in groups:
        search.learn(one)
    return search


def test_a_search_asks_for_one_size_that_serves_both_scopes():
    (ask,) = searching({1: 0.5, 1024: 2.0}).asks()
    assert ask.pairs == {(A.label, B.label): set(Scope)}
    assert 1 < ask.sizes[0] < 1024
    assert ask.labels == {A.label, B.label}


KNOWN = ({1: 0.5, 2: 1.0, 4: 2.0}, {1: 0.5, 3: 1.0, 4: 2.0}, {1: 0.5, 2: 1.0, 3: 1.0, 4: 2.0})


def test_a_search_never_asks_for_a_size_that_is_there():
    asked = {tuple(known): [ask.sizes for ask in searching(known).asks()] for known in KNOWN}
    assert asked == {(1, 2, 4): [(3,)], (1, 3, 4): [(2,)], (1, 2, 3, 4): []}


def served(size: int) -> crossovers.Group:
    """A group of arms that serve, of which `a` is the faster one."""
    found = raced(size, 0.5)
    for line in (line for lines in found.played.values() for line in lines):
        line.block_median_ns[Scope.COMPUTE.value] = ()
    arms = tuple(dataclasses.replace(arm, scenario=Scenario.SERVE) for arm in found.record.arms)
    return dataclasses.replace(found, record=found.record.model_copy(update={"arms": arms}))


def test_arms_that_serve_have_no_compute_blocks_to_wait_for():
    groups = [served(size) for size in (1, 1024)]
    search = Search(axis="batch")
    search.add(one.record for one in groups)
    for one in groups:
        search.learn(one)
    assert search.pressing() == {}, "a verdict on what is never measured"
    assert [one.scope for one in analysis.crossings(groups, "batch", complete=True)] == [Scope.END_TO_END]


def test_without_a_baseline_no_copy_vouches_for_the_other_arms():
    one = raced(4, 0.5)
    one.played.pop(COPY.label)
    other = one.played.pop(A.label)
    one.played["c:cpu:fp32"] = other
    assert withheld(one, "c:cpu:fp32", B.label) is None
    one.setbacks[A.label] = NotRun(NotRunKind.FAILED, "it broke")
    reason = "the baseline failed, so no control checks this group"
    assert withheld(one, "c:cpu:fp32", B.label) == reason
    assert crossovers.at(one, 4, ("c:cpu:fp32", B.label), Scope.END_TO_END).verdict is Verdict.CANT_TELL


def test_what_presses_is_the_undecided_size_between_the_winners():
    ratios = dict(zip((1, 4, 64, 256), (0.5, 0.5, 2.0, 2.0), strict=True))
    search = searching(ratios)
    assert search.pressing() == {}
    middle = raced(16, 1.0, wobble=0.03)
    search.add([middle.record])
    search.learn(middle)
    assert set(search.pressing()) == {"m, batch 16"}


def test_an_arm_that_failed_is_a_size_without_a_verdict():
    broken = raced(4, 0.5)
    broken.setbacks[B.label] = NotRun(NotRunKind.FAILED, "it broke")
    found = crossovers.at(broken, 4, (A.label, B.label), Scope.END_TO_END)
    assert (found.verdict, found.open, found.reason) == (Verdict.CANT_TELL, False, "b:cpu:fp32: it broke")
