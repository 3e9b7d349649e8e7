"""A parsed TensorRT network: its products with the types that go into them, and the layers that only convert.

Networks are strongly typed. An INT8 or FP8 product shows in one as a float layer whose operands come straight out of
DequantizeLinear layers, through nothing but reshapes; that the engine then multiplies these is TensorRT's doing, and
its list of layers tells (see `account`).
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from shootout.contract import Precision
from shootout.exported.workload import convolution_flops, product_flops

PRECISIONS = {"FLOAT": "fp32", "HALF": "fp16", "BF16": "bf16", "FP8": "fp8", "FP4": "fp4"}
"""TensorRT's names of types, where they aren't their own in lower case."""
PRODUCTS = re.compile("MATRIX_MULTIPLY|CONVOLUTION|EINSUM|ATTENTION_INPUT|MOE")
CONVERTERS = ("QUANTIZE", "DEQUANTIZE", "DYNAMIC_QUANTIZE", "CAST")
MOVES = ("SHUFFLE", "IDENTITY", "SQUEEZE", "UNSQUEEZE")
"""Layers that pass every value on as it is."""
TYPED_AS = {
    Precision.FP16: ("fp16",),
    Precision.BF16: ("bf16",),
    Precision.FP32: ("fp32",),
    Precision.TF32: ("fp32",),
    Precision.INT8: ("int8",),
    Precision.INT4: ("int4", "fp16"),
    Precision.FP8: ("fp8", "fp16"),
}
"""What a label's products may be, and INT8's beside those of its rest; the first must be among them. TF32 is leave to
round, no type: the network stays float32, and only the permutation probe can tell.
"""
NETWORK = "network.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A matrix product or convolution.

    Attributes:
        origin: the ONNX node it was parsed from, as the engine's layers name it too.
        precision: of its operands and results as one word where they agree, else all of them.
        flops: of one call; None where a size is not known.
    """

    name: str
    origin: str
    precision: str
    flops: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What the engine's layers are held against. `converters` are origins: of casts, quantizers and dequantizers."""

    products: tuple[Product, ...]
    converters: tuple[str, ...]

    def save(self, folder: Path) -> None:
        """Write it for `load_network`."""
        (folder / NETWORK).write_text(json.dumps(asdict(self)), encoding="utf-8")


def load_network(folder: Path) -> Network:
    """The network that `save` wrote into a folder."""
    stored = json.loads((folder / NETWORK).read_text(encoding="utf-8"))
    products = tuple(Product(**one) for one in stored["products"])
    return Network(products=products, converters=tuple(stored["converters"]))


def read_network(trt: ModuleType, parsed: Any) -> Network:
    """Read a parsed network."""
    layers = [parsed.get_layer(index) for index in range(parsed.num_layers)]
    makers = {tensor.name: layer for layer in layers for tensor in _outputs(layer)}
    times = _times(layers)
    found = [
        Product(name=one.name, origin=one.metadata, precision=_precision(one, makers), flops=_flops(trt, one, times))
        for one in layers
        if PRODUCTS.search(one.type.name)
    ]
    converters = {one.metadata for one in layers if one.type.name in CONVERTERS}
    return Network(products=tuple(found), converters=tuple(sorted(converters)))


def require_precision(network: Network, precision: Precision, rest: Precision) -> dict[str, int]:
    """Count the network's products by precision.

    Args:
        rest: what products of an INT8 network that aren't quantized have to be.

    Raises:
        RuntimeError: one of them is not what the label allows, or none is what it promises.
    """
    counts = dict(Counter(one.precision for one in network.products))
    if precision is Precision.NATIVE:
        return counts
    promised, allowed = TYPED_AS[precision][0], TYPED_AS[precision]
    allowed += (rest.value,) if precision is Precision.INT8 else ()
    wrong = [f"{one.name!r} is {one.precision}" for one in network.products if one.precision not in allowed]
    if not wrong and promised not in counts:
        wrong = [f"{one.name!r} is {one.precision}" for one in network.products]
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise RuntimeError(f"labelled {precision}, but the parsed network is not: {', '.join(wrong[:3])}{more}")
    return counts


def _precision(layer: Any, makers: Mapping[str, Any]) -> str:
    """What is quantized counts by the operands alone: both are INT8 or FP8, or one is INT4, the weights."""
    inputs = list(_inputs(layer))
    operands = [_source_type(tensor, makers) for tensor in inputs[:2]]
    if "int4" in operands:
        return "int4"
    if operands in (["int8", "int8"], ["fp8", "fp8"]):
        return operands[0]
    others = (_type(tensor) for tensor in (*inputs[2:], *_outputs(layer)))
    return "+".join(sorted({*operands, *others}))


def _source_type(tensor: Any, makers: Mapping[str, Any]) -> str:
    """The type that an operand has before it is dequantized; its own where it isn't."""
    maker = makers.get(tensor.name)
    while maker is not None and maker.type.name in MOVES:
        maker = makers.get(maker.get_input(0).name)
    if maker is None or maker.type.name != "DEQUANTIZE":
        return _type(tensor)
    return _type(maker.get_input(0))


def _type(tensor: Any) -> str:
    name: str = tensor.dtype.name
    return PRECISIONS.get(name, name.lower())


def _times(layers: Sequence[Any]) -> dict[str, int]:
    """How often a call makes each tensor of a loop's body: once for each slice of what the loop goes through; 0 where
    nothing says how often.
    """
    found: dict[str, int] = {}
    for layer in (*layers, *layers):  # a recurrence reads what comes after it
        kind = layer.type.name
        read = [found[tensor.name] for tensor in _inputs(layer) if tensor.name in found]
        if kind == "ITERATOR":
            whole, part = (math.prod(tensor.shape) for tensor in (layer.get_input(0), layer.get_output(0)))
            read = [max(whole // part if part else 0, 0)]
        if kind == "RECURRENCE":
            read.append(0)
        if read and kind != "LOOP_OUTPUT":
            found |= {tensor.name: max(read) for tensor in _outputs(layer)}
    return found


def _flops(trt: ModuleType, layer: Any, times: Mapping[str, int]) -> float | None:
    """Of one call; None where a size or a number of repeats isn't known."""
    once, repeats = _flops_once(trt, layer), times.get(layer.get_output(0).name, 1)
    return once * repeats if once is not None and repeats else None


def _flops_once(trt: ModuleType, layer: Any) -> float | None:
    shapes = [tuple(tensor.shape) for tensor in _inputs(layer)]
    output, kind = tuple(layer.get_output(0).shape), layer.type.name
    if any(size < 0 for shape in (*shapes, output) for size in shape):
        return None
    if kind == "MATRIX_MULTIPLY":
        vector = next((other for one, other in (shapes, reversed(shapes)) if len(one) == 1), None)
        return product_flops(vector, 1) if vector else product_flops(output, math.prod(shapes[0][-2:]) // output[-2])
    if "CONVOLUTION" not in kind:
        return None
    # Each result of a convolution, and each input of a transposed one, meets all weights of its channel.
    each = output if kind == "CONVOLUTION" else shapes[0]
    return convolution_flops(each, (each[1], _weights(trt, layer, shapes) // each[1]))


def _weights(trt: ModuleType, layer: Any, shapes: list[tuple[int, ...]]) -> int:
    """How many a convolution has; those that aren't a tensor are the layer's own, which only its class shows."""
    if len(shapes) > 1:
        return math.prod(shapes[1])
    layer.__class__ = trt.IConvolutionLayer if layer.type.name == "CONVOLUTION" else trt.IDeconvolutionLayer
    return int(layer.kernel.size)


def _inputs(layer: Any) -> Iterator[Any]:
    found = (layer.get_input(index) for index in range(layer.num_inputs))
    return (tensor for tensor in found if tensor is not None)


def _outputs(layer: Any) -> Iterator[Any]:
    found = (layer.get_output(index) for index in range(layer.num_outputs))
    return (tensor for tensor in found if tensor is not None)
