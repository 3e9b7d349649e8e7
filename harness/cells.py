"""A study's cells, from nothing but the study: its targets, its points in parameter space, what to export for each."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from shootout import backends, models
from shootout.contract import Capabilities, Scenario, Target, Value
from shootout.errors import UsageError, unknown
from shootout.export import Request, is_file
from shootout.study import Study
from shootout.target import parse_targets


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What one group runs: a model with complete, checked parameters at a batch size."""

    model: str
    parameters: Mapping[str, Value]
    batch: int
    scenario: Scenario = Scenario.LATENCY


def targets_of(study: Study) -> list[Target]:
    """All targets that the study names, in order.

    Raises:
        UsageError: one of them isn't known.
    """
    targets = [target for text in study.targets for target in parse_targets(text, describe)]
    known = {name for target in targets for name in names_of(target)}
    for name in study.options:
        if name not in known:
            raise unknown("backend or target in --option", name, known)
    return targets


def names_of(target: Target) -> tuple[str, ...]:
    """What an option for this target may be addressed to, from all of a backend's targets to this one alone."""
    mode = (f"{target.backend}+{target.mode}",) if target.mode else ()
    return (target.backend, *mode, str(target))


def describe(backend: str) -> tuple[Capabilities, Target]:
    """A backend's capabilities and its first target."""
    entry = backends.entry(backend)
    device, precision = entry.default
    return backends.get(backend).capabilities, Target(backend=backend, device=device, precision=precision)


def points(study: Study) -> list[Point]:
    """Every model with every combination of its parameters, every batch and every scenario.

    Raises:
        UsageError: a parameter that no model has, or a value that isn't allowed.
    """
    if len(study.model) > 1:
        known = {name for model in study.model if not is_file(model) for name in models.get(model).parameters}
        for name in study.parameters if known else ():
            if name not in known:
                raise unknown("parameter", name, known)
    return [
        Point(model=model, parameters=parameters, batch=batch, scenario=scenario)
        for model in study.model
        for parameters in _parameters(study, model)
        for batch in study.batch
        for scenario in study.scenario
    ]


def _parameters(study: Study, model: str) -> list[dict[str, Value]]:
    axes = study.parameters
    if len(study.model) > 1 and not is_file(model):
        axes = {name: values for name, values in axes.items() if name in models.get(model).parameters}
    combined = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    return combined if is_file(model) else [models.get(model).check(one) for one in combined]


def request(study: Study, point: Point) -> Request:
    """What to export for one group; an ONNX file's parameters are the sizes of its symbolic axes.

    Raises:
        UsageError: such a size isn't a whole number.
    """
    inputs = Path(study.inputs) if study.inputs else None
    calibration = Path(study.calibration) if study.calibration else None
    asked = Request(
        model=point.model,
        batch=point.batch,
        inputs_npz=inputs,
        calibration_npz=calibration,
        training=point.scenario is Scenario.TRAIN_STEP,
    )
    if not is_file(point.model):
        return replace(asked, parameters=point.parameters)
    for axis, size in point.parameters.items():
        if not isinstance(size, int) or isinstance(size, bool):
            raise UsageError(f"the size of axis {axis!r} must be a whole number, got {size!r}")
    return replace(asked, sets={axis: int(size) for axis, size in point.parameters.items()})


def group_name(point: Point) -> str:
    """What tells this group from others, for people: the model, parameters that aren't defaults, batch, scenario."""
    defaults = {} if is_file(point.model) else models.get(point.model).defaults
    special = ", ".join(f"{key}={value}" for key, value in point.parameters.items() if defaults.get(key) != value)
    scenario = "" if point.scenario is Scenario.LATENCY else f", {point.scenario}"
    return f"{Path(point.model).name}{f' ({special})' if special else ''}, batch {point.batch}{scenario}"
