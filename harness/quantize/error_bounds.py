"""Share between both predictors of error bounds: the grids, which of them stand for which precision, the floor.

An error bound is the largest error of the ways in which a precision may round. Quantizers choose an activation's range
so wide that nothing is clipped, or as the mean of the largest magnitudes; weights have one scale for each channel,
tensor or group (see `torch_error_bounds`). FP8 rounds each number by its size, so that scales matter little: the
coarsest are taken. Gradients of a training step are compared by sketches. NumPy only.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from shootout.core.constants import FIDELITY_MARGIN
from shootout.core.contract import Array, Arrays, Precision
from shootout.core.exported.calls import Stream
from shootout.core.exported.fidelity import count_flips, errors_by_mark, flipped_share
from shootout.quantize import E4M3_MAX, INT4_GROUP, INT4_LEVELS, INT8_LEVELS

Weights = Callable[[Array, int], Array]
"""Puts a weight, with the axis of its output channels, on a grid."""
MASKED = 2.0**99
"""A mask's constant is larger: half's numbers reach 2^16, while float32's least, or -infinity, hides a score.

Such a number stays what it is and doesn't widen a range, since what it hides stays hidden in a model that is quantized
well.
"""
BUCKETS = 64
"""Numbers that stand for one gradient; they show a wrong gradient's relative error to within about a fifth."""
SMALLEST = 1e-3
"""Judge a gradient that is smaller than this share of the largest one as if it were so large: zero is never exact."""
E4M3_BITS = 3
"""The bits of the mantissa; the leading one is not stored."""
E4M3_SMALLEST = -6
"""The exponent of the smallest normal number; smaller numbers have the spacing of that one's."""


def widened(error: float | None) -> float | None:
    """Return the error bound for a predicted relative L2: FIDELITY_MARGIN times it; None (overflow) stays."""
    return None if error is None else error * FIDELITY_MARGIN


def largest(errors: Iterable[float | None]) -> float | None:
    """Return the largest of some errors or error bounds; None (overflow) if one of them is None."""
    known = list(errors)
    return None if None in known else max(error for error in known if error is not None)


Flips = Mapping[str, Mapping[str, float]]
"""By precision, the share of each whole-number output's elements that it may flip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Hold what a precision's rounding costs.

    Attributes:
        by_mark: one error, or of a stream one for each of its marks (see `fidelity.errors_by_mark`).
        flipped: of each whole-number output the largest share of elements that differ (see `fidelity.flipped_share`).
    """

    by_mark: tuple[float | None, ...]
    flipped: Mapping[str, float] = field(default_factory=dict)

    def widened(self) -> Errors:
        """Return the error bounds: FIDELITY_MARGIN times the errors."""
        shares = {name: FIDELITY_MARGIN * share for name, share in self.flipped.items()}
        return Errors(by_mark=tuple(map(widened, self.by_mark)), flipped=shares)


def find_errors(outputs: Iterable[Arrays], reference_outputs: Sequence[Arrays], stream: Stream | None) -> Errors:
    """Compare a rounded run's outputs with the reference's, in its order; only one set is in memory at a time."""
    flips = list[Mapping[str, int]]()

    def counted() -> Iterator[Arrays]:
        for got, wanted in zip(outputs, reference_outputs, strict=True):
            flips.append(count_flips(got, wanted))
            yield got

    by_mark = errors_by_mark(counted(), reference_outputs, stream)
    sizes = {name: reference_outputs[0][name].size for name in flips[0]}
    shares = {name: flipped_share([one[name] for one in flips], size) for name, size in sizes.items()}
    return Errors(by_mark=by_mark, flipped=shares)


def largest_of_each(runs: Iterable[Errors]) -> Errors:
    """Return the largest error of some runs at each mark, and their largest shares."""
    known = list(runs)
    by_mark = tuple(map(largest, zip(*(one.by_mark for one in known), strict=True)))
    return Errors(by_mark=by_mark, flipped=largest_shares([one.flipped for one in known]))


def flips_by_precision(found: Mapping[str, Errors]) -> Flips:
    """Return the shares that each precision may flip, none of them below FP32's own."""
    least = found[Precision.FP32].flipped
    return {name: largest_shares([errors.flipped, least]) for name, errors in found.items()}


def largest_shares(shares: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the largest share of each output."""
    found: dict[str, float] = {}
    for one in shares:
        found |= {name: max(share, found.get(name, 0.0)) for name, share in one.items()}
    return found


def bounds_by_mark(found: Mapping[str, Errors], floors: Sequence[float]) -> tuple[dict[str, float | None], ...]:
    """Return error bounds for each mark, none of them below FP32's own there, which is in `floors`."""
    return tuple(
        with_floor({name: errors.by_mark[at] for name, errors in found.items()}, floor)
        for at, floor in enumerate(floors)
    )


def with_floor(found: Mapping[str, float | None], floor: float) -> dict[str, float | None]:
    """Return error bounds none of which is below FP32's own, which is `floor`."""
    raised = {name: None if error_bound is None else max(error_bound, floor) for name, error_bound in found.items()}
    return {**raised, Precision.FP32: floor}


def by_channel(weight: Array, axis: int, levels: int = INT8_LEVELS) -> Array:
    """Return the rounding to symmetric INT8, one scale for each index along `axis`, with so many levels above zero."""
    others = tuple(index for index in range(weight.ndim) if index != axis % weight.ndim)
    return _round_symmetric(weight, np.abs(weight).max(axis=others, keepdims=True), levels)


def by_tensor(weight: Array, axis: int) -> Array:  # noqa: ARG001 - as `by_channel`
    """Return the rounding to symmetric INT8, one scale."""
    return _round_symmetric(weight, np.abs(weight).max(keepdims=True))


def to_e4m3(weight: Array, axis: int) -> Array:  # noqa: ARG001 - as `by_channel`
    """Return the rounding to E4M3 (Micikevicius et al. 2022, arXiv:2209.05433, table 1), one scale, by the largest
    magnitude.
    """
    largest = float(np.abs(weight).max(initial=0.0))
    scale = largest / E4M3_MAX or 1.0
    scaled = weight.astype(np.float64) / scale
    exponent = np.maximum(np.frexp(scaled)[1] - 1, E4M3_SMALLEST)  # frexp's mantissa begins at a half
    step = np.ldexp(1.0, exponent - E4M3_BITS)
    return np.asarray(np.rint(scaled / step) * step * scale, dtype=weight.dtype)


def by_group(weight: Array, axis: int) -> Array:
    """Return the rounding to symmetric INT4, one scale for each index along `axis` and INT4_GROUP inputs."""
    moved = np.moveaxis(weight, axis, 0)
    flat = moved.reshape(len(moved), -1)
    parts = np.split(flat, range(INT4_GROUP, flat.shape[1], INT4_GROUP), axis=1)
    rounded = [_round_symmetric(part, np.abs(part).max(axis=1, keepdims=True), INT4_LEVELS) for part in parts]
    return np.moveaxis(np.concatenate(rounded, axis=1).reshape(moved.shape), 0, axis)


def _round_symmetric(weight: Array, largest: Array, levels: int = INT8_LEVELS) -> Array:
    scale = np.where(largest > 0, largest / levels, 1)
    return np.asarray(np.round(weight / scale) * scale, dtype=weight.dtype)


def sketch(tensors: Arrays) -> dict[str, Array]:
    """Return BUCKETS float64 numbers for each tensor: sums of its elements with signs that its name seeds.

    The sketch of a difference has the difference's own norm on average (Charikar, Chen and Farach-Colton, "Finding
    frequent items in data streams", 2002), so sketches are compared as the tensors would be, and take no room.
    """
    found = {}
    for name, array in tensors.items():
        flat, rng = as_float64(array).ravel(), np.random.default_rng(zlib.crc32(name.encode()))
        signs = np.unpackbits(np.frombuffer(rng.bytes(flat.size // 8 + 1), "u1"))
        padded = np.zeros(-(-flat.size // BUCKETS) * BUCKETS)
        np.copyto(padded[: flat.size], np.where(signs[: flat.size], flat, -flat))
        found[name] = np.asarray(padded.reshape(-1, BUCKETS).sum(axis=0))
    return found


def off(got: Arrays, wanted: Arrays) -> float | None:
    """Return the largest relative L2 error of any tensor (see SMALLEST); None if one isn't finite."""
    least = SMALLEST * max(float(np.linalg.norm(array)) for array in wanted.values())
    wrong = {name: float(np.linalg.norm(as_float64(got[name]) - as_float64(array))) for name, array in wanted.items()}
    found = [error / max(float(np.linalg.norm(wanted[name])), least) for name, error in wrong.items()]
    return max(found) if np.isfinite(found).all() else None


def as_float64(array: Any) -> Array:
    """Return a tensor of any kind in float64."""
    return np.asarray(array, dtype=np.float64)


Activations = Literal["static", "dynamic", "float8", "float"]
"""Activations that are rounded: all that a static quantizer would round, those that matrix products read to integers
or to E4M3 (sums stay float in dynamic quantization), or none.
"""
SCALED_WAYS: Mapping[str, Sequence[tuple[Activations, bool, Weights]]] = {
    Precision.INT4: [("float", False, by_group)],
    f"{Precision.INT4}/activations-8": [("dynamic", False, by_group)],
    f"{Precision.INT8}/weights-only": [("float", False, by_channel)],
    Precision.FP8: [("float8", False, to_e4m3)],
    Precision.INT8: [("static", False, by_channel), ("static", True, by_channel)],
    f"{Precision.INT8}/per-tensor": [("static", False, by_tensor), ("static", True, by_tensor)],
    Precision.INT8_DYNAMIC: [("dynamic", False, by_channel)],
    f"{Precision.INT8_DYNAMIC}/per-tensor": [("dynamic", False, by_tensor)],
}
"""The ways of each precision that a quantizer makes: activations, whether their ranges clip, and weights. Those of a
scheme's words are apart if they change the error.
"""
