"""A study's cells, from nothing but the study: its targets, its points in parameter space, what to export for each."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from shootout import backends, models
from shootout.contract import Arm, Capabilities, Target, Value
from shootout.errors import UsageError, unknown
from shootout.export import Request
from shootout.models.permutation_probe import PROBE_BATCH
from shootout.study import Study
from shootout.target import parse_targets

PROBE = Request(model="permutation_probe", batch=PROBE_BATCH)
"""The permutation probe's own model, exported beside the study's."""


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


def requests(study: Study) -> list[Request]:
    """What the study's groups will export, in their order; needs nothing but the study."""
    return [request(study, parameters, batch) for parameters, batch in cells(study)]


def cells(study: Study) -> list[tuple[dict[str, Value], int]]:
    """Every combination of parameters (complete, checked) with every batch."""
    axes = study.parameters
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    if study.user_file is None:
        points = [models.get(study.model).check(point) for point in points]
    return [(point, batch) for point in points for batch in study.batch]


def request(study: Study, parameters: Mapping[str, Value], batch: int) -> Request:
    """What to export for one cell; an ONNX file's parameters are the sizes of its symbolic axes.

    Raises:
        UsageError: such a size isn't a whole number.
    """
    inputs = Path(study.inputs) if study.inputs else None
    if study.user_file is None:
        return Request(model=study.model, parameters=parameters, batch=batch, inputs_npz=inputs)
    wrong = [axis for axis, size in parameters.items() if not isinstance(size, int) or isinstance(size, bool)]
    if wrong:
        raise UsageError(f"the size of axis {wrong[0]!r} must be a whole number, got {parameters[wrong[0]]!r}")
    sizes = {axis: int(size) for axis, size in parameters.items()}
    return Request(model=study.model, sets=sizes, batch=batch, inputs_npz=inputs)


def group_name(study: Study, arm: Arm) -> str:
    """What tells this group from others, for people: the model, parameters that aren't defaults, the batch."""
    defaults = {} if study.user_file else models.get(study.model).defaults
    special = ", ".join(f"{key}={value}" for key, value in arm.parameters.items() if defaults.get(key) != value)
    return f"{Path(study.model).name}{f' ({special})' if special else ''}, batch {arm.batch}"
