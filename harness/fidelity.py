"""How far outputs are from the FP64 oracle, and which precision the permutation probe shows. NumPy only (workers).

The gate looks at the worst buffer and output by itself: pooled over all, a small output's error would drown in a large
one's norm.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shootout.bundle import Report
from shootout.constants import BAND_CEILING, FIDELITY_MARGIN
from shootout.contract import Array, Arrays, TensorSpec
from shootout.models.permutation_probe import ORDER, PROBE_ROWS

FP16_MAX = 65_504.0
ANSWERS: Mapping[tuple[str, bool | None], str] = {
    ("11111", False): "fp32",
    ("11110", False): "tf32",
    ("11110", True): "fp16",
    ("11000", False): "bf16",
}
"""The probe's: which of PROBE_ROWS came out exactly, and whether the last row overflowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """Outputs against the oracle, over all input buffers; float outputs except where said otherwise.

    Attributes:
        max_abs: largest absolute error; None when an output has NaN or infinity, as are the next four.
        relative_l2: largest norm(error) / norm(oracle) of any buffer and output.
        sqnr_db: 10 log10(sum oracle² / sum error²); None also when there is no error at all.
        cosine: of all outputs as one vector; None also when one side is zero.
        top1_agreement: share of rows of the first output with the oracle's largest class, None unless (batch, classes).
        accuracy: share of the report split that is classified rightly; None without labels.
        mismatches: integer or boolean output elements that differ from the oracle's.
    """

    max_abs: float | None
    relative_l2: float | None
    sqnr_db: float | None
    cosine: float | None
    top1_agreement: float | None
    accuracy: float | None = None
    mismatches: int = 0


NOTHING = Fidelity(max_abs=None, relative_l2=None, sqnr_db=None, cosine=None, top1_agreement=None)
"""Of outputs that can't even be compared."""


def check_outputs(specs: Sequence[TensorSpec], outputs: Arrays) -> str | None:
    """The reason why `outputs` don't have the model's names, shapes and dtypes, or None.

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


def compare(outputs: Sequence[Arrays], oracle: Sequence[Arrays]) -> Fidelity:
    """Compare the outputs of every buffer with the oracle's, in its order and with its names and shapes."""
    pairs = [(got[name], right) for got, wanted in zip(outputs, oracle, strict=True) for name, right in wanted.items()]
    floats = [(_flat(got), _flat(right)) for got, right in pairs if right.dtype.kind == "f"]
    mismatches = sum(int(np.count_nonzero(got != right)) for got, right in pairs if right.dtype.kind != "f")
    if not all(np.isfinite(got).all() for got, _ in floats):
        return dataclasses.replace(NOTHING, mismatches=mismatches)
    return Fidelity(
        max_abs=max((float(np.max(np.abs(got - right), initial=0.0)) for got, right in floats), default=0.0),
        relative_l2=max((_relative_l2(got, right) for got, right in floats), default=0.0),
        sqnr_db=_sqnr_db(floats),
        cosine=_cosine(floats),
        top1_agreement=_top1_agreement(outputs, oracle),
        mismatches=mismatches,
    )


def with_accuracy(found: Fidelity, run: Callable[[Arrays], Arrays], report: Report, batch: int) -> Fidelity:
    """`found` with the accuracy on the report split; see `accuracy`."""
    return dataclasses.replace(found, accuracy=accuracy(run, report, batch))


def widened(error: float | None) -> float | None:
    """The band for a predicted relative L2: FIDELITY_MARGIN times it, at most BAND_CEILING; None (overflow) stays."""
    return None if error is None else min(error * FIDELITY_MARGIN, BAND_CEILING)


def gate(found: Fidelity, band: float | None) -> str | None:
    """The reason why a row can't be true to its label, or None.

    Args:
        found: from `compare`.
        band: the largest relative L2 that the precision explains; None: it explains nothing (the model overflows in
            it, or the bundle has no prediction for it).
    """
    if found.mismatches:
        return f"{found.mismatches} integer or boolean output elements differ from the oracle's"
    if found.relative_l2 is None:
        return "the output has NaN or infinity" + ("" if band else ": this model overflows in this precision")
    if band is None:
        return "no error band is known for this model in this precision, so the row can't be checked"
    if found.relative_l2 > band:
        return f"relative L2 error {found.relative_l2:.2g} is above the {band:.2g} that this precision explains"
    return None


def accuracy(run: Callable[[Arrays], Arrays], report: Report, batch: int) -> float:
    """Share of the report split whose largest output is the right class.

    Args:
        run: one batch of inputs → outputs, the class scores first.
        report: the split.
        batch: rows the model takes at a time; the last batch is filled up with rows that aren't counted.
    """
    right = 0
    for first in range(0, len(report.labels), batch):
        labels = report.labels[first : first + batch]
        scores = next(iter(run({name: rows(array, first, batch) for name, array in report.inputs.items()}).values()))
        right += int(np.count_nonzero(scores[: len(labels)].argmax(axis=-1) == labels))
    return right / len(report.labels)


def rows(array: Array, first: int, batch: int) -> Array:
    """`batch` rows from row `first` on; past the end it starts again from row 0."""
    return np.take(array, range(first, first + batch), axis=0, mode="wrap")


def read_probe(inputs: Arrays, outputs: Arrays) -> str:
    """Which float precision the permutation probe's output shows.

    Returns:
        "fp32" (exact at 2^-12), "tf32" or "fp16" (lost there, exact at 2^-10; FP16 alone overflows at 2^17), "bf16"
        (lost at 2^-8, exact at 2^-7), or "unknown" for anything else.
    """
    wanted, got = inputs["x"][:, ORDER].astype(np.float64), outputs["y"].astype(np.float64)
    exact = "".join("1" if np.array_equal(got[row], wanted[row]) else "0" for row in range(len(PROBE_ROWS)))
    lost = np.array([2.0**-k for k in PROBE_ROWS])[:, None]
    if got.shape != wanted.shape or not (np.abs(got - wanted)[:-1] <= lost).all():
        return "unknown"
    return ANSWERS.get((exact, _overflowed(got[-1], wanted[-1])), "unknown")


def _flat(array: Array) -> Array:
    return np.asarray(array, dtype=np.float64).ravel()


def _relative_l2(got: Array, right: Array) -> float:
    error, size = float(np.linalg.norm(got - right)), float(np.linalg.norm(right))
    return error / size if size else math.inf if error else 0.0


def _sqnr_db(pairs: Sequence[tuple[Array, Array]]) -> float | None:
    noise = math.fsum(float(np.sum((got - right) ** 2)) for got, right in pairs)
    signal = math.fsum(float(np.sum(right**2)) for _, right in pairs)
    return 10 * math.log10(signal / noise) if noise and signal else None


def _cosine(pairs: Sequence[tuple[Array, Array]]) -> float | None:
    dot = math.fsum(float(got @ right) for got, right in pairs)
    sizes = [math.fsum(float(pair[side] @ pair[side]) for pair in pairs) for side in (0, 1)]
    return dot / math.sqrt(sizes[0] * sizes[1]) if all(sizes) else None


def _top1_agreement(outputs: Sequence[Arrays], oracle: Sequence[Arrays]) -> float | None:
    name, first = next(iter(oracle[0].items()))
    if first.dtype.kind != "f" or first.ndim != 2 or first.shape[1] < 2 or not len(first):
        return None
    same = [got[name].argmax(axis=1) == right[name].argmax(axis=1) for got, right in zip(outputs, oracle, strict=True)]
    return float(np.mean(same))


def _overflowed(got: Array, wanted: Array) -> bool | None:
    """Whether the 2^17 row left FP16's range (infinity times the weight's zeros is NaN); None: neither, nor exact."""
    if np.array_equal(got, wanted):
        return False
    return True if not np.isfinite(got).all() or np.max(np.abs(got)) == FP16_MAX else None
