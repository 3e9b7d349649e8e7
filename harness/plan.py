"""Study × what is available here → groups of arms that race each other, and skips. Pure: it starts nothing."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shootout import backends, models
from shootout.constants import INPUT_BUFFERS
from shootout.contract import Arm, Artifact, Availability, Capabilities, Device, Target, Value
from shootout.errors import UsageError, unknown
from shootout.export import BYTES_PER_PARAMETER, Request
from shootout.models.permutation_probe import PROBE_BATCH
from shootout.records import GroupRecord
from shootout.study import Study
from shootout.target import parse_targets

BYTES_PER_WEIGHT_ARM = 8
"""Weights plus a runtime's own packed copy."""
COPIES_OF_INPUTS = 4
"""Each arm holds its input buffers, their staged copies and, while it is verified, outputs and the oracle's."""
PROBE = Request(model="permutation_probe", batch=PROBE_BATCH)
"""The permutation probe's own model, exported beside the study's."""

Available = Mapping[tuple[str, Device], Availability]


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Why a cell isn't measured, and what to do about it."""

    reason: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGroup:
    """Arms that race each other; those in `skips` (by label) are not run. `request` is what they all compute."""

    record: GroupRecord
    request: Request
    skips: Mapping[str, Skipped]

    @property
    def playing(self) -> list[Arm]:
        """The arms to measure, sentinel included."""
        return [arm for arm in self.record.arms if arm.label not in self.skips]


def targets_of(study: Study) -> list[Target]:
    """All targets that the study names, in order.

    Raises:
        UsageError: one of them isn't known.
    """
    targets = [target for text in study.targets for target in parse_targets(text, describe)]
    for backend in study.options:
        if backend not in {target.backend for target in targets}:
            raise unknown("backend in --option", backend, {target.backend for target in targets})
    return targets


def describe(backend: str) -> tuple[Capabilities, Target]:
    """A backend's capabilities and its first target."""
    entry = backends.entry(backend)
    device, precision = entry.default
    return backends.get(backend).capabilities, Target(backend=backend, device=device, precision=precision)


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """What this machine offers a study.

    Attributes:
        available: what `doctor.available` found for every (backend, device) the study names.
        threads: compute threads per arm.
        memory_bytes: what the machine can give.
        file_bytes: size of the user's ONNX file, in place of a parameter count.
    """

    available: Available
    threads: int
    memory_bytes: int
    file_bytes: int = 0


def plan(study: Study, here: Here) -> list[PlannedGroup]:
    """The study's groups, one per model parameters and batch, in the order of `requests`.

    Raises:
        UsageError: unknown names, bad values, or a baseline that isn't among the arms or can't run.
    """
    targets = targets_of(study)
    groups = [
        _group(study, _arms(study, targets, parameters, batch, here.threads), request(study, parameters, batch), here)
        for parameters, batch in _cells(study)
    ]
    for name, count in Counter(group.record.name for group in groups).items():
        if count > 1:
            raise UsageError(f"{name!r} is asked for {count} times: name each batch and parameter value once")
    return groups


def requests(study: Study) -> list[Request]:
    """What the study's groups will export, in their order; needs nothing but the study."""
    return [request(study, parameters, batch) for parameters, batch in _cells(study)]


def _cells(study: Study) -> list[tuple[dict[str, Value], int]]:
    """Every combination of parameters (complete, checked) with every batch."""
    axes = study.parameters
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    if study.user_file is None:
        points = [models.get(study.model).check(point) for point in points]
    return [(point, batch) for point in points for batch in study.batch]


def _arms(
    study: Study, targets: Sequence[Target], parameters: Mapping[str, Value], batch: int, threads: int
) -> list[Arm]:
    seen: Counter[Target] = Counter()
    arms = []
    for target in targets:
        seen[target] += 1
        options = study.options.get(target.backend, {})
        arms.append(
            Arm(
                target=target,
                model=study.model,
                parameters=parameters,
                batch=batch,
                threads=threads,
                options=options,
                ordinal=seen[target],
            )
        )
    return arms


def _group(study: Study, arms: list[Arm], wanted: Request, here: Here) -> PlannedGroup:
    """The arms with their baseline first and its sentinel last, and why some of them can't be asked."""
    skips = {arm.label: why for arm in arms if (why := _skip(arm, study, here.available))}
    skips |= _too_big([arm for arm in arms if arm.label not in skips], study, here)
    runnable = [arm for arm in arms if arm.label not in skips]
    baseline = _baseline(study, arms, runnable, skips)
    ordered = arms
    if baseline:
        ordered = [baseline, *(arm for arm in arms if arm is not baseline), replace(baseline, ordinal=1, sentinel=True)]
    record = GroupRecord(
        name=group_name(study, arms[0]),
        baseline=baseline.label if baseline else None,
        comparisons=max(len(runnable) - 1, 0),
        arms=tuple(ordered),
    )
    return PlannedGroup(record=record, request=wanted, skips=skips)


def _skip(arm: Arm, study: Study, available: Available) -> Skipped | None:
    """Why this arm can't be asked here, None when it can."""
    found = available[arm.target.backend, arm.target.device]
    if not found.ok:
        return Skipped(reason=found.reason, fix=found.fix)
    consumes = backends.get(arm.target.backend).capabilities.consumes
    offered = (Artifact.ONNX,) if study.user_file else models.get(study.model).artifacts
    if Artifact.NONE in consumes or set(consumes) & set(offered):
        return None
    takes = " or ".join(_ARTIFACT_NAMES[artifact] for artifact in consumes)
    has = ", ".join(_ARTIFACT_NAMES[artifact] for artifact in offered)
    return Skipped(
        reason=f"{arm.target.backend} takes {takes}; {study.model} is only there as {has}",
        fix=f"leave {arm.target.backend} out of --backends, or give a model that has it",
    )


_ARTIFACT_NAMES = {
    Artifact.FORWARD: "array code",
    Artifact.MODULE: "a torch module",
    Artifact.ONNX: "an ONNX file",
    Artifact.PT2: "an exported program",
    Artifact.NONE: "nothing",
}


def _too_big(arms: list[Arm], study: Study, here: Here) -> dict[str, Skipped]:
    """Skips for all arms where exporting, or holding all arms at once, would not fit in memory."""
    if not arms:
        return {}
    parameters = arms[0].parameters
    weights = here.file_bytes // 4 if study.user_file else models.get(study.model).parameter_count(parameters)
    needs = weights * max(BYTES_PER_PARAMETER, BYTES_PER_WEIGHT_ARM * (len(arms) + 1))
    needs += _input_bytes(arms[0], study) * INPUT_BUFFERS * COPIES_OF_INPUTS * (len(arms) + 1)
    if needs <= here.memory_bytes:
        return {}
    reason = f"needs {needs / 2**30:.1f} GiB of memory, has {here.memory_bytes / 2**30:.1f} GiB"
    return {
        arm.label: Skipped(reason=reason, fix="choose a smaller model or batch, or fewer backends at once")
        for arm in arms
    }


def _input_bytes(arm: Arm, study: Study) -> int:
    """Bytes of one set of inputs; 0 for a user's file, whose inputs only the export knows."""
    if study.user_file:
        return 0
    specs = models.get(study.model).inputs(arm.parameters, arm.batch)
    return sum(math.prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in specs)


def _baseline(study: Study, arms: list[Arm], runnable: list[Arm], skips: Mapping[str, Skipped]) -> Arm | None:
    if study.baseline is None:
        eager = [arm for arm in runnable if arm.target == Target(backend="torch-eager")]
        return next(iter(eager or runnable), None)
    labels = {arm.label: arm for arm in arms}
    wanted = study.baseline
    if wanted not in labels:
        named = parse_targets(wanted, describe) if "#" not in wanted else []
        wanted = str(named[0]) if named else wanted
    if wanted not in labels:
        raise unknown("baseline", study.baseline, labels)
    if wanted in skips:
        raise UsageError(f"the baseline {wanted!r} can't run here: {skips[wanted].reason}; {skips[wanted].fix}")
    return labels[wanted]


def group_name(study: Study, arm: Arm) -> str:
    """What tells this group from others, for people: the model, parameters that aren't defaults, the batch."""
    defaults = {} if study.user_file else models.get(study.model).defaults
    special = ", ".join(f"{key}={value}" for key, value in arm.parameters.items() if defaults.get(key) != value)
    return f"{study.model}{f' ({special})' if special else ''}, batch {arm.batch}"


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


def identity(study: Study, groups: list[PlannedGroup], files: list[str]) -> str:
    """A hash of what is measured (`files`: hashes of the user's own); a run folder only goes on with the same one."""
    content = {
        "study": study.model_dump(mode="json", exclude={"description"}),
        "arms": [[arm.label for arm in group.playing] for group in groups],
        "files": files,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
