"""Measure how far outputs are from the FP64 reference outputs, and judge whether that fits the label. NumPy only
(workers).

One meaning of the error everywhere: the L2 norm of what is wrong in one output for one input set, relative to the RMS
of that output's norm over all sets. So an output that is almost zero on one set doesn't blow it up. The worst set and
output count by themselves: pooled over all, a small output's error would drown in a large one's norm.

This misleads in two cases. A set whose outputs are a hundred times smaller than the others' may be all wrong at an
error of 0.01: that is the price of the above. And a large part of an output that no input moves (a detector's anchors)
makes every error small. Hence `spread`: an error bound's power is judged against the part that the inputs move, not
against the size. The error itself isn't, since sets that are much alike would make it large though nothing is wrong.

NaN and infinity by design (masked scores, rows without a valid entry) have to be at the reference's places; the rest of
such an output is compared.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from shootout.core.constants import FIDELITY_MARGIN, USEFUL_BOUND
from shootout.core.contract import Array, Arrays, BoundStanding, Fidelity, OutputError, TensorSpec
from shootout.core.exported.calls import Stream

POOLED = 256
"""Shares are of at least so many elements if there are as many: of a set with few, the share that differs is luck."""
ALIKE = 1e-5
"""The share of its size below which an output counts as the same for all inputs (anchors alone, say, or positions)."""
NOTHING = Fidelity(max_abs=None, relative_l2=None, sqnr_db=None, cosine=None, top1_agreement=None)
"""The fidelity of outputs that can't even be compared."""


def check_outputs(specs: Sequence[TensorSpec], outputs: Arrays) -> str | None:
    """Return the reason why `outputs` don't have the model's names, shapes and dtypes, or None.

    A float output may also come as float32, whatever the model's own float type.
    """
    if {spec.name for spec in specs} != set(outputs):
        return f"outputs: expected {sorted(spec.name for spec in specs)}, got {sorted(outputs)}"
    for spec in specs:
        array, floating = outputs[spec.name], np.dtype(spec.dtype).kind == "f"
        if array.shape != spec.shape or array.dtype not in {np.dtype(spec.dtype), *([np.dtype("f4")] * floating)}:
            expected = f"{spec.dtype}{list(spec.shape)}"
            return f"output {spec.name!r}: expected {expected}, got {array.dtype}{list(array.shape)}"
    return None


def compare(outputs: Sequence[Arrays], reference_outputs: Sequence[Arrays], batch: int = 1) -> Fidelity:
    """Compare the outputs of every buffer with the reference's, in its order and with its names and shapes.

    Args:
        batch: rows of a buffer.
    """
    pairs = [
        (got[name], right)
        for got, wanted in zip(outputs, reference_outputs, strict=True)
        for name, right in wanted.items()
    ]
    by_output = tuple(
        _compare_output(name, [one[name] for one in outputs], [one[name] for one in reference_outputs], batch)
        for name in reference_outputs[0]
    )
    mismatches = sum(one.mismatches for one in by_output if one.relative_l2 is not None)
    errors = [one.relative_l2 for one in by_output if one.relative_l2 is not None]
    if len(errors) < len(by_output):
        return dataclasses.replace(NOTHING, mismatches=mismatches, by_output=by_output)
    floats = [(_finite(got), _finite(right)) for got, right in pairs if right.dtype.kind == "f"]
    return Fidelity(
        max_abs=max((float(np.max(np.abs(got - right), initial=0.0)) for got, right in floats), default=0.0),
        relative_l2=max(errors, default=0.0),
        sqnr_db=_sqnr_db(floats),
        cosine=_cosine_similarity(floats),
        top1_agreement=_top1_agreement(outputs, reference_outputs),
        mismatches=mismatches,
        by_output=by_output,
    )


def _compare_output(name: str, outputs: Sequence[Array], reference: Sequence[Array], batch: int) -> OutputError:
    """Compare one output for every buffer, and find the row that is furthest off in the worst buffer."""
    elements = sum(right.size for right in reference)
    if reference[0].dtype.kind != "f":
        counts = [int(np.count_nonzero(got != right)) for got, right in zip(outputs, reference, strict=True)]
        worst = int(np.argmax(counts))
        row = worst * batch + _find_worst_row(outputs[worst] != reference[worst], batch)
        share, differing = flipped_share(counts, reference[0].size), sum(counts)
        return OutputError(name=name, relative_l2=0.0, mismatches=differing, flipped=share, row=row, elements=elements)
    norms, misplaced = list[float](), 0
    for got, right in zip(outputs, reference, strict=True):
        wrong = _difference(got, right)
        norms.append(_l2_norm(wrong))
        misplaced += int(np.count_nonzero(~np.isfinite(wrong)))
    worst = next((at for at, norm in enumerate(norms) if not math.isfinite(norm)), int(np.argmax(norms)))
    row = worst * batch + _find_worst_row(_difference(outputs[worst], reference[worst]), batch)
    size = sizes([{name: one} for one in reference])[name]
    error = _relative_error(norms[worst], size) if all(map(math.isfinite, norms)) else None
    return OutputError(name=name, relative_l2=error, mismatches=misplaced, row=row, elements=elements)


def _find_worst_row(wrong: Array, batch: int) -> int:
    """Return the row of a buffer that is furthest off, by how much each element of an output is wrong.

    The first one if axis 0 isn't the batch.
    """
    if wrong.shape[:1] != (batch,):
        return 0
    rows = np.square(wrong.reshape(batch, -1), dtype=np.float64).sum(axis=1)
    return int(np.nan_to_num(rows, nan=math.inf).argmax())


def worst_error(outputs: Iterable[Arrays], reference_outputs: Sequence[Arrays]) -> float | None:
    """Return the largest relative L2 error of any input set and float output.

    None if an output is NaN or infinite where the reference isn't, or the other way round.

    Args:
        outputs: in the reference's order; only one is in memory at a time.
    """
    return errors_by_mark(outputs, reference_outputs, None)[-1]


def errors_by_mark(
    outputs: Iterable[Arrays], reference_outputs: Sequence[Arrays], stream: Stream | None
) -> tuple[float | None, ...]:
    """Return the largest error, as `worst_error`, of the first calls of all clips, for each of a stream's marks.

    An error may grow from call to call, and so may what a precision explains. All errors are relative to the same
    size, that of the whole stream's outputs: a state that begins near zero doesn't blow up the first one.

    Args:
        stream: None for single calls, which have one error.
    """
    known, marks = sizes(reference_outputs), stream.marks if stream else (1,)
    found: list[float | None] = [0.0] * len(marks)
    for at, (got, wanted) in enumerate(zip(outputs, reference_outputs, strict=True)):
        error, step = set_error(got, wanted, known), at % stream.steps if stream else 0
        for index, mark in enumerate(marks):
            if step < mark:
                found[index] = larger(found[index], error)
    return tuple(found)


def larger(one: float | None, other: float | None) -> float | None:
    """Return the larger of two errors; None, which is no number at all, is larger than any."""
    return None if one is None or other is None else max(one, other)


def sizes(reference_outputs: Sequence[Arrays]) -> dict[str, float]:
    """Return the RMS norm of each float output over all input sets."""
    floats = [name for name, first in reference_outputs[0].items() if first.dtype.kind == "f"]
    squares = {name: math.fsum(_l2_norm(_finite(one[name])) ** 2 for one in reference_outputs) for name in floats}
    return {name: math.sqrt(square / len(reference_outputs)) for name, square in squares.items()}


def set_error(got: Arrays, wanted: Arrays, known: Mapping[str, float]) -> float | None:
    """Return the largest relative L2 error of any float output of one input set; None as `worst_error`.

    Args:
        known: the outputs' `sizes`.
    """
    errors = {name: _l2_norm(_difference(got[name], wanted[name])) for name in known}
    if not all(map(math.isfinite, errors.values())):
        return None
    return max((_relative_error(error, known[name]) for name, error in errors.items()), default=0.0)


def count_flips(got: Arrays, wanted: Arrays) -> dict[str, int]:
    """Count the elements that differ, of each output of one input set that holds no floats."""
    wholes = ((name, right) for name, right in wanted.items() if right.dtype.kind != "f")
    return {name: int(np.count_nonzero(got[name] != right)) for name, right in wholes}


def flipped_share(counts: Sequence[int], elements: int) -> float:
    """Return the largest share of an output's elements that differ in any input set.

    Sets of few elements are taken together until they have POOLED of them.

    Args:
        counts: the elements that differ, of each set.
        elements: of each set.
    """
    if not elements:
        return 0.0
    pools = np.array_split(counts, min(len(counts), max(1, len(counts) * elements // POOLED)))
    return max(float(pool.sum()) / (len(pool) * elements) for pool in pools)


def useful_flips(flips: Mapping[str, float], reference_outputs: Sequence[Arrays]) -> dict[str, float]:
    """Return the shares that whole-number outputs may differ by, none above half of what different inputs move.

    An answer that ignores its inputs differs by more.
    """
    if len(reference_outputs) < 2 or not flips:
        return {name: min(share, USEFUL_BOUND) for name, share in flips.items()}
    pairs = [count_flips(one, other) for one, other in itertools.pairwise(reference_outputs)]
    moved = {name: sum(one[name] for one in pairs) / len(pairs) for name in flips}
    return {
        name: min(share, USEFUL_BOUND * moved[name] / max(reference_outputs[0][name].size, 1))
        for name, share in flips.items()
    }


OF_ZEROS = ", the limit for any precision (outputs of zeros alone would err by 1)"
"""Follows the limit of an error that shows hardly more than zeros would."""


def gate(
    found: Fidelity,
    error_bound: float | None,
    least: float = 0.0,
    *,
    is_judged: bool = True,
    is_real: bool = False,
    max_error: float = 0.0,
    is_scored: bool = False,
    flips: Mapping[str, float] = MappingProxyType({}),
) -> str | None:
    """Return the reason why a row can't be true to its label, or None.

    Args:
        found: from `compare`.
        error_bound: the largest relative L2 that the precision explains; None: it explains nothing (the model overflows
            in it, or the exported model has no prediction for it).
        least: outputs that are no further off than this can't have been computed in the label's precision.
        is_judged: whether the error is compared with the error bound (see `ExportedModel.is_judged`), and the integers
            that differ with `flips`. A judged answer has to be nearer to right outputs than to zeros, however wide its
            error bound.
        is_real: whether the inputs are real rather than drawn: then an answer that is nearer to zeros is wrong, even if
            nothing could be predicted.
        max_error: a larger relative L2 that the user allows any row.
        is_scored: whether the user's metric scores the row: then an error that may be explained passes, however large,
            and so does one of which nothing is known. The metric tells what it costs.
        flips: the share of each whole-number output's elements that the precision explains (see
            `ExportedModel.flips_of`); none of other outputs.
    """
    if is_judged and (fault := _find_flips(found, flips)):
        return fault
    if found.relative_l2 is None:
        overflow = _tell_misplaced(found) + ("" if error_bound else ": this model overflows in this precision")
        return overflow if is_judged or error_bound is not None else None
    worst = found.worst_output if len(found.by_output) > 1 else None
    of_output = f" of output {worst.name!r}" if worst and worst.relative_l2 == found.relative_l2 else ""
    told = f"relative L2 error{of_output} {found.relative_l2:.2g} is"
    if is_real and not is_judged and not is_scored and found.relative_l2 > max(USEFUL_BOUND, max_error):
        return f"{told} above {max(USEFUL_BOUND, max_error):g}{OF_ZEROS}"
    if not is_judged or (error_bound is None and is_scored) or (max_error and found.relative_l2 <= max_error):
        error_bound = math.inf
    if error_bound is None:
        return "no error bound is known for this model in this precision, so the row can't be checked"
    if found.relative_l2 > error_bound:
        own = f"the error bound of this precision, {error_bound:.2g}"
        limit = f"--max-error {max_error:g}" if max_error > error_bound else own
        return f"{told} above {limit}"
    if error_bound < math.inf and found.relative_l2 > USEFUL_BOUND and not is_scored:
        return f"{told} above {USEFUL_BOUND:g}{OF_ZEROS}"
    if least and found.relative_l2 <= least:
        return f"{told} that of FP32 (up to {least:.2g}): nothing was rounded"
    return None


def _find_flips(found: Fidelity, flips: Mapping[str, float]) -> str | None:
    """Return why too many elements of a whole-number output differ, or None."""
    for one in found.by_output:
        explained = flips.get(one.name, 0.0)
        if one.relative_l2 is not None and one.mismatches and one.flipped > explained:
            told = f"{one.mismatches:,} of {one.elements:,} integer or boolean elements of output {one.name!r} differ"
            told = f"{told} from the reference's"
            if not explained:
                return f"{told}, and this precision explains 0"
            worst = f"{100 * one.flipped:.3g} % for the worst inputs"
            return f"{told}, {worst}; this precision explains {100 * explained:.3g} %"
    return None


def _tell_misplaced(found: Fidelity) -> str:
    """Tell which output is NaN or infinite where it shouldn't be, in which row, and in what share of its elements."""
    one = next((one for one in found.by_output if one.relative_l2 is None), None)
    if one is None:
        return "the output has NaN or infinity"
    told = f"output {one.name!r} has NaN or infinity where the reference has none, or the other way round"
    return f"{told}, in {one.mismatches:,} of {one.elements:,} elements (row {one.row})"


def standing(found: Fidelity, error_bound: float | None, *, is_judged: bool) -> BoundStanding:
    """Return how a row that passed the gate compares with its error bound; NaN never meets one."""
    if not is_judged:
        return "not judged"
    if error_bound is None or found.relative_l2 is None or not found.relative_l2 <= min(error_bound, USEFUL_BOUND):
        return "tolerated"
    return "met"


def disagreement(found: Fidelity, error_bound: float | None) -> str | None:
    """Return why a row can't be the shared model, or None.

    Two that round in different places, each as far off as quantization costs, differ by twice that at most.

    Args:
        error_bound: as in `gate`; FIDELITY_MARGIN times the error that is predicted for the precision.
    """
    if found.shared_l2 is None or error_bound is None:
        return None
    bound = 2 * error_bound / FIDELITY_MARGIN
    if found.shared_l2 <= bound:
        return None
    return f"its outputs are {found.shared_l2:.2g} (relative L2) off the shared model's own, above {bound:.2g}"


def rows(array: Array, first: int, batch: int) -> Array:
    """Return `batch` rows from row `first` on; past the end it starts again from row 0."""
    return np.take(array, range(first, first + batch), axis=0, mode="wrap")


def _finite(array: Array) -> Array:
    """Return an output's numbers in a row, with 0 for NaN and infinity."""
    return np.nan_to_num(np.asarray(array, dtype=np.float64).ravel(), nan=0.0, posinf=0.0, neginf=0.0)


def _difference(got: Array, right: Array) -> Array:
    """Return what is wrong in an output: 0 for NaN or infinity that both have, NaN or infinity if one alone has it."""
    with np.errstate(invalid="ignore"):
        wrong: Array = np.asarray(np.asarray(got, dtype=np.float64) - right)  # a scalar's would be no array
    if not np.isfinite(wrong).all():
        wrong[(got == right) | (np.isnan(got) & np.isnan(right))] = 0.0
    return wrong


def _l2_norm(array: Array) -> float:
    return float(np.linalg.norm(np.asarray(array, dtype=np.float64).ravel()))


def _relative_error(error: float, size: float) -> float:
    return error / size if size else math.inf if error else 0.0


def _sqnr_db(pairs: Sequence[tuple[Array, Array]]) -> float | None:
    noise = math.fsum(float(np.sum((got - right) ** 2)) for got, right in pairs)
    signal = math.fsum(float(np.sum(right**2)) for _, right in pairs)
    return 10 * math.log10(signal / noise) if noise and signal else None


def _cosine_similarity(pairs: Sequence[tuple[Array, Array]]) -> float | None:
    dot = math.fsum(float(got @ right) for got, right in pairs)
    sizes = [math.fsum(float(pair[side] @ pair[side]) for pair in pairs) for side in (0, 1)]
    return dot / math.sqrt(sizes[0] * sizes[1]) if all(sizes) else None


def _top1_agreement(outputs: Sequence[Arrays], reference_outputs: Sequence[Arrays]) -> float | None:
    name, first = next(iter(reference_outputs[0].items()))
    if first.dtype.kind != "f" or first.ndim != 2 or first.shape[1] < 2 or not len(first):
        return None
    same = [
        got[name].argmax(axis=1) == right[name].argmax(axis=1)
        for got, right in zip(outputs, reference_outputs, strict=True)
    ]
    return float(np.mean(same))
