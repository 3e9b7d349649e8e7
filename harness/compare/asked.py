"""What a cell asked: the same model with the same inputs, or which field differs. The one rule for all that puts runs
together.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from shootout.contract import Scenario
from shootout.errors import UsageError
from shootout.results.analysis import Analysed
from shootout.results.cells import Cell
from shootout.study.group import name_model

Asked = Mapping[str, Any]
"""What must be the same in all runs, by the name that people know it by."""
METRIC = "--metric"
SHARED = ("--inputs", "--labels", "--calibration", "--weights", METRIC)
"""What two runs must have been given alike; a run without a metric has no scores that could be another's."""
MODEL, EXPORT, OPERATIONS = "model", "export", "operations"
_LOOSE = (METRIC, EXPORT, OPERATIONS)
"""What needn't be known of both."""


def read_asked(run: Analysed, cell: Cell) -> Asked:
    """What a cell of a run asked."""
    found = run.groups[cell.group]
    arm = found.record.arms[0]
    given = dict(zip(run.header.given[::2], run.header.given[1::2], strict=True))
    trains = "train-step" if arm.scenario == Scenario.TRAIN_STEP else "inference"
    files = {name: Path(given[name]).name if name in given else None for name in SHARED}
    batch = min(one.batch for one in found.record.arms)
    counts = {one.work.flops for one in found.prepared.values() if one.work}
    return {MODEL: name_model(arm.model), "scenario": trains, "batch": batch, **arm.parameters, **files} | {
        OPERATIONS: {one for one in counts if one is not None},
        EXPORT: {one.exported for one in found.prepared.values() if one.exported},
    }


def key_of(asked: Asked) -> Hashable:
    """The same for all that ask the same, as far as a key can tell: without what needn't be known of both."""
    return tuple((name, value) for name, value in asked.items() if name not in _LOOSE)


def find_differing(one: Asked, other: Asked) -> tuple[str, ...]:
    """The fields in which two differ."""
    names = dict.fromkeys([*one, *other])
    return tuple(name for name in names if _differ(name, one.get(name), other.get(name)))


def tell_differing(name: str, one: Asked, other: Asked) -> str:
    """A field that differs, with both values."""
    if name == EXPORT:
        return "their exports differ, in weights, data or exporter"
    first, second = (
        ", ".join(map(str, sorted(found))) if isinstance(found, set) else found
        for found in (one.get(name), other.get(name))
    )
    return f"{name.lstrip('-')} differs: {first} and {second}"


def tell_strange(one: Asked, other: Asked) -> list[str]:
    """The fields that make two another question, with their values; another exporter alone doesn't."""
    differing = [name for name in find_differing(one, other) if name != EXPORT]
    if MODEL in differing:  # its parameters are others, too
        return [tell_differing(MODEL, one, other)]
    return [tell_differing(name, one, other) for name in differing]


def refuse_strangers(asked: Sequence[tuple[Analysed, Asked]]) -> None:
    """Stop at cells that ask different things.

    Raises:
        UsageError: two of them do; names the runs and the field.
    """
    for (first_run, first), (run, one) in combinations(asked, 2):
        differing = next(iter(find_differing(first, one)), None)
        if differing is None:
            continue
        name = run.document.run
        if run is first_run:
            there = ", ".join(repr(name) for name in run.cells)
            raise UsageError(f"{name} asks several questions: `shootout decide {name} --group NAME`, one of {there}")
        told = tell_differing(differing, first, one)
        raise UsageError(f"{first_run.document.run} and {name} can't be put together: {told}")


def refuse_same(runs: Sequence[Analysed]) -> None:
    """Stop at a run that was given twice, in whatever form.

    Raises:
        UsageError: there is one; names both folders.
    """
    for one, other in combinations(runs, 2):
        if is_same(one, other):
            raise UsageError(f"{one.document.run} and {other.document.run} are the same run: name it once")


def is_same(one: Analysed, other: Analysed) -> bool:
    """Whether two are one run, in whatever form: they began alike, and so did what they measured.

    Two nodes of one image may begin in the same second; where neither has a figure, they are two all the same.
    """
    if one.document.run == other.document.run:
        return True
    first = _first_figure(one)
    return first is not None and first == _first_figure(other) and _mark(one) == _mark(other)


def _mark(run: Analysed) -> Hashable:
    return run.header.created, run.header.identity, run.document.environment.get("machine")


def _first_figure(run: Analysed) -> float | None:
    """How long its first restart took, in seconds; none takes as long as another, to the last digit."""
    return next((line.wall_s for group in run.groups.values() for line in group.rounds), None)


def _differ(name: str, one: Any, other: Any) -> bool:
    if name in (EXPORT, OPERATIONS):
        return bool(one and other and not one & other)
    if name == METRIC:
        return bool(one and other and one != other)
    return bool(one != other)
