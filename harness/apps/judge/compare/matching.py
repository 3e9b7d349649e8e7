"""Match runs that are put together: do they ask the same of one model, and is none of them given twice?"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from shootout.apps.judge.analysis import Analysed
from shootout.apps.judge.cell import Cell
from shootout.core.errors import UsageError
from shootout.core.exported.request import name_model
from shootout.core.scenario import scenario_of

Asked = Mapping[str, Any]
"""The facts that must be the same in all runs, by the names that people know."""
METRIC = "--metric"
SHARED = {
    f"--{name.replace('_', '-')}": name
    for name in ("inputs", "read", "labels", "truth", "rows_by", "calibration", "weights", "metric")
}
"""What two runs must have been given alike, by the options that people know: the fields of `Study`.

A run without a metric has no scores that could be another's.
"""
MODEL, EXPORT, OPERATIONS, THREADS = "model", "export", "operations", "threads"
_SETS = (EXPORT, OPERATIONS, THREADS)
"""The facts of which each run may have several, so that one in common is enough."""
_LOOSE = (METRIC, *_SETS)
"""The facts that needn't be known of both runs."""


def read_asked(run: Analysed, cell: Cell) -> Asked:
    """Return what a cell of a run asked."""
    found = run.groups[cell.group]
    arm = found.record.arms[0]
    given = run.facts.given
    trains = "train-step" if scenario_of(arm).trains else "inference"
    files = {name: Path(given[field]).name if field in given else None for name, field in SHARED.items()}
    batch = min(one.batch for one in found.record.arms)
    counts = {one.work.flops for one in found.prepared.values() if one.work}
    return {MODEL: name_model(arm.model), "scenario": trains, "batch": batch, **arm.parameters, **files} | {
        OPERATIONS: {one for one in counts if one is not None},
        EXPORT: {one.exported for one in found.prepared.values() if one.exported},
    }


def key_of(asked: Asked) -> Hashable:
    """Return the same for all that ask the same, as far as a key can tell: without what needn't be known of both."""
    return tuple((name, value) for name, value in asked.items() if name not in _LOOSE)


def find_differing(one: Asked, other: Asked) -> tuple[str, ...]:
    """Return the fields in which two differ."""
    names = dict.fromkeys([*one, *other])
    return tuple(name for name in names if _values_differ(name, one.get(name), other.get(name)))


def tell_differing(name: str, one: Asked, other: Asked) -> str:
    """Return a field that differs, with both values."""
    if name == EXPORT:
        return "their exports differ, in weights, data, exporter, or only in the precisions or the time for them"
    first, second = (
        ", ".join(map(str, sorted(found))) if isinstance(found, set) else found
        for found in (one.get(name), other.get(name))
    )
    return f"{name.lstrip('-')} differs: {first} and {second}"


def tell_strange(one: Asked, other: Asked) -> list[str]:
    """Return the fields that make two another question, with their values; another exporter alone doesn't."""
    differing = [name for name in find_differing(one, other) if name != EXPORT]
    if MODEL in differing:  # its parameters are others, too
        return [tell_differing(MODEL, one, other)]
    return [tell_differing(name, one, other) for name in differing]


def tell_apart(one: Asked, other: Asked) -> str:
    """Return why two that a key tells apart don't ask the same."""
    return "; ".join(tell_strange(one, other)) or tell_differing(THREADS, one, other)


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
            raise UsageError(f"{name} has several groups", run.cells)
        told = tell_differing(differing, first, one)
        raise UsageError(f"{first_run.document.run} and {name} can't be merged: {told}")


def refuse_same(runs: Sequence[Analysed]) -> None:
    """Stop at a run that was given twice, in whatever form.

    Raises:
        UsageError: there is one; names both folders.
    """
    for one, other in combinations(runs, 2):
        if is_same(one, other):
            raise UsageError(f"{one.document.run} and {other.document.run} are the same run: name it once")


def is_same(one: Analysed, other: Analysed) -> bool:
    """Tell whether two are one run, in whatever form: they began alike, and so did what they measured.

    Two nodes of one image may begin in the same second; where neither has a figure, they are two all the same.
    """
    if one.document.run == other.document.run:
        return True
    first = _first_figure(one)
    return first is not None and first == _first_figure(other) and _identity_of(one) == _identity_of(other)


def _identity_of(run: Analysed) -> Hashable:
    return run.facts.created, run.facts.identity, run.document.environment.get("machine")


def _first_figure(run: Analysed) -> float | None:
    """Return how long its first restart took, in seconds; none takes as long as another, to the last digit."""
    return next((line.wall_s for group in run.groups.values() for line in group.rounds), None)


def _values_differ(name: str, one: Any, other: Any) -> bool:
    if name in _SETS:
        return bool(one and other and not one & other)
    if name == METRIC:
        return bool(one and other and one != other)
    return bool(one != other)
