"""Prune by magnitude, to show what thinned-out weights cost in accuracy and which runtime gains anything by them.

`pruned-50` zeroes the half of each weight's elements that is smallest in magnitude (Han et al. 2015, arXiv:1506.02626);
`pruned-2of4` keeps the two largest of every four neighbors along the input channels, the pattern that sparse tensor
cores run (Mishra et al. 2021, arXiv:2104.08378). Nothing is trained afterwards, and biases, norms and embeddings stay.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shootout.contract import Array
from shootout.errors import ModelError

if TYPE_CHECKING:
    from torch import nn

PRUNED, TWO_OF_FOUR = "pruned-", "pruned-2of4"
GROUP, DROPPED = 4, 2
INPUT_AXIS = {"MatMul": -2, "Gemm": 0, "Conv": 1, "ConvTranspose": 0}
"""The axis that is summed over, of an ONNX node's stored weight (its second operand)."""


def prune_module(module: nn.Module, variant: str) -> None:
    """Prune every Linear and convolution of a module, in place.

    Args:
        module: in float32, on the CPU.
        variant: `pruned-N` or `pruned-2of4`.

    Raises:
        ModelError: it has no such weights, or none of them has four input channels.
    """
    from torch import nn
    from torch.nn.modules.conv import _ConvNd

    layers = [one for one in module.modules() if isinstance(one, nn.Linear | _ConvNd)]
    axes = [0 if isinstance(one, _ConvNd) and one.transposed else 1 for one in layers]
    _require_pruned(
        variant, sum(prune(one.weight.detach().numpy(), axis, variant) for one, axis in zip(layers, axes, strict=True))
    )


def prune_file(path: Path, folder: Path, variant: str) -> Path:
    """Write a pruned copy of an ONNX file, under the same name in `folder`.

    Pruned are the stored weights that matrix products and convolutions read as their second operand.

    Raises:
        ModelError: it has none, or can't be read.
    """
    from onnx import numpy_helper

    from shootout.exported import onnx_files

    model = onnx_files.load(path)
    axes = {node.input[1]: _input_axis(node) for node in model.graph.node if node.op_type in INPUT_AXIS}
    count = 0
    for tensor in model.graph.initializer:
        if tensor.name in axes and len(tensor.dims) > 1:
            weight = np.array(numpy_helper.to_array(tensor))
            count += weight.dtype.kind == "f" and prune(weight, axes[tensor.name], variant)
            tensor.CopyFrom(numpy_helper.from_array(weight, tensor.name))
    _require_pruned(variant, count)
    onnx_files.save(model, folder / path.name)
    return folder / path.name


def prune(weight: Array, axis: int, variant: str) -> int:
    """Prune one weight in place.

    Args:
        weight: at least two axes.
        axis: its input channels; what is left over after groups of four stays as it is.
        variant: `pruned-N` or `pruned-2of4`.

    Returns:
        How many elements the pattern zeroes.
    """
    if variant == TWO_OF_FOUR:
        return _two_of_four(np.moveaxis(weight, axis, -1))
    count = round(weight.size * int(variant.removeprefix(PRUNED)) / 100)
    weight.flat[np.argpartition(np.abs(weight), count - 1, axis=None)[:count]] = 0
    return count


def _two_of_four(last: Array) -> int:
    whole = last[..., : last.shape[-1] // GROUP * GROUP]
    groups = whole.reshape(*whole.shape[:-1], -1, GROUP)  # a copy where the axis was moved
    smallest = np.argsort(np.abs(groups), axis=-1, kind="stable")[..., :DROPPED]
    np.put_along_axis(groups, smallest, 0, axis=-1)
    whole[...] = groups.reshape(whole.shape)
    return smallest.size


def _input_axis(node: object) -> int:
    flipped = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)  # type: ignore[attr-defined]
    kind: str = node.op_type  # type: ignore[attr-defined]
    return 1 if kind == "Gemm" and flipped else INPUT_AXIS[kind]


def _require_pruned(variant: str, count: int) -> None:
    if not count:
        raise ModelError(f"{variant}: the model has no weight of a matrix product or convolution that this would thin")
