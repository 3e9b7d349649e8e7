"""From what an export worked out to an exported model: reference outputs that proves something, and all of it in the
exported model's folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from shootout.contract import Array, Arrays, Artifact, TensorSpec, Value
from shootout.errors import ModelError
from shootout.export.input_sets import LabelledSplit
from shootout.export.request import ExportJob
from shootout.exported.fidelity import spread
from shootout.exported.model import (
    CALIBRATION,
    GRADIENTS,
    INPUTS,
    REFERENCE,
    SHARED_OUTPUTS,
    UNSEEN,
    UNSEEN_REFERENCE,
    WEIGHTS,
    ExportedModel,
    save_sets,
    sha256,
)
from shootout.exported.unseen import Unseen


def assemble(
    job: ExportJob,
    *,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    buffers: Sequence[Arrays],
    reference_outputs: Sequence[Arrays],
    artifacts: tuple[Artifact, ...],
    error_bounds: Mapping[str, float | None],
    parameter_count: int,
    notes: Sequence[str],
    unmade: str = "",
    batch: int | None = None,
    parameters: Mapping[str, Value] | None = None,
    calibration: Sequence[Arrays] | None = None,
    calibration_fault: str = "",
    split: LabelledSplit | None = None,
    gradients: Sequence[Arrays] | None = None,
    drawn: bool = False,
    reference: Sequence[Arrays] | None = None,
    unseen: Unseen = (),
) -> ExportedModel:
    """The exported model of a job, not sealed yet, in whose folder the artifacts lie already.

    Args:
        buffers: the input sets that calls rotate through; `reference_outputs` has the right outputs for each.
        batch: where it isn't the job's own, like `parameters`.
        calibration: sets for quantization; None: there are none, since nothing of it is quantized.
        unmade: why there are no more artifacts.
        calibration_fault: why the user's own can't be used.
        split: labelled rows, checked against the outputs.
        gradients: of a training step, those of each trained weight for each buffer.
        drawn: whether the buffers are drawn numbers.
        reference: what a file that races its original gives as it is written, where the reference outputs are the
            original's.
        unseen: inputs that no arm has before it is timed, and what a runtime that is true to this model gives for them.

    Raises:
        UsageError: labels that don't fit the outputs.
    """
    folder = Path(job.folder)
    save_sets(folder / INPUTS, buffers)
    save_sets(folder / REFERENCE, reference_outputs)
    if calibration is not None:
        save_sets(folder / CALIBRATION, calibration)
    if gradients is not None:
        save_sets(folder / GRADIENTS, gradients)
    if reference is not None:
        save_sets(folder / SHARED_OUTPUTS, reference)
    if unseen:
        save_sets(folder / UNSEEN, [given for given, _ in unseen])
        save_sets(folder / UNSEEN_REFERENCE, [right for _, right in unseen])
    if split:
        split.save(folder)
    return ExportedModel(
        folder=folder,
        key=job.key,
        model=job.model,
        parameters=job.parameters if parameters is None else parameters,
        batch=job.batch if batch is None else batch,
        inputs=inputs,
        outputs=outputs,
        artifacts=artifacts,
        error_bounds=error_bounds,
        parameter_count=parameter_count,
        weights_sha256=job.weights_sha256 if job.file else sha256(folder / WEIGHTS),
        versions=job.versions,
        export_s=0.0,
        variant=job.variant,
        original=job.original,
        calibration_fault=calibration_fault,
        notes=tuple(notes),
        unmade=unmade,
        source_sha256=job.source_sha256,
        drawn=drawn,
        spread=spread(reference_outputs),
        trained=tuple(gradients[0]) if gradients else (),
    )


def require_telling(model: str, specs: Sequence[TensorSpec], reference_outputs: Sequence[Arrays]) -> None:
    """Refuse reference outputs whose outputs prove nothing.

    Every float output must be finite; and at least one output must vary, within the normal range of its dtype, and
    follow the inputs.

    Args:
        model: its name, for the message.
        specs: the outputs, with the dtypes that the model itself gives.
        reference_outputs: the outputs for each input buffer.

    Raises:
        ModelError: names each output and what is wrong with it.
    """
    outputs = {spec.name: [one[spec.name] for one in reference_outputs] for spec in specs}
    for name, arrays in outputs.items():
        if not all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f"):
            raise ModelError(f"{model}: the reference output {name!r} has NaN or infinity: {_fix()}")
    faults = {spec.name: _fault(outputs[spec.name], spec.dtype) for spec in specs}
    if all(faults.values()):
        said = "; ".join(f"{name!r} {fault}" for name, fault in faults.items())
        raise ModelError(f"{model}: the reference output {said}: every backend would agree with it; {_fix()}")


def _fault(arrays: Sequence[Array], dtype: str) -> str | None:
    """What is wrong with one output; array by array, since all of them together may be a good part of memory."""
    first = arrays[0]
    if not first.size:
        return "is empty"
    if first.size * len(arrays) > 1 and all((array == first.flat[0]).all() for array in arrays):
        return f"is constant ({first.flat[0]!s} everywhere)"
    if first.dtype.kind == "f" and max(np.abs(array).max() for array in arrays) < np.finfo(dtype).tiny:
        return f"is all denormal (nothing reaches {np.finfo(dtype).tiny:.3g})"
    if len(arrays) > 1 and all((array == first).all() for array in arrays[1:]):
        return f"is the same for all {len(arrays)} different inputs"
    return None


def _fix() -> str:
    return "check the weights, or give real inputs with --inputs data.npz"
