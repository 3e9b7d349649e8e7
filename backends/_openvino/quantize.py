"""Quantized models for OpenVINO by NNCF, its vendor's own quantizer: static INT8, and compressed weights.

Only `build` needs NNCF; a session reads the finished file.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends import common_onnx
from shootout.backends._openvino.account import PRODUCTS
from shootout.backends._openvino.graph import DYNAMIC_GROUP_SIZE, ON_CPU, import_openvino
from shootout.backends.common import calibration_of
from shootout.core.contract import Arm, Array, Arrays, Option, Precision
from shootout.core.errors import NotRunKind, SkippedArm
from shootout.core.exported.fidelity import rows
from shootout.core.host.environment import SEVEN_BITS, saturates
from shootout.core.install import install
from shootout.core.schemes import Scheme
from shootout.models.onnx.layers import find_layer, pick_layers

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel
    from shootout.models.onnx.layers import Layer

MODEL_TYPE, GROUP_SIZE = "model_type", "group_size"
OPTIONS = (
    Option(
        name=MODEL_TYPE,
        help="NNCF's mode for static INT8, where it doesn't find the attention itself",
        values=("transformer",),
        devices=ON_CPU,
        precisions=frozenset({Precision.INT8}),
    ),
    Option(
        name=GROUP_SIZE,
        help="INT4 weights that share a scale (128)",
        values=("32", "64", "128", "256"),
        devices=ON_CPU,
        precisions=frozenset({Precision.INT4}),
    ),
)
"""NNCF's own knobs that an arm may set."""
SCHEMES = {
    Precision.INT8: frozenset(
        (
            "per-channel",
            "per-tensor",
            "symmetric",
            "asymmetric",
            "minmax",
            "percentile",
            "samples-*",
            "accuracy-control",
            "float-*",
            "weights-only",
            "smoothquant",
        )
    ),
    Precision.INT4: frozenset(
        ("symmetric", "asymmetric", "activations-8", "float-*", "awq", "gptq", "scale-estimation", "ratio-*")
    ),
    Precision.INT8_DYNAMIC: frozenset({"float-*"}),
}
"""The words that NNCF has something for; its third kind of ranges minimizes an error on a histogram, not an entropy."""
PRESETS = {"symmetric": "performance", "asymmetric": "mixed"}
RANGES = {"minmax": "MINMAX", "percentile": "MEAN_QUANTILE"}
GROUP = 128
"""Weights of INT4 that share a scale (NNCF's default). Layers that don't divide into it get the largest power of two
from 32 on that they do divide into, or else 8 bits.
"""
SKIPS_AWQ = "for applying AWQ algorithm, it will be skipped"
"""Line of NNCF's log, the only sign that no weights follow others in a way that AWQ knows."""
UNSCALED = "awq: NNCF found nothing to scale in this model, so this is the row without the word"
MAX_DROP = 0.005
"""Accuracy that quantization may cost on the selection split, as a share of its rows."""
Item = tuple[dict[str, Array], Array]
"""One batch of inputs, filled up, and the labels of its first rows."""


def refuse_options(arm: Arm, scheme: Scheme) -> None:
    """Refuse an option that isn't for the arm's way of quantizing.

    Raises:
        ValueError: names the option and the label.
    """
    what = str(arm.target).rpartition(":")[2]
    ranged = arm.target.precision is Precision.INT8 and scheme.activations != "weights-only"
    if MODEL_TYPE in arm.options and (not ranged or scheme.is_quantized):
        raise ValueError(f"option {MODEL_TYPE!r} is NNCF's for static int8, not for {what}")
    if DYNAMIC_GROUP_SIZE in arm.options and ranged:
        raise ValueError(f"option {DYNAMIC_GROUP_SIZE!r} is for compressed weights, not for {what}")


def _is_static(scheme: Scheme) -> bool:
    """Return whether NNCF takes ranges of activations for INT8."""
    return not scheme.is_quantized and scheme.activations != "weights-only"


def notes_of(arm: Arm, scheme: Scheme) -> list[str]:
    """Return the notes of a static INT8 row: what this CPU cost its weights."""
    is_static = arm.target.precision is Precision.INT8 and _is_static(scheme)
    return [SEVEN_BITS.format("weights")] if is_static and saturates() else []


def quantize(model: Any, exported: ExportedModel, arm: Arm, scheme: Scheme) -> tuple[Any, list[str]]:
    """Quantize `model` to the arm's integer precision; note what NNCF left undone of the scheme.

    Args:
        model: an OpenVINO model with float weights.
        exported: gives the calibration split, and for `accuracy-control` its labels.

    Raises:
        SkippedArm: NNCF is not installed, or accuracy can't be controlled without labels.
        ValueError: nothing can be quantized, the calibration data can't be used, or an option's value is wrong.
    """
    if not any(re.search(PRODUCTS, op.get_type_name()) for op in model.get_ops()):
        raise ValueError("nothing to quantize: the model has no matrix product and no convolution")

    if arm.target.precision is Precision.INT8 and _is_static(scheme):
        return _quantize_static(model, exported, scheme, arm.options), []
    return _compress_weights(model, exported, arm, scheme)


def _quantize_static(model: Any, exported: ExportedModel, scheme: Scheme, options: Mapping[str, str]) -> Any:
    samples = calibration_of(exported, scheme)
    nncf = _import_nncf()
    settings = {
        "subset_size": len(samples),
        "preset": nncf.QuantizationPreset(PRESETS[scheme.symmetry]) if scheme.symmetry else None,
        "model_type": _model_type(nncf, model, options, scheme),
        "target_device": nncf.TargetDevice.CPU,
        "ignored_scope": _ignored_scope(nncf, model, exported, scheme),
    }
    dataset, advanced = nncf.Dataset([dict(one) for one in samples]), _advanced_parameters(scheme)
    # It draws its progress bars on stdout; what it has to say about a failure is in its exceptions.
    with redirect_stdout(io.StringIO()):
        if scheme.search:
            settings["advanced_quantization_parameters"] = advanced
            return _quantize_with_accuracy_control(nncf, model, exported, dataset, settings)
        return nncf.quantize(model, dataset, advanced_parameters=advanced, **settings)


def _quantize_with_accuracy_control(
    nncf: Any, model: Any, exported: ExportedModel, dataset: Any, settings: Mapping[str, Any]
) -> Any:
    """Quantize `model` to INT8, and let layers go back to float until the loss of accuracy is small enough.

    NNCF looks at the calibration split's labels only, so the accuracy that the harness reports, on another split, is
    fair.

    Args:
        dataset: the calibration data as NNCF's.
        settings: keywords for NNCF.

    Raises:
        SkippedArm: the model comes without labels.
    """
    split = exported.selection()
    if split is None or split.labels is None:
        reason = f"accuracy-control needs labeled data to select by, and {exported.model} has none"
        raise SkippedArm(reason, "choose a model with a task, such as digits, or another scheme")
    return nncf.quantize_with_accuracy_control(
        model,
        dataset,
        nncf.Dataset(_labeled_batches(split.inputs, split.labels, exported.batch), lambda item: item[0]),
        _measure_accuracy,
        max_drop=MAX_DROP,
        drop_type=nncf.DropType.ABSOLUTE,
        **settings,
    )


def _labeled_batches(inputs: Arrays, labels: Array, batch: int) -> list[Item]:
    return [
        ({name: rows(array, first, batch) for name, array in inputs.items()}, labels[first : first + batch])
        for first in range(0, len(labels), batch)
    ]


def _measure_accuracy(model: Any, items: Iterable[Item]) -> tuple[float, list[float]]:
    """Return the accuracy, and the share of right rows in each item, by which NNCF ranks the layers."""
    right = [model(inputs)[0][: len(labels)].argmax(axis=-1) == labels for inputs, labels in items]
    return float(np.concatenate(right).mean()), [float(one.mean()) for one in right]


def _compress_weights(model: Any, exported: ExportedModel, arm: Arm, scheme: Scheme) -> tuple[Any, list[str]]:
    """Compress weights to few bits, activations being seen only at run time; note if AWQ had nothing to scale."""
    nncf = _import_nncf()
    from nncf.quantization.advanced_parameters import AdvancedCompressionParameters, GroupSizeFallbackMode

    bits = 4 if arm.target.precision is Precision.INT4 else 8
    mode = f"INT{bits}_{'SYM' if scheme.symmetry == 'symmetric' else 'ASYM'}"
    settings: dict[str, Any] = {
        "mode": getattr(nncf.CompressWeightsMode, mode),
        "ignored_scope": _ignored_scope(nncf, model, exported, scheme),
    }
    if arm.target.precision is Precision.INT4:
        settings |= {
            "group_size": int(arm.options.get(GROUP_SIZE, GROUP)),
            "all_layers": True,  # by default the last one keeps 8 bits
            "advanced_parameters": AdvancedCompressionParameters(group_size_fallback_mode=GroupSizeFallbackMode.ADJUST),
        }
        settings |= {name: True for name in (scheme.method, scheme.scales.replace("-", "_")) if name}
        if scheme.method or scheme.scales:
            sets = calibration_of(exported, scheme)
            settings |= {"dataset": nncf.Dataset([dict(one) for one in sets]), "subset_size": len(sets)}
        if scheme.ratio is not None:
            settings["ratio"] = scheme.ratio
    with redirect_stdout(io.StringIO()), _capture_log() as log:
        compressed = nncf.compress_weights(model, **settings)
    return compressed, [UNSCALED] * (SKIPS_AWQ in log.getvalue())


def _ignored_scope(nncf: Any, model: Any, exported: ExportedModel, scheme: Scheme) -> Any:
    """Return NNCF's name for the layers that stay in float; None for none.

    Raises:
        UsageError: there is no such layer.
        ValueError: OpenVINO's form of the model shows none by that name, value or weight.
    """
    if not scheme.floats:
        return None
    layers = common_onnx.layers_in(exported)
    products = [op for op in model.get_ordered_ops() if re.search(PRODUCTS, op.get_type_name())]
    names = {layer.number: op.get_friendly_name() for op in products if (layer := _find_layer(layers, op))}
    wanted = pick_layers(layers, scheme.floats)
    if lost := [one for one in wanted if one.number not in names]:
        raise ValueError(f"layer {lost[0].number} {lost[0].name} is not to be found in what OpenVINO makes of the file")
    return nncf.IgnoredScope(names=[names[one.number] for one in wanted])


def _find_layer(layers: Sequence[Layer], op: Any) -> Layer | None:
    """Return the layer that a product is: by its names, by those of the sum that Gemm ends in, or by its weight."""
    sums = [one.get_node() for one in op.output(0).get_target_inputs() if one.get_node().get_type_name() == "Add"]
    known = [{"node": one.get_friendly_name()} for one in (op, *sums)]
    known += [{"output": name} for one in (op, *sums) for name in one.output(0).get_names()]
    weight = op.input_value(1).get_node()
    while weight.get_type_name() != "Constant" and weight.get_input_size():
        weight = weight.input_value(0).get_node()
    known += [{"weight": weight.get_friendly_name()}]
    return next((found for one in known if (found := find_layer(layers, **one))), None)


@contextmanager
def _capture_log() -> Iterator[io.StringIO]:
    """Capture what NNCF logs meanwhile; its own handler, to stdout, stays at errors."""
    log, logger = io.StringIO(), logging.getLogger("nncf")
    handler, level = logging.StreamHandler(log), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield log
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def _import_nncf() -> Any:
    import_openvino()
    try:
        import nncf
    except ModuleNotFoundError as error:
        reason = f"{error.name} is not installed, and NNCF quantizes for OpenVINO"
        raise SkippedArm(reason, install("openvino"), NotRunKind.NOT_INSTALLED) from None
    nncf.set_log_level(logging.ERROR)
    return nncf


def _advanced_parameters(scheme: Scheme) -> Any:
    """Return NNCF's settings beyond its defaults: there weights are per channel, ranges means of the sets' extremes.

    By default only the first convolutions' weights get half the range against overflow; without VNNI all need it.
    """
    from nncf.quantization.advanced_parameters import (
        AdvancedQuantizationParameters,
        OverflowFix,
        QuantizationParameters,
    )
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet

    settings: dict[str, Any] = {}
    if scheme.granularity:
        per_channel = scheme.granularity == "per-channel"
        settings["weights_quantization_params"] = QuantizationParameters(per_channel=per_channel)
    if scheme.ranges:
        ranges = getattr(RangeEstimatorParametersSet, RANGES[scheme.ranges])
        settings["activations_range_estimator_params"] = ranges
    if saturates():
        settings["overflow_fix"] = OverflowFix.ENABLE
    return AdvancedQuantizationParameters(**settings)


def _model_type(nncf: Any, model: Any, options: Mapping[str, str], scheme: Scheme) -> Any:
    """Return NNCF's mode for transformers if the model has attention, or an option or SmoothQuant asks for it.

    NNCF doesn't find that out by itself. Without the mode NNCF 3.4 ends on a BERT encoder with a KeyError. SmoothQuant
    comes with it and never without.
    """
    asked = MODEL_TYPE in options or scheme.method == "smoothquant"
    is_transformer = asked or any(_is_attention(op) for op in model.get_ops())
    return nncf.ModelType.TRANSFORMER if is_transformer else None


def _is_attention(op: Any) -> bool:
    kind = op.get_type_name()
    return bool(kind == "ScaledDotProductAttention" or (kind == "Softmax" and _feeds_product(op)))


def _feeds_product(op: Any) -> bool:
    """Return whether a product reads it, directly or past the Select that keeps wholly masked rows from NaN."""
    readers = [one.get_node() for one in op.output(0).get_target_inputs()]
    kinds = {one.get_type_name() for one in readers}
    return "MatMul" in kinds or any(_feeds_product(one) for one in readers if one.get_type_name() == "Select")
