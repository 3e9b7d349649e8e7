"""Quantized models for LiteRT by its vendor's own quantizer, AI Edge Quantizer, from the float file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends import common_onnx
from shootout.backends._litert.account import list_products
from shootout.backends.common import calibration_of
from shootout.contract import Arm, Array, Arrays, Option, Precision
from shootout.exported.layers import pick_layers
from shootout.schemes import Scheme

if TYPE_CHECKING:
    from shootout.exported.model import ExportedModel

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
    same kinds of products in the same order as the ONNX file.

    Raises:
        UsageError: there is no such layer.
        ValueError: the file has other products than the ONNX file.
    """
    if not scheme.floats:
        return []
    layers, products = common_onnx.layers_in(exported), list_products(source)
    chosen = pick_layers(layers, scheme.floats)
    if ["CONV" in one.kind for one in products] != ["Conv" in one.operator for one in layers]:
        raise ValueError(
            f"the converter makes {len(products)} products of {len(layers)} layers, or in another order: no "
            "number tells which one stays in float"
        )
    return [f"^{re.escape(products[one.number].name)};" for one in chosen]


def notes_of(arm: Arm, scheme: Scheme) -> list[str]:
    """Tell of a static INT8 row whose scheme names no ranges which they are: they can cost most of its accuracy."""
    if not _is_static(arm, scheme) or scheme.ranges:
        return []
    return [
        "ranges are a moving average of the calibration sets' extremes, the quantizer's default; int8/minmax clips none"
    ]


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
