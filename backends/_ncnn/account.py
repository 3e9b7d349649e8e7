"""What a net computes in: layer by layer, from what the file stores, and what each layer gives out in the loaded net.

ncnn tells of no kernel. But it tells, unconverted, how wide the numbers are that a layer wrote, and so whether it took
part in a narrow storage; and the file's tags tell in what its matrices are kept. From a Vulkan device all numbers come
back in float32: there those of a layer that stores FP16 are all FP16's.
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

from shootout.backends._ncnn.convert import End
from shootout.backends._ncnn.files import BIN, PARAM, Line, read_param, read_storage
from shootout.backends._ncnn.library import import_ncnn
from shootout.contract import Array, Arrays

_FORMS = itertools.product(
    ("Convolution", "ConvolutionDepthWise", "Deconvolution", "DeconvolutionDepthWise"), ("", "1D", "3D")
)
PRODUCTS = {"InnerProduct", "Gemm", "MatMul", "Einsum", "RNN", "GRU", "LSTM", "MultiHeadAttention", "SDPA"}
PRODUCTS |= {f"{kind}{form}" for kind, form in _FORMS}
"""Layers that multiply matrices, or convolve."""
MOVES = {"Input", "Split", "MemoryData", "Noop"}
"""Layers that compute nothing."""
COUNTS = ("compute_nodes_by_precision", "other_nodes_by_precision", "flops_by_precision")
"""What a survey counts, by the names of `Executed`."""
RAW = 1
"""Asks for a blob as it is, not widened to float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One layer's output, as the layer wrote it: bits of a number, and how many there are."""

    bits: int
    count: int


def as_mat(array: Array, axis: int) -> Any:
    """A copy of an array in memory of ncnn's own, which its layers don't write to: others' they take for free."""
    narrow = array.astype(np.int32) if array.dtype == np.int64 else array
    return import_ncnn().Mat(np.ascontiguousarray(narrow), axis).clone()


def survey(net: Any, folder: Path, inputs: Arrays, takes: Sequence[End]) -> dict[str, Any]:
    """What `Executed` says of one call, by its own names; JSON.

    Args:
        net: loaded from `folder`.
        inputs: one input set, to run once.
        takes: what the net is given.
    """
    lines = read_param(folder / PARAM)
    storage = read_storage(folder / BIN, lines)
    outputs = dict(_outputs(net, inputs, takes))
    compute, others, flops = Counter[str](), Counter[str](), defaultdict[str, float](float)
    known = True
    for line, stored in zip(lines, storage, strict=True):
        seen = outputs[line.name]
        if line.kind in PRODUCTS:
            label = _label(stored, seen, net.opt)
            compute[label] += 1
            count = _flops(line, seen)
            flops[label] += count or 0.0
            known &= count is not None
        elif line.kind not in MOVES:
            others[_floats(seen, net.opt)] += 1
    return {
        "compute_nodes_by_precision": dict(compute),
        "other_nodes_by_precision": dict(others),
        "flops_by_precision": dict(flops) if known else {},
        "fallbacks": _fallbacks(net) if net.opt.use_vulkan_compute else [],
    }


def _fallbacks(net: Any) -> list[str]:
    """Layers that Vulkan has no code for."""
    left = [layer for layer in net.layers() if layer.type not in MOVES and not layer.support_vulkan]
    return [f"{layer.name} ({layer.type}) runs on the CPU" for layer in left]


def _outputs(net: Any, inputs: Arrays, takes: Sequence[End]) -> Iterator[tuple[str, Seen]]:
    """By each layer's name, its first output."""
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
        yield layer.name, Seen(bits=16 if half else mat.elembits(), count=math.prod(shape) * mat.elempack)


def _fits_half(numbers: Array) -> bool:
    with np.errstate(over="ignore"):
        return np.array_equal(numbers.astype(np.float16).astype(np.float32), numbers, equal_nan=True)


def _label(stored: set[str], seen: Seen, options: Any) -> str:
    """What a product's numbers are, its weights' where these alone are narrow."""
    floats = _floats(seen, options)
    return "fp16-weights" if floats == "fp32" and "fp16" in stored else floats


def _floats(seen: Seen, options: Any) -> str:
    """What a float layer's numbers are."""
    if seen.bits == 16:
        return "bf16" if options.use_bf16_storage else "fp16"
    return {32: "fp32"}.get(seen.bits, f"{seen.bits} bits")


def _flops(line: Line, seen: Seen) -> float | None:
    """Two for each multiply-add; None where the kind isn't known here."""
    if line.kind == "InnerProduct" or (line.kind.startswith("Convolution") and not line.number(19)):
        return 2.0 * seen.count * (line.number(2 if line.kind == "InnerProduct" else 6) / line.number(0))
    if line.kind == "Gemm" and line.number(9):
        return 2.0 * seen.count * line.number(9)
    return None
