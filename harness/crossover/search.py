"""The crossovers that a run is looking for: whose verdict they wait for, and the sizes that they ask for next."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from shootout.crossover import brackets, sweeps
from shootout.crossover.brackets import At
from shootout.crossover.sweeps import Key, Sweep
from shootout.journal.group import Group
from shootout.messages import Scope
from shootout.study.group import GroupRecord, Pair, scopes_of, size_of

SHARED = 3
"""A size that another pair asks for will do, where it is among the so many best of one's own."""


@dataclass(slots=True, kw_only=True)
class Ask:
    """A size that must be raced to narrow crossovers down.

    Attributes:
        like: the group that the new one is to equal in all but its size.
        sizes: that would do, the best first.
        pairs: whose crossover it is, with the scopes.
    """

    like: GroupRecord
    sizes: tuple[int, ...]
    pairs: dict[Pair, set[Scope]]

    @property
    def labels(self) -> set[str]:
        """The arms that the new group needs beside the baseline and its copy."""
        return {label for pair in self.pairs for label in pair}


@dataclass(slots=True, kw_only=True)
class Search:
    """All sweeps of a run, and what is known of each pair at each size. Without an axis nothing is looked for."""

    axis: str | None
    _records: list[GroupRecord] = field(default_factory=list)
    _sweeps: list[Sweep] = field(default_factory=list)
    _known: dict[tuple[str, Pair, Scope], At] = field(default_factory=dict)

    def add(self, records: Iterable[GroupRecord]) -> None:
        """Take further groups into the sweeps; `learn` each of them next."""
        if self.axis is not None:
            self._records += records
            self._sweeps = sweeps.sweeps(self._records, self.axis)

    def learn(self, group: Group) -> None:
        """Look at a group that has played, or lost an arm."""
        if self.axis is not None:
            size = size_of(group.record.arms[0], self.axis)
            for pair in group.record.pairs:
                for scope in scopes_of(group.record.arms[0].scenario):
                    self._known[group.record.name, pair, scope] = sweeps.at(group, size, pair, scope)

    def pressing(self) -> dict[str, dict[Pair, float]]:
        """By group, the pairs that a crossover waits for, with the restarts a verdict may take (inf: who knows)."""
        found: dict[str, dict[Pair, float]] = {}
        for sweep, _, points in self._lines():
            for point in brackets.wanted(points):
                waiting = found.setdefault(sweep.groups[point.size].name, {})
                left = math.inf if point.needed is None else max(point.needed - point.restarts, 1)
                waiting[sweep.pair] = min(left, waiting.get(sweep.pair, math.inf))
        return found

    def asks(self) -> list[Ask]:
        """The sizes to race next, as few as the pairs can share; none when every crossover is as narrow as it gets."""
        found: dict[Key, list[Ask]] = {}
        taken = self._taken()
        for sweep, scope, points in self._lines():
            like = self._fullest(sweep)
            key = sweeps.key_of(like, self.axis or "")
            for sizes in brackets.next_sizes(points, taken[key]):
                _join(found.setdefault(key, []), Ask(like=like, sizes=sizes, pairs={sweep.pair: {scope}}))
        return [ask for asks in found.values() for ask in asks]

    def _lines(self) -> Iterator[tuple[Sweep, Scope, list[At]]]:
        for sweep in self._sweeps:
            for scope in scopes_of(sweep.scenario):
                yield sweep, scope, [self._known[one.name, sweep.pair, scope] for one in sweep.groups.values()]

    def _taken(self) -> Mapping[Key, Collection[int]]:
        """The sizes that have a group already, whichever pairs it is for."""
        taken: dict[Key, set[int]] = {}
        for record in self._records:
            size = size_of(record.arms[0], self.axis or "")
            taken.setdefault(sweeps.key_of(record, self.axis or ""), set()).add(size)
        return taken

    def _fullest(self, sweep: Sweep) -> GroupRecord:
        return max(sweep.groups.values(), key=lambda record: len(record.arms))


def _join(asks: list[Ask], new: Ask) -> None:
    """Add to the asks, or to one whose best size serves this one as well."""
    for ask in asks:
        if ask.sizes[0] in new.sizes[:SHARED]:
            common = tuple(size for size in ask.sizes if size in new.sizes)
            for pair, scopes in new.pairs.items():
                ask.pairs.setdefault(pair, set()).update(scopes)
            ask.sizes = common
            return
    asks.append(new)
