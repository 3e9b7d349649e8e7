"""Find which arms lead a group, and which pairs its race still has to distinguish, from each pair's own restarts.

The fastest arm is looked for among many, so what is claimed is a set (multiple comparison with the best): the arm that
is truly fastest can only be missing from it if one of its own comparisons with the others errs. That is one comparison
for each other arm, whichever arm it is, and `count_comparisons` counts them. Of a single pair within the set less is
known: its interval errs with its own share of α.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from shootout.core.constants import INDIFFERENT
from shootout.core.stats.group_evidence import Blocks, GroupEvidence, Pair, Rules
from shootout.core.stats.verdicts import Comparison, Verdict

Compare = Callable[[str, str], Comparison | None]
"""A function that compares the first arm with the second; None if they share no restart. Swapped, it says the inverse.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaders:
    """Hold what is known of the fastest arms.

    Attributes:
        fastest: the arm with the least time of those that none is known to beat.
        tied: all arms that none is known to beat, in the order of their times, `fastest` first.
        beaten: each other arm → the fastest of the arms that are known to be faster than it.
        undecided: pairs of `tied`, the faster one first, that aren't the same within `INDIFFERENT` either.
    """

    fastest: str
    tied: tuple[str, ...]
    beaten: Mapping[str, str]
    undecided: tuple[tuple[str, str], ...]


def find_leaders(times: Mapping[str, float], compare: Compare) -> Leaders:
    """Find the arms that lead.

    Args:
        times: each arm's time, in any one unit. It orders the arms and decides nothing else.
        compare: on the pair's own restarts; asked once for each pair.

    Raises:
        ValueError: there is no arm.
    """
    if not times:
        raise ValueError("expected at least one arm, received none")
    order = sorted(times, key=lambda label: (times[label], label))
    found = {pair: compare(*pair) for pair in combinations(order, 2)}
    beats = {pair for pair, one in found.items() if one and one.verdict is Verdict.FASTER}
    beats |= {pair[::-1] for pair, one in found.items() if one and one.verdict is Verdict.SLOWER}
    faster = {label: [one for one in order if (one, label) in beats] for label in order}
    tied = [label for label in order if not faster[label]] or order[:1]  # in a circle one still has the least time
    return Leaders(
        fastest=tied[0],
        tied=tuple(tied),
        beaten={label: faster[label][0] for label in order if label not in tied},
        undecided=tuple(pair for pair in combinations(tied, 2) if not is_indifferent(found[pair])),
    )


def leader_sets(evidence: GroupEvidence, labels: Collection[str]) -> list[Leaders]:
    """Find the leaders among the arms that have played, and among those in full precision where these are only some."""
    times = {label: time_ns(evidence.blocks[label]) for label in labels if evidence.blocks.get(label)}
    return [
        find_leaders({label: times[label] for label in some}, evidence.compare_rivals)
        for some in evidence.rules.questions(times)
    ]


def time_ns(blocks: Blocks) -> float:
    """Return an arm's time: the median of its restarts' medians."""
    return float(np.median([np.median(values) for values in blocks.values()])) if blocks else math.inf


def is_indifferent(found: Comparison | None, within: float = INDIFFERENT) -> bool:
    """Tell whether the ratio is known to be so near to 1 that either of the two may be shipped."""
    if found is None or found.low is None or found.high is None:
        return False
    return max(1 / found.low, found.high) <= 1 + within


def find_open(evidence: GroupEvidence, labels: Collection[str], unsteady: Collection[str] = ()) -> list[Pair]:
    """Return the pairs that a race still has to distinguish, for its goal or from their own FP32.

    Args:
        labels: the arms that have not failed, the control among them. Where they are unopposed nothing is open.
        unsteady: those that found no steady state, so that it is unknown on which side of a limit they are.
    """
    return _each_once([*_select_asked(evidence, labels, unsteady), *_untold_own_fp32(evidence, labels)])


def is_unopposed(labels: Collection[str], rules: Rules) -> bool:
    """Tell whether no verdict can be had: without the baseline, or without the copy that should vouch for it."""
    return rules.baseline not in labels or (rules.control is not None and rules.control not in labels)


def restarts_left(evidence: GroupEvidence, labels: Collection[str], unsteady: Collection[str]) -> dict[Pair, float]:
    """Return the restarts that each open pair may still take, if the rest are like those so far; inf: unknown.

    A pair is asked what keeps it open: the goal, its own FP32, or both, and then the later one counts.
    """
    asked, own = _select_asked(evidence, labels, unsteady), _untold_own_fp32(evidence, labels)

    def left(pair: Pair, why: Sequence[Pair], until: Callable[[GroupEvidence, Pair], float]) -> float:
        return until(evidence, pair) if pair in why or pair[::-1] in why else 0.0

    return {
        pair: max(left(pair, asked, _goal_left), left(pair, own, verdict_left)) for pair in _each_once([*asked, *own])
    }


def _select_asked(evidence: GroupEvidence, labels: Collection[str], unsteady: Collection[str]) -> list[Pair]:
    """Return those that are open for the goal.

    A ratio is open until it is known as closely as asked, and a side of a limit until it is known and may be said.
    """
    rules = evidence.rules
    if is_unopposed(labels, rules):
        return []
    excluded = {rules.control, *(evidence.out_of_question if rules.goal.aim == "best" else ())}
    arms = [label for label in labels if label not in excluded]
    pairs = [(label, rules.baseline) for label in arms if rules.baseline and label != rules.baseline]
    match rules.goal.aim:
        case "baseline":
            return find_untold(evidence, pairs)
        case "best":
            return _unsettled_leaders(evidence, arms, pairs)
        case "resolve":
            ratios = {pair: evidence.compare(*pair) for pair in pairs}
            return [pair for pair, one in ratios.items() if one is None or precision(one) > (rules.goal.within or 0.0)]
        case "limit":
            sides = {pair: evidence.compare(*pair, limit=rules.goal.within or 0.0) for pair in pairs}
            found = [pair for pair, one in sides.items() if {*pair} & {*unsteady} or one is None or not one.decided]
            # While the baseline's copy comes out different nothing is said; a few more restarts may bring it back.
            return [*sides] if len(found) < len(sides) and copy_strays(evidence) else found


def _untold_own_fp32(evidence: GroupEvidence, labels: Collection[str]) -> list[Pair]:
    """Return the pairs of an arm and its own FP32 without a verdict; a pair held to a limit needs no more."""
    rules = evidence.rules
    if is_unopposed(labels, rules):
        return []
    own = [pair for pair in rules.references.items() if set(pair) <= set(labels)]
    is_limited = rules.goal.aim == "limit"
    return find_untold(evidence, [pair for pair in own if not (is_limited and rules.baseline in pair)])


def _each_once(pairs: Iterable[Pair]) -> list[Pair]:
    """Return the pairs, each in the first order that it comes in."""
    first: dict[frozenset[str], Pair] = {}
    for pair in pairs:
        first.setdefault(frozenset(pair), pair)
    return list(first.values())


def find_untold(evidence: GroupEvidence, pairs: Iterable[Pair]) -> list[Pair]:
    """Return those of the pairs that have no verdict yet."""
    return [pair for pair in pairs if not ((found := evidence.compare(*pair)) and found.decided)]


def _goal_left(evidence: GroupEvidence, pair: Pair) -> float:
    """Return the restarts until the goal needs a pair no more."""
    goal = evidence.rules.goal
    if goal.aim == "best":
        return _restarts_left(evidence.compare_rivals(*pair))
    if goal.aim == "limit":
        return _restarts_left(evidence.compare(*pair, limit=goal.within or 0.0))
    if goal.within is None:
        return verdict_left(evidence, pair)
    found = evidence.compare(*pair)
    if found is None or math.isinf(width := precision(found)):
        return math.inf
    return max(1, math.ceil(found.restarts * ((width / goal.within) ** 2 - 1)))


def verdict_left(evidence: GroupEvidence, pair: Pair) -> float:
    """Return the restarts until a pair has a verdict."""
    return _restarts_left(evidence.compare(*pair))


def _restarts_left(found: Comparison | None) -> float:
    if found is None or found.restarts_needed is None:
        return math.inf
    return max(found.restarts_needed - found.restarts, 1)


def precision(found: Comparison) -> float:
    """Return how closely a ratio is known: 0.03 is ±3 %."""
    return math.sqrt(found.high / found.low) - 1 if found.low and found.high else math.inf


def _unsettled_leaders(evidence: GroupEvidence, arms: Sequence[str], pairs: Iterable[Pair]) -> list[Pair]:
    """Return leaders that are neither distinguished nor as good as each other, and arms that have not played yet."""
    new = [label for label in arms if not evidence.blocks.get(label)]
    leaders = leader_sets(evidence, arms)
    beside = [*(pair for pair in pairs if pair[0] in new), *((label, one.fastest) for label in new for one in leaders)]
    return list(dict.fromkeys([*beside, *(pair for one in leaders for pair in one.undecided)]))


def copy_strays(evidence: GroupEvidence) -> bool:
    """Tell whether the baseline's copy has come out different from it, so that nothing may be said."""
    rules = evidence.rules
    if rules.control is None or rules.baseline is None:
        return False
    copy = evidence.compare(rules.control, rules.baseline)
    return copy is not None and copy.verdict in (Verdict.FASTER, Verdict.SLOWER)
