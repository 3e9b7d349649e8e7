"""Count what a net computes in, layer by layer: from what the file stores, and from each layer's output in the net.

ncnn names no kernel. But it gives out a layer's numbers unconverted, so their width shows a narrow storage. The file's
tags say in what its matrices are kept. From a Vulkan device all numbers come back in float32; if a layer there stores
FP16, float16 represents each of them exactly.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._ncnn.convert import End, NcnnLayer, holds_halves, read_param
from shootout.backends._ncnn.session import BIN, PARAM, as_mat
from shootout.core.contract import Array, Arrays

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

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


def survey(net: Any, exported: ExportedModel, folder: Path, takes: Sequence[End]) -> dict[str, Any]:
    """Run the net once, and return the fields of `Executed` that this shows; JSON.

    Args:
        net: loaded from `folder`.
        takes: the net's inputs.
    """
    halves = holds_halves(folder / BIN)
    bits = dict(_run_layers(net, exported.input_buffers()[0], takes))
    compute, others = Counter[str](), Counter[str]()
    for line in read_param(folder / PARAM):
        floats = _float_precision(bits[line.name], net.opt)
        if line.kind in PRODUCTS:
            compute["fp16-weights" if halves and floats == "fp32" and _stores_weights(line) else floats] += 1
        elif line.kind not in MOVES:
            others[floats] += 1
    return {
        "compute_nodes_by_precision": dict(compute),
        "other_nodes_by_precision": dict(others),
        "fallbacks": [
            f"{layer.name} ({layer.type}) runs on the CPU"
            for layer in net.layers()
            if net.opt.use_vulkan_compute and layer.type not in MOVES and not layer.support_vulkan
        ],
    }


def _run_layers(net: Any, inputs: Arrays, takes: Sequence[End]) -> Iterator[tuple[str, int]]:
    """Yield each layer's name, and the bits of a number in its first output as the layer wrote it."""
    extractor = net.create_extractor()
    extractor.set_light_mode(False)  # which would forget what it gave out
    for blob, name, axis in takes:
        extractor.input(blob, as_mat(inputs[name], axis))
    for layer in net.layers():
        failed, mat = extractor.extract(layer.tops[0], RAW)
        if failed:
            raise RuntimeError(f"ncnn can't run layer {layer.name} ({layer.type}): code {failed}")
        half = net.opt.use_vulkan_compute and net.opt.use_fp16_storage and _fits_half(mat.numpy())
        yield layer.name, 16 if half else mat.elembits()


def _fits_half(numbers: Array) -> bool:
    with np.errstate(over="ignore"):
        return np.array_equal(numbers.astype(np.float16).astype(np.float32), numbers, equal_nan=True)


def _float_precision(bits: int, options: Any) -> str:
    if bits == 16:
        return "bf16" if options.use_bf16_storage else "fp16"
    return {32: "fp32"}.get(bits, f"{bits} bits")


def _stores_weights(line: NcnnLayer) -> bool:
    """Return whether a product reads a matrix of the file, and not results alone."""
    if line.kind == "Gemm":
        return bool(line.number(4) or line.number(5))
    if "onvolution" in line.kind:  # its weights may come as an input
        return not line.number(19 if line.kind.startswith("Conv") else 28)
    return line.kind not in ("MatMul", "Einsum", "SDPA")
