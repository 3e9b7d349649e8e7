"""Count what a net computes in, layer by layer: from what the file stores, and from each layer's output in the net.

ncnn names no kernel. But it gives out a layer's numbers unconverted, so their width shows a narrow storage. The file's
tags say in what its matrices are kept. From a Vulkan device all numbers come back in float32; if a layer there stores
FP16, float16 represents each of them exactly.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shootout.backends._ncnn.convert import End, NcnnLayer, read_param, read_storage
from shootout.backends._ncnn.session import BIN, PARAM, as_mat
from shootout.core.contract import Array, Arrays

_FORMS = itertools.product(
    ("Convolution", "ConvolutionDepthWise", "Deconvolution", "DeconvolutionDepthWise"), ("", "1D", "3D")
)
PRODUCTS = {"InnerProduct", "Gemm", "MatMul", "Einsum", "RNN", "GRU", "LSTM", "MultiHeadAttention", "SDPA"}
PRODUCTS |= {f"{kind}{form}" for kind, form in _FORMS}
"""Layers that multiply matrices, or convolve."""
MOVES = {"Input", "Split", "MemoryData", "Noop"}
"""Layers that compute nothing."""
RAW = 1
"""Asks for a blob as it is, not widened to float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOutput:
    """One layer's output, as the layer wrote it: bits of a number, and how many there are."""

    bits: int
    count: int


def survey(net: Any, folder: Path, inputs: Arrays, takes: Sequence[End]) -> dict[str, Any]:
    """Run the net once, and return the fields of `Executed` that this shows; JSON.

    Args:
        net: loaded from `folder`.
        inputs: one input set.
        takes: the net's inputs.
    """
    lines = read_param(folder / PARAM)
    storage = read_storage(folder / BIN, lines)
    outputs = dict(_run_layers(net, inputs, takes))
    compute, others, flops = Counter[str](), Counter[str](), defaultdict[str, float](float)
    known = True
    for line, stored in zip(lines, storage, strict=True):
        seen = outputs[line.name]
        if line.kind in PRODUCTS:
            label = _product_precision(stored, seen, net.opt)
            compute[label] += 1
            count = _count_flops(line, seen)
            flops[label] += count or 0.0
            known &= count is not None
        elif line.kind not in MOVES:
            others[_float_precision(seen, net.opt)] += 1
    return {
        "compute_nodes_by_precision": dict(compute),
        "other_nodes_by_precision": dict(others),
        "flops_by_precision": dict(flops) if known else {},
        "fallbacks": [
            f"{layer.name} ({layer.type}) runs on the CPU"
            for layer in net.layers()
            if net.opt.use_vulkan_compute and layer.type not in MOVES and not layer.support_vulkan
        ],
    }


def _run_layers(net: Any, inputs: Arrays, takes: Sequence[End]) -> Iterator[tuple[str, LayerOutput]]:
    """Yield each layer's name and first output."""
    extractor = net.create_extractor()
    extractor.set_light_mode(False)  # which would forget what it gave out
    for blob, name, axis in takes:
        extractor.input(blob, as_mat(inputs[name], axis))
    for layer in net.layers():
        failed, mat = extractor.extract(layer.tops[0], RAW)
        if failed:
            raise RuntimeError(f"ncnn can't run layer {layer.name} ({layer.type}): code {failed}")
        shape = (mat.n, mat.c, mat.d, mat.h, mat.w)
        half = net.opt.use_vulkan_compute and net.opt.use_fp16_storage and _fits_half(mat.numpy())
        yield layer.name, LayerOutput(bits=16 if half else mat.elembits(), count=math.prod(shape) * mat.elempack)


def _fits_half(numbers: Array) -> bool:
    with np.errstate(over="ignore"):
        return np.array_equal(numbers.astype(np.float16).astype(np.float32), numbers, equal_nan=True)


def _product_precision(stored: set[str], seen: LayerOutput, options: Any) -> str:
    floats = _float_precision(seen, options)
    return "fp16-weights" if floats == "fp32" and "fp16" in stored else floats


def _float_precision(seen: LayerOutput, options: Any) -> str:

    if seen.bits == 16:
        return "bf16" if options.use_bf16_storage else "fp16"
    return {32: "fp32"}.get(seen.bits, f"{seen.bits} bits")


def _count_flops(line: NcnnLayer, seen: LayerOutput) -> float | None:
    """Count two for each multiply-add; None if the kind of layer isn't known here."""
    if line.kind == "InnerProduct" or (line.kind.startswith("Convolution") and not line.number(19)):
        return 2.0 * seen.count * (line.number(2 if line.kind == "InnerProduct" else 6) / line.number(0))
    if line.kind == "Gemm" and line.number(9):
        return 2.0 * seen.count * line.number(9)
    return None
