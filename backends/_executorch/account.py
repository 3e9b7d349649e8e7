"""Account of what a .pte file computes: by the runtime's own record of a call, and by the steps in the file.

The record names each operator that XNNPACK made, with the types that it computes in. Shapes, and so operations, are in
the file alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shootout.backends._executorch.runtime import MethodStep, Operand, record_calls, steps_of
from shootout.core.contract import Precision
from shootout.models.onnx.operations import convolution_flops, flops_by_precision, is_product, product_flops

PRODUCT = re.compile(
    r"(?:Dynamic )?(?:Fully Connected|Batch Matrix Multiply|Convolution|Deconvolution) \(\w+, (?P<types>[^)]*)\)"
)
"""An operator of XNNPACK that multiplies: the type of its inputs, where they differ also of its outputs and weights."""
IN_FILE = {
    "XNNFullyConnected",
    "XNNBatchMatrixMultiply",
    "XNNConv2d",
    "XNNDepthwiseConv2d",
    "XNNConvTranspose2d",
    "XNNScaledDotProductAttention",
}
CONVERSIONS = r"^XNNConvert$|quantize|choose_qparams|_to_(?:dim_order_)?copy"
FLOATS = {"F32": Precision.FP32.value, "F16": Precision.FP16.value, "BF16": Precision.BF16.value}
TYPES = {
    "float": Precision.FP32.value,
    "fp32": Precision.FP32.value,
    "double": "fp64",
    "half": Precision.FP16.value,
    "fp16": Precision.FP16.value,
    "bfloat16": Precision.BF16.value,
    "bf16": Precision.BF16.value,
    "char": Precision.INT8.value,
    "byte": Precision.INT8.value,
}
"""Our names for the types in a file."""


def read_executed(path: Path, threads: int, inputs: Sequence[Any]) -> dict[str, Any]:
    """Record a call and return what `Executed` says of it, and what XNNPACK doesn't run, as JSON values.

    Args:
        inputs: tensors, in the file's order.
    """
    steps = [*steps_of(path)]
    (call,) = record_calls(path, threads, inputs, 1)
    outside = [step for step in steps if not step.is_delegated]
    labels = [*labels_of(call), *(_type_of(step.operands[0]) for step in outside if _is_product(step))]
    products = [step for step in steps if _is_product(step)]
    others = [step for step in steps if step.operands and not _is_product(step)]
    return {
        "compute_nodes_by_precision": dict(Counter(labels)),
        "other_nodes_by_precision": dict(Counter(_type_of(step.operands[-1]) for step in others)),
        "flops_by_precision": flops_by_precision((_label_in_file(step), _count_flops(step)) for step in products),
        "conversion_nodes": sum(re.search(CONVERSIONS, step.name) is not None for step in steps),
        "undelegated": dict(Counter(step.name.partition("::")[2] for step in outside)),
    }


def labels_of(call: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the precisions of the products that XNNPACK ran in a recorded call."""
    matches = (PRODUCT.match(part.get("delegate_debug_id_str") or "") for part in call)
    return [label_of(match["types"]) for match in matches if match]


def label_of(types: str) -> str:
    """Return a product's precision from XNNPACK's names of its types: `F32`, `QS8, QC8W`, `QD8, F32, QC4W`.

    The first is that of the inputs, Q if they are integers, `QD` if each call rounds them; the last that of the
    weights. P is only a way to pack. A single one is that of both.
    """
    names = [name.removeprefix("P") for name in re.split(r", |_", types)]
    left, right = names[0], names[-1]
    bits = re.match(r"Q[A-Z]*(\d)", right)
    if not bits:
        return FLOATS.get(left, left.lower())
    if left.startswith("Q"):
        return Precision.INT8.value if bits[1] == "8" else f"int{bits[1]}-activations-8"
    return "int8-weights" if bits[1] == "8" else f"int{bits[1]}"


def _label_in_file(step: MethodStep) -> str:
    """Return it by the file: weights in integers, beside inputs that are, or that were rounded just before."""
    left, right = (step.operands[place].kind for place in (0, 1))
    bits = re.match(r"q\D*int(\d)", right)
    if not step.is_delegated or not bits:
        return _type_of(step.operands[0])
    return label_of(f"{'Q' if left.startswith('q') else ''}F32, QC{bits[1]}W")


def _is_product(step: MethodStep) -> bool:
    return step.name in IN_FILE if step.is_delegated else is_product(step.name) and len(step.operands) > 1


def _type_of(operand: Operand) -> str:
    kind = operand.kind.lower()
    return Precision.INT8.value if re.match(r"q\D*int8", kind) else TYPES.get(kind, kind)


def _count_flops(step: MethodStep) -> float | None:
    """Count two for each multiply-add; XNNPACK's filters are (out, *window, in), depthwise ones (1, *window, out)."""
    left, right, output = step.operands[0].shape, step.operands[1].shape, step.operands[-1].shape
    match step.name:
        case "XNNFullyConnected" | "XNNBatchMatrixMultiply" | "aten::mm" | "aten::bmm" | "aten::linear":
            return product_flops(output, left[-1])
        case "aten::addmm":
            return product_flops(output, right[-1])
        case "aten::convolution":
            return convolution_flops(output, right)
        case "XNNConv2d":
            return convolution_flops(output, right)
        case "XNNDepthwiseConv2d":
            return product_flops(output, math.prod(right[1:-1]))
        case "XNNConvTranspose2d":  # each input element is multiplied by the weights of its channel
            return product_flops(left, math.prod(right[:-1]))
    return None
