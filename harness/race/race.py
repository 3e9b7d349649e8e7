"""One group's race: its state between restarts, the same for a live run, a resumed one and a test with fakes."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from shootout.constants import AIMED_RESTARTS, LIMIT_RESTARTS
from shootout.contract import Arm, Array, NotRun, NotRunKind, Scenario
from shootout.journal.group import counted, unfit, unsteady
from shootout.journal.records import Served
from shootout.messages import Scope
from shootout.race import serving
from shootout.race.protocols import Context, Performance
from shootout.race.restart import Restart
from shootout.race.stopping import GroupState, next_players
from shootout.stats.evidence import min_restarts
from shootout.stats.goals import Aim
from shootout.stats.open_pairs import Pair, restarts_left
from shootout.stats.quantiles import LEAST_TAILS
from shootout.stats.verdicts import Rules, ground_of


@dataclass(kw_only=True)
class Race:
    """Who is in, and what each has shown.

    Attributes:
        arms: by label, the control among them.
        blocks: end-to-end block medians (ns) by label and restart.
        played: restarts so far, those that brought no figure among them.
        steady_from: by label, the first steady call of each restart that it played; None where there was none.
        served: by label, what each restart under requests came to; of arms that serve alone.
        out: labels that failed or turned out impossible.
        barred: labels that break what the run is for, so that nobody waits for who of them is faster.
        hung: labels of arms that gave no answer in an earlier process of the run, and have not played since.
        killed: labels that left the last restart because they were killed: once more, and they are out.
        terms: what arms that serve are asked; None where they call. The first restart sets a limit left open.
    """

    arms: Mapping[str, Arm]
    rules: Rules
    seed: str
    blocks: dict[str, dict[int, Array]] = field(default_factory=dict)
    played: int = 0
    steady_from: dict[str, list[int | None]] = field(default_factory=dict)
    served: dict[str, list[Served]] = field(default_factory=dict)
    out: set[str] = field(default_factory=set)
    barred: set[str] = field(default_factory=set)
    hung: Collection[str] = ()
    killed: set[str] = field(default_factory=set)
    terms: serving.Terms | None = None

    def players(self, pressing: Collection[Pair] = ()) -> list[Arm]:
        """Who plays the next restart; nobody when the race is over. `pressing`: see `state`."""
        return [self.arms[label] for label in next_players(self.state(pressing))]

    def open_pairs(self) -> dict[Pair, float]:
        """The pairs that the group still has to tell apart, with the restarts that each may take (inf: unknown)."""
        state = self.state()
        return restarts_left(state.blocks, state.labels, state.rules, state.unsound, state.unsteady)

    def state(self, pressing: Collection[Pair] = ()) -> GroupState:
        """What the group has shown so far; `pressing`: pairs whose crossover waits for a verdict here."""
        return GroupState(
            rules=self.rules,
            labels=self._alive,
            blocks=self.blocks,
            played=self.played,
            pressing=pressing,
            unsound=self.unsound,
            unsteady=unsteady(self.steady_from),
        )

    @property
    def fewest(self) -> int:
        """The least restarts that can give a verdict, on the ground that it stands on now, or that are asked."""
        prior = ground_of(self.sound, self.rules).prior
        return max(min_restarts(self.rules.comparisons, prior=prior), self.rules.least_restarts)

    @property
    def owed(self) -> int:
        """How many restarts more the time that is left should be parted into."""
        aimed = LIMIT_RESTARTS if self.rules.goal.aim is Aim.LIMIT else AIMED_RESTARTS
        return aimed - self.played

    @property
    def sound(self) -> dict[str, dict[int, Array]]:
        """The blocks of the arms that have not failed."""
        return {label: self.blocks[label] for label in self._alive if label in self.blocks}

    @property
    def unsound(self) -> set[str]:
        """The arms that can't be the answer, as they stand."""
        return unfit(self.steady_from, self.served, self.blocks) | self.barred

    @property
    def _alive(self) -> list[str]:
        return [label for label in self.arms if label not in self.out]

    def restart(self, players: list[Arm], context: Context) -> Restart:
        """Play the next restart and take what it showed into account."""

        killed = set()

        def setback(arm: Arm, why: NotRun) -> None:
            if why.kind is NotRunKind.KILLED and arm.label not in self.killed:
                killed.add(arm.label)
            else:
                self.out.add(arm.label)
            context.notes.setback(arm, why)

        rng = random.Random(f"{self.seed} {self.played}")
        found = Restart(
            index=self.played,
            arms=players,
            context=replace(context, notes=replace(context.notes, setback=setback)),
            rng=rng,
            terms=self.terms,
            baseline=self.rules.baseline,
            tails=self.rules.least_restarts >= LEAST_TAILS,
            hung=self.hung,
        ).run()
        if found.is_cut:
            return found
        self.killed = killed
        self.hung = {*self.hung} - {performance.arm.label for performance in found.performances}
        if self.terms and found.desk:
            self.terms = replace(self.terms, limit_ns=found.desk.limit_ns)
        for performance in found.performances:
            medians = block_medians(performance)[Scope.END_TO_END]
            if medians:
                kept = counted(medians, flagged_blocks(performance, found.flagged))
                self.blocks.setdefault(performance.arm.label, {})[self.played] = kept
            self.steady_from.setdefault(performance.arm.label, []).append(performance.warm_up.steady_from)
            if served := serving.served_in(found.desk, performance):
                self.served.setdefault(performance.arm.label, []).append(served)
        self.played += 1
        return found


def block_medians(performance: Performance) -> dict[str, tuple[float, ...]]:
    """By scope, the median (ns) of each round's block; of an arm that serves, what its turns come to."""
    if performance.arm.scenario is Scenario.SERVE:
        return {Scope.END_TO_END: serving.outcome_ns(performance.turns), Scope.COMPUTE: ()}
    return {
        scope.value: tuple(float(np.median(turn.latency_ns[scope])) for turn in performance.turns) for scope in Scope
    }


def flagged_blocks(performance: Performance, flagged: tuple[int, ...]) -> tuple[int, ...]:
    """Which of an arm's block medians are those of flagged rounds; a search for a rate has one figure of all of its."""
    searched = performance.arm.scenario is Scenario.SERVE and not serving.given(performance.turns)
    return () if searched else flagged
