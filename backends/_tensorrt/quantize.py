"""FP8 and INT4 weights for TensorRT, both in a half graph, as NVIDIA's own quantizer leaves the rest by default.

FP8 has Q/DQ pairs on what products read (see `quantize.qdq`), their scales in half. INT4 is each matrix product's
weights in 4 bits, dequantized block by block. TensorRT-RTX keeps them so and widens them inside the product, as long as
each channel has several blocks. With one scale for a whole channel it writes the wide weights to memory on each call.
Convolutions and odd sizes stay half there: TensorRT has no 4-bit convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends import common_onnx
from shootout.core.contract import Array, Arrays, Precision

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

BLOCKS = (128, 64, 32, 16)
LEVELS = 7
"""Symmetric: -7 to 7."""
IR = 10
"""The first in which ONNX has 4 bits and blocks."""


def write_half_float8(source: Path, calibration: Sequence[Arrays], folder: Path) -> Path:
    """Write `source` with E4M3 pairs on what its products read and all else in half; see `write_float8`.

    Args:
        source: a float32 ONNX file.
        calibration: input sets.
        folder: where the new file and its weights go; must be empty.

    Returns:
        The new file; inputs and outputs keep their types.

    Raises:
        ModelError: there is nothing to quantize.
    """
    from shootout.quantize.qdq import write_float8

    write_float8(source, calibration, folder / "float8.onnx")
    (folder / "half").mkdir()
    return common_onnx.write_half(folder / "float8.onnx", Precision.FP16, folder / "half")


def write_int4(source: Path, folder: Path) -> Path:
    """Write `source` with INT4 weights and half activations; inputs and outputs keep their types.

    Args:
        source: a float32 ONNX file.
        folder: where the new file and its weights go; must be empty.

    Returns:
        The new file.

    Raises:
        ValueError: there is nothing to quantize.
    """
    import onnx
    from onnx import numpy_helper

    from shootout.models.onnx.onnx_files import save

    whole = common_onnx.at_newer_opset(onnx.load(source))
    wide = {one.name: numpy_helper.to_array(one) for one in whole.graph.initializer}
    save(whole, folder / "newer.onnx")
    (folder / "half").mkdir()
    model = onnx.load(common_onnx.write_half(folder / "newer.onnx", Precision.FP16, folder / "half"))
    chosen = [(node, layout) for node in model.graph.node if (layout := _axis_and_block(node, wide))]
    if not chosen:
        raise ValueError(
            f"nothing to quantize: no matrix product with stored weights whose inner size is several times {BLOCKS[-1]}"
        )
    replaced = {node.input[1] for node, _ in chosen}
    for node, (axis, block) in chosen:
        _replace_weights(model, node, *_round_to_int4(wide[node.input[1]], axis, block), axis=axis, block=block)
    _drop_unused(model, replaced)
    model.ir_version = max(model.ir_version, IR)
    save(model, folder / "int4.onnx")
    return folder / "int4.onnx"


def _axis_and_block(node: NodeProto, wide: dict[str, Array]) -> tuple[int, int] | None:
    """Return the axis that the product sums over and the size of a block on it; None for what stays half."""
    weights = wide.get(node.input[1]) if node.op_type in ("Gemm", "MatMul") else None
    if weights is None or weights.ndim != 2 or weights.dtype != np.float32:
        return None
    axis = int(any(part.name == "transB" and part.i for part in node.attribute))
    inner = weights.shape[axis]
    block = next((size for size in BLOCKS if inner % size == 0 and inner > size), None)
    return None if block is None else (axis, block)


def _round_to_int4(weights: Array, axis: int, block: int) -> tuple[Array, Array]:
    """Return the weights in 4 bits and their blocks' scales, in half."""
    from ml_dtypes import int4

    largest = np.maximum.reduceat(np.abs(weights), range(0, weights.shape[axis], block), axis)
    scales = np.maximum(largest / LEVELS, np.finfo(np.float16).tiny).astype(np.float16)
    steps = np.rint(weights / scales.astype(np.float32).repeat(block, axis))
    return steps.clip(-LEVELS, LEVELS).astype(int4), scales


def _replace_weights(
    model: ModelProto, node: NodeProto, weights: Array, scales: Array, *, axis: int, block: int
) -> None:
    """Let a product read 4-bit weights of its own."""
    from onnx import helper, numpy_helper

    old = node.input[1]
    names = (f"{old}_int4_{axis}", f"{old}_scales_{axis}", f"{old}_{node.output[0]}_wide")
    stored = {one.name for one in model.graph.initializer}
    new: list[Any] = [numpy_helper.from_array(one, name) for one, name in zip((weights, scales), names, strict=False)]
    model.graph.initializer.extend(one for one in new if one.name not in stored)
    widen = helper.make_node("DequantizeLinear", names[:2], names[2:], name=names[2], axis=axis, block_size=block)
    model.graph.node.insert(0, widen)  # in front: it reads nothing that is computed
    node.input[1] = names[2]


def _drop_unused(model: ModelProto, replaced: set[str]) -> None:
    """Remove the half weights that no other node reads, such as the embedding that an output layer shares."""
    unused = replaced - {name for node in model.graph.node for name in node.input}
    kept = [one for one in model.graph.initializer if one.name not in unused]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
