"""What the probes' outputs show: the precision that a backend really computes in, read from outside. NumPy only.

The permutation probe tells float precisions apart, the grid probe integers; see their models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from shootout.contract import Array, Arrays
from shootout.models import probes
from shootout.models.probes import ORDER, PROBE_ROWS

FP16_MAX = 65_504.0
ANSWERS: Mapping[tuple[str, bool | None], str] = {
    ("11111", False): "fp32",
    ("11110", False): "tf32",
    ("11110", True): "fp16",
    ("11000", False): "bf16",
}
"""The permutation probe's: which of PROBE_ROWS came out exactly, and whether the last row overflowed."""
MOST_LEVELS = {8: 256, 4: 16}
"""The most that so many bits can tell apart."""
LEVEL_DECIMALS = 4
"""The grid probe's steps are 1e-3 at least; what is finer is float noise on one and the same level."""
COARSEST = 0.15
"""Half a step of 4 bits from -1 to 1, and as much again for a grid that doesn't reach both ends."""


def read_permutation(outputs: Arrays) -> str:
    """Which float precision the permutation probe's output shows.

    Returns:
        "fp32" (exact at 2^-12), "tf32" or "fp16" (lost there, exact at 2^-10; FP16 alone overflows at 2^17), "bf16"
        (lost at 2^-8, exact at 2^-7), or "unknown" for anything else.
    """
    wanted, got = probes.permutation_rows()[:, ORDER].astype(np.float64), outputs["y"].astype(np.float64)
    exact = "".join("1" if np.array_equal(got[row], wanted[row]) else "0" for row in range(len(PROBE_ROWS)))
    lost = np.array([2.0**-k for k in PROBE_ROWS])[:, None]
    if got.shape != wanted.shape or not (np.abs(got - wanted)[:-1] <= lost).all():
        return "unknown"
    return ANSWERS.get((exact, _overflowed(got[-1], wanted[-1])), "unknown")


def read_grid(outputs: Arrays) -> str:
    """How many levels the grid probe's output shows.

    Returns:
        "int8" (at most 256 levels of weights and of activations), "int8-weights" and "int4" (at most 256 and 16 of
        weights, activations unrounded), "float" (more than 256 of both), or "unknown" for anything else, wrong outputs
        among it.
    """
    y, wanted = outputs["y"].astype(np.float64), probes.grid_rows() @ probes.grid_weight().T
    if y.shape != wanted.shape:
        return "unknown"
    ramps, rights = _ramps(y), _ramps(wanted)
    if not all((np.abs(got - right) <= COARSEST).all() for got, right in zip(ramps, rights, strict=True)):
        return "unknown"
    activations, weights = (len(np.unique(ramp.round(LEVEL_DECIMALS))) for ramp in ramps)
    if activations <= MOST_LEVELS[8]:
        return "int8" if MOST_LEVELS[4] < weights <= MOST_LEVELS[8] else "unknown"
    return "int4" if weights <= MOST_LEVELS[4] else "int8-weights" if weights <= MOST_LEVELS[8] else "float"


READERS: Mapping[str, Callable[[Arrays], str]] = {"permutation_probe": read_permutation, "grid_probe": read_grid}
"""By the probe's model."""


def _ramps(y: Array) -> tuple[Array, Array]:
    """The activations' ramp and the weights'."""
    rows, copies = probes.RAMP_ROWS, probes.COPIES
    return y[:rows, :copies], y[rows:, copies:]


def _overflowed(got: Array, wanted: Array) -> bool | None:
    """Whether the 2^17 row left FP16's range (infinity times the weight's zeros is NaN); None: neither, nor exact."""
    if np.array_equal(got, wanted):
        return False
    return True if not np.isfinite(got).all() or np.max(np.abs(got)) == FP16_MAX else None
