"""Groups that join a run on the way: the same point of the study at another size, with only the arms it is about."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from shootout.crossover.search import Ask
from shootout.errors import UsageError
from shootout.journal.records import Added
from shootout.study import points
from shootout.study.feasibility import Here
from shootout.study.group import GroupRecord, Pair, count_comparisons
from shootout.study.plan import PlannedGroup, plan_groups
from shootout.study.points import Point
from shootout.study.schema import Study


def planned(study: Study, here: Here, asks: Iterable[Ask], names: Collection[str]) -> list[tuple[PlannedGroup, Added]]:
    """The groups that the asks want, with their lines in the journal; none for an ask that no size will do for.

    Args:
        names: of the groups that are there; no group is planned under the name of another one, so asking ends.
    """
    found: list[tuple[PlannedGroup, Added]] = []
    for ask in asks:
        if one := _planned(study, here, ask, {*names, *(group.record.name for group, _ in found)}):
            found.append(one)
    return found


def recalled(study: Study, record: GroupRecord) -> PlannedGroup:
    """A group that an earlier process added or confirmed with, as it was."""
    arm = record.arms[0]
    point = Point(model=arm.model, parameters=arm.parameters, batch=arm.batch, scenario=arm.scenario)
    return PlannedGroup(record=record, request=points.request(study, point), skips={})


def _planned(study: Study, here: Here, ask: Ask, names: Collection[str]) -> tuple[PlannedGroup, Added] | None:
    """One ask's group, at the first of the sizes at which its arms can run."""
    assert study.crossover is not None, "who asks, looks for a crossover"
    for size in ask.sizes:
        try:
            (found,) = plan_groups(_at(study, ask, {study.crossover.axis: size}), here)
        except UsageError:  # a size that the model can't have
            continue
        there = {arm.label for arm in found.playing}
        wanted = tuple(pair for pair in ask.pairs if set(pair) <= there)
        group = _only(found, wanted, names)
        if wanted and group.record.name not in names:
            asked = tuple(f"{scope} {a} {b}" for a, b in wanted for scope in sorted(ask.pairs[a, b]))
            return group, Added(group=group.record, size=size, asked=asked)
    return None


def _at(study: Study, ask: Ask, changes: dict[str, int]) -> Study:
    """The study with one point: that of the group that the ask is like, with other values on some axes."""
    arm = ask.like.arms[0]
    point: dict[str, Any] = {"batch": (arm.batch,), "threads": _threads(study, ask)}
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


def _threads(study: Study, ask: Ask) -> tuple[Any, ...]:
    """The study's own word where it has one for all groups; else the count that those arms share among instances."""
    if len(study.threads) == 1 and not any("threads" in point for point in study.points):
        return study.threads
    racing = {ask.like.baseline, *ask.labels}
    return (max(arm.cpus for arm in ask.like.arms if arm.label in racing),)


def _only(group: PlannedGroup, wanted: Collection[Pair], names: Collection[str]) -> PlannedGroup:
    """The group with the arms of these pairs, the baseline and its copy; where its name is gone, with a longer one."""
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
