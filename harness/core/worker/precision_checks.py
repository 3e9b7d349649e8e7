"""Does the evidence agree with the label? What the runtime says it ran, and what the probes found from outside.

The probes are models of the harness's own: the permutation probe tells float precisions apart, the grid probe integers
and FP8.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from shootout.core import schemes
from shootout.core.contract import SCALED, Arm, Device, Executed, Precision, Target

COUNTED = {Precision.FP32: ("fp32", "fp64"), Precision.TF32: ("tf32", "fp32")}
"""Counts that bear a label out, where that isn't just its own name; a user's float64 file runs under fp32, and TF32 is
a way to round float32 operands that not every runtime shows: the permutation probe does.
"""

PROBED = {"fp16-weights": "fp32"}
"""The findings of a probe that aren't the products' own name: the permutation's weights are 0 and 1 in any float."""


def probe_name(precision: Precision) -> str:
    """Return which of the probes' models shows this precision."""
    return "grid_probe" if precision in SCALED else "permutation_probe"


def probes() -> Any:
    """Return the module of the probes: by a probe's name, `READERS` has what names the precision that its outputs show,
    `BATCHES` the rows of its one set of inputs.
    """
    return import_module("shootout.models.probes")


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
