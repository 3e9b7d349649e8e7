"""Decide which arms still have to play: pure, on what is known so far, from the end-to-end block medians alone.

A race ends as soon as its goal is reached. An arm leaves earlier, when no open pair has it any more: the others get its
time. Looking after every restart is harmless: see `interval`.

A race for the best goes on with the contenders alone after its first restart, until it is settled among these: that is
the answer that people wait for. Then the others play the restarts that they owe, with the baseline, its copy and the
leaders, so that each pair has as many restarts in common as if all had played from the beginning.

A group that selects settings goes by successive halving, a step after each restart. No verdict comes of it, so it may
be quick: what is chosen is measured again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from shootout.core.constants import CONTENDERS_RESTARTS, CONTENDERS_SHARE, CONTENDING, INDIFFERENT
from shootout.core.contract import Array
from shootout.core.stats.goals import Aim
from shootout.core.stats.group_evidence import GroupEvidence, Pair, Rules
from shootout.core.stats.interval import LEAST_RESTARTS
from shootout.core.stats.leaders import copy_strays, find_open, is_unopposed, leader_sets, time_ns
from shootout.core.study.group import GroupRecord, confirming_name, count_comparisons, family, with_control

CLOSE_RESTARTS = 3
"""Settings within `INDIFFERENT` of their target's best stay in for so many restarts."""


def survivors(labels: Sequence[str], blocks: Mapping[str, Mapping[int, Array]]) -> list[str]:
    """Return the settings of a selection's next restart: the better half of each target's, and close ones.

    Args:
        labels: those that have not failed.
        blocks: end-to-end block medians by label and restart; a restart that brought no figure isn't in them.

    Returns:
        None once each target has one left.
    """
    if not all(label in blocks for label in labels):
        return list(labels)  # not one figure yet, for all or for none
    left = [one for label in chosen(labels, blocks) for one in _staying_rivals(label, labels, blocks)]
    return [] if len({family(label) for label in left}) == len(left) else [one for one in labels if one in left]


def chosen(labels: Sequence[str], blocks: Mapping[str, Mapping[int, Array]]) -> list[str]:
    """Return each target's best setting so far: the one with the shortest time of those that stayed in the longest."""
    best: dict[str, str] = {}
    for label in sorted(labels, key=lambda label: (-len(blocks[label]), time_ns(blocks[label]))):
        best.setdefault(family(label), label)
    return list(best.values())


def confirmation(record: GroupRecord, blocks: Mapping[str, Mapping[int, Array]]) -> GroupRecord | None:
    """Return the group that measures again what another one selected; None if there is nothing selected.

    Args:
        record: the one that selected.
        blocks: end-to-end block medians, by label and restart, of those of its arms that have not failed.
    """
    if record.selects_for is None:
        return None
    best = {family(label): label for label in chosen(list(blocks), blocks)}
    arms = [arm for arm in record.arms if arm.label in blocks]
    plain = {family(arm.label): arm.label for arm in reversed(arms)}
    wanted = {*best.values(), *plain.values()}
    racing = [arm for arm in arms if arm.label in wanted]
    if not racing:
        return None
    baseline = next((arm for arm in racing if arm.label == record.selects_for), racing[0])
    return GroupRecord(
        name=confirming_name(record.name),
        baseline=baseline.label,
        comparisons=count_comparisons(baseline.label, racing, {}, record.goal),
        arms=with_control(baseline, racing),
        goal=record.goal,
        least_restarts=record.least_restarts,
    )


def _staying_rivals(best: str, labels: Sequence[str], blocks: Mapping[str, Mapping[int, Array]]) -> list[str]:
    """Return the settings of one target that stay: `best`, the better half of the first, and early on close ones."""
    played = len(blocks[best])
    began = sum(family(label) == family(best) for label in blocks)
    alive = [label for label in labels if family(label) == family(best) and len(blocks[label]) == len(blocks[best])]
    ordered = sorted(alive, key=lambda label: time_ns(blocks[label]))
    limit_ns = time_ns(blocks[best]) * (1 + INDIFFERENT)
    close = sum(time_ns(blocks[label]) <= limit_ns for label in ordered) if played < CLOSE_RESTARTS else 1
    return ordered[: max(close, -(-began // 2**played))]


def fewest_restarts(rules: Rules) -> int:
    """Return the fewest restarts that can give a verdict, or that each arm must play whatever is known before."""
    return max(LEAST_RESTARTS, rules.least_restarts)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """What a group has shown so far.

    Attributes:
        evidence: what the restarts so far say of any two arms.
        labels: arms that have not failed, control included.
        played: how many restarts there were, those that brought no figure among them.
        called: pairs that play once more, whatever the goal still needs.
        unsteady: those of the labels that found no steady state.
        contenders_first: whether contenders may go first; not if there would be no time for the others behind them.
        coming: how many targets have yet to be built.
    """

    evidence: GroupEvidence
    labels: Sequence[str]
    played: int
    called: Collection[Pair] = ()
    unsteady: Collection[str] = ()
    contenders_first: bool = True
    coming: int = 0

    @property
    def fewest(self) -> int:
        """Return how many restarts each arm plays, whatever is known before."""
        return fewest_restarts(self.rules)

    @property
    def rules(self) -> Rules:
        """Return what the group's race is judged by."""
        return self.evidence.rules

    @property
    def unopposed(self) -> bool:
        """Tell whether there is nothing to compare the arms with, or no control."""
        return is_unopposed(self.labels, self.rules)

    @property
    def is_pointless(self) -> bool:
        """Tell whether a limit is asked for, and no arm is left to hold to it, or none to compare with."""
        own = {self.rules.baseline, self.rules.control}
        return self.rules.goal.aim is Aim.LIMIT and (self.rules.baseline not in self.labels or {*self.labels} <= own)

    @property
    def owed(self) -> list[Pair]:
        """Return the pairs whose verdict the goal still needs."""
        return find_open(self.evidence, self.labels, self.unsteady)

    @property
    def waiting(self) -> set[str]:
        """Return the arms of open verdicts and called pairs, and those that stood back or joined later."""
        called = [pair for pair in self.called if set(pair) <= set(self.labels)]
        return self.late | self.beside | self.new_copy | {label for pair in (*self.owed, *called) for label in pair}

    @property
    def new_copy(self) -> set[str]:
        """Return the control if it joined later than the others, and hasn't played the fewest restarts yet."""
        copies = {self.rules.control} & {*self.labels}
        return {one for one in copies if one and len(self.evidence.blocks.get(one, ())) < self.fewest}

    @property
    def late(self) -> set[str]:
        """Return the arms that stood back or joined later, and owe restarts.

        An arm that can't be the answer owes none, unless its first starts were unsteady: the next may be steady.
        """
        hopeless = {*self.evidence.unsound} - {*self.unsteady} | {*self.evidence.barred}
        behind = (self.parked | self.joined) - hopeless
        return {one for one in behind if len(self.evidence.blocks.get(one, ())) < self.fewest}

    @property
    def beside(self) -> set[str]:
        """Return the fastest arms if others joined that owe restarts: an answer compares these with them."""
        if not self.joined & self.late:
            return set()
        arms = [one for one in self.labels if one not in {self.rules.control, *self.evidence.out_of_question}]
        return {one.fastest for one in leader_sets(self.evidence, arms)}

    @property
    def joined(self) -> set[str]:
        """Return the arms that weren't in the first restart."""
        return {one for one in self.labels if self.played and 0 not in self.evidence.blocks.get(one, ())}

    @property
    def far(self) -> set[str]:
        """Return the arms far behind in a race for the best, by the first restart that each has played.

        They took over 1.6 times as long as the best arm of all and, if they compute in full precision, as the best one
        of those.
        """
        first = {label: time_ns({0: mine[min(mine)]}) for label, mine in self.evidence.blocks.items() if mine}
        gone = self.evidence.out_of_question
        far = {label for label in self.labels if label in first and label != self.rules.control}
        for some in (far, far & {*self.rules.exact}):
            best_ns = min((first[label] for label in some if label not in gone), default=math.inf)
            far = far - {label for label in some if first[label] <= CONTENDING * best_ns}
        return far

    @property
    def parked(self) -> set[str]:
        """Return the far arms that stand back while the contenders play; the baseline stays with its copy.

        None if many are near: then the contenders' restarts cost nearly as much as those of all.
        """
        if self.rules.goal.aim is not Aim.BEST or self.unopposed:
            return set()
        far, arms = self.far, [label for label in self.labels if label != self.rules.control]
        return far - {self.rules.baseline} if len(arms) - len(far) <= CONTENDERS_SHARE * len(arms) else set()

    @property
    def contenders(self) -> GroupState:
        """Return the state without the arms that stand back."""
        parked = self.parked
        return replace(self, labels=[label for label in self.labels if label not in parked])

    @property
    def is_settled(self) -> bool:
        """Tell whether nothing is open between these arms."""
        return self.played >= self.fewest and not self.waiting

    @property
    def in_focus(self) -> GroupState:
        """Return the state of the arms whose question comes first: the contenders' until it is settled."""
        owed = self.fewest - 1
        is_time = 0 < self.played < CONTENDERS_RESTARTS and self.played + owed < self.rules.max_restarts
        if not (self.contenders_first and is_time and self.parked):
            return self
        return self if (some := self.contenders).is_settled else some

    @property
    def first_answer(self) -> FirstAnswer | None:
        """Return what is settled among the contenders while others have yet to play; None if that isn't so."""
        some, late = self.contenders, self.late
        if self.rules.goal.aim is not Aim.BEST or self.unopposed or not (late or self.coming):
            return None
        if copy_strays(self.evidence) or not some.is_settled:
            return None
        arms = [label for label in some.labels if label not in (self.rules.control, *self.evidence.out_of_question)]
        leaders = next(reversed(leader_sets(self.evidence, arms)), None)
        if leaders is None:
            return None  # nothing that raced may be the answer
        near = {*leaders.tied, *leaders.beaten} - self.far
        return FirstAnswer(tied=leaders.tied, contenders=len(near), parked=len(late))


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstAnswer:
    """What a race for the best has settled among its contenders.

    Attributes:
        tied: the arms that lead, the fastest first: in full precision, if not all arms are.
        contenders: how many arms were near enough, `tied` among them.
        parked: how many arms have yet to play.
    """

    tied: tuple[str, ...]
    contenders: int
    parked: int


Policy = Callable[[GroupState], list[str]]
"""The arms of the next restart; none when the race is over."""


def next_players(now: GroupState) -> list[str]:
    """Return the labels of the next restart; none if the race is over."""
    return [] if now.played >= now.rules.max_restarts else policy_of(now.rules)(now)


def policy_of(rules: Rules) -> Policy:
    """Return the stopping policy of a group of this kind."""
    return selection if rules.selects else verdicts


def selection(now: GroupState) -> list[str]:
    """Halve what is left of every target, since only its best setting is looked for."""
    return survivors(now.labels, now.evidence.blocks)


def verdicts(now: GroupState) -> list[str]:
    """Return what the goal waits for, with the baseline and its copy; all in the fewest restarts.

    In a race for the best the contenders go first, see `GroupState.in_focus`.

    An arm leaves as soon as nothing waits for it, however near its verdict against the baseline is: what loads longest
    is often what is beaten, and the leaders would wait for it. Its pairs stay as they are then: evidence stopped early.
    """
    if now.is_pointless:
        return []
    now = now.in_focus
    if now.played < now.fewest:
        return [label for label in now.labels if not (now.unopposed and label == now.rules.control)]
    if now.unopposed or not (waiting := now.waiting):
        return []
    playing = {now.rules.baseline, now.rules.control, *waiting}
    return [label for label in now.labels if label in playing]
