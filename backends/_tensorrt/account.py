"""The products of a parsed network, and what the engine built from it runs, layer by layer, in TensorRT's own words.

Networks are strongly typed. An INT8 or FP8 product shows in one as a float layer whose operands come straight out of
DequantizeLinear layers, through nothing but reshapes. That the engine then multiplies these is TensorRT's doing, and
its list of layers tells.

On a GPU the engine's inspector tells; without one, TensorRT writes the same list into its log as the last step of a
build. Types are those that the engine's layers read and write. TensorRT-RTX picks the kernels behind them on the GPU
that it comes to, so which ones those are can't be known before. Layers named `__myl_...` are generated: the words in
their names are what they do, one after the other (`MulMinMaxRounCast` quantizes; `Fc` and `Corr` multiply).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shootout.core.contract import Precision

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
"""Types that a label's products may have, and INT8's beside those of its rest; the first must be among them. TF32 is
leave to round, no type: the network stays float32, and only the permutation probe can tell.
"""
NETWORK = "network.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A matrix product or convolution.

    Attributes:
        origin: the ONNX node it was parsed from, as the engine's layers name it too.
        precision: of its operands and results as one word where they agree, else all of them.
    """

    name: str
    origin: str
    precision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Hold what an engine's layers must agree with. `converters` are origins: of casts, quantizers and dequantizers."""

    products: tuple[Product, ...]
    converters: tuple[str, ...]

    def save(self, folder: Path) -> None:
        """Write it for `load_network`."""
        (folder / NETWORK).write_text(json.dumps(asdict(self)), encoding="utf-8")


def load_network(folder: Path) -> Network:
    """Load the network that `save` wrote into a folder."""
    stored = json.loads((folder / NETWORK).read_text(encoding="utf-8"))
    products = tuple(Product(**one) for one in stored["products"])
    return Network(products=products, converters=tuple(stored["converters"]))


def read_network(parsed: Any) -> Network:
    """Read a parsed network."""
    layers = [parsed.get_layer(index) for index in range(parsed.num_layers)]
    makers = {tensor.name: layer for layer in layers for tensor in _outputs_of(layer)}
    products = [
        Product(
            name=layer.name,
            origin=layer.metadata,
            precision=_network_precision(layer, makers),
        )
        for layer in layers
        if PRODUCTS.search(layer.type.name)
    ]
    converters = {layer.metadata for layer in layers if layer.type.name in CONVERTERS}
    return Network(products=tuple(products), converters=tuple(sorted(converters)))


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
        raise RuntimeError(f"labeled {precision}, but the parsed network is not: {', '.join(wrong[:3])}{more}")
    return counts


def _network_precision(layer: Any, makers: Mapping[str, Any]) -> str:
    """Return a product's precision; quantized ones by the operands alone: both INT8 or FP8, or one INT4, the
    weights.
    """
    inputs = list(_inputs_of(layer))
    operands = [_source_type(tensor, makers) for tensor in inputs[:2]]
    if "int4" in operands:
        return "int4"
    if operands in (["int8", "int8"], ["fp8", "fp8"]):
        return operands[0]
    others = (_type_name(tensor) for tensor in (*inputs[2:], *_outputs_of(layer)))
    return "+".join(sorted({*operands, *others}))


def _source_type(tensor: Any, makers: Mapping[str, Any]) -> str:
    """Return the type of an operand before it is dequantized; its own if it isn't."""
    maker = makers.get(tensor.name)
    while maker is not None and maker.type.name in MOVES:
        maker = makers.get(maker.get_input(0).name)
    if maker is None or maker.type.name != "DEQUANTIZE":
        return _type_name(tensor)
    return _type_name(maker.get_input(0))


def _type_name(tensor: Any) -> str:
    name: str = tensor.dtype.name
    return PRECISIONS.get(name, name.lower())


def _inputs_of(layer: Any) -> Iterator[Any]:
    tensors = (layer.get_input(index) for index in range(layer.num_inputs))
    return (tensor for tensor in tensors if tensor is not None)


def _outputs_of(layer: Any) -> Iterator[Any]:
    tensors = (layer.get_output(index) for index in range(layer.num_outputs))
    return (tensor for tensor in tensors if tensor is not None)


EngineLayer = Mapping[str, Any]
"""One layer in the form of the inspector's JSON."""
UNKNOWN = "unknown"
PRODUCT_TYPE = re.compile(
    r"(?i)gemm|correlation|conv(?!ert)|mat_?r?i?x?_?mul|einsum|attention|mha|(?<![a-z])fc(?![a-z])"
)
PRODUCT_NAME = re.compile(r"^__myl_\w*?(?:Fc|Corr|Deco|Gemm)(?![a-z])|^_gemm|mha")
TYPING = ("Format/Datatype", "DataType", "Datatype", "Type")
SCALED = (
    (Precision.INT4.value, re.compile(r"(?i)int4")),
    (Precision.INT8.value, re.compile(r"(?i)int8")),
    (Precision.FP8.value, re.compile(r"(?i)fp8|e4m3")),
)
FLOATS = (
    (Precision.BF16.value, re.compile(r"(?i)bfloat16|bf16")),
    (Precision.FP16.value, re.compile(r"(?i)half|fp16|float16")),
    (Precision.FP32.value, re.compile(r"(?i)float|fp32")),
)
"""Patterns of a tensor's type, the narrowest first."""
HEADING = "Layers:\n"
"""Beginning of the list in the log."""
FIELDS = re.compile(r", (?=(?:LayerType|Inputs|Constants|Outputs|TacticName|StreamId|Metadata): )")
ORIGIN = re.compile(r"\[ONNX Layer: [^\]]*\]")
WORDS = re.compile(r"^__myl_([A-Za-z]+?)_myl\d")
CONVERTING = {"Mul", "Min", "Max", "Roun", "Cast", "Move", "Tran", "Resh", "Repl", "Conc"}


def read_log(message: str) -> list[EngineLayer]:
    """Return the layers in a message of the log; none if it isn't their list."""
    lines = message.removeprefix(HEADING).split("\n") if message.startswith(HEADING) else []
    return [_read_line(line) for line in lines if line.startswith("Name: ")]


def count_layers(layers: Sequence[EngineLayer], network: Network) -> dict[str, Any]:
    """Count these layers of the engine by the names of `Executed`.

    Args:
        network: what the engine was built from; several of its products may be one of the engine's (attention, say).
    """
    converting = [layer for layer in layers if _only_converts(layer, network)]
    rest = [layer for layer in layers if layer not in converting]
    named = [_ran_in(product.origin, rest) for product in network.products]
    products = [layer for layer in rest if is_product(layer) or layer in named]
    return {
        "compute_nodes_by_precision": dict(Counter(map(precision_of, products))),
        "conversion_nodes": len(converting),
    }


def is_product(layer: EngineLayer) -> bool:
    """Return whether a layer multiplies matrices or convolves."""
    kind, name = str(layer.get("LayerType", "")), str(layer.get("Name", ""))
    return bool(PRODUCT_TYPE.search(kind) or PRODUCT_NAME.search(name))


def precision_of(layer: EngineLayer) -> str:
    """Return what a product computes in.

    It is INT8 or FP8 by two operands of that type, and INT4 by weights. With a single operand of 8 bits it is unknown:
    the other is either rounded inside the layer, or it is a wider float and so is the product.

    Floats go by the narrowest type of all, since a cast that is fused into a layer widens one side of it, but narrows
    none. TF32 shows in no type, at best in the kernel's name.
    """
    operands = list(_types_of(layer, ("Inputs", "Constants", "Weights"), SCALED))
    if Precision.INT4.value in operands:
        return Precision.INT4.value
    if operands:
        return operands[0] if len(operands) > 1 and len(set(operands)) == 1 else UNKNOWN
    types = set(_types_of(layer, ("Inputs", "Constants", "Weights", "Outputs"), FLOATS))
    narrowest = next((name for name, _ in FLOATS if name in types), UNKNOWN)
    rounds = "tf32" in str(layer.get("TacticName", "")).lower()
    return Precision.TF32.value if rounds and narrowest == Precision.FP32 else narrowest


def _types_of(layer: EngineLayer, sides: Iterable[str], names: Sequence[tuple[str, re.Pattern[str]]]) -> Iterator[str]:
    """Yield the types of tensors with more than one element: a scale's or a shift's type is not the product's."""
    for side in sides:
        tensors = layer.get(side, ())
        for tensor in [tensors] if isinstance(tensors, Mapping) else tensors:
            if not isinstance(tensor, Mapping) or set(tensor.get("Dimensions", ())) == {1}:
                continue
            texts = [str(tensor[key]) for key in TYPING if key in tensor]
            yield from (name for name, pattern in names if any(map(pattern.search, texts)))


def _ran_in(origin: str, layers: Sequence[EngineLayer]) -> EngineLayer | None:
    """Return the engine's layer that a product of the network went into; None if no layer names it.

    With a batch of one there may be no product among them: TensorRT-RTX then generates `MulSum`, and it comes first.
    """
    named = [layer for layer in layers if origin in str(layer.get("Metadata", ""))]
    return next((layer for layer in named if is_product(layer)), named[0] if named else None)


def _only_converts(layer: EngineLayer, network: Network) -> bool:
    """Return whether a layer does nothing but quantize, dequantize, cast or reorder for the products.

    The words of its name alone don't tell: `Mul` may be a scale or the model's own. So what it came from must be
    conversions, or products, whose scales are applied behind them.
    """
    if is_product(layer):
        return False
    if "reformat" in str(layer.get("LayerType", "")).lower():
        return True
    words = WORDS.search(str(layer.get("Name", "")))
    if words is None or not CONVERTING.issuperset(re.findall("[A-Z][a-z]*", words[1])):
        return False
    origins = set(ORIGIN.findall(str(layer.get("Metadata", ""))))
    return origins <= {*network.converters, *(product.origin for product in network.products)}


def _read_line(line: str) -> EngineLayer:
    fields = dict(part.partition(": ")[::2] for part in FIELDS.split(line))
    return {
        name: _read_tensors(text) if name in ("Inputs", "Constants", "Outputs") else text
        for name, text in fields.items()
    }


def _read_tensors(text: str) -> list[dict[str, Any]]:
    tensors = re.findall(r"Dimensions: \[([-\d,]*)\].*?Datatype: (\w+)", text)
    return [
        {"Dimensions": [int(size) for size in sizes.split(",") if size], "Datatype": kind} for sizes, kind in tensors
    ]
