"""Which precisions a user's ONNX file holds itself, by its header: what is stored, converted and quantized in it.

A file of floats in FP32 (or FP64) holds none: any label may be asked of it. One that was quantized or narrowed before
it came here can only be run as it is, under the label `native`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from onnx import ModelProto, NodeProto, TensorProto

from shootout.contract import Precision
from shootout.exported.onnx_files import every_node, tensors

_FLOATS: Mapping[int, Precision] = {
    TensorProto.FLOAT16: Precision.FP16,
    TensorProto.BFLOAT16: Precision.BF16,
    TensorProto.FLOAT8E4M3FN: Precision.FP8,
    TensorProto.FLOAT8E4M3FNUZ: Precision.FP8,
    TensorProto.FLOAT8E5M2: Precision.FP8,
    TensorProto.FLOAT8E5M2FNUZ: Precision.FP8,
}
_NARROWEST = frozenset({TensorProto.INT4, TensorProto.UINT4})
_QUANTIZED = re.compile("Quantize|Integer|^QLinear|^QGemm$|^QAttention$|^MatMulNBits$|^MatMulBnb4$|BlockQuantized$")
"""Operators that read or write numbers of a few bits, ONNX's own and those of ONNX Runtime's domain."""
_IN_BLOCKS = re.compile("^MatMulNBits$|^MatMulBnb4$|^GatherBlockQuantized$")
"""Those whose weights are packed into bytes, so that no type tells their bits."""
_BITS = 4
"""Where such an operator doesn't say."""


def own_precisions(model: ModelProto) -> tuple[Precision, ...]:
    """The precisions other than FP32 that the file's values are stored or computed in, in alphabetical order.

    Args:
        model: parsed; its weights are not looked at, only their types.
    """
    infos = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    kinds = {info.name: info.type.tensor_type.elem_type for info in infos}
    kinds |= {tensor.name: tensor.data_type for tensor in tensors(model)}
    nodes = list(every_node(model))
    casts = {attribute.i for node in nodes if node.op_type == "Cast" for attribute in node.attribute}
    found = {_FLOATS[kind] for kind in (*kinds.values(), *casts) if kind in _FLOATS}
    for node in nodes:
        if node.op_type == "Constant":
            kinds |= dict.fromkeys(node.output, max((one.t.data_type for one in node.attribute), default=0))
        if node.op_type == "QuantizeLinear":
            kinds |= dict.fromkeys(node.output, _made(node, kinds))
    quantized = [node for node in nodes if _QUANTIZED.search(node.op_type)]
    found |= {_of(node, [kinds.get(name, 0) for name in (*node.input, *node.output)]) for node in quantized}
    return tuple(sorted(found))


def _made(node: NodeProto, kinds: Mapping[str, int]) -> int:
    """The type that QuantizeLinear makes: its zero point's, or else the one it names."""
    zero = node.input[2] if len(node.input) > 2 else ""
    named = (attribute.i for attribute in node.attribute if attribute.name == "output_dtype")
    return kinds.get(zero, 0) or next(named, 0) or TensorProto.UINT8


def _of(node: NodeProto, types: list[int]) -> Precision:
    """What a quantized operator's numbers are, by the types of those that it reads and makes."""
    if _IN_BLOCKS.search(node.op_type):
        bits = next((attribute.i for attribute in node.attribute if attribute.name == "bits"), _BITS)
        return Precision.INT4 if bits <= _BITS else Precision.INT8
    if any(_FLOATS.get(kind) is Precision.FP8 for kind in types):
        return Precision.FP8
    return Precision.INT4 if _NARROWEST & set(types) else Precision.INT8
