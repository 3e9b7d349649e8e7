"""Does the evidence agree with the label? What the runtime says it ran, and what the probes found from outside."""

from __future__ import annotations

from shootout.contract import INTEGERS, Arm, Device, Executed, Precision

PROBED = {
    Precision.FP32: "fp32",
    Precision.TF32: "tf32",
    Precision.BF16: "bf16",
    Precision.FP16: "fp16",
    Precision.INT8: "int8",
    Precision.INT8_DYNAMIC: "int8",
    Precision.INT4: "int4",
}
"""What the probe must answer: the permutation probe for floats, the grid probe for integers."""
_COUNTED = {
    Precision.FP32: ("fp32", "fp64"),
    Precision.TF32: ("tf32", "fp32"),
    Precision.INT8_DYNAMIC: ("int8",),
    Precision.INT4: ("int4",),
}
"""Counts that bear a label out, where that isn't just its own name; a user's float64 file runs under fp32, and TF32 is
a way to round float32 operands that not every runtime shows: the permutation probe does.
"""


def probe_name(precision: Precision) -> str:
    """Which of the probes' models shows this precision."""
    return "grid_probe" if precision in INTEGERS else "permutation_probe"


def executed_fault(executed: Executed, arm: Arm) -> str | None:
    """Why the runtime's own account contradicts the arm's label (precision, device, threads), or None."""
    if executed.threads is not None and executed.threads != arm.threads:
        return f"asked for {arm.threads} threads, but {executed.library} uses {executed.threads}"
    on_gpu = "cuda" in executed.device.lower() or "tensorrt" in executed.device.lower()
    if on_gpu is not (arm.target.device is Device.CUDA):
        return f"labelled {arm.target.device}, but {executed.library} computes on {executed.device}"
    return _precision_fault(executed, arm.target.precision)


def _precision_fault(executed: Executed, precision: Precision) -> str | None:
    """A mixed account is no fault, it is reported by its counts; that nothing ran in the labelled precision is one.

    A float model without compute nodes (a reshape, say) has nothing to contradict; integers must be shown.
    """
    counts = executed.compute_nodes_by_precision
    if not counts and precision in INTEGERS:
        return f"labelled {precision}, but {executed.library} tells of no compute node at all"
    if not counts or any(counts.get(name) for name in _COUNTED.get(precision, (precision.value,))):
        return None
    ran = ", ".join(f"{count} in {name}" for name, count in sorted(counts.items()))
    moved = f"; beside them {executed.conversion_nodes} nodes only convert" if executed.conversion_nodes else ""
    return f"labelled {precision}, but {executed.library} ran its compute nodes elsewhere: {ran}{moved}"


def probe_fault(found: str | None, precision: Precision) -> str | None:
    """Why the probe's answer contradicts the label, or None (also where it doesn't apply)."""
    expected = PROBED.get(precision)
    if found is None or expected is None or found == expected:
        return None
    probe = probe_name(precision).replace("_", " ")
    return f"labelled {precision}, but the {probe} finds {found}: the runtime did not honour the precision"
