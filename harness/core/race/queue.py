"""Hold each group's race, and choose which group plays the next restart: time goes where an answer comes soonest.

First each group plays once, so that every cell has a figure. Then each plays the fewest restarts that can give a
verdict, one group after the other: one restart of everything is a verdict on nothing. From there on the next
restart goes to the group whose nearest missing verdict takes the fewest. A group whose verdicts are all in gets no
more.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from shootout.core import units
from shootout.core.constants import AIMED_RESTARTS, CONTENDING, LIMIT_RESTARTS
from shootout.core.contract import Arm, Array, NotRun, NotRunKind, Scenario
from shootout.core.journal.records import LoadTestResult
from shootout.core.messages import CPU, Scope
from shootout.core.race import pace
from shootout.core.race.live_arm import LiveArm
from shootout.core.race.restart import Restart, RestartContext
from shootout.core.race.stopping import GroupState, fewest_restarts, next_players
from shootout.core.results.group import Group, counted, unfit, unsteady
from shootout.core.scenario import scenario_of
from shootout.core.stats.goals import Aim
from shootout.core.stats.group_evidence import GroupEvidence, Pair, Rules
from shootout.core.stats.leaders import leader_sets, restarts_left
from shootout.core.stats.quantiles import LEAST_TAILS
from shootout.core.stats.verdicts import Comparison
from shootout.core.study.group import short
from shootout.core.study.plan import PlannedGroup
from shootout.scenarios import load_search as serving
from shootout.scenarios import over_time
from shootout.scenarios.load_search import LoadTest

FIRST_ANSWER_RESTARTS = 3
"""Targets that take long to build are built after so many restarts of the others, though these aren't settled."""
MOST_EXTRA = 2
"""A row may play so many restarts more when the race would end, if they bring its verdict."""


@dataclass(kw_only=True)
class Race:
    """The arms of a race, and what each has shown.

    Attributes:
        arms: by label, the control among them.
        blocks: end-to-end block medians (ns) by label and restart.
        played: restarts so far, those that brought no figure among them.
        steady_from: by label, the first steady call of each restart that it played; None where there was none.
        served: by label, what each restart under requests came to; of arms that serve alone.
        out: labels that failed, turned out impossible or broke a limit of the policy, with the kind of reason.
        barred: labels that break a limit by what is known so far, so that no restart is spent on ranking them.
        hung: labels of arms that gave no answer in an earlier process of the run, and have not played since.
        killed: labels that left the last restart because they were killed: once more, and they are out.
        contenders_first: see `GroupState`.
        terms: what arms that serve are asked; None where they call. The first restart sets a limit left open.
        sustained_s: see `Restart`.
        coming: how many of its targets have yet to be built.
    """

    arms: Mapping[str, Arm]
    rules: Rules
    seed: str
    blocks: dict[str, dict[int, Array]] = field(default_factory=dict)
    played: int = 0
    steady_from: dict[str, list[int | None]] = field(default_factory=dict)
    served: dict[str, list[LoadTestResult]] = field(default_factory=dict)
    out: dict[str, NotRunKind] = field(default_factory=dict)
    barred: set[str] = field(default_factory=set)
    hung: Collection[str] = ()
    killed: set[str] = field(default_factory=set)
    contenders_first: bool = True
    terms: serving.LoadTest | None = None
    sustained_s: float = 0.0
    coming: int = 0
    _evidence: GroupEvidence | None = None

    def players(self, called: Collection[Pair] = ()) -> list[Arm]:
        """Return the arms of the next restart, none if the race is over. `called`: see `state`."""
        return [self.arms[label] for label in next_players(self.state(called))]

    def open_pairs(self) -> dict[Pair, float]:
        """Return the pairs whose verdict is still open, with the restarts that each may take (inf: unknown).

        While contenders go first, these are theirs.
        """
        state = self.state().in_focus
        left = restarts_left(state.evidence, state.labels, state.unsteady)
        return {
            pair: state.fewest - self.count_shared(pair) if self.count_shared(pair) < state.fewest else count
            for pair, count in left.items()
        }

    def join(self, arms: Iterable[Arm]) -> None:
        """Let arms race that weren't there from the beginning: the first answer is out, so none stands back now."""
        new = {arm.label: arm for arm in arms if arm.label not in self.arms}
        self.arms = {**self.arms, **new}
        self.contenders_first = False
        if new:  # as many restarts as each should play, though the race had its most before
            most = max(self.rules.max_restarts, self.played + fewest_restarts(self.rules))
            self.rules = replace(self.rules, max_restarts=most)
        self._evidence = None

    def take_baseline(self, baseline: str, control: Arm) -> None:
        """Race against another baseline from the next restart on, beside its copy; that of the old one leaves."""
        old = self.rules.control
        self.rules = replace(self.rules, baseline=baseline, control=control.label)
        self.arms = {label: arm for label, arm in self.arms.items() if label != old} | {control.label: control}
        self.blocks = {label: blocks for label, blocks in self.blocks.items() if label != old}
        self._evidence = None

    def count_shared(self, pair: Pair) -> int:
        """Count the restarts that both have played."""
        return len(set(self.blocks.get(pair[0], ())) & set(self.blocks.get(pair[1], ())))

    @property
    def owes(self) -> bool:
        """Tell whether arms that stood back for the contenders have yet to play as often as each should."""
        return bool(self.state().late)

    def state(self, called: Collection[Pair] = ()) -> GroupState:
        """Return what the group has shown so far; `called`: pairs that play once more, whatever the goal needs."""
        return GroupState(
            evidence=self.evidence,
            labels=self._playing_labels,
            played=self.played,
            called=called,
            unsteady=unsteady(self.steady_from),
            contenders_first=self.contenders_first,
            coming=self.coming,
        )

    @property
    def evidence(self) -> GroupEvidence:
        """Return what the restarts so far say of any two arms."""
        off_limits = {label for label, kind in self.out.items() if kind is NotRunKind.OFF_LIMITS}
        unsound = unfit(self.steady_from, self.served, self.blocks, self.out)
        barred, known = self.barred | off_limits, self._evidence
        if known is None or (known.unsound, known.barred) != (unsound, barred):
            known = self._evidence = GroupEvidence(self.blocks, self.rules, unsound, barred)
        return known

    @property
    def fewest(self) -> int:
        """Return the fewest restarts that can give a verdict, or that are asked for."""
        return fewest_restarts(self.rules)

    @property
    def owed(self) -> int:
        """Return into how many more restarts the time left should be parted."""
        aimed = LIMIT_RESTARTS if self.rules.goal.aim is Aim.LIMIT else AIMED_RESTARTS
        return aimed - self.played

    @property
    def sound(self) -> dict[str, dict[int, Array]]:
        """Return the blocks of the arms that have not failed."""
        return {label: self.blocks[label] for label in self._playing_labels if label in self.blocks}

    @property
    def _playing_labels(self) -> list[str]:
        return [label for label in self.arms if label not in self.out]

    def restart(self, players: list[Arm], context: RestartContext) -> Restart:
        """Play the next restart and take what it showed into account."""

        killed = set()

        def setback(arm: Arm, why: NotRun) -> None:
            if why.kind is NotRunKind.KILLED and arm.label not in self.killed:
                killed.add(arm.label)
            else:
                self.out[arm.label] = why.kind
            context.events.setback(arm, why)

        rng = random.Random(f"{self.seed} {self.played}")
        found = Restart(
            index=self.played,
            arms=players,
            context=replace(context, events=replace(context.events, setback=setback)),
            rng=rng,
            terms=self.terms,
            baseline=self.rules.baseline,
            sustained_s=self.sustained_s,
            tails=self.rules.least_restarts >= LEAST_TAILS,
            compute_rounds=scenario_of(players[0]).compute_rounds,
            hung=self.hung,
        ).run()
        if found.is_cut:
            return found
        self.killed = killed
        self.hung = {*self.hung} - {live.arm.label for live in found.playing}
        if self.terms and found.desk:
            self.terms = replace(self.terms, limit_ns=found.desk.limit_ns)
        for live in found.playing:
            medians = block_medians(live)[Scope.END_TO_END]
            if medians:
                kept = counted(medians, flagged_blocks(live, found.flagged))
                self.blocks.setdefault(live.arm.label, {})[self.played] = kept
            self.steady_from.setdefault(live.arm.label, []).append(live.warm_up.steady_from)
            if served := serving.served_in(found.desk, live, found.flagged):
                self.served.setdefault(live.arm.label, []).append(served)
        self.played += 1
        self._evidence = None
        return found


def block_medians(live: LiveArm) -> dict[str, tuple[float, ...]]:
    """Return by scope the median (ns) of each block, and `CPU`; of an arm that serves, what its turns come to.

    Under sustained load it is the time per call at the end of each turn.
    """
    if live.arm.scenario is Scenario.SERVE:
        return {Scope.END_TO_END: serving.outcome_ns(live.turns), Scope.COMPUTE: ()}
    if live.arm.scenario is Scenario.SUSTAINED:
        return {Scope.END_TO_END: tuple(over_time.end_ns(turn.bins) for turn in live.turns), Scope.COMPUTE: ()}
    cpu_ns = [turn.cpu_ns for turn in live.turns if turn.cpu_ns is not None]
    return {
        scope.value: tuple(float(np.median(turn.latency_ns[scope])) for turn in live.turns if scope in turn.latency_ns)
        for scope in Scope
    } | ({CPU: tuple(cpu_ns)} if len(cpu_ns) == len(live.turns) > 0 else {})


def flagged_blocks(live: LiveArm, flagged: tuple[int, ...]) -> tuple[int, ...]:
    """Return which of an arm's block medians are of flagged rounds; a rate search has one figure for all rounds."""
    searched = live.arm.scenario is Scenario.SERVE and not serving.given(live.turns)
    return () if searched else flagged


@dataclass(slots=True, kw_only=True, eq=False)
class ScheduledGroup:
    """One group in the run.

    Attributes:
        index: its number in the run, from 0.
        last_s: seconds that its last restart took, 0 before the first.
        parts_s: what each arm takes of the shortest one, by label (`pace.took_s`); empty before this process's first.
        last_arms: how many arms played it.
        recalled: restarts that it had played when it came in.
        called: pairs that play its next restart, whatever its goal needs.
        players: the arms of its next restart; none when it is over.
        barred_at: how many restarts it had played when its barred arms were last looked for.
        has_answered: whether its first answer was given.
        extra: how often a row was called once more because that nearly settles it, by label.
    """

    index: int
    group: PlannedGroup
    race: Race
    last_s: float = 0.0
    last_arms: int = 0
    parts_s: dict[str, float] = field(default_factory=dict)
    recalled: int = field(init=False)
    called: Collection[Pair] = ()
    players: list[Arm] = field(default_factory=list)
    barred_at: int = 0
    has_answered: bool = False
    extra: Counter[str] = field(default_factory=Counter)
    _left: Sequence[float] | None = None

    def __post_init__(self) -> None:
        self.recalled = self.race.played

    @property
    def fewest(self) -> int:
        """Return the fewest restarts that can give a verdict."""
        return self.race.fewest

    @property
    def next_s(self) -> float:
        """Return the seconds of its next restart: the least if that is known, else as the last one, by arms."""
        return self._seconds_of(self.players)

    def _seconds_of(self, arms: Sequence[Arm]) -> float:
        if self.parts_s and all(arm.label in self.parts_s for arm in arms):
            return sum(self.parts_s[arm.label] for arm in arms)
        return self.last_s * (len(arms) / self.last_arms if self.last_arms else 1.0)

    @property
    def usual_s(self) -> float:
        """Return the seconds of its next restart if an arm takes as long as in the last one."""
        return self.last_s * (len(self.players) / self.last_arms if self.last_arms else 1.0)

    def call_all(self, allows: Callable[[float], bool]) -> None:
        """Let the arms play now that stand back for the contenders, if they would have no time behind them."""
        if self.race.contenders_first and self.race.owes:
            later = replace(self.race, contenders_first=False).players(self.called)
            if len(later) > len(self.players) and not allows(self.next_s + self._seconds_of(later)):
                self.race.contenders_first = False
                self.look(self.called)

    def look(self, called: Collection[Pair] = ()) -> None:
        """Find the arms that play next, after a restart or when other pairs are called than before."""
        self.called = called
        self.players = self.race.players(called)
        self._left = None

    def thin(self, left_s: float) -> None:
        """Leave the time that is left to the fastest where a race for the best arm can't have all play on."""
        rules = self.race.rules
        if rules.goal.aim is Aim.BEST and not rules.selects and not self.race.terms:
            share_s = left_s / max(1, self.fewest - self.race.played)
            last = self._far_from_told
            self.players = pace.thinned(self.players, self.parts_s, self.race.blocks, rules, share_s, last)

    @property
    def nearest(self) -> float:
        """Return the restarts until the first verdict that is waited for; inf where that isn't known."""
        return min(self._waited_for, default=math.inf)

    @property
    def left(self) -> float:
        """Return the restarts until all that is waited for is known, by what is known so far; at most the limit."""
        most, least = self.race.rules.max_restarts - self.race.played, self.fewest - self.race.played
        if least > 0:
            return max(1, most if self.race.rules.goal.within else least)
        return max(1, min(most, max(self._waited_for, default=1)))

    @property
    def _waited_for(self) -> Sequence[float]:
        """Return how many restarts each open verdict may take."""
        if self._left is None:  # an estimate takes a while, and not all groups are asked for it
            self._left = [*self.race.open_pairs().values(), *(1.0 for _ in self.called)]
        return self._left

    @property
    def _leader(self) -> str:
        """Return the short name of the arm that leads so far; "" before the first restart."""
        no_leaders = self.race.evidence.out_of_question
        arms = [arm.label for arm in self.race.arms.values() if not arm.control and arm.label not in no_leaders]
        leaders = next(iter(leader_sets(self.race.evidence, arms)), None)
        return short(leaders.fastest) if leaders else ""

    @property
    def standing(self) -> str:
        """Tell which arm leads so far, and how many are still in the race; "" before the first restart."""
        waiting = units.counted(sum(not arm.control for arm in self.players), "target")
        return f"{leader} leads, {waiting} open" if (leader := self._leader) else ""

    @property
    def lacks_answer(self) -> bool:
        """Tell whether it isn't known yet which of the targets that could race at once are fastest."""
        return self.race.played < FIRST_ANSWER_RESTARTS and not self.race.state(self.called).contenders.is_settled

    @property
    def _far_from_told(self) -> set[str]:
        """Return the arms that a restart or two more bring no verdict, as far as that is known."""
        if self.race.played < self.fewest:
            return set()
        nearest: dict[str, float] = {}
        for pair, restarts in self.race.open_pairs().items():
            nearest |= {label: min(restarts, nearest.get(label, math.inf)) for label in pair}
        return {label for label, restarts in nearest.items() if restarts > MOST_EXTRA}

    def find_nearly_told(self) -> list[Pair]:
        """Return the rows beside the fastest without a verdict that few restarts more would bring, the cheapest first.

        Only in a race for the best: others go on until each row is settled.
        """
        race, evidence = self.race, self.race.evidence
        if race.rules.goal.aim is not Aim.BEST or race.rules.selects or race.terms:
            return []
        arms = [label for label in race.sound if label not in {race.rules.control, *evidence.out_of_question}]
        fastest = next((one.fastest for one in reversed(leader_sets(evidence, arms))), None)
        pairs = [(label, fastest) for label in arms if fastest and label != fastest]
        near = [pair for pair in pairs if self.extra[pair[0]] < MOST_EXTRA and _lacks_few(evidence.compare(*pair))]
        return sorted(near, key=lambda pair: self.parts_s.get(pair[0], math.inf))

    def takes_s(self, pairs: Iterable[Pair]) -> float:
        """Return the seconds of a restart in which these pairs play."""
        rules = self.race.rules
        labels = {rules.baseline, rules.control, *(label for pair in pairs for label in pair)}
        return self._seconds_of([arm for label, arm in self.race.arms.items() if label in labels])

    def tell_standing(self) -> str:
        """Return what is known before others are built, unless the first answer was given; "" if nothing is."""
        if self.has_answered or not self.race.coming or not (leader := self._leader):
            return ""
        return f"so far {leader} leads; {self._tell_coming()}"

    def _tell_coming(self) -> str:
        coming = self.race.coming
        return f"{units.counted(coming, 'more target')} {'is' if coming == 1 else 'are'} built next"

    def take_first_answer(self) -> str:
        """Return once what is settled among the contenders, while others have yet to play; "" if that isn't so."""
        if self.has_answered or not (found := self.race.state(self.called).first_answer):
            return ""
        self.has_answered = True
        fastest = " or ".join(map(short, found.tied))
        parts = [f"first answer: {fastest}"]
        if found.contenders > 1:
            parts[0] += f", of {found.contenders} targets within {CONTENDING:g}x"
        if found.parked:
            parts.append(f"{units.counted(found.parked, 'slower target')} without a verdict yet")
        if self.race.coming:
            parts.append(self._tell_coming())
        return "; ".join(parts)

    @property
    def order(self) -> tuple[float, ...]:
        """Return the size, so that the smaller plays first."""
        if self.race.played == 0:
            return (0, self.index)
        if self.race.played < self.fewest:
            return (1, self.index)
        return (2, not self.called, self.nearest, self.index)


def _lacks_few(found: Comparison | None) -> bool:
    """Tell whether a pair has no verdict, and would have one after `MOST_EXTRA` restarts more like those so far."""
    if found is None or found.decided or found.restarts_needed is None:
        return False
    return found.restarts_needed - found.restarts <= MOST_EXTRA


def race_of(known: Group, arms: Sequence[Arm], *, seed: str, terms: LoadTest | None) -> Race:
    """Return a group's race as its part of the journal left it."""
    return Race(
        arms={arm.label: arm for arm in arms},
        rules=known.rules,
        seed=seed,
        blocks=known.blocks(Scope.END_TO_END),
        played=known.next_restart,
        steady_from=known.steady_from,
        served=known.served,
        terms=terms,
        out={label: why.kind for label, why in known.setbacks.items()},
    )


def first(waiting: Iterable[ScheduledGroup], allows: Callable[[float], bool]) -> ScheduledGroup | None:
    """Return the group that runs the next restart; None if no restart ends in time.

    Args:
        waiting: groups that have players.
        allows: whether there is time for so many seconds.
    """
    allowed = [one for one in waiting if allows(one.next_s)]
    return min(allowed, key=lambda one: one.order) if len(allowed) > 1 else next(iter(allowed), None)


def left_s(waiting: Sequence[ScheduledGroup]) -> float:
    """Return the seconds that the restarts to come will take, by what each group took last; 0: not known yet."""
    return sum(one.left * one.usual_s for one in waiting)


MISSED = 2.0
"""An estimate has failed if the run goes on for so many times as long as was said first."""


@dataclass(slots=True)
class EndEstimate:
    """Estimate when a run ends: when its goal is reached, or at its limit once such an estimate has failed.

    Restarts until a goal are extrapolated, and a wrong estimate can be repeated restart after restart.
    """

    _first_s: float | None = None
    _said_s: float = 0.0

    def left_s(self, goal_s: float, limit_s: float, now_s: float) -> float:
        """Return the seconds that are left, to be told; 0 if they aren't known yet.

        Args:
            goal_s: until the goal, by what is known; 0: not known yet.
            limit_s: until the run ends whatever is known; may be inf.
            now_s: since the race began.
        """
        left_s = min(goal_s, limit_s)
        if self._first_s is None:
            if left_s:
                self._first_s, self._said_s = now_s, left_s
            return left_s
        has_failed = now_s - self._first_s > MISSED * self._said_s
        return limit_s if has_failed and math.isfinite(limit_s) else left_s
