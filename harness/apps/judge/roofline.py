"""Tell how near a measured call came to what the machine could do, and what binds it. Pure functions.

The bound is the roofline's (Williams, Waterman, Patterson 2009, 10.1145/1498765.1498785): a call takes at least as long
as its arithmetic at the peak rate, and at least as long as its bytes at the bandwidth of the memory that they lie in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from shootout.core.contract import Device, Precision
from shootout.core.exported.calls import Work
from shootout.core.scenario import find_scenario
from shootout.tell.document import Ceiling, Row
from shootout.tell.machines import Ceilings, ceilings_of_run


@dataclass(frozen=True, slots=True)
class Width:
    """Bits of an element, by what a runtime says a product computes in; `Work` counts 32.

    Attributes:
        peak: the precision whose peak rate bounds it: what its operands are multiplied in.
    """

    weights: int
    activations: int
    peak: str


WIDTHS = {
    **{
        name: Width(bits, bits, name)
        for name, bits in {"fp64": 64, "fp32": 32, "tf32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8}.items()
    },
    "int4-activations-8": Width(4, 32, "int8"),
    "int8-dynamic": Width(8, 32, "int8"),
}
"""The widths in which products of each precision are read; what is rounded at run time is read in float32 all the same.
"""
UNPACKED = {"int4": 4, "int8-weights": 8}
"""Bits of weights that are unpacked and multiplied in what is staged. Scales come on top, a thirty-second to an eighth
of a weight of 4 bits: the bound stays one.
"""
FLOATS = frozenset({Precision.FP32, Precision.TF32, Precision.BF16, Precision.FP16})
"""Labels by which inputs are converted, unless the runtime tells otherwise."""
BINDS = 0.5
"""A bound that explains less than this share of the time doesn't bind."""


def with_ceilings(rows: Sequence[Row], environment: Mapping[str, Any]) -> list[Row]:
    """Return the rows, each with its share of the ceiling where that is known: for calls one after the other, on CPUs.

    Args:
        environment: as in the document: the ceilings are those of the run's machine.
    """
    found = ceilings_of_run(environment)
    return [row.model_copy(update={"ceiling": _ceiling_of_row(row, found.get(row.threads))}) for row in rows]


def _ceiling_of_row(row: Row, ceilings: Ceilings | None) -> Ceiling | None:
    if row.compute is None or row.work is None or ceilings is None:
        return None
    if row.device != Device.CPU or not find_scenario(row.scenario).is_one_call:
        return None
    return ceiling(row.work, row.compute.median_ns, precisions(row), ceilings, staged(row))


def staged(row: Row) -> str:
    """Return the precision of float inputs as a call gets them, and of outputs as it gives them."""
    own = row.precision if row.precision in FLOATS else Precision.FP32
    return (row.executed or {}).get("staged") or own


def precisions(row: Row) -> dict[str, float]:
    """Return shares of the operations by the precision they ran in: the runtime's account, else its node counts.

    A model without any product has its label's precision. What a runtime calls INT8 is dynamic under such a label.
    """
    executed = row.executed or {}
    counts = executed.get("flops_by_precision") or {}
    if not sum(counts.values()):
        counts = executed.get("compute_nodes_by_precision") or {}
    whole = sum(counts.values())
    own = {Precision.INT8.value: row.precision} if row.precision == Precision.INT8_DYNAMIC else {}
    return {own.get(name, name): count / whole for name, count in counts.items()} if whole else {row.precision: 1.0}


def ceiling(
    work: Work, measured_ns: float, shares: Mapping[str, float], ceilings: Ceilings, outside: str = "fp32"
) -> Ceiling | None:
    """Return a call's share of the ceiling.

    Args:
        measured_ns: a call's compute time.
        shares: of its operations, by precision; they add up to 1.
        outside: the precision of inputs and outputs, a cache among them, and of what isn't quantized in an INT4 model.

    Returns:
        None where the bound isn't known: operations that can't be counted, a precision without a peak rate (or a
        width), a working set larger than any level that was measured.
    """
    if outside not in WIDTHS or any(name not in {*WIDTHS, *UNPACKED} for name in shares):
        return None
    widths = {name: _width_of(name, outside) for name in shares}
    arithmetic_ns = _arithmetic_ns(work, shares, ceilings, widths)
    if arithmetic_ns is None:
        return None
    inside = sum(share * widths[name].activations / 32 for name, share in shares.items())
    moved, widest = traffic(work, WIDTHS[outside].activations / 32, inside)
    weights = _weight_width(work, shares, widths) * work.weight_bytes
    stored, between = ceilings.level_of(weights + widest), ceilings.level_of(widest)
    if stored is None or between is None:
        return None
    bandwidth_ns = weights / stored.best_gbs + moved / between.best_gbs
    bound_ns = max(arithmetic_ns, bandwidth_ns)
    return Ceiling(
        share=bound_ns / measured_ns,
        binds=_find_binding(arithmetic_ns, bandwidth_ns, measured_ns),
        arithmetic_ns=arithmetic_ns,
        bandwidth_ns=bandwidth_ns,
        level=stored.level,
        gbs=(weights + moved) / measured_ns,
    )


def traffic(work: Work, outside: float, inside: float) -> tuple[float, float]:
    """Return the activation bytes that a call has to move, and how many of them are needed at once.

    Inputs and outputs are moved even where no product reads them. Products' bytes beyond as many are their own.

    Args:
        outside: the share of its four bytes that an element of inputs and outputs has.
        inside: the same of what products read and write, on the average.
    """
    handed = work.input_bytes + work.output_bytes
    own = (max(size - handed, 0) for size in (work.activation_bytes, work.widest_bytes))
    moved, widest = (handed * outside + size * inside for size in own)
    return moved, widest


def _width_of(name: str, outside: str) -> Width:
    return Width(UNPACKED[name], WIDTHS[outside].activations, outside) if name in UNPACKED else WIDTHS[name]


def _weight_width(work: Work, shares: Mapping[str, float], widths: Mapping[str, Width]) -> float:
    """Return what a stored weight takes, of 32 bits.

    Products of two activations, as in attention, read no weights. The narrowest are taken for those that do: quantizers
    begin with them.
    """
    left = whole = work.weight_flops / work.flops if work.flops and work.weight_flops else 1.0
    width = 0.0
    for name, share in sorted(shares.items(), key=lambda one: widths[one[0]].weights):
        width += min(share, left) * widths[name].weights / 32
        left -= min(share, left)
    return width / whole


def _arithmetic_ns(
    work: Work, shares: Mapping[str, float], ceilings: Ceilings, widths: Mapping[str, Width]
) -> float | None:
    if work.flops is None:
        return None
    if not work.flops:
        return 0.0
    peaks = {name: ceilings.peaks.get(widths[name].peak) for name in shares}
    if None in peaks.values():
        return None
    return sum(work.flops * shares[name] / peak.giga_ops for name, peak in peaks.items() if peak)


def _find_binding(
    arithmetic_ns: float, bandwidth_ns: float, measured_ns: float
) -> Literal["overhead", "bandwidth", "arithmetic"]:
    if max(arithmetic_ns, bandwidth_ns) < BINDS * measured_ns:
        return "overhead"
    return "arithmetic" if arithmetic_ns >= bandwidth_ns else "bandwidth"
