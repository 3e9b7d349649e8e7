"""How the arms of one group compare, by rules and evidence that all comparisons of the group share.

Two arms are compared by their block medians, restart by restart. Two things make a group more than its pairs. How far
the restarts of the other arms spread says how far a pair's own may (`spread`). And α is shared step by step: once a
question is answered, those still open share α among fewer (Holm's procedure on e-values).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from operator import itemgetter
from typing import cast

import numpy as np

from shootout.constants import INDIFFERENT, SAME_WITHIN
from shootout.contract import Array
from shootout.stats.evidence import PairEvidence, bonferroni
from shootout.stats.goals import Aim, Goal
from shootout.stats.quantiles import median
from shootout.stats.spread import PRIOR, scale_likelihood
from shootout.stats.verdicts import Comparison, compare

Blocks = Mapping[int, Array]
"""Restart → block medians (ns) of its valid rounds, in order."""

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a group's race is judged by.

    Attributes:
        baseline: the label that ratios refer to, or None.
        control: the label of the baseline's hidden copy, or None.
        comparisons: how many verdicts the group was asked for (α is shared by them).
        goal: what must be known before the race ends.
        exact: arms that compute in full precision. Which of these is fastest is a question of its own: what a faster
            arm rounds away may be too much.
        references: arm → another arm that it must have a verdict against as well.
        selects: whether the arms are settings of which only each target's best is looked for, without verdicts.
        least_restarts: that each arm plays, whatever is known before.
    """

    baseline: str | None
    control: str | None
    comparisons: int
    max_restarts: int
    bias_floor: float
    goal: Goal = field(default_factory=Goal)
    exact: Collection[str] = ()
    references: Mapping[str, str] = field(default_factory=dict)
    selects: bool = False
    least_restarts: int = 0

    def questions(self, labels: Collection[str]) -> list[list[str]]:
        """Return the sets of arms whose fastest is looked for: all of these, and those in full precision."""
        arms = [label for label in labels if label != self.control]
        exact = [label for label in arms if label in self.exact]
        return [some for some in ([arms, exact] if len(exact) < len(arms) else [arms]) if some]


def control_limit(rules: Rules) -> float:
    """Return how far the control may lie from its baseline: if it surely lies further, no verdict of the group stands.

    `results.vetoes` withholds the verdicts, and `stats.leaders` keeps the race open until the control is in.
    """
    return rules.bias_floor


def log_ratios(arm: Blocks, baseline: Blocks) -> Array:
    """Return x_g = median over rounds of log(arm / baseline), for each restart both played, shape (n,)."""
    shared = sorted(set(arm) & set(baseline))
    return np.array([median(np.log(arm[g] / baseline[g])) for g in shared], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class GroupEvidence:
    """What a group's restarts so far say of any two of its arms.

    Made once for each look: what it finds it keeps.

    Attributes:
        blocks: end-to-end block medians (ns) of all arms that played, by label and restart; or those of another scope.
        rules: what the race is judged by.
        unsound: arms that failed, were unsteady or left, so that they can't be the fastest.
        barred: arms that break a limit of the run's policy. No restart is spent on ranking them, but what is known of
            them counts toward α as of any other arm, whether or not there is a policy.
    """

    blocks: Mapping[str, Blocks]
    rules: Rules
    unsound: Collection[str] = ()
    barred: Collection[str] = ()
    _pairs: dict[Pair, PairEvidence] = field(default_factory=dict, init=False)
    _found: dict[tuple[str, str, float, bool], Comparison] = field(default_factory=dict, init=False)
    _scales: dict[int, Mapping[str, Array]] = field(default_factory=dict, init=False)

    @property
    def out_of_question(self) -> set[str]:
        """Return the arms that can't be the answer."""
        return {*self.unsound, *self.barred}

    def have_met(self, one: str, other: str | None) -> bool:
        """Tell whether both played any one restart."""
        return bool(set(self.blocks.get(one, ())) & set(self.blocks.get(other or "", ())))

    def compare(
        self, label: str, against: str, *, same_within: float = SAME_WITHIN, estimate: bool = True
    ) -> Comparison | None:
        """Return one arm against another; None if they share no restart.

        Args:
            same_within, estimate: see `verdicts.compare`.
        """
        if not self.have_met(label, against):
            return None
        key = (label, against, same_within, estimate)
        if key not in self._found:
            is_control = {label, against} == {self.rules.control, self.rules.baseline}
            self._found[key] = compare(
                self.pair(label, against),
                alpha=bonferroni(self.rules.comparisons) if is_control else self.alpha,
                bias_floor=control_limit(self.rules) if is_control else self.bias_floor,
                same_within=same_within,
                estimate=estimate,
            )
        return self._found[key]

    def compare_rivals(self, one: str, other: str, *, estimate: bool = True) -> Comparison | None:
        """Compare two arms, of which either may be shipped if they lie within `INDIFFERENT`.

        `restarts_needed` then is for knowing that, or which one is faster.
        """
        return self.compare(one, other, same_within=INDIFFERENT, estimate=estimate)

    def compare_with_limit(self, label: str, against: str, *, limit: float, estimate: bool = True) -> Comparison | None:
        """Compare one arm's time with another's × (1 + limit): `slower` is beyond the limit, `faster` below it.

        It is the interval of `compare` that lies on one side of the limit, or not: a limit is no claim of the harness,
        so its bias widens nothing. No arm is the `same` as a limit.
        """
        if not self.have_met(label, against):
            return None
        pair = self.pair(label, against)
        shifted = PairEvidence(pair.log_ratios - math.log1p(limit), pair.log_weights)
        return compare(shifted, alpha=self.alpha, bias_floor=0.0, same_within=0.0, estimate=estimate)

    def pair(self, label: str, against: str) -> PairEvidence:
        """Return the evidence on two arms that share a restart."""
        if (label, against) not in self._pairs:
            series = self.series(label, against)
            x = np.array([*series.values()])
            self._pairs[label, against] = PairEvidence(x, self._log_weights((label, against), max(series)))
        return self._pairs[label, against]

    def series(self, label: str, against: str) -> Mapping[int, float]:
        """Return the log ratio of two arms in each restart that both played, by restart."""
        one, other = self.blocks[label], self.blocks[against]
        shared = sorted(set(one) & set(other))
        return dict(zip(shared, log_ratios(one, other).tolist(), strict=True))

    @cached_property
    def bias_floor(self) -> float:
        """Return the stored bias floor, or how far the control's median is from its baseline's if that is more."""
        control, baseline = self.rules.control or "", self.rules.baseline or ""
        seen = self.pair(control, baseline).median if self.have_met(control, baseline) else 0.0
        return max(self.rules.bias_floor, math.expm1(abs(seen)))

    @cached_property
    def alpha(self) -> float:
        """Return the error probability of each verdict that is still open: α ÷ (comparisons − those answered).

        At the first false answer, all that were answered before are right. So what is left holds every question of
        which no true answer exists, each of these had at least its share of α to reach, and any of them ever does with
        a probability of at most α. This holds for pairs that are truly equal; that an answer also names the right
        direction, and that the fastest arm is kept among the leaders, is simulated (docs/design/measurement.md).

        An arm that is known not to be the fastest answers one question. A limit has no such steps: its answers would
        be read beside verdicts of the same pairs.
        """
        if self.rules.goal.aim is Aim.LIMIT:
            return bonferroni(self.rules.comparisons)
        open_ones, beaten = self.rules.comparisons, [set[str]() for _ in self._questions]
        for evidence, question, winner, loser in sorted(self._list_claims(), key=itemgetter(0), reverse=True):
            if evidence < 1 / bonferroni(open_ones):
                break
            if question is None:
                open_ones -= 1
            elif winner not in beaten[question] and loser not in beaten[question]:
                beaten[question].add(loser)
                open_ones -= loser != self.rules.baseline  # that pair is there already
        return bonferroni(open_ones)

    @cached_property
    def _questions(self) -> list[list[str]]:
        if self.rules.goal.aim is not Aim.BEST:
            return []
        return self.rules.questions([label for label in self.blocks if label not in self.unsound])

    def _list_claims(self) -> Iterator[tuple[float, int | None, str, str]]:
        """Yield the evidence for each answer: a pair's verdict (None), or which of two arms isn't a question's fastest.

        The arms are the winner and the loser, in this order.
        """
        floor, same, rules = math.log1p(self.bias_floor), math.log1p(SAME_WITHIN), self.rules
        beside = [(label, rules.baseline) for label in self.blocks if rules.baseline and label != rules.control]
        wanted = {frozenset(pair) for pair in (*beside, *rules.references.items())}
        for one, other in (sorted(pair) for pair in wanted if len(pair) == 2):
            if self.have_met(one, other):
                pair = self.pair(one, other)
                is_same = min(pair.evidence_above(-same), pair.evidence_below(same)) if floor < same else 0.0
                yield max(pair.evidence_above(floor), pair.evidence_below(-floor), is_same), None, one, other
        for question, arms in enumerate(self._questions):
            for one, other in combinations(sorted(arms), 2):
                if self.have_met(one, other):
                    pair = self.pair(one, other)
                    yield pair.evidence_below(-floor), question, one, other
                    yield pair.evidence_above(floor), question, other, one

    def _log_weights(self, labels: Collection[str], last: int) -> Array:
        """Return the weights of the scales for a pair: what the arms but `labels` showed up to the pair's last restart.

        So nothing that is played without the pair changes what is known of it.
        """
        if last not in self._scales:
            self._scales[last] = dict(self._find_scales(last))
        others = [found for name, found in self._scales[last].items() if name not in labels]
        return cast(Array, np.sum([PRIOR, *others], axis=0))

    def _find_scales(self, last: int) -> Iterator[tuple[str, Array]]:
        """Yield what each arm's restarts beside the baseline say, up to one restart; of the first arm without one."""
        played = [label for label, blocks in self.blocks.items() if blocks]
        center = self.rules.baseline if self.rules.baseline in played else min(played)
        for label in played:
            if label != center:
                x = np.array([x_g for g, x_g in self.series(label, center).items() if g <= last])
                if x.size > 1:
                    pair = PairEvidence(x)
                    yield label, scale_likelihood(pair.n - 1, pair.squares)
