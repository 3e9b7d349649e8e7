"""Does the evidence agree with the label? What the runtime says it ran, and what the probes found from outside.

The permutation probe tells float precisions apart, the grid probe integers and FP8; see their models. NumPy only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from shootout.core import schemes
from shootout.core.contract import SCALED, Arm, Array, Arrays, Device, Executed, Precision, Target
from shootout.models import probes
from shootout.models.probes import ORDER, PROBE_ROWS

COUNTED = {Precision.FP32: ("fp32", "fp64"), Precision.TF32: ("tf32", "fp32")}
"""Counts that bear a label out, where that isn't just its own name; a user's float64 file runs under fp32, and TF32 is
a way to round float32 operands that not every runtime shows: the permutation probe does.
"""

PROBED = {"fp16-weights": "fp32"}
"""The findings of a probe that aren't the products' own name: the permutation's weights are 0 and 1 in any float."""


def probe_name(precision: Precision) -> str:
    """Return which of the probes' models shows this precision."""
    return "grid_probe" if precision in SCALED else "permutation_probe"


def executed_fault(executed: Executed, arm: Arm) -> str | None:
    """Explain how the runtime's own account contradicts the arm's label; None if it agrees.

    It tells the precision, the device and the threads.
    """
    if arm.threads and executed.threads is not None and executed.threads != arm.threads:
        return f"asked for {arm.threads} threads, but {executed.library} uses {executed.threads}"
    named = next((device for device in Device if device.is_gpu and device in executed.device.lower()), Device.CPU)
    if named is not arm.target.device:
        return f"labeled {arm.target.device}, but {executed.library} computes on {executed.device}"
    if arm.target.precision is Precision.NATIVE:
        return None
    return _precision_fault(executed, arm.target)


def _precision_fault(executed: Executed, target: Target) -> str | None:
    """Explain a runtime that ran nothing in the labeled precision; a mixed account is no fault.

    A float model without compute nodes (a reshape, say) contradicts nothing; a quantized model must show some.
    """
    counts, label = executed.compute_nodes_by_precision, schemes.promised(target.precision, target.scheme)
    if not counts and target.precision in SCALED:
        return f"labeled {label}, but {executed.library} reports no compute node at all"
    known = COUNTED.get(target.precision) or (schemes.shown_as(target.precision, target.scheme),)
    if not counts or any(counts.get(name) for name in known):
        return None
    ran = ", ".join(f"{count} in {name}" for name, count in sorted(counts.items()))
    moved = f"; beside them {executed.conversion_nodes} nodes only convert" if executed.conversion_nodes else ""
    return f"labeled {label}, but {executed.library} ran its compute nodes elsewhere: {ran}{moved}"


def probe_fault(found: str | None, target: Target) -> str | None:
    """Explain how the probe's answer contradicts the label, or return None, as without an answer."""
    shown = schemes.shown_as(target.precision, target.scheme)
    if found is None or found == PROBED.get(shown, shown):
        return None
    probe, label = probe_name(target.precision).replace("_", " "), schemes.promised(target.precision, target.scheme)
    return f"labeled {label}, but the {probe} finds {found}: the runtime did not honor the precision"


def is_mostly_labeled(executed: Executed, target: Target) -> bool:
    """Return whether at least half of the compute nodes ran in the label's precision, by the runtime's own account."""
    counts = executed.compute_nodes_by_precision
    return 2 * counts.get(schemes.shown_as(target.precision, target.scheme), 0) >= sum(counts.values())


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
LEVEL_GAP = 1e-4
"""The grid probe's steps are 1e-3 at least; what is nearer than this is float noise on one and the same level."""
OCTAVES = ((1 / 2, 1.0), (1 / 4, 1 / 2), (1 / 8, 1 / 4))
E4M3_LEVELS = range(7, 10)
"""In each octave 8, whatever the scale: 3 mantissa bits. Float noise may move one at an end. Integers have half as many
in each octave as in the one above.
"""
SHOWN = {
    ("int8", "int8"): "int8",
    ("float", "int8"): "int8-weights",
    ("float", "int4"): "int4",
    ("int8", "int4"): "int4-activations-8",
    ("float", "float"): "float",
    ("fp8", "fp8"): "fp8",
    ("float", "fp8"): "fp8-weights",
}
"""The grid probe's: by the levels of activations and of weights."""
COARSEST = 0.15
"""Half a step of 4 bits from -1 to 1, and as much again for a grid that doesn't reach both ends."""


def read_permutation(outputs: Arrays) -> str:
    """Name the float precision that the permutation probe's output shows.

    Returns:
        "fp32" (exact at 2^-12), "tf32" or "fp16" (lost there, exact at 2^-10; FP16 alone overflows at 2^17), "bf16"
        (lost at 2^-8, exact at 2^-7), or "unknown" for anything else.
    """
    wanted, got = probes.permutation_rows()[:, ORDER].astype(np.float64), outputs["y"].astype(np.float64)
    exact = "".join("1" if np.array_equal(got[row], wanted[row]) else "0" for row in range(len(PROBE_ROWS)))
    lost = np.array([2.0**-k for k in PROBE_ROWS])[:, None]
    if got.shape != wanted.shape or not (np.abs(got - wanted)[:-1] <= lost).all():
        return "unknown"
    return ANSWERS.get((exact, _has_overflowed(got[-1], wanted[-1])), "unknown")


def read_grid(outputs: Arrays) -> str:
    """Name the precision that the levels in the grid probe's output show.

    Returns:
        "int8" (at most 256 levels of weights and of activations), "int8-weights" and "int4" (at most 256 and 16 of
        weights, activations unrounded), "int4-activations-8" (at most 16 and 256), "fp8" and "fp8-weights" (E4M3's
        levels), "float" (more than 256 of both), or "unknown" for anything else, wrong outputs among it.
    """
    y, wanted = outputs["y"].astype(np.float64), probes.grid_rows() @ probes.grid_weight().T
    if y.shape != wanted.shape:
        return "unknown"
    ramps, rights = _split_ramps(y), _split_ramps(wanted)
    if not all((np.abs(got - right) <= COARSEST).all() for got, right in zip(ramps, rights, strict=True)):
        return "unknown"
    activations, weights = map(_name_grid, ramps)
    return SHOWN.get((activations, weights), "unknown")


READERS: Mapping[str, Callable[[Arrays], str]] = {"permutation_probe": read_permutation, "grid_probe": read_grid}
"""By the probe's model."""


def _name_grid(ramp: Array) -> str:
    """Name the grid that the numbers of a ramp were rounded to."""
    ordered = np.sort(ramp, axis=None)
    levels = ordered[np.diff(ordered, prepend=-np.inf) > LEVEL_GAP]
    counts = [np.count_nonzero((levels > low) & (levels <= high)) for low, high in OCTAVES]
    if all(count in E4M3_LEVELS for count in counts):
        return "fp8"
    if len(levels) > MOST_LEVELS[8]:
        return "float"
    if counts[-1] >= counts[0]:  # other floats of few bits
        return "unknown"
    return "int4" if len(levels) <= MOST_LEVELS[4] else "int8"


def _split_ramps(y: Array) -> tuple[Array, Array]:
    """Return the activations' ramp and the weights'."""
    rows, copies = probes.RAMP_ROWS, probes.COPIES
    return y[:rows, :copies], y[rows:, copies:]


def _has_overflowed(got: Array, wanted: Array) -> bool | None:
    """Return whether the 2^17 row left FP16's range; None if it is neither exact nor out of range.

    Infinity times the weight's zeros is NaN.
    """
    if np.array_equal(got, wanted):
        return False
    return True if not np.isfinite(got).all() or np.max(np.abs(got)) == FP16_MAX else None
