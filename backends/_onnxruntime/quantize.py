"""ONNX Runtime's own quantizers: static INT8 as Q/DQ pairs, dynamic INT8, and 4-bit weights (MatMulNBits).

On x86 its INT8 kernels take U8 activations and S8 weights, so those are the default here. ONNX Runtime's own default is
S8 for both (`s8s8`): a pair is turned into U8 only where one node alone reads it, so that in a residual net no product
runs in INT8, and every one gets conversions around it.

Biases stay float in the file (ONNX Runtime folds them into its INT8 kernels by itself). Histograms are collected one
set at a time: it bounds their memory, and without a second set to merge, ONNX Runtime's entropy search has one
candidate, the whole range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.backends.common import calibration_of
from shootout.contract import Arrays, Precision
from shootout.quantize import ort
from shootout.quantize.ort import Sets, quietly
from shootout.schemes import Scheme

if TYPE_CHECKING:
    from shootout.bundle.bundle import ModelBundle

S8S8 = "s8s8"
SCHEMES: Mapping[Precision, frozenset[str]] = {
    Precision.INT8: frozenset(
        {"per-channel", "per-tensor", "symmetric", "asymmetric", "minmax", "entropy", "percentile", "samples-*"}
        | {"shared", "mixed-*", S8S8}
    ),
    Precision.INT8_DYNAMIC: frozenset({"per-channel", "per-tensor"}),
    Precision.INT4: frozenset({"symmetric", "asymmetric"}),
}
PRODUCTS = {
    Precision.INT8: ("MatMul", "Gemm", "Conv"),
    Precision.INT8_DYNAMIC: ("MatMul", "Gemm", "Conv"),
    Precision.INT4: ("MatMul", "Gemm"),
}
"""Compute nodes that each quantizer takes."""
MARKS = {
    Precision.INT8: "QuantizeLinear",
    Precision.INT8_DYNAMIC: "DynamicQuantizeLinear",
    Precision.INT4: "MatMulNBits",
}
"""What a quantized model has at least one of."""


def quantize(source: Path, bundle: ModelBundle, precision: Precision, scheme: Scheme, folder: Path) -> Path:
    """The model at `source` (float) as ONNX Runtime's quantizer for `precision` writes it into `folder`.

    Raises:
        ValueError: nothing can be quantized, or the calibration data can't be used.
    """
    sets = calibration_of(bundle, scheme) if precision is Precision.INT8 else []
    _require(
        source, PRODUCTS[precision], f"{precision} is for {', '.join(PRODUCTS[precision])}, and the model has none"
    )
    target = folder / "quantized.onnx"
    with quietly():
        prepared = ort.prepared(source, folder)
        if precision is not Precision.INT8:
            _rewrite_gemm(prepared)
        if precision is Precision.INT8:
            _static(prepared, target, sets, scheme)
        elif precision is Precision.INT8_DYNAMIC:
            _dynamic(prepared, target, scheme)
        else:
            _four_bits(prepared, target, scheme)
    _require(target, [MARKS[precision]], f"ONNX Runtime's {precision} quantizer left every node as it was")
    return target


def _static(prepared: Path, target: Path, sets: Sequence[Arrays], scheme: Scheme) -> None:
    from onnxruntime.quantization import CalibrationMethod, QuantType, quantize_static

    methods = {
        "entropy": CalibrationMethod.Entropy,
        "percentile": CalibrationMethod.Percentile,
    }
    options: dict[str, Any] = {"ActivationSymmetric": scheme.symmetry == "symmetric", "QuantizeBias": False}
    if scheme.ranges in methods:
        options["CalibStridedMinMax"] = 1  # in spite of its name, for every method
    quantize_static(
        prepared,
        target,
        Sets(sets),
        activation_type=QuantType.QInt8 if scheme.own == S8S8 else QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=scheme.granularity != "per-tensor",
        calibrate_method=methods.get(scheme.ranges, CalibrationMethod.MinMax),
        extra_options=options,
    )


def _dynamic(prepared: Path, target: Path, scheme: Scheme) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(prepared, target, per_channel=scheme.granularity != "per-tensor")


def _four_bits(prepared: Path, target: Path, scheme: Scheme) -> None:
    """Blocks of 128, asymmetric: the quantizer's own defaults. Without an accuracy level, activations stay float."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(str(prepared), bits=4, is_symmetric=scheme.symmetry == "symmetric")
    quantizer.process()
    quantizer.model.save_model_to_file(str(target))


def _rewrite_gemm(path: Path) -> None:
    """Make MatMul and Add of each Gemm in the file: dynamic and 4-bit quantization know MatMul only."""
    import onnx
    from onnxruntime.quantization.onnx_model import ONNXModel

    from shootout.bundle import onnx_files

    model = ONNXModel(onnx.load(path))
    model.replace_gemm_with_matmul()
    # It transposes weights, and leaves what is known of their shapes as it was.
    graph = model.model.graph
    weights = {tensor.name for tensor in graph.initializer}
    for info in [info for info in graph.value_info if info.name in weights]:
        graph.value_info.remove(info)
    onnx_files.save(model.model, path)


def _operations(path: Path) -> list[str]:
    import onnx

    return [node.op_type for node in onnx.load(path, load_external_data=False).graph.node]


def _require(path: Path, operations: Sequence[str], fault: str) -> None:
    if not set(operations) & set(_operations(path)):
        raise ValueError(f"nothing to quantize: {fault}")
