"""Searches for crossovers whose truth is known: two planted lines a + b·n, and a tape of restarts for each size.

The package's stopping rule, sweeps and crossover are driven as a campaign drives them; only the stage is left out, so
that hundreds of searches take seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from shootout.contract import Arm, Array, Target
from shootout.journal.records import Played, Rounds
from shootout.messages import Scope
from shootout.results import crossovers
from shootout.results.crossovers import At, Kind, Outcome
from shootout.results.group import Group
from shootout.stats.evidence import min_restarts
from shootout.stats.group_evidence import Rules
from shootout.study.group import GroupRecord
from support.races.made import EXACT, EXECUTED

A, B, COPY = (
    Arm(target=Target(backend="a"), model="m"),
    Arm(target=Target(backend="b"), model="m"),
    Arm(target=Target(backend="a"), model="m", control=True),
)
PAIR = (A.label, B.label)


def group(size: int, pairs: tuple[tuple[str, str], ...] = (PAIR,), limit: int = 20) -> Group:
    """A group without any restart."""
    arms = tuple(Arm(target=one.target, model="m", batch=size, control=one.control) for one in (A, B, COPY))
    record = GroupRecord(name=f"m, batch {size}", baseline=A.label, comparisons=1, arms=arms, pairs=pairs)
    rules = Rules(
        baseline=A.label,
        control=COPY.label,
        comparisons=1,
        max_restarts=limit,
        bias_floor=0.005,
        pairs=frozenset(pairs),
    )
    return Group(record=record, rules=rules, played={}, rounds=[], prepared={}, setbacks={})


def play(found: Group, times_ns: dict[str, float]) -> None:
    """One more restart, in which each arm had that median in both scopes."""
    index = found.next_restart
    lines = [
        Played.model_construct(
            group=found.record.name,
            arm=label,
            restart=index,
            steady_from=5,
            executed=EXECUTED,
            fidelity=EXACT,
            block_median_ns={scope.value: (time,) for scope in Scope},
        )
        for label, time in times_ns.items()
    ]
    found.add(lines, Rounds.model_construct(group=found.record.name, restart=index, tried=1, voided=()))


@dataclass
class World:
    """Two lines a + b·n in ns; each restart of an arm is off by a lognormal factor.

    Attributes:
        sd: of the log ratio between restarts.
    """

    a: tuple[float, float]
    b: tuple[float, float]
    sd: float
    seed: int
    sizes: tuple[int, ...] = (1, 32, 1024)
    groups: dict[int, Group] = field(default_factory=dict)
    known: dict[int, At] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        for size in self.sizes:
            self.add(size)

    @property
    def truth(self) -> float:
        """Where the lines cross."""
        return (self.a[0] - self.b[0]) / (self.b[1] - self.a[1])

    @property
    def restarts(self) -> int:
        return sum(len(one.rounds) for one in self.groups.values())

    def add(self, size: int) -> None:
        """A new size plays the fewest restarts at once."""
        self.groups[size] = group(size)
        for _ in range(min_restarts(1)):
            self.restart(size)
        self.look(size)

    def restart(self, size: int) -> None:
        noise: Array = np.exp(self.sd / np.sqrt(2) * self.rng.standard_normal(3))
        exact = {A.label: self.a, B.label: self.b, COPY.label: self.a}
        times = {
            label: (line[0] + line[1] * size) * factor
            for (label, line), factor in zip(exact.items(), noise, strict=True)
        }
        play(self.groups[size], times)

    def look(self, size: int) -> None:
        self.known[size] = crossovers.at(self.groups[size], size, PAIR, Scope.END_TO_END)

    def search(self) -> list[Outcome]:
        """As a campaign does: what a crossover waits for, nearest first; then sizes it asks for; then the answer."""
        while True:
            points = [self.known[size] for size in sorted(self.known)]
            if waiting := crossovers.wanted(points):
                nearest = min(waiting, key=lambda one: (one.needed or 1_000) - one.restarts)
                self.restart(nearest.size)
                self.look(nearest.size)
            elif asked := crossovers.next_sizes(points):
                self.add(asked[0][0])
            else:
                return crossovers.outcomes(points)


def crossing(at: float, steep: float, *, sd: float, seed: int) -> World:
    """Lines that cross at `at`: `a` has more overhead, `b` grows `steep` times as fast."""
    return World(a=(500.0 + 10.0 * (steep - 1.0) * at, 10.0), b=(500.0, 10.0 * steep), sd=sd, seed=seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What many searches came to, as shares of them; `octave` is of those that ended in one bracket."""

    contains: float
    misses: float
    cant_tell: float
    none: float
    octave: float
    restarts: float
    sizes: float


def tally(worlds: list[World]) -> Tally:
    """Search in all of them."""
    found = [(world, world.search()) for world in worlds]
    single = [(world, out[0]) for world, out in found if [one.kind for one in out] == [Kind.BRACKET]]
    hits = [world for world, one in single if one.low <= world.truth <= one.high]
    kinds = [{one.kind for one in out} for _, out in found]
    return Tally(
        contains=len(hits) / len(worlds),
        misses=sum(Kind.BRACKET in kind for kind in kinds) / len(worlds) - len(hits) / len(worlds),
        cant_tell=sum(Kind.CANT_TELL in kind for kind in kinds) / len(worlds),
        none=sum(Kind.NONE in kind for kind in kinds) / len(worlds),
        octave=sum(one.high <= 2 * one.low for _, one in single) / max(len(single), 1),
        restarts=float(np.mean([world.restarts for world in worlds])),
        sizes=float(np.mean([len(world.groups) for world in worlds])),
    )
