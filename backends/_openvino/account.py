"""What a compiled OpenVINO model computes: products by precision, their operations, conversions, and times.

The runtime's graph alone misleads twice. Small layers are folded into "Subgraph" nodes whose reported precision is that
of their edges, not of the products inside; and where weights are compressed, a node's precision is its weights'. So
`survey`, in `build`, notes what every node holds from the model as OpenVINO itself exports it, and `account` reads the
session's own graph with these notes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from shootout.backends._openvino.dynamic import rounding_products
from shootout.backends._openvino.flops import flops
from shootout.backends._openvino.graph import compile_model, import_openvino, properties_of
from shootout.backends._openvino.profile import node_ns
from shootout.bundle.workload import COMPUTE_OPS
from shootout.contract import Arm, Arrays, Precision

LABELS: Mapping[str, str] = {
    "f64": "fp64", "f32": "fp32", "bf16": "bf16", "f16": "fp16", "i8": "int8", "u8": "int8", "i4": "int4", "u4": "int4",
}  # fmt: skip
"""Our names for OpenVINO's types, which its files write in capitals."""
WEIGHTS_ONLY = {Precision.INT8.value: "int8-weights", Precision.INT4.value: Precision.INT4.value}
"""By the weights' type, what a product is that keeps its activations float."""
PRODUCTS = COMPUTE_OPS + "|FullyConnected|QKVProjection|LLMMLP"
CONVERSIONS = ("Convert", "FakeQuantize", "Reorder")
FUSED_CONVERSION = re.compile(r"/Dequantization(Convert|Multiply|Subtract)(_\d+)?$")
"""What OpenVINO calls the steps that it makes of a FakeQuantize."""
MADE_UP = re.compile(r"([A-Z][A-Za-z]*)_\d+")
NOT_EXECUTED = ("Input", "Output", "Const")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Fields of `Executed`, by their names there."""

    compute: Mapping[str, int]
    others: Mapping[str, int]
    flops: Mapping[str, float]
    conversions: int
    kernel_ns: Mapping[str, float]


def survey(path: Path, arm: Arm, inputs: Arrays) -> dict[str, Any]:
    """What `account` has to know about the arm's compiled model; JSON.

    Exporting copies all the weights, so this belongs into `build`. Pass-through callbacks keep the export readable:
    OpenVINO scrambles it otherwise.
    """
    compiled = compile_model(path, arm, PERF_COUNT="YES", CACHE_ENCRYPTION_CALLBACKS=[_as_it_is, _as_it_is])
    whole = compiled.export_model().getvalue()
    text = whole[whole.rindex(b"<net ") : whole.rindex(b"</net>") + len(b"</net>")]
    layers = list(ElementTree.fromstring(text).iterfind("layers/layer"))  # noqa: S314 - OpenVINO wrote it a moment ago
    compressed = any(_is_compressed(layer) for layer in layers)
    rounding = rounding_products(path, properties_of(arm)) if compressed else set()
    products = {str(layer.get("name")): list(_products(layer, rounding)) for layer in layers}
    times, keys = node_ns(compiled, inputs), {node["name"]: key for key, node in _executed(compiled)}
    return {
        "products": {key: products[name] for name, key in keys.items() if products.get(name)},
        "conversions": _conversions(path),
        "node_ns": {key: times[name] for name, key in keys.items() if name in times},
    }


def account(compiled: Any, facts: Mapping[str, Any]) -> Account:
    """What one call executes, by the runtime's own graph and the `survey`.

    A fused node counts as the products that it holds. Float ones run in the precision that the compiled model gives as
    its own: the node itself says f32 even where its products are bf16 (their error shows it).
    """
    hint = _label(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
    compute, others, operations = Counter[str](), Counter[str](), Counter[str]()
    kernel_ns, conversions, known = Counter[str](), 0, True
    for key, node in _executed(compiled):
        own = _label(node["runtimePrecision"])
        is_product = bool(re.search(PRODUCTS, node["layerType"]))
        held = facts["products"].get(key, [["", None]] if is_product else [])
        labels = [label or (own if is_product else hint) for label, _ in held]
        compute.update(labels)
        for label, (_, count) in zip(labels, held, strict=True):
            known = known and count is not None
            operations[label] += count or 0
        is_conversion = not held and _only_converts(node, facts["conversions"])
        conversions += is_conversion
        others.update([own] if not held else [])
        kernel_ns[labels[0] if held else "conversion" if is_conversion else "other"] += facts["node_ns"].get(key, 0)
    return Account(
        compute=dict(compute),
        others=dict(others),
        flops=dict(operations) if known else {},
        conversions=conversions,
        kernel_ns=dict(kernel_ns) if facts["node_ns"] else {},
    )


def _executed(compiled: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """Each node that every call executes, with its key; what depends on constants only ran once, when loading.

    A key is the node's name, or where OpenVINO made that up (its number is another one each time it compiles) the
    kind and its place among those of its kind.
    """
    constant, made_up = set[str](), Counter[str]()
    for node in compiled.get_runtime_model().get_ordered_ops():
        name, facts = node.get_friendly_name(), {key: value.value for key, value in node.get_rt_info().items()}
        sources = [one.get_source_output().get_node().get_friendly_name() for one in node.inputs()]
        if facts["layerType"] == "Const" or (sources and constant.issuperset(sources)):
            constant.add(name)
        elif facts["layerType"] not in NOT_EXECUTED:
            kind = MADE_UP.fullmatch(name)
            made_up.update([kind[1]] if kind else [])
            yield f"{kind[1]}#{made_up[kind[1]]}" if kind else name, {"name": name, **facts}


def _products(layer: ElementTree.Element, rounding: set[tuple[int, int]]) -> Iterator[tuple[str, float | None]]:
    """The products in a layer or its body: label, "" where the runtime's graph tells, and operations."""
    inside = [one for one in layer.iterfind(".//body//layer") if _is_product(one)]
    for one in inside:
        operands = {_label(str(port.get("precision"))) for port in list(one.iterfind("input/port"))[:2]}
        yield Precision.INT8.value if operands == {Precision.INT8.value} else "", flops(one)
    if not inside and _is_product(layer):
        yield _compressed_label(layer, rounding) if _is_compressed(layer) else "", flops(layer)


def _compressed_label(layer: ElementTree.Element, rounding: set[tuple[int, int]]) -> str:
    inputs, weights = list(layer.iterfind("input/port"))[:2]
    size = tuple(int(str(port.findall("dim")[-1].text)) for port in (inputs, *layer.findall("output/port")[:1]))
    return Precision.INT8.value if size in rounding else WEIGHTS_ONLY[_label(str(weights.get("precision")))]


def _is_compressed(layer: ElementTree.Element) -> bool:
    return "Compressed" in str(layer.get("type"))


def _is_product(layer: ElementTree.Element) -> bool:
    return bool(re.search(PRODUCTS, str(layer.get("type"))))


def _conversions(path: Path) -> list[str]:
    """Names of the stored model's operations that do nothing but change types."""
    operations = import_openvino().Core().read_model(path).get_ops()
    return [one.get_friendly_name() for one in operations if one.get_type_name() in CONVERSIONS]


def _only_converts(node: Mapping[str, str], conversions: list[str]) -> bool:
    """Whether the node is a conversion, or was fused from nothing else."""
    names = node["originalLayersNames"].split(",")
    return node["layerType"] in CONVERSIONS or all(
        name in conversions or FUSED_CONVERSION.search(name) for name in names
    )


def _as_it_is(content: bytes) -> bytes:
    return content


def _label(kind: str) -> str:
    return LABELS.get(kind.lower(), kind)
