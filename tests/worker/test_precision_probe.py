"""The probes against every rounding that they must tell apart, made in NumPy, and against what they must not guess."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from shootout.models import probes
from shootout.models.probes import read_grid, read_permutation


def mantissa(bits: int) -> Any:
    """Rounds float32 to so many mantissa bits, ties to even."""

    def rounded(x: Any) -> Any:
        drop = 23 - bits
        raw = x.astype(np.float32).view(np.uint32)
        half = np.uint32((1 << (drop - 1)) - 1) + ((raw >> np.uint32(drop)) & np.uint32(1))
        return ((raw + half) & ~np.uint32((1 << drop) - 1)).view(np.float32)

    return rounded


def half(x: Any) -> Any:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


def saturating_half(x: Any) -> Any:
    return half(np.clip(x, -65_504, 65_504))


PRECISIONS = {
    "fp32": lambda x: x,
    "tf32": mantissa(10),
    "fp16": half,
    "bf16": mantissa(7),
}


def probe(rounding: Any) -> str:
    with np.errstate(invalid="ignore"):
        return read_permutation({"y": rounding(probes.permutation_rows()) @ probes.permutation_weight().T})


@pytest.mark.parametrize("precision", list(PRECISIONS))
def test_the_probe_tells_the_precisions_apart(precision: str):
    assert probe(PRECISIONS[precision]) == precision


def test_the_probe_knows_fp16_that_saturates():
    assert probe(saturating_half) == "fp16"


@pytest.mark.parametrize(
    "rounding",
    [
        mantissa(3),
        mantissa(9),
        np.ones_like,
        np.zeros_like,
        lambda x: x + np.float32(1e-3),
        lambda x: x[:, ::-1],
        lambda x: np.full_like(x, np.nan),
        lambda x: np.where(x > 2, np.inf, x),
        lambda x: np.where(x > 2, 3, x),
    ],
    ids=["3 bits", "9 bits", "ones", "zeros", "shifted", "other order", "NaN", "fp32 overflow", "wrong top"],
)
def test_the_probe_does_not_guess(rounding: Any):
    assert probe(rounding) == "unknown"


def nothing(x: Any) -> Any:
    return x


def grid(levels: int, axis: int | None = None, group: int | None = None) -> Any:
    """Symmetric rounding to `levels` steps on each side, one scale for all, for each index of an axis, or a group."""

    def rounded(x: Any) -> Any:
        parts = x.reshape(len(x), -1, group) if group else x
        largest = np.abs(parts).max(axis=-1 if group else axis, keepdims=True)
        scale = np.where(largest > 0, largest / levels, 1)
        return (np.round(parts / scale) * scale).reshape(x.shape)

    return rounded


def unsigned(x: Any) -> Any:
    """Asymmetric rounding to 256 steps between the extremes, zero being one of them."""
    scale = (x.max() - x.min()) / 255
    zero = np.round(-x.min() / scale)
    return (np.clip(np.round(x / scale) + zero, 0, 255) - zero) * scale


def eight_bits(mantissa: int, smallest: int, top: float = 0.0, axis: int | None = None) -> Any:
    """Rounding to floats of so many mantissa bits; scaled so that the largest is `top`, unless that is 0."""

    def rounded(x: Any) -> Any:
        largest = np.abs(x).max(axis=axis, keepdims=True)
        scale = np.where(largest > 0, largest / top, 1).astype(np.float32) if top else np.float32(1)
        step = np.ldexp(1.0, np.maximum(np.frexp(x / scale)[1] - 1, smallest) - mantissa)
        return (np.round(x / scale / step) * step).astype(np.float32) * scale

    return rounded


e4m3 = partial(eight_bits, 3, -6)
INTEGERS = (
    *("tensor", "rows", "unsigned", "weights", "4 bits", "128", "32"),
    *("4 and 8", "4 and unsigned", "4 and 4"),
)
FP8 = ("E4M3", "E4M3 by rows", "E4M3 unscaled", "E4M3 of other scales", "E4M3 weights", "INT8 and E4M3", "E5M2")


def seen(activations: Any, weights: Any) -> str:
    return read_grid({"y": (activations(probes.grid_rows()) @ weights(probes.grid_weight()).T).astype(np.float32)})


@pytest.mark.parametrize(
    ("activations", "weights", "wanted"),
    [
        (grid(127), grid(127), "int8"),
        (grid(127, axis=1), grid(127, axis=1), "int8"),
        (unsigned, grid(127, axis=1), "int8"),
        (nothing, grid(127, axis=1), "int8-weights"),
        (nothing, grid(7, axis=1), "int4"),
        (nothing, grid(7, group=128), "int4"),
        (nothing, grid(7, group=32), "int4"),
        (grid(127, axis=1), grid(7, group=32), "int4-activations-8"),
        (unsigned, grid(7, axis=1), "int4-activations-8"),
        (grid(7), grid(7, axis=1), "unknown"),
        (nothing, nothing, "float"),
        (mantissa(7), mantissa(7), "float"),
        (half, half, "float"),
        (mantissa(7), grid(127), "int8-weights"),
        (e4m3(448.0), e4m3(448.0), "fp8"),
        (e4m3(448.0, axis=1), e4m3(448.0, axis=1), "fp8"),
        (e4m3(), e4m3(), "fp8"),
        (e4m3(256.0), e4m3(100.0), "fp8"),
        (nothing, e4m3(448.0), "fp8-weights"),
        (grid(127), e4m3(448.0), "unknown"),
        (eight_bits(2, -14), eight_bits(2, -14), "unknown"),
    ],
    ids=[*INTEGERS, "fp32", "bf16", "fp16", "bf16 rows", *FP8],
)
def test_the_grid_probe_tells_how_many_levels_are_left(activations: Any, weights: Any, wanted: str):
    assert seen(activations, weights) == wanted


@pytest.mark.parametrize(
    "y",
    [
        np.zeros((probes.GRID_BATCH, 256)),
        np.full((probes.GRID_BATCH, 256), np.nan),
        np.ones((2, 2)),
        -(probes.grid_rows() @ probes.grid_weight().T),
        (grid(3)(probes.grid_rows()) @ grid(3)(probes.grid_weight()).T),
    ],
    ids=["zeros", "NaN", "shape", "sign", "3 bits"],
)
def test_the_grid_probe_does_not_guess(y: Any):
    assert read_grid({"y": y}) == "unknown"


@pytest.mark.parametrize("scale", [0.0, 448.0])
def test_e4m3_shows_no_float_precision_in_the_permutation_probe(scale: float):
    assert probe(e4m3(scale)) == "unknown"


def test_every_row_and_every_group_of_weights_has_the_whole_range():
    x, weight = probes.grid_rows(), probes.grid_weight()
    assert (x.max(axis=1) == 1).all()
    groups = weight[probes.COPIES :, probes.COPIES :].reshape(-1, probes.GROUP)
    assert (groups.max(axis=1) == 1).all()
    assert (groups.min(axis=1) == -1).all()
