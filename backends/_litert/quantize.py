"""Quantized models for LiteRT by its vendor's own quantizer, AI Edge Quantizer, from the float file."""

from __future__ import annotations

import io
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._litert.account import kinds_of_products
from shootout.backends.common import calibration_of
from shootout.contract import Arm, Array, Arrays, Option, Precision
from shootout.schemes import Scheme

if TYPE_CHECKING:
    from shootout.bundle.bundle import ModelBundle

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
    Precision.INT8: GRANULARITY | {"samples-*", "weights-only"},
    Precision.INT8_DYNAMIC: GRANULARITY,
    Precision.INT4: GRANULARITY | {"activations-8"},
}
SIGNATURE = "serving_default"
EVERYTHING = ".*"


def quantize(source: Path, bundle: ModelBundle, arm: Arm, scheme: Scheme) -> bytes:
    """The float file in the arm's integer precision; inputs and outputs stay float.

    Args:
        source: the float .tflite file.
        bundle: gives the calibration split.

    Raises:
        ValueError: there is nothing to quantize, or the calibration data can't be used.
    """
    if not kinds_of_products(source):
        raise ValueError("nothing to quantize: the model has no matrix product and no convolution")
    from ai_edge_quantizer import qtyping, quantizer

    quantizing, all_kinds = quantizer.Quantizer(str(source)), qtyping.TFLOperationName.ALL_SUPPORTED
    bits = 4 if arm.target.precision is Precision.INT4 else 8
    granularity = _granularity(qtyping.QuantGranularity, arm, scheme)
    ranges = None
    with redirect_stdout(io.StringIO()):  # a report of its own
        if _is_static(arm, scheme):
            quantizing.add_static_config(EVERYTHING, all_kinds, 8, bits, granularity)
            for end in (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT):
                quantizing.update_quantization_recipe(EVERYTHING, end, algorithm_key="no_quantize")
            sets = [*as_named(calibration_of(bundle, scheme), bundle)]
            ranges = quantizing.calibrate({SIGNATURE: sets}, num_threads=arm.threads)
        elif arm.target.precision is Precision.INT8_DYNAMIC or scheme.activations == "activations-8":
            quantizing.add_dynamic_config(EVERYTHING, all_kinds, bits, granularity)
        else:
            quantizing.add_weight_only_config(EVERYTHING, all_kinds, bits, granularity)
        return bytes(quantizing.quantize(ranges).quantized_model)


def as_named(sets: Iterable[Arrays], bundle: ModelBundle) -> Iterable[dict[str, Array]]:
    """Input sets by the converter's names for the module's arguments, in the types that it gives them."""
    for one in sets:
        yield {f"args_{place}": narrowed(one[spec.name]) for place, spec in enumerate(bundle.inputs)}


def narrowed(array: Array) -> Array:
    """An array in 32 bits where it has 64: the converter has no wider numbers."""
    return array.astype(np.dtype(f"{array.dtype.kind}4")) if array.dtype.itemsize == 8 else array


def _is_static(arm: Arm, scheme: Scheme) -> bool:
    return arm.target.precision is Precision.INT8 and scheme.activations != "weights-only"


def _granularity(kinds: Any, arm: Arm, scheme: Scheme) -> Any:
    if size := arm.options.get(GROUP_SIZE):
        return kinds[f"BLOCKWISE_{size}"]
    return kinds.TENSORWISE if scheme.granularity == "per-tensor" else kinds.CHANNELWISE
