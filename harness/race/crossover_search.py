"""The crossovers that a run is looking for: whose verdict they wait for, and the sizes that they ask for next."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shootout.errors import UsageError
from shootout.journal.records import Added
from shootout.messages import Scope
from shootout.results import crossovers
from shootout.results.crossovers import At, Key, SizeSweep
from shootout.results.group import Group
from shootout.study import points
from shootout.study.feasibility import Here
from shootout.study.group import GroupRecord, Pair, count_comparisons, scopes_of, size_of
from shootout.study.plan import PlannedGroup, plan_groups
from shootout.study.points import Point
from shootout.study.schema import Study

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
        """Return the arms that the new group needs beside the baseline and its copy."""
        return {label for pair in self.pairs for label in pair}


@dataclass(slots=True, kw_only=True)
class Search:
    """All sweeps of a run, and what is known of each pair at each size. Without an axis nothing is looked for."""

    axis: str | None
    _records: list[GroupRecord] = field(default_factory=list)
    _sweeps: list[SizeSweep] = field(default_factory=list)
    _known: dict[tuple[str, Pair, Scope], At] = field(default_factory=dict)

    def add(self, records: Iterable[GroupRecord]) -> None:
        """Take further groups into the sweeps; `learn` each of them next."""
        if self.axis is not None:
            self._records += records
            self._sweeps = crossovers.sweeps(self._records, self.axis)

    def learn(self, group: Group) -> None:
        """Look at a group that has played, or lost an arm."""
        if self.axis is not None:
            size = size_of(group.record.arms[0], self.axis)
            for pair in group.record.pairs:
                for scope in scopes_of(group.record.arms[0].scenario):
                    self._known[group.record.name, pair, scope] = crossovers.at(group, size, pair, scope)

    def pressing(self) -> dict[str, dict[Pair, float]]:
        """Return by group the pairs that a crossover waits for, with the restarts a verdict may take (inf: unknown)."""
        found: dict[str, dict[Pair, float]] = {}
        for sweep, _, sizes in self._open_lines():
            for point in crossovers.wanted(sizes):
                waiting = found.setdefault(sweep.groups[point.size].name, {})
                left = math.inf if point.needed is None else max(point.needed - point.restarts, 1)
                waiting[sweep.pair] = min(left, waiting.get(sweep.pair, math.inf))
        return found

    def asks(self) -> list[Ask]:
        """Return the sizes to race next, as few as the pairs can share; none if every crossover is narrow enough."""
        found: dict[Key, list[Ask]] = {}
        taken = self._sizes_with_group()
        for sweep, scope, measured in self._open_lines():
            like = self._busiest(sweep)
            key = crossovers.key_of(like, self.axis or "")
            for sizes in crossovers.next_sizes(measured, taken[key]):
                _join_asks(found.setdefault(key, []), Ask(like=like, sizes=sizes, pairs={sweep.pair: {scope}}))
        return [ask for asks in found.values() for ask in asks]

    def _open_lines(self) -> Iterator[tuple[SizeSweep, Scope, list[At]]]:
        for sweep in self._sweeps:
            for scope in scopes_of(sweep.scenario):
                yield sweep, scope, [self._known[one.name, sweep.pair, scope] for one in sweep.groups.values()]

    def _sizes_with_group(self) -> Mapping[Key, Collection[int]]:
        """Return the sizes that have a group already, for any pairs."""
        taken: dict[Key, set[int]] = {}
        for record in self._records:
            size = size_of(record.arms[0], self.axis or "")
            taken.setdefault(crossovers.key_of(record, self.axis or ""), set()).add(size)
        return taken

    def _busiest(self, sweep: SizeSweep) -> GroupRecord:
        return max(sweep.groups.values(), key=lambda record: len(record.arms))


def _join_asks(asks: list[Ask], new: Ask) -> None:
    """Add to the asks, or to one whose best size serves this one as well."""
    for ask in asks:
        if ask.sizes[0] in new.sizes[:SHARED]:
            common = tuple(size for size in ask.sizes if size in new.sizes)
            for pair, scopes in new.pairs.items():
                ask.pairs.setdefault(pair, set()).update(scopes)
            ask.sizes = common
            return
    asks.append(new)


def plan_groups_for(
    study: Study, here: Here, asks: Iterable[Ask], names: Collection[str]
) -> list[tuple[PlannedGroup, Added]]:
    """Return the groups that the asks want, with their lines in the journal; an ask that fits no size has none.

    Args:
        names: of the groups that are there; no group is planned under the name of another one, so asking ends.
    """
    found: list[tuple[PlannedGroup, Added]] = []
    for ask in asks:
        if one := _plan_group(study, here, ask, {*names, *(group.record.name for group, _ in found)}):
            found.append(one)
    return found


def recall_group(study: Study, record: GroupRecord) -> PlannedGroup:
    """Return a group that an earlier process added or confirmed with, as it was."""
    arm = record.arms[0]
    point = Point(model=arm.model, parameters=arm.parameters, batch=arm.batch, scenario=arm.scenario)
    asked = replace(points.request(study, point), scores_all=record.scores_all)
    return PlannedGroup(record=record, request=asked, skips={})


def _plan_group(study: Study, here: Here, ask: Ask, names: Collection[str]) -> tuple[PlannedGroup, Added] | None:
    """Return one ask's group, at the first of the sizes at which its arms can run."""
    assert study.crossover is not None, "only a study with a crossover gets here"
    for size in ask.sizes:
        try:
            (found,) = plan_groups(_study_at(study, ask, {study.crossover.axis: size}), here)
        except UsageError:  # a size that the model can't have
            continue
        sweep = {**points.find_sweep(study), **found.request.sweep}  # whose export the size shares
        found = replace(found, request=replace(found.request, sweep=sweep))
        there = {arm.label for arm in found.playing}
        wanted = tuple(pair for pair in ask.pairs if set(pair) <= there)
        group = _reduce_to_pairs(found, wanted, names)
        if wanted and group.record.name not in names:
            asked = tuple(f"{scope} {a} {b}" for a, b in wanted for scope in sorted(ask.pairs[a, b]))
            return group, Added(group=group.record, size=size, asked=asked)
    return None


def _study_at(study: Study, ask: Ask, changes: dict[str, int]) -> Study:
    """Return the study with one point: that of the group that the ask resembles, with other values on some axes."""
    arm = ask.like.arms[0]
    point: dict[str, Any] = {"batch": (arm.batch,), "threads": _threads_for(study, ask)}
    point |= {name: (value,) for name, value in changes.items() if name in point}
    parameters = {**arm.parameters, **{name: value for name, value in changes.items() if name not in point}}
    everything = {
        **point,
        "model": (arm.model,),
        "scenario": (arm.scenario,),
        "parameters": {name: (value,) for name, value in parameters.items()},
        "points": (),
    }
    return study.model_copy(update=everything)


def _threads_for(study: Study, ask: Ask) -> tuple[Any, ...]:
    """Return the study's own thread count if it has one for all groups; else the count that these arms share."""
    if len(study.threads) == 1 and not any("threads" in point for point in study.points):
        return study.threads
    racing = {ask.like.baseline, *ask.labels}
    return (max(arm.cpus for arm in ask.like.arms if arm.label in racing),)


def _reduce_to_pairs(group: PlannedGroup, wanted: Collection[Pair], names: Collection[str]) -> PlannedGroup:
    """Return the group with the arms of these pairs, the baseline and its copy; a name that is taken gets longer."""
    record = group.record
    labels = {record.baseline, *(label for pair in wanted for label in pair)}
    arms = tuple(arm for arm in record.arms if arm.label in labels or arm.control)
    runnable = [arm for arm in arms if not arm.control]
    changes = {
        "name": record.name + (f", for {', '.join(map(' and '.join, wanted))}" if record.name in names else ""),
        "arms": arms,
        "references": {},
        "pairs": tuple(wanted),
        "comparisons": count_comparisons(record.baseline, runnable, {}, wanted, record.goal),
        "narrows": True,
    }
    return replace(group, record=record.model_copy(update=changes), skips={})
