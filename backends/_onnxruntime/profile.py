"""What ONNX Runtime's own profile of a few calls tells: kernels as executed, their types, operations and time.

The profiler spends about 2 us of its own on each kernel and counts them as the kernel's, as much as a small product
takes. So a call's time without the profiler is taken too, and what the kernels take longer with it is taken off each of
them alike.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from shootout.backends._onnxruntime import providers, quantize
from shootout.backends._onnxruntime.account import open_session
from shootout.backends.common import precision_of
from shootout.clock import Stopwatch
from shootout.contract import Arm, Arrays, Device, Precision
from shootout.exported.workload import convolution_flops, flops_by_precision, is_product, product_flops
from shootout.trace_events import Event

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

DTYPES = {"float": "float32", "double": "float64"}
"""ONNX Runtime's names of dtypes, where they aren't NumPy's."""
INT8_OPS = r"^Q[A-Z]|Integer|DynamicQuantize"
CONVERSIONS = r"^(Dynamic)?QuantizeLinear$|^DequantizeLinear$|^Cast$|^Reorder|^Memcpy"
FOUR = 4
"""MatMulNBits' own default of bits."""
N_BITS = {(4, False): "int4", (4, True): "int4-activations-8", (8, False): "int8-weights", (8, True): "int8"}
"""What MatMulNBits computes, by its bits and whether it was asked to round activations to 8 (the grid probe tells
whether it does).
"""
WARM_UP, FEWEST_CALLS, CALLS = 3, 7, 40
BUDGET_S = 2.0
"""Longer calls are made fewer times."""
MOST_OWN_US = 3.0
"""What the profiler spends on a kernel at most; a machine that slows down meanwhile shows more."""
CONVERSION, OTHER = "conversion", "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One node in one call.

    Attributes:
        node: its name and place in the graph; the same in every call.
        shapes: of its inputs; those that were prepacked are missing.
        types: of its inputs, as NumPy names them.
        us: whole microseconds.
    """

    op: str
    node: tuple[str, int]
    shapes: Sequence[Sequence[int]]
    types: Sequence[str]
    output: Sequence[int]
    us: int


def account(path: Path, arm: Arm, inputs: Arrays) -> dict[str, Any]:
    """What `Executed` says of the kernels that ran, by its own names.

    Args:
        path: the optimised graph.
        inputs: one input set.
    """
    import onnx

    calls, tf32 = _profiled(path, arm, inputs)
    graph = Graph(onnx.load(path, load_external_data=False))
    kernels = calls[-1]
    label = {kernel.node: _label(kernel, graph, tf32) for kernel in kernels}
    compute = {kernel.node for kernel in kernels if is_product(kernel.op)}
    conversions = {kernel.node for kernel in kernels if re.search(CONVERSIONS, kernel.op)}
    kinds = {node: label[node] if node in compute else CONVERSION if node in conversions else OTHER for node in label}
    return {
        "compute_nodes_by_precision": dict(Counter(label[node] for node in compute)),
        "other_nodes_by_precision": dict(Counter(name for node, name in label.items() if node not in compute)),
        "conversion_nodes": len(conversions),
        "flops_by_precision": flops_by_precision(
            (label[kernel.node], _kernel_flops(kernel, graph)) for kernel in kernels if kernel.node in compute
        ),
        "kernel_ns": _kernel_ns(calls, kinds, min(_call(open_session(path, arm), inputs)))
        if arm.target.device is Device.CPU
        else {},
    }


def trace(path: Path, arm: Arm, inputs: Arrays, calls: int) -> list[Event]:
    """The profile of the last `calls` of some calls, as trace events: each node by its operation, in its run."""
    with tempfile.TemporaryDirectory() as place:
        session = open_session(path, arm, profile=Path(place) / "profile")
        for _ in range(WARM_UP + calls):
            session.run(None, dict(inputs))
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    runs = [event for event in events if event["name"] == "model_run"][-calls:]
    return [
        {**event, "name": event["args"].get("op_name", event["name"])}
        for event in events
        if event["ts"] >= runs[0]["ts"] and event["name"].endswith(("model_run", "_kernel_time"))
    ]


class Graph:
    """The optimised graph, for what a profile leaves out: attributes, and the shapes of prepacked weights."""

    def __init__(self, model: ModelProto) -> None:
        # ONNX Runtime takes no two nodes of one name, and calls those without one so in its profile.
        self._nodes = {node.name or f"{node.op_type}_{index}": node for index, node in enumerate(model.graph.node)}
        self._weights = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}

    def attribute(self, kernel: Kernel, name: str, default: int = 0) -> int:
        """An integer; the default where the node doesn't have it, or isn't in the main graph."""
        node = self._nodes.get(kernel.node[0])
        return next((one.i for one in node.attribute if one.name == name), default) if node is not None else default

    def shape(self, kernel: Kernel, position: int) -> Sequence[int] | None:
        """Of an input."""
        node = self._nodes.get(kernel.node[0])
        stored = self._weights.get(_input(node, position)) if node is not None else None
        return stored or (kernel.shapes[position] if position < len(kernel.shapes) else None)


def _input(node: NodeProto, position: int) -> str:
    return node.input[position] if position < len(node.input) else ""


def _profiled(path: Path, arm: Arm, inputs: Arrays) -> tuple[list[list[Kernel]], bool]:
    """The kernels of each call, and whether float32 products are rounded to TF32."""
    session = open_session(path, arm, profile=path.parent / "profile")
    _call(session, inputs)
    profile = Path(session.end_profiling())
    events = json.loads(profile.read_text(encoding="utf-8"))
    profile.unlink()
    calls: list[list[Kernel]] = [[]]
    for event in events:
        if event["name"] == "model_run":
            calls.append([])
        elif event["name"].endswith("_kernel_time"):
            calls[-1].append(_kernel(event))
    tf32 = providers.uses_tf32(session, arm.target)
    return calls[WARM_UP:-1], tf32


def _kernel(event: Mapping[str, Any]) -> Kernel:
    found = event["args"]
    inputs = [(DTYPES.get(name, name), shape) for one in found["input_type_shape"] for name, shape in one.items()]
    outputs = [shape for one in found["output_type_shape"] for shape in one.values()]
    return Kernel(
        op=found["op_name"],
        node=(event["name"].removesuffix("_kernel_time"), int(found["node_index"])),
        shapes=[shape for _, shape in inputs],
        types=[name for name, _ in inputs],
        output=outputs[0] if outputs else (),
        us=event["dur"],
    )


def _label(kernel: Kernel, graph: Graph, tf32: bool) -> str:
    """By operand types: int8 where any is, else the first one's. MatMulNBits has attributes that tell."""
    if kernel.op == "MatMulNBits":
        bits, level = graph.attribute(kernel, "bits", FOUR), graph.attribute(kernel, "accuracy_level")
        return N_BITS.get((bits, level == quantize.ROUNDING), f"int{bits}")
    if re.search(INT8_OPS, kernel.op) or {"int8", "uint8"} & set(kernel.types):
        return Precision.INT8.value
    precision = precision_of(kernel.types[0]) if kernel.types else OTHER
    return Precision.TF32.value if tf32 and precision == Precision.FP32 else precision


def _kernel_flops(kernel: Kernel, graph: Graph) -> float | None:
    """As the kernel computes them: with the channels that a blocked layout (NCHWc) adds."""
    if re.search(r"MatMul|Gemm", kernel.op) and kernel.shapes:
        first = kernel.shapes[0]
        turned = graph.attribute(kernel, "transA") and len(first) > 1
        return product_flops(kernel.output, first[-2 if turned else -1])
    if "Conv" in kernel.op and kernel.shapes:
        weight = graph.shape(kernel, 3 if kernel.op.startswith("QLinear") else 1)
        scattered = "Transpose" in kernel.op  # every input element is multiplied by each weight of its channel
        return convolution_flops(kernel.shapes[0] if scattered else kernel.output, weight) if weight else None
    return None


def _call(session: Any, inputs: Arrays) -> list[float]:
    """Microseconds of some calls after the warm-up."""
    found: list[float] = []
    while len(found) < WARM_UP + FEWEST_CALLS or (len(found) < WARM_UP + CALLS and sum(found) < 1e6 * BUDGET_S):
        with Stopwatch() as watch:
            session.run(None, dict(inputs))
        found.append(1e6 * watch.seconds)
    return found[WARM_UP:]


def _kernel_ns(calls: Sequence[Sequence[Kernel]], kinds: Mapping[Any, str], call_us: float) -> dict[str, float]:
    """The median call's time by kind, without the profiler's own: what the quickest call takes longer with it."""
    count = Counter(kinds[kernel.node] for kernel in calls[-1])
    profiled = min(sum(kernel.us for kernel in call) for call in calls)
    own = min(max(0.0, profiled - call_us) / max(1, count.total()), MOST_OWN_US)
    us = {kind: median(_us(call, kinds, kind) for call in calls) for kind in {*count, CONVERSION, OTHER}}
    return {kind: 1e3 * max(0.0, found - own * count[kind]) for kind, found in us.items()}


def _us(call: Sequence[Kernel], kinds: Mapping[Any, str], kind: str) -> int:
    return sum(kernel.us for kernel in call if kinds[kernel.node] == kind)
