"""Quantized models for LiteRT by its vendor's own quantizer, AI Edge Quantizer, from the float file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends import common_onnx
from shootout.backends._litert.account import PRODUCTS, list_products
from shootout.backends.common import calibration_of
from shootout.core.contract import Arm, Array, Arrays, Artifact, Option, Precision
from shootout.core.errors import SkippedArm
from shootout.core.schemes import Scheme
from shootout.models.onnx.layers import pick_layers

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

GROUP_SIZE = "group_size"
OPTIONS = (
    Option(
        name=GROUP_SIZE,
        help="INT4 weights that share a scale (all of an output channel)",
        values=("32", "64", "128", "256"),
        precisions=frozenset({Precision.INT4}),
    ),
)
GRANULARITY = frozenset({"per-channel", "per-tensor"})
SCHEMES = {
    Precision.INT8: GRANULARITY | {"minmax", "samples-*", "weights-only", "float-*"},
    Precision.INT8_DYNAMIC: GRANULARITY | {"float-*"},
    Precision.INT4: GRANULARITY | {"activations-8", "float-*"},
}
SIGNATURE = "serving_default"
EVERYTHING = ".*"


def quantize(source: Path, exported: ExportedModel, arm: Arm, scheme: Scheme) -> bytes:
    """Quantize the float file to the arm's integer precision; inputs and outputs stay float.

    Args:
        source: the float .tflite file.
        exported: gives the calibration split.

    Raises:
        ValueError: there is nothing to quantize, or the calibration data can't be used.
    """
    if not list_products(source):
        raise ValueError("nothing to quantize: the model has no matrix product and no convolution")
    from ai_edge_quantizer import qtyping, quantizer

    quantizing, all_kinds = quantizer.Quantizer(str(source)), qtyping.TFLOperationName.ALL_SUPPORTED
    bits = 4 if arm.target.precision is Precision.INT4 else 8
    granularity = _choose_granularity(qtyping.QuantGranularity, arm, scheme)
    ranges = None
    if _is_static(arm, scheme):
        quantizing.add_static_config(EVERYTHING, all_kinds, 8, bits, granularity)
        for end in (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT):
            quantizing.update_quantization_recipe(EVERYTHING, end, algorithm_key="no_quantize")
        ranges = _observe_ranges(source, [*_as_named(calibration_of(exported, scheme), exported)], arm, scheme)
    elif arm.target.precision is Precision.INT8_DYNAMIC or scheme.activations == "activations-8":
        quantizing.add_dynamic_config(EVERYTHING, all_kinds, bits, granularity)
    else:
        quantizing.add_weight_only_config(EVERYTHING, all_kinds, bits, granularity)
    for scope in _find_floats(source, exported, scheme):
        quantizing.update_quantization_recipe(scope, all_kinds, algorithm_key="no_quantize")
    return bytes(quantizing.quantize(ranges, enable_progress_report=False).quantized_model)


def _find_floats(source: Path, exported: ExportedModel, scheme: Scheme) -> list[str]:
    """Return a pattern of the name of each product that stays in float.

    The converter keeps neither the modules' names nor the weights', so a layer is known by its place: the file has the
    same kinds of products in the same order as the ONNX file, with weights of the same sizes.

    Raises:
        UsageError: there is no such layer.
        SkippedArm: the file has other products than the ONNX file.
    """
    if not scheme.floats:
        return []
    layers, products = common_onnx.layers_in(exported), list_products(source)
    chosen = pick_layers(layers, scheme.floats)
    shapes, faults = _weight_shapes(exported), list[str]()
    if len(layers) != len(products):
        faults.append(f"the converter makes {len(products)} products of {len(layers)} layers")
    for layer, product in zip(layers, products, strict=False):
        stored, weight = shapes.get(layer.weight), product.shapes[PRODUCTS[product.kind][1]]
        is_other = ("CONV" in product.kind) != ("Conv" in layer.operator)
        if is_other or (stored and _without_ones(stored) != _without_ones(weight)):
            ours = f"layer {layer.number} {layer.name} is {layer.operator} with weights {list(stored or ())}"
            faults.append(f"{ours}, and in its place the converter has {product.kind} with {list(weight)}")
    if faults:
        reason = f"{faults[0]}: no number tells which one stays in float"
        raise SkippedArm(reason, "leave the word float-… out, or choose another backend")
    return [f"^{re.escape(products[one.number].name)};" for one in chosen]


def _weight_shapes(exported: ExportedModel) -> dict[str, tuple[int, ...]]:
    import onnx

    graph = onnx.load(exported.path(Artifact.ONNX), load_external_data=False).graph
    return {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}


def _without_ones(shape: Iterable[int]) -> list[int]:
    """Return a shape's axes in order of size: the converter moves them, and adds some of 1."""
    return sorted(size for size in shape if size > 1)


def _observe_ranges(source: Path, sets: list[dict[str, Array]], arm: Arm, scheme: Scheme) -> dict[str, Any]:
    """Return each tensor's range: the sets' extremes in a moving average, the quantizer's default, or the widest.

    The mode that asks the interpreter's profiler finds the same ranges as the one that keeps all tensors, five times as
    fast.
    """
    from ai_edge_quantizer import calibrator, recipe_manager
    from ai_edge_quantizer.utils import qsv_utils

    calibrating = calibrator.Calibrator(
        source.read_bytes(),
        num_threads=arm.threads or 1,
        mode=calibrator.CalibrationMode.CALIBRATION_PROFILER_BASED,
        qsv_update_func=qsv_utils.min_max_update if scheme.ranges == "minmax" else qsv_utils.moving_average_update,
    )
    calibrating.calibrate({SIGNATURE: sets}, recipe_manager.RecipeManager())  # which this mode doesn't read
    ranges: dict[str, Any] = calibrating.get_model_qsvs()
    return ranges


def _as_named(sets: Iterable[Arrays], exported: ExportedModel) -> Iterable[dict[str, Array]]:
    """Yield input sets by the converter's names for the module's arguments, in the types that it gives them."""
    for inputs in sets:
        yield {f"args_{place}": _to_32_bits(inputs[spec.name]) for place, spec in enumerate(exported.inputs)}


def _to_32_bits(array: Array) -> Array:
    """Return an array in 32 bits if it has 64: the converter has no wider numbers."""
    return array.astype(np.dtype(f"{array.dtype.kind}4")) if array.dtype.itemsize == 8 else array


def _is_static(arm: Arm, scheme: Scheme) -> bool:
    return arm.target.precision is Precision.INT8 and scheme.activations != "weights-only"


def _choose_granularity(kinds: Any, arm: Arm, scheme: Scheme) -> Any:
    if size := arm.options.get(GROUP_SIZE):
        return kinds[f"BLOCKWISE_{size}"]
    return kinds.TENSORWISE if scheme.granularity == "per-tensor" else kinds.CHANNELWISE
