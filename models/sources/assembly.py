"""Put an exported model together in its folder from an export's results, with reference outputs that prove
something.
"""

from __future__ import annotations

import hashlib
import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from shootout.core.contract import Array, Arrays, TensorSpec
from shootout.core.errors import ModelError
from shootout.core.exported.calls import can_mix, mix_sets
from shootout.core.exported.fidelity import ALIKE, sizes
from shootout.core.exported.model import (
    CALIBRATION,
    INPUTS,
    REFERENCE,
    UNSEEN,
    UNSEEN_REFERENCE,
    WEIGHTS,
    ExportedModel,
    save_sets,
    sha256,
)
from shootout.core.exported.request import Request, versions

ROUNDING = 1e-3
"""Outputs that differ by rounding alone differ by far less than this share of the largest one."""
FIX = "check the weights, or give real inputs with --inputs data.npz"
UNSEEN_SEED = 4
UNSEEN_SETS, UNSEEN_WHOLE_SETS = 2, 6
"""Make so many sets; more of whole numbers alone, which a worker can't mix: these are all new inputs that it has."""
Unseen = Sequence[tuple[Arrays, Arrays]]
"""Input sets, each with its right outputs."""


def begin(request: Request) -> ExportedModel:
    """Return what a request alone tells of its exported model, in whose folder nothing is yet."""
    return ExportedModel(
        folder=request.folder,
        key=request.key,
        model=request.model,
        parameters=request.parameters,
        batch=request.batch,
        versions=versions(request.source.packages),
        variant=request.variant,
        original=request.original,
        source_sha256=request.content.source_sha256,
        origin=request.source.origin,
    )


def with_bounds(
    found: ExportedModel, by_mark: Sequence[Mapping[str, float | None]], flips: Mapping[str, Mapping[str, float]]
) -> ExportedModel:
    """Return the exported model with its error bounds, and what each precision may flip.

    Args:
        by_mark: error bounds by precision, at each mark of the stream; those of single calls have one.
        flips: shares of 0 among them.
    """
    marks = found.stream.marks[:-1] if found.stream else ()
    above = {name: {output: share for output, share in one.items() if share} for name, one in flips.items()}
    return replace(
        found,
        error_bounds=by_mark[-1],
        bounds_by_step=dict(zip(marks, by_mark, strict=False)),
        flips={name: shares for name, shares in above.items() if shares},
    )


def assemble(
    request: Request,
    found: ExportedModel,
    buffers: Sequence[Arrays],
    reference_outputs: Sequence[Arrays],
    *,
    calibration: Sequence[Arrays] | None = None,
    unseen: Unseen = (),
    others: Mapping[str, Sequence[Arrays]] = MappingProxyType({}),
) -> ExportedModel:
    """Write the arrays of an exported model into its folder, beside its artifacts; return it, not sealed yet.

    Args:
        found: what the source found out of the model.
        buffers: the input sets that calls rotate through; `reference_outputs` has the right outputs for each.
        calibration: sets for quantization; None: there are none, since nothing of it is quantized.
        unseen: inputs that no arm has before it is timed, and what a runtime that is true to this model gives for them.
        others: a training step's GRADIENTS; SHARED_OUTPUTS, what a file that races its original gives as it is written.
    """
    folder = found.folder
    sets = {INPUTS: buffers, REFERENCE: reference_outputs, **others}
    if calibration is not None:
        sets[CALIBRATION] = calibration
    if unseen:
        sets[UNSEEN], sets[UNSEEN_REFERENCE] = zip(*unseen, strict=True)
    for name, arrays in sets.items():
        save_sets(folder / name, arrays)
    weights = request.opened.folder if found.shared and request.opened else folder
    files = json.dumps(dict(request.content.files)).encode()
    return replace(
        found,
        weights_sha256=hashlib.sha256(files).hexdigest() if request.content.file else sha256(weights / WEIGHTS),
        notes=(*found.notes, *_note_infinite(reference_outputs)),
        spread=spread(reference_outputs),
    )


def spread(reference_outputs: Sequence[Arrays]) -> float:
    """Return the least share of any float output's size (RMS norm over the input sets) that different inputs move.

    So far from the reference outputs are an answer that ignores its inputs. An output that no input moves doesn't
    count.
    """
    if len(reference_outputs) < 2:
        return 1.0
    known = sizes(reference_outputs)
    finite = [{name: np.nan_to_num(one[name], posinf=0.0, neginf=0.0) for name in known} for one in reference_outputs]
    middle = {name: sum(one[name] for one in finite) / len(finite) for name in known}
    moved = sizes([{name: one[name] - middle[name] for name in known} for one in finite])
    return min((moved[name] / known[name] for name in known if moved[name] > ALIKE * known[name]), default=1.0)


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
        raise ModelError(f"{model}: the reference output {said}: every backend would agree with it; {FIX}")


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
