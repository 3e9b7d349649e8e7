"""Put an exported model together in its folder from an export's results, with reference outputs that prove
something.
"""

from __future__ import annotations

import hashlib
import json
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from shootout.core.contract import Array, Arrays, Artifact, TensorSpec, Value
from shootout.core.errors import ModelError
from shootout.core.exported.calls import Stream, can_mix, mix_sets
from shootout.core.exported.fidelity import spread
from shootout.core.exported.model import (
    BUFFER_ROWS,
    CALIBRATION,
    GRADIENTS,
    INPUTS,
    ONNX_SUFFIX,
    REFERENCE,
    SHARED_OUTPUTS,
    UNSEEN,
    UNSEEN_REFERENCE,
    WEIGHTS,
    ExportedModel,
    save_sets,
    sha256,
)
from shootout.core.exported.request import Request, versions
from shootout.models.sources.input_sets import RowSplit

ROUNDING = 1e-3
"""Outputs that differ by rounding alone differ by far less than this share of the largest one."""
MIXED_NOTE = (
    "the rows of a call mix: {how}. If that isn't meant, a Reshape in the model has a fixed size: export it again, "
    "or use batch 1"
)
UNSEEN_SEED = 4
UNSEEN_SETS, UNSEEN_WHOLE_SETS = 2, 6
"""Make so many sets; more of whole numbers alone, which a worker can't mix: these are all new inputs that it has."""
Unseen = Sequence[tuple[Arrays, Arrays]]
"""Input sets, each with its right outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFindings:
    """Hold what an export found out about a model, whose artifacts lie in the request's folder already.

    Attributes:
        parameters: complete; of a user's file the sizes of its free axes.
        buffers: the input sets that calls rotate through; `reference_outputs` has the right outputs for each.
        buffer_rows: the number that each of their rows has in the user's own data; None if there is none.
        drawn: whether the buffers are drawn numbers.
        shared_outputs: what a file that races its original gives as it is written, if the reference outputs are the
            original's.
        unseen: inputs that no arm has before it is timed, and what a runtime that is true to this model gives for them.
        gradients: of a training step, those of each trained weight for each buffer.
        calibration: sets for quantization; None: there are none, since nothing of it is quantized.
        calibration_fault: why the user's own can't be used.
        split: rows for accuracy and metrics, checked against the outputs.
        unmade: why there are no more artifacts.
        unmade_fix: see `ExportedModel`.
        shares: its graph and weights lie in the open export that all sizes of a sweep share.
        stream: how the buffers' calls make clips; None for single calls.
        bounds_by_mark: error bounds by precision, at each mark of the stream.
        flips: see `ExportedModel`; shares of 0 among them.
    """

    parameters: Mapping[str, Value]
    batch: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameter_count: int
    buffers: Sequence[Arrays]
    reference_outputs: Sequence[Arrays]
    artifacts: tuple[Artifact, ...] = ()
    bounds_by_mark: Sequence[Mapping[str, float | None]] = ({},)
    flips: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    buffer_rows: Array | None = None
    drawn: bool = False
    shared_outputs: Sequence[Arrays] | None = None
    unseen: Unseen = ()
    gradients: Sequence[Arrays] | None = None
    calibration: Sequence[Arrays] | None = None
    calibration_fault: str = ""
    split: RowSplit | None = None
    notes: tuple[str, ...] = ()
    unmade: str = ""
    unmade_fix: str = ""
    shares: bool = False
    stream: Stream | None = None


def assemble(request: Request, found: ExportFindings) -> ExportedModel:
    """Write all arrays of an exported model into its folder, and return it, not sealed yet."""
    folder = request.folder
    sets = {
        INPUTS: found.buffers,
        REFERENCE: found.reference_outputs,
        CALIBRATION: found.calibration,
        GRADIENTS: found.gradients,
        SHARED_OUTPUTS: found.shared_outputs,
        UNSEEN: [given for given, _ in found.unseen] or None,
        UNSEEN_REFERENCE: [right for _, right in found.unseen] or None,
    }
    for name, arrays in sets.items():
        if arrays is not None:
            save_sets(folder / name, arrays)
    if found.buffer_rows is not None:
        np.save(folder / BUFFER_ROWS, found.buffer_rows)
    if found.split:
        found.split.save(folder)
    weights = request.opened.folder if found.shares and request.opened else folder
    return ExportedModel(
        folder=folder,
        key=request.key,
        model=request.model,
        parameters=found.parameters,
        batch=found.batch,
        inputs=found.inputs,
        outputs=found.outputs,
        artifacts=found.artifacts,
        error_bounds=found.bounds_by_mark[-1],
        bounds_by_step=dict(zip(found.stream.marks[:-1], found.bounds_by_mark, strict=False)) if found.stream else {},
        flips=_positive(found.flips),
        stream=found.stream,
        parameter_count=found.parameter_count,
        weights_sha256=_hash_contents(request) if request.file else sha256(weights / WEIGHTS),
        versions=versions(request.source.packages),
        export_s=0.0,
        variant=request.variant,
        original=request.original,
        calibration_fault=found.calibration_fault,
        notes=(*found.notes, *_note_infinite(found.reference_outputs)),
        unmade=found.unmade,
        unmade_fix=found.unmade_fix,
        source_sha256=request.source_sha256,
        drawn=found.drawn,
        spread=spread(found.reference_outputs),
        trained=tuple(found.gradients[0]) if found.gradients else (),
        shared=weights.name if found.shares else "",
        graph=f"{request.key}{ONNX_SUFFIX}" if found.shares else "",
    )


def _hash_contents(request: Request) -> str:
    """Hash a user's file and its weights' contents."""
    return hashlib.sha256(json.dumps(dict(request.contents)).encode()).hexdigest()


def note_mixed_rows(
    batch: int,
    inputs: Collection[str],
    example: Arrays,
    known: Arrays,
    call: Callable[[Arrays], Arrays],
    folded: Collection[str] = (),
) -> tuple[str, ...]:
    """Return a note if a row's outputs change with the other rows of its call, by one call with that row repeated.

    Args:
        batch: rows of a call; one has nothing to mix with.
        inputs: those with the rows along axis 0.
        example: an input set, for which `known` has the outputs that have the rows along axis 0.
        folded: outputs that should have them there, and don't.
    """
    if batch < 2:
        return ()
    for name in folded:
        return (MIXED_NOTE.format(how=f"output {name!r} has not one row for each of the {batch}"),)
    given = {name: np.repeat(one[:1], batch, axis=0) if name in inputs else one for name, one in example.items()}
    alone = call(given)
    for name, array in known.items():
        count = len(array) // batch  # one row may be several, such as boxes or tokens
        if array.shape == alone[name].shape and (share := _find_change(array[:count], alone[name][:count])) > ROUNDING:
            how = f"output {name!r} of a row changes by {100 * share:.2g} % of its size if the other {batch - 1} change"
            return (MIXED_NOTE.format(how=how),)
    return ()


def _find_change(one: Array, other: Array) -> float:
    """Return the largest difference of two arrays, relative to the first one's largest number."""
    if one.dtype.kind != "f":
        return float((one != other).mean()) if one.size else 0.0
    known = np.isfinite(one) & np.isfinite(other)
    size = np.abs(one[known]).max(initial=0.0)
    return float(np.abs(one[known] - other[known]).max(initial=0.0) / size) if size else 0.0


def _positive(flips: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return the shares above 0, of the precisions that have any."""
    found = {name: {output: share for output, share in shares.items() if share} for name, shares in flips.items()}
    return {name: shares for name, shares in found.items() if shares}


def _note_infinite(reference_outputs: Sequence[Arrays]) -> Iterator[str]:
    for name, first in reference_outputs[0].items():
        if first.dtype.kind == "f":
            count = sum(int(np.count_nonzero(~np.isfinite(one[name]))) for one in reference_outputs)
            elements = first.size * len(reference_outputs)
            if count:
                told = f"the reference output {name!r} has NaN or infinity in {count:,} of {elements:,} elements"
                yield f"{told}; each target must have them at the same places"


def require_telling(model: str, specs: Sequence[TensorSpec], reference_outputs: Sequence[Arrays]) -> None:
    """Refuse reference outputs whose outputs prove nothing.

    At least one output must vary, within the normal range of its dtype, and follow the inputs. NaN and infinity may
    stand for what is masked, but not everywhere.

    Args:
        model: its name, for the message.
        specs: the outputs, with the dtypes that the model itself gives.
        reference_outputs: the outputs for each input buffer.

    Raises:
        ModelError: names each output and what is wrong with it.
    """
    outputs = {spec.name: [one[spec.name] for one in reference_outputs] for spec in specs}
    faults = {spec.name: _fault_of_output(outputs[spec.name], spec.dtype) for spec in specs}
    if all(faults.values()):
        said = "; ".join(f"{name!r} {fault}" for name, fault in faults.items())
        raise ModelError(f"{model}: the reference output {said}: every backend would agree with it; {_fix_advice()}")


def _fault_of_output(arrays: Sequence[Array], dtype: str) -> str | None:
    """Say what is wrong with one output, array by array: all of them together may fill much of the memory."""
    first = arrays[0]
    if not first.size:
        return "is empty"
    if first.dtype.kind == "f" and not any(np.isfinite(array).any() for array in arrays):
        return "has NaN or infinity everywhere"
    if first.size * len(arrays) > 1 and all((array == first.flat[0]).all() for array in arrays):
        return f"is constant ({first.flat[0]!s} everywhere)"
    if first.dtype.kind == "f" and max(np.abs(array).max() for array in arrays) < np.finfo(dtype).tiny:
        return f"is all denormal (nothing reaches {np.finfo(dtype).tiny:.3g})"
    if len(arrays) > 1 and all(np.array_equal(array, first, equal_nan=first.dtype.kind == "f") for array in arrays[1:]):
        return f"is the same for all {len(arrays)} different inputs"
    return None


def _fix_advice() -> str:
    return "check the weights, or give real inputs with --inputs data.npz"


def make_unseen(
    buffers: Sequence[Arrays],
    run: Callable[[Sequence[Arrays]], Iterable[Arrays]],
    known: Arrays,
    *,
    is_brief: bool = False,
) -> Unseen:
    """Make some inputs out of the buffers and run them; none if the model can't take such inputs.

    Args:
        run: gives the right outputs for each of some input sets.
        known: the right outputs for one of the buffers.
        is_brief: whether there is time for one set only.
    """
    rng, is_whole = np.random.default_rng(UNSEEN_SEED), not can_mix(buffers)
    count = 1 if is_brief else UNSEEN_WHOLE_SETS if is_whole else UNSEEN_SETS
    sets = [mix_sets(buffers, rng, whole=is_whole) for _ in range(count)]
    try:
        found = list(run(sets))
    except Exception:  # mixes of valid inputs may be invalid
        traceback.print_exc()
        return []
    return list(zip(sets, found, strict=True)) if all(is_like(one, known) for one in found) else []


def is_like(found: Arrays, known: Arrays) -> bool:
    """Return whether outputs have the shapes of these, and are finite where these outputs are by design."""
    shapes = all(array.shape == known[name].shape for name, array in found.items())
    floats = [name for name, array in known.items() if array.dtype.kind == "f" and np.isfinite(array).all()]
    return shapes and all(np.isfinite(found[name]).all() for name in floats)
