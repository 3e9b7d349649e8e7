"""What a built engine runs, layer by layer, in TensorRT's own words: which products, on which types, and what converts.

On a GPU the engine's inspector tells; without one, TensorRT writes the same list into its log as the last step of a
build. Types are those that the engine's layers read and write. TensorRT-RTX picks the kernels behind them on the GPU
that it comes to, so which ones those are can't be known before. Layers named `__myl_...` are generated: the words in
their names are what they do, one after the other (`MulMinMaxRounCast` quantizes; `Fc` and `Corr` multiply).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from shootout.backends._tensorrt.network import Network
from shootout.contract import Precision

Layer = Mapping[str, Any]
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
"""How a tensor's type is written, the narrowest first."""
HEADING = "Layers:\n"
"""What the list in the log begins with."""
FIELDS = re.compile(r", (?=(?:LayerType|Inputs|Constants|Outputs|TacticName|StreamId|Metadata): )")
ORIGIN = re.compile(r"\[ONNX Layer: [^\]]*\]")
WORDS = re.compile(r"^__myl_([A-Za-z]+?)_myl\d")
CONVERTING = {"Mul", "Min", "Max", "Roun", "Cast", "Move", "Tran", "Resh", "Repl", "Conc"}


def read_log(message: str) -> list[Layer]:
    """The layers in a message of the log; none where it isn't their list."""
    lines = message.removeprefix(HEADING).split("\n") if message.startswith(HEADING) else []
    return [_read_line(line) for line in lines if line.startswith("Name: ")]


def account(layers: Sequence[Layer], network: Network) -> dict[str, Any]:
    """What these layers say about the engine, by the names of `Executed`.

    Args:
        network: what the engine was built from. Several of its products may be one of the engine's (attention, say),
            and operations are counted on the network's.
    """
    converting = [layer for layer in layers if _only_converts(layer, network)]
    rest = [layer for layer in layers if layer not in converting]
    ran = {product.origin: _ran_in(product.origin, rest) for product in network.products}
    named = [layer for layer in ran.values() if layer is not None]
    products = [layer for layer in rest if is_product(layer) or layer in named]
    flops: defaultdict[str, float] = defaultdict(float)
    for product in network.products:
        layer = ran[product.origin]
        flops[UNKNOWN if layer is None else precision_of(layer)] += product.flops or 0
    known = bool(named) and all(product.flops is not None for product in network.products)
    return {
        "compute_nodes_by_precision": dict(Counter(map(precision_of, products))),
        "flops_by_precision": dict(flops) if known else {},
        "conversion_nodes": len(converting),
    }


def is_product(layer: Layer) -> bool:
    """Whether a layer multiplies matrices or convolves."""
    kind, name = str(layer.get("LayerType", "")), str(layer.get("Name", ""))
    return bool(PRODUCT_TYPE.search(kind) or PRODUCT_NAME.search(name))


def precision_of(layer: Layer) -> str:
    """What a product computes in.

    INT8 and FP8 by two operands of it, INT4 by weights. With a single one of 8 bits it is unknown: the other is either
    rounded inside the layer, or it is a wider float and so is the product. Floats by the narrowest type of all, since a
    cast that is fused into a layer widens one side of it, but narrows none. TF32 shows in no type, at best in the
    kernel's name.
    """
    operands = list(_types(layer, ("Inputs", "Constants", "Weights"), SCALED))
    if Precision.INT4.value in operands:
        return Precision.INT4.value
    if operands:
        return operands[0] if len(operands) > 1 and len(set(operands)) == 1 else UNKNOWN
    types = set(_types(layer, ("Inputs", "Constants", "Weights", "Outputs"), FLOATS))
    found = next((name for name, _ in FLOATS if name in types), UNKNOWN)
    rounds = "tf32" in str(layer.get("TacticName", "")).lower()
    return Precision.TF32.value if rounds and found == Precision.FP32 else found


def _types(layer: Layer, sides: Iterable[str], names: Sequence[tuple[str, re.Pattern[str]]]) -> Iterator[str]:
    """Of the tensors that have more than one element: a scale's or a shift's type is not the product's."""
    for side in sides:
        tensors = layer.get(side, ())
        for tensor in [tensors] if isinstance(tensors, Mapping) else tensors:
            if not isinstance(tensor, Mapping) or set(tensor.get("Dimensions", ())) == {1}:
                continue
            texts = [str(tensor[key]) for key in TYPING if key in tensor]
            yield from (name for name, pattern in names if any(map(pattern.search, texts)))


def _ran_in(origin: str, layers: Sequence[Layer]) -> Layer | None:
    """The engine's layer that a product of the network went into; None where no layer names it.

    With a batch of one there may be no product among them: TensorRT-RTX then generates `MulSum`, and it comes first.
    """
    named = [layer for layer in layers if origin in str(layer.get("Metadata", ""))]
    return next((layer for layer in named if is_product(layer)), named[0] if named else None)


def _only_converts(layer: Layer, network: Network) -> bool:
    """Whether a layer does nothing but quantize, dequantize, cast or reorder for the products.

    Its words alone don't say: `Mul` may be a scale or the model's own. So what it came from must be conversions, or
    products, whose scales are applied behind them.
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


def _read_line(line: str) -> Layer:
    fields = dict(part.partition(": ")[::2] for part in FIELDS.split(line))
    return {
        name: _read_tensors(text) if name in ("Inputs", "Constants", "Outputs") else text
        for name, text in fields.items()
    }


def _read_tensors(text: str) -> list[dict[str, Any]]:
    found = re.findall(r"Dimensions: \[([-\d,]*)\].*?Datatype: (\w+)", text)
    return [{"Dimensions": [int(one) for one in sizes.split(",") if one], "Datatype": kind} for sizes, kind in found]
