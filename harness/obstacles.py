"""Why an arm can't be asked here: its backend is missing, it doesn't take this model, or memory won't hold it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shootout import backends, models
from shootout.constants import INPUT_BUFFERS
from shootout.contract import Arm, Artifact, Availability, Device
from shootout.export import BYTES_PER_PARAMETER
from shootout.study import Study

BYTES_PER_WEIGHT_ARM = 8
"""Weights plus a runtime's own packed copy."""
COPIES_OF_INPUTS = 4
"""Each arm holds its input buffers, their staged copies and, while it is verified, outputs and the oracle's."""

Available = Mapping[tuple[str, Device], Availability]


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Why a cell isn't measured, and what to do about it; `builds`: its artifact can be made here all the same."""

    reason: str
    fix: str = ""
    builds: bool = False


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


def obstacles(arms: Sequence[Arm], study: Study, here: Here) -> dict[str, Skipped]:
    """Why arms can't be asked, by label; those that can are not in it."""
    skips = {arm.label: why for arm in arms if (why := _skip(arm, study, here.available))}
    made_here = [arm for arm in arms if arm.label not in skips or skips[arm.label].builds]
    return skips | _too_big(made_here, study, here)


def _skip(arm: Arm, study: Study, available: Available) -> Skipped | None:
    """Why this arm can't be asked here, None when it can."""
    found = available[arm.target.backend, arm.target.device]
    if not found.ok and not found.builds:
        return Skipped(reason=found.reason, fix=found.fix)
    consumes = backends.get(arm.target.backend).capabilities.consumes
    offered = (Artifact.ONNX,) if study.user_file else models.get(study.model).artifacts
    if Artifact.NONE in consumes or set(consumes) & set(offered):
        return None if found.ok else Skipped(reason=found.reason, fix=found.fix, builds=True)
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
