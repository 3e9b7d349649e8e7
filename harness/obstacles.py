"""Why an arm can't be asked here: its backend is missing, it doesn't take this model, or memory won't hold it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from shootout import backends, models, schemes
from shootout.constants import INPUT_BUFFERS
from shootout.contract import Arm, Artifact, Availability, Capabilities, Device, Target
from shootout.export import BYTES_PER_PARAMETER, is_file
from shootout.target import own_words

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
        file_bytes: size of each of the user's ONNX files, in place of a parameter count.
    """

    available: Available
    threads: int
    memory_bytes: int
    file_bytes: Mapping[str, int] = field(default_factory=dict)


def obstacles(arms: Sequence[Arm], here: Here) -> dict[str, Skipped]:
    """Why arms can't be asked, by label; those that can are not in it."""
    skips = {arm.label: why for arm in arms if (why := _skip(arm, here.available))}
    made_here = [arm for arm in arms if arm.label not in skips or skips[arm.label].builds]
    return skips | _too_big(made_here, here)


def _skip(arm: Arm, available: Available) -> Skipped | None:
    """Why this arm can't be asked here, None when it can."""
    found = available[arm.target.backend, arm.target.device]
    if not found.ok and not found.builds:
        return Skipped(reason=found.reason, fix=found.fix)
    capabilities = backends.get(arm.target.backend).capabilities
    if why := _unoffered(arm.target, capabilities):
        return why
    if arm.scenario not in capabilities.scenarios:
        offered = ", ".join(sorted(capabilities.scenarios))
        return Skipped(reason=f"{arm.target.backend} has no {arm.scenario}", fix=f"it offers {offered}")
    consumes = capabilities.consumes
    quantized = schemes.parse(arm.target.scheme, own=own_words(capabilities)).is_quantized
    offered = (Artifact.ONNX,) if is_file(arm.model) or quantized else models.get(arm.model).artifacts
    if Artifact.NONE in consumes or set(consumes) & set(offered):
        return None if found.ok else Skipped(reason=found.reason, fix=found.fix, builds=True)
    takes = " or ".join(_ARTIFACT_NAMES[artifact] for artifact in consumes)
    has = ", ".join(_ARTIFACT_NAMES[artifact] for artifact in offered)
    return Skipped(
        reason=f"{arm.target.backend} takes {takes}; {arm.model} is only there as {has}",
        fix=f"leave {arm.target.backend} out of --backends, or give a model that has it",
    )


def _unoffered(target: Target, can: Capabilities) -> Skipped | None:
    """Why the backend has no such precision on this device, or no such scheme for it."""
    if (target.device, target.precision) not in can.targets:
        offered = ", ".join(sorted(precision for device, precision in can.targets if device is target.device))
        return Skipped(
            reason=f"{target.backend} has no {target.precision} on {target.device}",
            fix=f"it offers {offered or 'nothing there'}",
        )
    words = can.schemes.get(target.precision, frozenset())
    scheme = schemes.parse(target.scheme, own=own_words(can))
    if word := schemes.unoffered(scheme, words):
        return Skipped(
            reason=f"{target.backend} has no {word} quantization for {target.precision}",
            fix=f"it offers {', '.join(sorted(words)) or 'no scheme for this precision'}",
        )
    return None


_ARTIFACT_NAMES = {
    Artifact.FORWARD: "array code",
    Artifact.MODULE: "a torch module",
    Artifact.ONNX: "an ONNX file",
    Artifact.PT2: "an exported program",
    Artifact.NONE: "nothing",
}


def _too_big(arms: list[Arm], here: Here) -> dict[str, Skipped]:
    """Skips for all arms where exporting, or holding all arms at once, would not fit in memory."""
    if not arms:
        return {}
    model, parameters = arms[0].model, arms[0].parameters
    weights = here.file_bytes[model] // 4 if is_file(model) else models.get(model).parameter_count(parameters)
    needs = weights * max(BYTES_PER_PARAMETER, BYTES_PER_WEIGHT_ARM * (len(arms) + 1))
    needs += _input_bytes(arms[0]) * INPUT_BUFFERS * COPIES_OF_INPUTS * (len(arms) + 1)
    if needs <= here.memory_bytes:
        return {}
    reason = f"needs {needs / 2**30:.1f} GiB of memory, has {here.memory_bytes / 2**30:.1f} GiB"
    return {
        arm.label: Skipped(reason=reason, fix="choose a smaller model or batch, or fewer backends at once")
        for arm in arms
    }


def _input_bytes(arm: Arm) -> int:
    """Bytes of one set of inputs; 0 for a user's file, whose inputs only the export knows."""
    if is_file(arm.model):
        return 0
    specs = models.get(arm.model).inputs(arm.parameters, arm.batch)
    return sum(math.prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in specs)
