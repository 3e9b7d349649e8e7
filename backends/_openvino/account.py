"""Account of what a compiled OpenVINO model computes: products by precision, conversions, and times.

The runtime's graph alone misleads twice. Small layers are folded into "Subgraph" nodes whose reported precision is that
of their edges, not of the products inside. And if weights are compressed, a node's precision is its weights'. So
`survey`, in `build`, notes what every node holds from the model as OpenVINO itself exports it. `read_executed` reads
the session's own graph with these notes.

Times are from OpenVINO's own counters. They give the mean over all calls of a compiled model, each call cut down to
whole microseconds. So the first calls, which make and warm the kernels, are subtracted; and of a model whose nodes are
too short for the counters no time is given at all.

Read what OpenVINO computes between a model's layers, and what each node takes.

Tensors come from the IR with outputs added, compiled as the arm's own. An output is added behind a Relu and behind a
FakeQuantize, where a fused node hands on its result. The times are of the model as sessions compile it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

from shootout.backends._openvino.graph import (
    IR,
    KINDS,
    SNIPPETS,
    compile_model,
    devices_of,
    import_openvino,
    properties_of,
    rounding_products,
)
from shootout.backends.common import Tally, lost_names
from shootout.backends.optional import Inside, RanNode
from shootout.core.contract import Arm, Arrays, Device, Precision
from shootout.models.onnx.layers import COMPUTE_OPS, find_owner

if TYPE_CHECKING:
    from shootout.core.adapter import Built

LABELS: Mapping[str, str] = {
    "f64": "fp64", "f32": "fp32", "bf16": "bf16", "f16": "fp16", "i8": "int8", "u8": "int8", "i4": "int4", "u4": "int4",
}  # fmt: skip
"""Our names for OpenVINO's types, which its files write in capitals."""
COMPRESSED = {
    Precision.INT8.value: ("int8-weights", Precision.INT8.value),
    Precision.INT4.value: (Precision.INT4.value, "int4-activations-8"),
}
"""By the weights' type, what a product is that keeps its activations float, and one that rounds them to 8 bits."""
ROUNDED = tuple(rounded for _, rounded in COMPRESSED.values())
PRODUCTS = COMPUTE_OPS + "|FullyConnected|QKVProjection|LLMMLP"
CONVERSIONS = ("Convert", "FakeQuantize", "Reorder")
FUSED_CONVERSION = re.compile(r"/Dequantization(Convert|Multiply|Subtract)(_\d+)?$")
"""OpenVINO's names of the steps that it makes of a FakeQuantize."""
IN_GEMM = "/WithoutBiases"
"""The words that OpenVINO adds to the name of the product in a Gemm; the sum behind it has the name."""
MADE_UP = re.compile(r"([A-Z][A-Za-z]*)_\d+")
UNSETTLED = "dynamic"
"""OpenVINO's hint if each float node has the precision that the file gives it."""
NOT_EXECUTED = ("Input", "Output", "Const", "Result")
OLD_PROPERTY = "Unsupported attribute type"
"""In what a release says that knows no callbacks."""
WARM_CALLS = 5
CALLS = range(5, 101)
"""At least and at most so many are profiled, by how long the first one takes."""
BUDGET_US = 1_000_000
SLOW_US = 300_000
"""The length of a call above which its second run alone is profiled."""
WINDOWS = 5
"""The calls that are profiled are counted in so many windows."""
FINEST_US = 10
"""Nodes must take this on the average: what is cut off is then a tenth at most."""


def survey(path: Path, arm: Arm, inputs: Arrays, owners: Mapping[str, str]) -> dict[str, Any]:
    """Collect what `read_executed` has to know about the arm's compiled model, as JSON values.

    Exporting copies all the weights, so this belongs into `build`. Pass-through callbacks keep the export readable:
    OpenVINO scrambles it otherwise.

    A GPU's or an NPU's plugin exports nothing readable, and its counters give one call's times, not a mean. For them
    only the runtime's own graph is known.

    Args:
        path: the stored model.
        inputs: one input set.
        owners: the layers' names by those of the model's graph before it was quantized.
    """
    stored = import_openvino().Core().read_model(path).get_ops()
    known = {"conversions": _find_conversions(stored), "layers": _name_layers(stored, owners)}
    if arm.target.device is not Device.CPU:
        compile_model(path, arm)  # a plugin that can't take the model fails in the build
        return {**known, "products": {}, "node_ns": {}}
    compiled, text = _compile_and_export(path, arm)
    nodes = list(ElementTree.fromstring(text).iterfind("layers/layer"))  # noqa: S314 - OpenVINO wrote it a moment ago
    compressed = any(_is_compressed(node) for node in nodes)
    rounding = rounding_products(path, properties_of(arm)) if compressed else set()
    products = {str(node.get("name")): list(_find_products(node, rounding)) for node in nodes}
    times, keys = node_ns(compiled, inputs), {node["name"]: key for key, node in list_executed_nodes(compiled)}
    return {
        **known,
        "products": {key: products[name] for name, key in keys.items() if products.get(name)},
        "node_ns": {key: times[name] for name, key in keys.items() if name in times},
    }


def _compile_and_export(path: Path, arm: Arm) -> tuple[Any, bytes]:
    """Return the compiled model and its layers as XML; none of a release before 2024.4, which scrambles its export."""
    try:
        compiled = compile_model(path, arm, PERF_COUNT="YES", CACHE_ENCRYPTION_CALLBACKS=[_as_it_is, _as_it_is])
    except RuntimeError as error:
        if OLD_PROPERTY not in str(error):
            raise
        return compile_model(path, arm, PERF_COUNT="YES"), b"<net/>"
    exported = compiled.export_model()
    whole = exported if isinstance(exported, bytes) else exported.getvalue()  # the first ones gave bytes
    return compiled, whole[whole.rindex(b"<net ") : whole.rindex(b"</net>") + len(b"</net>")]


def read_executed(compiled: Any, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `Executed` says of one call, from the runtime's own graph and the `survey`.

    A fused node counts as the products that it holds. Float ones run in the precision that the compiled model gives as
    its own: the node itself says f32 even if its products are bf16 (their error shows it). An NPU's compiled form is
    closed and lists no node: the probe alone can show its precision.
    """
    if any(KINDS.get(name.partition(".")[0]) is Device.NPU for name in devices_of(compiled)):
        return {"compute_nodes_by_precision": {}}
    tally, kernel_ns = Tally(), Counter[str]()
    for key, node in list_executed_nodes(compiled):
        if held := list_products(compiled, facts, key, node):
            kind = held[0]
            tally.products.update(held)
            known = [facts["layers"].get(name) for name in node["originalLayersNames"].split(",")]
            names = dict.fromkeys(filter(None, known))
            tally.layers += zip(held, names, strict=False)
        else:
            converts = only_converts(node, facts["conversions"])
            kind = "conversion" if converts else "other"
            tally.add_other(_precision_label(node["runtimePrecision"]), converts=converts)
        kernel_ns[kind] += facts["node_ns"].get(key, 0)
    return {**tally.facts(), "kernel_ns": dict(kernel_ns) if facts["node_ns"] else {}}


def list_products(compiled: Any, facts: Mapping[str, Any], key: str, node: Mapping[str, str]) -> list[str]:
    """List the precisions of the products that a node of the runtime's graph holds; none if it holds none.

    Args:
        facts: of `survey`.
        key, node: as `list_executed_nodes` yields them.
    """
    hint = _precision_label(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
    own, is_product = _precision_label(node["runtimePrecision"]), bool(re.search(PRODUCTS, node["layerType"]))
    floats = own if is_product or hint == UNSETTLED else hint
    return [label or floats for label in facts["products"].get(key, [""] if is_product else [])]


def node_ns(compiled: Any, inputs: Arrays) -> dict[str, float]:
    """Return nanoseconds of each node in one call; empty if the counters are too coarse.

    The calls are counted in a few windows, each as long as all before, and each node has the median of its windows. A
    pause of the process for milliseconds then isn't some node's time. A shorter window would be cut off by more: the
    counters round the mean of all calls since the start.

    Args:
        compiled: made with PERF_COUNT, not yet run.
        inputs: one input set.
    """
    request = compiled.create_infer_request()
    request.infer(dict(inputs))
    first = _means_us(request)
    calls, warm = min(CALLS[-1], max(CALLS[0], BUDGET_US // max(1, sum(first.values())))), WARM_CALLS
    parts = [share for power in range(WINDOWS - 1) if (share := calls * 2**power // (2**WINDOWS - 1))]
    parts.append(calls - sum(parts))
    if sum(first.values()) > SLOW_US:
        warm, parts = 1, [1]
    so_far, before, windows = warm, _total_us_after(request, warm - 1, warm), list[dict[str, float]]()
    for part in parts:
        so_far += part
        total = _total_us_after(request, part, so_far)
        windows.append({name: max(0.0, us - before.get(name, 0)) / part for name, us in total.items()})
        before = total
    per_call = {name: median(window.get(name, 0.0) for window in windows) for name in windows[-1]}
    if sum(per_call.values()) < FINEST_US * len(first):
        return {}
    return {name: us * 1e3 for name, us in per_call.items()}


def list_executed_nodes(compiled: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each node that every call executes, with its key; what depends on constants only ran once, when loading.

    A key is the node's name. OpenVINO makes some names up, with another number each time it compiles; then the key is
    the kind and the place among nodes of that kind.
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


def _find_products(layer: ElementTree.Element, rounding: set[tuple[int, int]]) -> Iterator[str]:
    """Yield the labels of the products in a layer or its body; "" if the runtime's graph tells it."""
    inside = [one for one in layer.iterfind(".//body//layer") if _is_product(one)]
    for one in inside:
        operands = {_precision_label(str(port.get("precision"))) for port in list(one.iterfind("input/port"))[:2]}
        yield Precision.INT8.value if operands == {Precision.INT8.value} else ""
    if not inside and _is_product(layer):
        yield _compressed_label(layer, rounding) if _is_compressed(layer) else ""


def _compressed_label(layer: ElementTree.Element, rounding: set[tuple[int, int]]) -> str:
    inputs, weights = list(layer.iterfind("input/port"))[:2]
    size = tuple(int(str(port.findall("dim")[-1].text)) for port in (inputs, *layer.findall("output/port")[:1]))
    return COMPRESSED[_precision_label(str(weights.get("precision")))][size in rounding]


def _is_compressed(layer: ElementTree.Element) -> bool:
    return "Compressed" in str(layer.get("type"))


def _is_product(layer: ElementTree.Element) -> bool:
    return bool(re.search(PRODUCTS, str(layer.get("type"))))


def _find_conversions(stored: Sequence[Any]) -> list[str]:
    """Return the names of the stored model's operations that do nothing but change types."""
    return [one.get_friendly_name() for one in stored if one.get_type_name() in CONVERSIONS]


def _name_layers(stored: Sequence[Any], owners: Mapping[str, str]) -> dict[str, str]:
    """Return the layers' names by those of the stored model's products."""
    names = [one.get_friendly_name() for one in stored if re.search(PRODUCTS, one.get_type_name())]
    found = {name: layer for name in names if (layer := find_owner([name], owners))}
    return {key: layer for name, layer in found.items() for key in (name, name.removesuffix(IN_GEMM))}


def only_converts(node: Mapping[str, str], conversions: list[str]) -> bool:
    """Return whether the node is a conversion, or was fused from nothing else."""
    names = node["originalLayersNames"].split(",")
    return node["layerType"] in CONVERSIONS or all(
        name in conversions or FUSED_CONVERSION.search(name) for name in names
    )


def _as_it_is(content: bytes) -> bytes:
    return content


def _precision_label(kind: str) -> str:
    return LABELS.get(kind.lower(), kind)


def _total_us_after(request: Any, calls: int, so_far: int) -> dict[str, float]:
    """Return microseconds of each node since the model was compiled, after some more calls (`so_far` with them)."""
    for _ in range(calls):
        request.infer()
    return {name: us * so_far for name, us in _means_us(request).items()}


def _means_us(request: Any) -> Mapping[str, int]:
    means = Counter[str]()
    for one in request.profiling_info:
        means[one.node_name] += one.real_time.microseconds + 1_000_000 * one.real_time.seconds
    return Counter({name: us for name, us in means.items() if us})


ROUND, CUTS = "FakeQuantize", ("Relu", "Clamp")
UNSHOWN = ("Constant", "Parameter", "Result")
UNSCALING, SCALING = ("Convert", "Subtract"), "Multiply"
"""The nodes of a Q/DQ file's integers up to its scale, and that one."""
TOO_SHORT = "OpenVINO's counters tell whole microseconds, too coarse for nodes as short as these"


def look_inside(built: Built, sets: Sequence[Arrays], values: Collection[str]) -> Inside:
    """Run the input sets through the model with outputs added, and time the nodes of the built one."""
    openvino = import_openvino()
    model = openvino.Core().read_model(built.folder / IR)
    names = [spec.name for spec in built.exported.outputs]
    shown = dict(_find_ports(model, set(values) - {*names}))  # no port twice: a model has one output for each
    model.add_outputs(list(shown.values()))
    with TemporaryDirectory() as place:
        path = Path(place) / IR
        openvino.save_model(model, path, compress_to_fp16=False)
        compiled = compile_model(path, built.arm)
    wanted = dict(zip([*names, *shown], compiled.outputs, strict=True))
    calls = []
    for one in sets:
        answers = compiled(dict(one))
        calls.append({name: np.array(answers[port]) for name, port in wanted.items()})
    nodes = tuple(_list_nodes(built, sets[0]))
    return Inside(
        tensors={name: tuple(call[name] for call in calls) for name in (*shown, *({*values} & {*names}))},
        names="values",
        outputs=tuple({name: call[name] for name in names} for call in calls),
        nodes=nodes,
        notes=() if any(node.ns is not None for node in nodes) else (TOO_SHORT,),
        fuses_less="" if SNIPPETS in built.arm.options else f"--option openvino.{SNIPPETS}=DISABLE",
    )


def _find_ports(model: Any, values: Set[str]) -> Iterator[tuple[str, Any]]:
    """Yield where each value can be read, in the graph's order; of a graph that lost their names, all floats.

    A value that only a Relu reads is left out: the Relu's result tells of it, and the node keeps it.
    """
    taken, operations = set[tuple[str, int]](), model.get_ordered_ops()
    is_lost = lost_names(values, {name for one in operations for port in one.outputs() for name in port.get_names()})
    for operation in operations:
        for port in operation.outputs():
            readers = [one.get_node() for one in port.get_target_inputs()]
            kinds = {one.get_type_name() for one in readers} - {"Result"}
            if kinds <= set(CUTS) and len(readers) == 1 and kinds:
                continue
            read = _find_rounded(readers[0]) if kinds == {ROUND} and len(readers) == 1 else port
            place = read.get_node().get_friendly_name(), read.get_index()
            is_output = any(one.get_node().get_type_name() == "Result" for one in read.get_target_inputs())
            known = sorted(values & port.get_names())
            if is_lost and operation.get_type_name() not in UNSHOWN and read.get_element_type().is_real():
                known = known or [":".join(map(str, place))]
            if known and not is_output and place not in taken:
                taken.add(place)
                yield known[0], read


def _find_rounded(rounding: Any) -> Any:
    """Return where a rounded value can be read: of a Q/DQ file behind the scale, which is a node of its own there."""
    node, kinds = rounding, list[str]()
    while not kinds or kinds[-1] in UNSCALING:
        readers = [one.get_node() for one in node.output(0).get_target_inputs()]
        if len(readers) != 1 or readers[0].get_type_name() not in (*UNSCALING, SCALING):
            break
        node = readers[0]
        kinds.append(node.get_type_name())
    return (node if kinds[:1] == ["Convert"] and kinds[-1] == SCALING else rounding).output(0)


def _list_nodes(built: Built, inputs: Arrays) -> Iterator[RanNode]:
    """Yield the nodes that one call executes, each with its mean time unless the counters are too coarse."""
    compiled = compile_model(built.folder / IR, built.arm, PERF_COUNT="YES")
    times = node_ns(compiled, inputs)
    runtime = {node.get_friendly_name(): node for node in compiled.get_runtime_model().get_ordered_ops()}
    for key, node in list_executed_nodes(compiled):
        name, operation = node["name"], runtime[node["name"]]
        labels = list_products(compiled, built.facts, key, node)
        yield RanNode(
            kind=f"{node['layerType']}{_tell_fused(node)}",
            ns=times.get(name, 0.0) if times else None,
            names=(*node["originalLayersNames"].split(","), name),
            reads=tuple(one.get_source_output().get_node().get_friendly_name() for one in operation.inputs()),
            makes=(name,),
            precision=Counter(labels).most_common(1)[0][0] if labels else "",
            converts=not labels and only_converts(node, built.facts["conversions"]),
        )


def _tell_fused(node: dict[str, str]) -> str:
    """Count what a node holds beside its first operation, roundings aside."""
    parts = [one for one in node["originalLayersNames"].split(",") if one and "/fq_" not in one]
    return f"+{len(parts) - 1}" if len(parts) > 1 else ""
