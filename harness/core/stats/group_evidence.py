"""Compare the arms of one group, by rules and evidence that all comparisons of the group share.

Two arms are compared by their block medians, restart by restart. Two things make a group more than its pairs. How far
the restarts of the other arms spread says how far a pair's own may. And α is shared step by step: once a question is
answered, those still open share α among fewer (`verdicts` has both).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from shootout.core.constants import INDIFFERENT, SAME_WITHIN
from shootout.core.contract import Array
from shootout.core.stats.goals import Goal
from shootout.core.stats.readings import median
from shootout.core.stats.verdicts import LEAST_RESTARTS, Comparison, PairEvidence, compare, count_open, make_pair

Blocks = Mapping[int, Array]
"""Restart → block medians (ns) of its valid rounds, in order."""

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Hold what a group's race is judged by.

    Attributes:
        baseline: the label that ratios refer to, or None.
        control: the label of the baseline's hidden copy, or None.
        comparisons: how many verdicts the group was asked for (α is shared by them).
        goal: what must be known before the race ends.
        exact: arms that compute in full precision. Which of these is fastest is a question of its own: what a faster
            arm rounds away may be too much.
        references: arm → another arm that it must have a verdict against as well.
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
    least_restarts: int = 0

    def questions(self, labels: Collection[str]) -> list[list[str]]:
        """Return the sets of arms whose fastest is looked for: all of these, and those in full precision."""
        arms = [label for label in labels if label != self.control]
        exact = [label for label in arms if label in self.exact]
        return [some for some in ([arms, exact] if len(exact) < len(arms) else [arms]) if some]


def log_ratios(arm: Blocks, baseline: Blocks) -> Array:
    """Return x_g = median over rounds of log(arm / baseline), for each restart both played, shape (n,)."""
    shared = list_shared(arm, baseline)
    return np.array([median(np.log(arm[g] / baseline[g])) for g in shared], dtype=np.float64)


def list_shared(one: Blocks, other: Blocks) -> list[int]:
    """List the restarts that both played, in as many rounds: no run of this program writes unlike numbers."""
    return [g for g in sorted(set(one) & set(other)) if len(one[g]) == len(other[g])]


def log_time(blocks: Blocks) -> float:
    """Return the mean over restarts of the log of an arm's time (ns); inf if it has none."""
    return float(np.mean([math.log(median(values)) for values in blocks.values()])) if blocks else math.inf


@dataclass(frozen=True, eq=False)
class GroupEvidence:
    """Tell what a group's restarts so far say of any two of its arms.

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
    _found: dict[tuple[str, str, float, float], Comparison] = field(default_factory=dict, init=False)

    @property
    def out_of_question(self) -> set[str]:
        """Return the arms that can't be the answer."""
        return {*self.unsound, *self.barred}

    def have_met(self, one: str, other: str | None) -> bool:
        """Tell whether both played any one restart."""
        return bool(list_shared(self.blocks.get(one, {}), self.blocks.get(other or "", {})))

    def compare(
        self, label: str, against: str, *, same_within: float = SAME_WITHIN, limit: float = 0.0
    ) -> Comparison | None:
        """Return one arm against another; None if they share no restart.

        Args:
            same_within: see `verdicts.judge`.
            limit: `slower` is beyond 1 + `limit`, `faster` below it. A limit is no claim of the harness, so its bias
                widens nothing, and no arm is the `same` as a limit.
        """
        if not self.have_met(label, against):
            return None
        key = (label, against, same_within, limit)
        if key not in self._found:
            is_control = {label, against} == {self.rules.control, self.rules.baseline}
            # If the control surely lies further from its baseline than this, no verdict of the group stands.
            floor = self.rules.bias_floor if is_control else self.bias_floor
            self._found[key] = compare(
                self.pair(label, against),
                comparisons=max(self.rules.comparisons, 1) if is_control else self.open_questions,
                bias_floor=0.0 if limit else floor,
                same_within=0.0 if limit else same_within,
                limit=limit,
            )
        return self._found[key]

    def compare_rivals(self, one: str, other: str) -> Comparison | None:
        """Compare two arms, of which either may be shipped if they lie within `INDIFFERENT`.

        `restarts_needed` then is for knowing that, or which one is faster.
        """
        return self.compare(one, other, same_within=INDIFFERENT)

    def pair(self, label: str, against: str) -> PairEvidence:
        """Return the evidence on two arms that share a restart."""
        if (label, against) not in self._pairs:
            series = self.series(label, against)
            self._pairs[label, against] = make_pair([*series.values()], self._others_of({label, against}, max(series)))
        return self._pairs[label, against]

    def series(self, label: str, against: str) -> Mapping[int, float]:
        """Return the log ratio of two arms in each restart that both played, by restart."""
        one, other = self.blocks[label], self.blocks[against]
        shared = list_shared(one, other)
        return dict(zip(shared, log_ratios(one, other).tolist(), strict=True))

    @cached_property
    def bias_floor(self) -> float:
        """Return the stored bias floor, or how far the control is from its baseline if that is more."""
        control, baseline = self.rules.control or "", self.rules.baseline or ""
        seen = self.pair(control, baseline).mean if self.have_met(control, baseline) else 0.0
        return max(self.rules.bias_floor, math.expm1(abs(seen)))

    @cached_property
    def open_questions(self) -> int:
        """Return C, how many of the race's questions are still open (`interval.count_open`).

        A limit has no such steps: its answers would be read beside verdicts of the same pairs. They are at least as
        many as rows are open beside the fastest arm in full precision: a table shows these, and where a faster arm
        rounds they aren't among the questions.
        """
        if self.rules.goal.aim == "limit":
            return max(self.rules.comparisons, 1)
        edge = math.log1p(self.bias_floor)
        wanted = (self.pair(*pair).bearable(edge) for pair in self._list_questions())
        questions = count_open(wanted, self.rules.comparisons)
        exact = [label for label in self.blocks if label in self.rules.exact and label != self.rules.control]
        fastest = self._find_fastest(exact) if self.rules.goal.aim == "best" else None
        rows = [label for label in exact if fastest and label != fastest and self.have_met(label, fastest)]
        bears = [self.pair(label, str(fastest)).bearable(edge) for label in rows]
        while (count := sum(one <= questions for one in bears)) > questions:
            questions = count
        return questions

    def _list_questions(self) -> Iterator[Pair]:
        """Yield the pairs that the race is about: beside the baseline, a reference, or the arm that now is fastest."""
        rules = self.rules
        arms = [label for label in self.blocks if label != rules.control]
        wanted = {frozenset((label, rules.baseline)) for label in arms if rules.baseline}
        wanted |= {frozenset(pair) for pair in rules.references.items()}
        if rules.goal.aim == "best" and (fastest := self._find_fastest(arms)):
            wanted |= {frozenset((label, fastest)) for label in arms if label not in self.unsound}
        for one, other in sorted(sorted(pair) for pair in wanted if len(pair) == 2):
            if self.have_met(one, other):
                yield one, other

    def _find_fastest(self, arms: Collection[str]) -> str | None:
        """Return the sound arm with the least time so far."""
        sound = {label: log_time(self.blocks[label]) for label in arms if label not in self.unsound}
        return min(sound, key=lambda label: (sound[label], label), default=None)

    def _others_of(self, labels: Collection[str], last: int) -> Iterator[Array]:
        """Yield the log ratios beside the baseline of all arms but `labels`, up to the pair's last restart.

        So nothing that is played without the pair changes what is known of it.
        """
        for label, series in self._beside_baseline.items():
            x = np.array([x_g for g, x_g in series.items() if g <= last])
            if label not in labels and x.size >= LEAST_RESTARTS:
                yield x

    @cached_property
    def _beside_baseline(self) -> Mapping[str, Mapping[int, float]]:
        """Return the series of each arm beside the baseline; without one the first arm is it."""
        played = [label for label, blocks in self.blocks.items() if blocks]
        center = self.rules.baseline if self.rules.baseline in played else min(played)
        return {label: self.series(label, center) for label in played if label != center}
