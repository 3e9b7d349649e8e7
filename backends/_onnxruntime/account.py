"""ONNX Runtime's sessions and graphs: opened, optimized once, and counted by the runtime's own profile of a few calls.

By itself, ONNX Runtime falls back to the CPU without an error, so each session is checked for its provider.

The profiler spends about 2 us of its own on each kernel and counts them as the kernel's, as much as a small product
takes. So a call is timed without the profiler too. What the kernels take longer with it is taken off each of them
alike.

Read what ONNX Runtime computes between a model's layers, and what each node takes.

Tensors come from the graph as it was before ONNX Runtime optimized it, with outputs added and optimized again: the
graph that sessions run has layouts of its own and names that are made up. An added output is read where a fused kernel
hands on its result, behind a Relu and behind a Q/DQ pair, so that the kernels stay the same as far as can be. The times
are of the graph that sessions run.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._onnxruntime import providers, quantize
from shootout.backends._onnxruntime.quantize import is_own_static
from shootout.backends.common import lost_names, name_floats, precision_of
from shootout.backends.optional import Inside, RanNode
from shootout.core.adapter import Event
from shootout.core.clock import Stopwatch
from shootout.core.contract import Arm, Arrays, Device, Precision
from shootout.models.onnx.layers import find_owner, is_product

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    from shootout.core.adapter import Built

TEXTS = "texts.onnx"
"""The graph that takes a table's texts, beside the one that looks them up by codes."""
MODEL, ENGINES = "model.onnx", "engines"
"""In a build's folder: the graph that sessions run, and what TensorRT built of it."""
QUIET = 3
"""Errors only."""
_UNINFERRED = "InferenceError"
"""In what ONNX Runtime says where a graph's own sizes contradict each other."""
SHOWN = 3
"""The most nodes that a message names."""
DTYPES = {"float": "float32", "double": "float64"}
"""ONNX Runtime's names of dtypes, where they aren't NumPy's."""
INT8_OPS = r"^Q[A-Z]|Integer|DynamicQuantize"
CONVERSIONS = r"^(Dynamic)?QuantizeLinear$|^DequantizeLinear$|^Cast$|^Reorder|^Memcpy"
FOUR = 4
"""MatMulNBits' own default of bits."""
N_BITS = {(4, False): "int4", (4, True): "int4-activations-8", (8, False): "int8-weights", (8, True): "int8"}
"""Labels of what MatMulNBits computes, by its bits and whether it was asked to round activations to 8 (the grid probe
tells whether it does).
"""
WARM_UP, FEWEST_CALLS, CALLS = 3, 7, 40
BUDGET_S = 2.0
"""Longer calls are made fewer times."""
SLOW_US = 1e6 * BUDGET_S / FEWEST_CALLS
"""The length of a call above which its second run alone is looked at."""
MOST_OWN_US = 3.0
"""The most that the profiler spends on a kernel; a machine that slows down meanwhile shows more."""
CONVERSION, OTHER = "conversion", "other"
WITHOUT = "optimization.disable_specified_optimizers"
"""ONNX Runtime's own name of the entry that leaves optimizations out."""
ROUNDS_FLOATS = "WeightBiasQuantization"
"""An optimization to leave out if layers are to stay in float: it rounds the weights of each that stands between Q/DQ
pairs (ONNX Runtime 1.31). It rounds biases too, so the quantizer must have done that then.
"""


def optimize(source: Path, arm: Arm, folder: Path, without: str = "") -> Path:
    """Write the graph that ONNX Runtime makes of `source`, every optimization on but `without`; returns its path.

    A model with branches for inputs of several sizes may not fit any one of them: a branch that the fixed sizes never
    take breaks its shape inference. It is then optimized with free sizes, as its own users load it.
    """
    try:
        return _optimize_once(source, arm, folder, without)
    except Exception as error:
        if _UNINFERRED not in str(error) or not (loose := _write_with_free_sizes(source, folder)):
            raise
    try:
        return _optimize_once(loose, arm, folder, without)
    finally:
        loose.unlink()


def _optimize_once(source: Path, arm: Arm, folder: Path, without: str) -> Path:
    from shootout.models.onnx import onnx_files

    options, path = _optimizing_options(arm, without), folder / MODEL
    options.optimized_model_filepath = str(path)
    if onnx_files.is_big(source):
        prefix = "session.optimized_model_external_initializers"
        options.add_session_config_entry(f"{prefix}_file_name", f"{path.name}.data")
        options.add_session_config_entry(f"{prefix}_min_size_in_bytes", "1024")
    _open_on_provider(source, arm, options, providers.providers_of(arm, folder / ENGINES, graph=False))
    return path


def _write_with_free_sizes(source: Path, folder: Path) -> Path | None:
    """Write the model with inputs of any size; return None if it has no branches, or its weights lie beside it."""
    import onnx

    from shootout.models.onnx import onnx_axes, onnx_files

    if onnx_files.is_big(source):
        return None
    model = onnx.load(source)
    if not any(node.op_type == "If" for node in model.graph.node):
        return None
    for info in onnx_axes.true_inputs(model):
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            dim.dim_param = f"{info.name}.{axis}"
    del model.graph.value_info[:]
    for info in model.graph.output:
        info.type.tensor_type.ClearField("shape")
    path = folder / "loosened.onnx"
    onnx.save(model, path)
    return path


def open_session(
    model: Path | bytes, arm: Arm, profile: Path | None = None, *, graph: bool = False, stream: int | None = None
) -> Any:
    """Open a session on a graph as it is, which records the provider of every node.

    Args:
        model: its path, or all of it.
        arm: whose provider and options it gets.
        profile: write a profile, of this name and a time.
        graph: capture a CUDA graph for each binding that runs.
        stream: the CUDA stream that its providers compute on; None: one of their own.

    Raises:
        RuntimeError: the arm's provider couldn't be loaded, can't take the graph, or has no memory for it; or it leaves
            a product to the CPU.
    """
    options = _session_options(arm, optimized=not providers.names_plugin(arm.target))
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    engines = Path() if isinstance(model, bytes) else model.parent / ENGINES
    session = _open_on_provider(model, arm, options, providers.providers_of(arm, engines, graph=graph, stream=stream))
    if providers.provider_of(arm.target) != providers.CPU:
        _require_products_off_cpu(session)
    return session


def open_to_optimize(model: Path, arm: Arm, without: str) -> Any:
    """Open a session that optimizes a graph as `optimize` does, every optimization on but `without`."""
    return _open_on_provider(
        model, arm, _optimizing_options(arm, without), providers.providers_of(arm, Path(), graph=False)
    )


def fallbacks(session: Any, provider: str) -> tuple[str, ...]:
    """List the nodes that this session gave to another provider than the one that was asked for.

    Before 1.24 a session doesn't tell, and only one on the CPU is opened, which has no other provider.
    """
    if not hasattr(session, providers.TELLS) and session.get_providers() == [provider]:
        return ()
    subgraphs = [part for part in session.get_provider_graph_assignment_info() if part.ep_name != provider]
    return tuple(f"{node.op_type} {node.name!r} on {part.ep_name}" for part in subgraphs for node in part.get_nodes())


def _require_products_off_cpu(session: Any) -> None:
    """Refuse a session whose products, or some of them, the CPU computes.

    Other nodes it may compute. ONNX Runtime gives chains that compute shapes to the CPU on purpose, though CUDA has
    kernels for them (microsoft/onnxruntime pull request 13590); `fallbacks` names each.
    """
    parts = [part for part in session.get_provider_graph_assignment_info() if part.ep_name == providers.CPU]
    names = [f"{node.op_type} {node.name!r}" for part in parts for node in part.get_nodes() if is_product(node.op_type)]
    if names:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise RuntimeError(f"ONNX Runtime leaves products to the CPU: {', '.join(names[:SHOWN])}{more}")


def settings_of(arm: Arm, *, optimized: bool = False) -> dict[str, Any]:
    """Return an arm's settings by the names of ONNX Runtime's `SessionOptions`, with its configuration `entries`.

    Args:
        optimized: the graph is run as it is.
    """
    own = {name: value for name, value in arm.options.items() if not providers.is_provider_option(name)}
    own.pop(quantize.BLOCK_SIZE, None)
    return {
        "log_severity_level": QUIET,
        "execution_mode": "ORT_SEQUENTIAL",
        "graph_optimization_level": "ORT_DISABLE_ALL" if optimized else "ORT_ENABLE_ALL",
        "intra_op_num_threads": arm.threads,
        "inter_op_num_threads": 1,
        "entries": own,
    }


def _session_options(arm: Arm, *, optimized: bool = False) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    settings = settings_of(arm, optimized=optimized)
    for name, value in settings.pop("entries").items():
        options.add_session_config_entry(name, value)
    for name, value in settings.items():
        kind = type(getattr(options, name))  # of some an enumeration
        setattr(options, name, getattr(kind, value) if isinstance(value, str) else value)
    return options


def _optimizing_options(arm: Arm, without: str) -> Any:
    options = _session_options(arm)
    if without:
        options.add_session_config_entry(WITHOUT, without)
    return options


def _open_on_provider(model: Path | bytes, arm: Arm, options: Any, given: list[tuple[str, dict[str, str]]]) -> Any:
    """Open a session that has the arm's provider; by itself, ONNX Runtime would print an error and take the CPU."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(QUIET)
    providers.prepare(arm.target)
    wanted, source = given[0][0], model if isinstance(model, bytes) else str(model)
    if providers.names_plugin(arm.target):
        providers.register_plugin(arm.target, arm.options)
    how: dict[str, Any] = {"providers": given}
    if providers.names_plugin(arm.target) or wanted not in onnxruntime.get_available_providers():
        for name, settings in given:
            providers.attach_plugin(options, name, arm.target.device, settings)
        how = {}
    try:
        session = onnxruntime.InferenceSession(source, options, enable_fallback=0, **how)
    except Exception as error:
        if why := providers.load_fault(wanted):
            raise RuntimeError(f"{wanted} can't be loaded: {why}") from error
        raise
    if session.get_providers()[0] != wanted:
        why = providers.load_fault(wanted) or "ONNX Runtime gives no reason"
        raise RuntimeError(f"ONNX Runtime runs on {session.get_providers()[0]} instead of {wanted}: {why}")
    return session


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One node in one call.

    Attributes:
        node: its name and place in the graph; the same in every call.
        types: of its inputs, as NumPy names them.
        us: whole microseconds.
    """

    op: str
    node: tuple[str, int]
    types: Sequence[str]
    us: int


def count_kernels(
    path: Path, arm: Arm, inputs: Arrays, owners: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Profile a few calls and count the kernels that ran, by the names that `Executed` has for them.

    Args:
        path: the optimized graph.
        inputs: one input set.
        owners: the layers' names by those of the model's graph before it was quantized.
    """
    import onnx

    calls, tf32 = _profile_kernels(path, arm, inputs)
    graph = Graph(onnx.load(path, load_external_data=False))
    kernels = calls[-1]
    label = {kernel.node: _precision_label(kernel, graph, tf32) for kernel in kernels}
    compute = {kernel.node for kernel in kernels if is_product(kernel.op)}
    conversions = {kernel.node for kernel in kernels if re.search(CONVERSIONS, kernel.op)}
    kinds = {node: label[node] if node in compute else CONVERSION if node in conversions else OTHER for node in label}
    return {
        "compute_nodes_by_precision": dict(Counter(label[node] for node in compute)),
        "other_nodes_by_precision": dict(Counter(name for node, name in label.items() if node not in compute)),
        "layers_in_float": name_floats(
            (label[kernel.node], graph.find_layer(kernel, owners)) for kernel in kernels if kernel.node in compute
        ),
        "conversion_nodes": len(conversions),
        "kernel_ns": _kernel_ns(calls, kinds, _find_own_us(calls, path, arm, inputs))
        if arm.target.device is Device.CPU
        else {},
    }


def list_nodes(path: Path, arm: Arm, inputs: Arrays) -> Iterator[RanNode]:
    """Profile a few calls; yield the nodes that ran, each with its mean time in the quicker half of them.

    The profiler's own part is taken off.

    Args:
        path: the optimized graph.
        inputs: one input set.
    """
    import onnx

    calls, tf32 = _profile_kernels(path, arm, inputs)
    graph = Graph(onnx.load(path, load_external_data=False))
    own_us = _find_own_us(calls, path, arm, inputs)
    quick = sorted(calls, key=lambda call: sum(kernel.us for kernel in call))[: (len(calls) + 1) // 2]
    took = defaultdict[tuple[str, int], list[int]](list)
    for kernel in (kernel for call in quick for kernel in call):
        took[kernel.node].append(kernel.us)
    for kernel in quick[0]:
        reads, makes = graph.ends(kernel)
        yield RanNode(
            kind=kernel.op,
            ns=1e3 * max(0.0, fmean(took[kernel.node]) - own_us),
            names=(kernel.node[0], *makes, *reads),
            reads=reads,
            makes=makes,
            precision=_precision_label(kernel, graph, tf32) if is_product(kernel.op) else "",
            converts=bool(re.search(CONVERSIONS, kernel.op)),
        )


def trace(path: Path, arm: Arm, inputs: Arrays, calls: int) -> list[Event]:
    """Profile some calls and return the last `calls` as trace events: each node by its operation, in its run."""
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
    """The optimized graph, for what a profile leaves out: names and attributes."""

    def __init__(self, model: ModelProto) -> None:
        # ONNX Runtime takes no two nodes of one name, and calls those without one so in its profile.
        self._nodes = {node.name or f"{node.op_type}_{index}": node for index, node in enumerate(model.graph.node)}

    def find_layer(self, kernel: Kernel, owners: Mapping[str, str]) -> str:
        """Return the name of the layer that a kernel computes; its own if none is known to be."""
        node = self._nodes.get(kernel.node[0])
        names = (kernel.node[0], *node.output, *node.input) if node is not None else kernel.node[:1]
        return find_owner(names, owners) or kernel.node[0]

    def ends(self, kernel: Kernel) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of the values that a node of the main graph reads, and of those that it makes."""
        node = self._nodes.get(kernel.node[0])
        return (tuple(filter(None, node.input)), tuple(filter(None, node.output))) if node is not None else ((), ())

    def attribute(self, kernel: Kernel, name: str, default: int = 0) -> int:
        """Return an integer, or the default if the node doesn't have it or isn't in the main graph."""
        node = self._nodes.get(kernel.node[0])
        return next((one.i for one in node.attribute if one.name == name), default) if node is not None else default


def _profile_kernels(path: Path, arm: Arm, inputs: Arrays) -> tuple[list[list[Kernel]], bool]:
    """Return the kernels of each call, and whether float32 products are rounded to TF32."""
    with tempfile.TemporaryDirectory() as place:  # the graph's own folder may be one that other processes read
        session = open_session(path, arm, profile=Path(place) / "profile")
        count = len(_time_calls_us(session, inputs))
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    calls: list[list[Kernel]] = [[]]
    for event in events:
        if event["name"] == "model_run":
            calls.append([])
        elif event["name"].endswith("_kernel_time"):
            calls[-1].append(_read_kernel(event))
    tf32 = providers.uses_tf32(session, arm.target)
    return calls[-1 - count : -1], tf32


def _read_kernel(event: Mapping[str, Any]) -> Kernel:
    facts = event["args"]
    return Kernel(
        op=facts["op_name"],
        node=(event["name"].removesuffix("_kernel_time"), int(facts["node_index"])),
        types=[DTYPES.get(name, name) for typed in facts["input_type_shape"] for name in typed],
        us=event["dur"],
    )


def _precision_label(kernel: Kernel, graph: Graph, tf32: bool) -> str:
    """Return int8 if any operand is, else the first operand's precision; MatMulNBits tells it by attributes."""
    if kernel.op == "MatMulNBits":
        bits, level = graph.attribute(kernel, "bits", FOUR), graph.attribute(kernel, "accuracy_level")
        return N_BITS.get((bits, level == quantize.ROUNDING), f"int{bits}")
    if re.search(INT8_OPS, kernel.op) or {"int8", "uint8"} & set(kernel.types):
        return Precision.INT8.value
    precision = precision_of(kernel.types[0]) if kernel.types else OTHER
    return Precision.TF32.value if tf32 and precision == Precision.FP32 else precision


def _find_own_us(calls: Sequence[Sequence[Kernel]], path: Path, arm: Arm, inputs: Arrays) -> float:
    """Return what the profiler spends on each kernel, from the quickest call with it and without; of a slow one 0."""
    profiled_us = min(sum(kernel.us for kernel in call) for call in calls)
    call_us = profiled_us if profiled_us > SLOW_US else min(_time_calls_us(open_session(path, arm), inputs))
    return min(max(0.0, profiled_us - call_us) / max(1, len(calls[-1])), MOST_OWN_US)


def _time_calls_us(session: Any, inputs: Arrays) -> list[float]:
    """Time some calls after the warm-up, in microseconds; of slow ones the second alone."""
    times: list[float] = []
    while len(times) < WARM_UP + FEWEST_CALLS or (len(times) < WARM_UP + CALLS and sum(times) < 1e6 * BUDGET_S):
        with Stopwatch() as watch:
            session.run(None, dict(inputs))
        times.append(1e6 * watch.seconds)
        if len(times) == 2 and times[1] > SLOW_US:
            return times[1:]
    return times[WARM_UP:]


def _kernel_ns(calls: Sequence[Sequence[Kernel]], kinds: Mapping[Any, str], own_us: float) -> dict[str, float]:
    """Return the median call's time by kind, less what the profiler spends on each kernel."""
    count = Counter(kinds[kernel.node] for kernel in calls[-1])
    us = {
        kind: median(sum(kernel.us for kernel in call if kinds[kernel.node] == kind) for call in calls)
        for kind in {*count, CONVERSION, OTHER}
    }
    return {kind: 1e3 * max(0.0, found - own_us * count[kind]) for kind, found in us.items()}


READ = "/read"
"""The end of the name of an output that is added behind a pair."""
ROUND, WIDEN, CUTS = "QuantizeLinear", "DequantizeLinear", ("Relu", "Clip")


def look_inside(built: Built, source: Path, without: str, sets: Sequence[Arrays], values: Collection[str]) -> Inside:
    """Run the input sets through the graph with outputs added, and profile the built one.

    Args:
        source: the graph before it is optimized.
        without: the optimizer that is left out.
    """
    from shootout.models.onnx import onnx_files

    model = onnx_files.load(source)
    outputs = [output.name for output in model.graph.output]
    shown = dict(_add_outputs(model, values))
    with TemporaryDirectory() as place:
        path = Path(place) / "shown.onnx"
        onnx_files.save(model, path)
        session = open_to_optimize(path, built.arm, without)
        wanted = [*outputs, *shown]
        calls = [dict(zip(wanted, session.run(wanted, dict(one)), strict=True)) for one in sets]
    return Inside(
        tensors={
            value: tuple(call[name] for call in calls)
            for name, value in shown.items()
            if getattr(calls[0][name], "dtype", np.dtype(bool)).kind == "f"  # a sequence has none
        },
        names="values",
        outputs=tuple({name: call[name] for name in outputs} for call in calls),
        nodes=tuple(list_nodes(built.folder / MODEL, built.arm, sets[0])),
        keeps_tails=is_own_static(built.arm),
    )


def _add_outputs(model: ModelProto, values: Collection[str]) -> Iterator[tuple[str, str]]:
    """Add an output for each value that the graph has, or for all if it lost their names; in the graph's order.

    Yields the output's name and the value's.

    A value that only a Relu reads is left out: the Relu's result tells of it, and the kernel keeps it.
    """
    import onnx
    from onnx import helper

    readers = defaultdict[str, list["NodeProto"]](list)
    for node in model.graph.node:
        for name in node.input:
            readers[name].append(node)
    given, added = {output.name for output in model.graph.output}, list["NodeProto"]()
    made = [name for node in model.graph.node if node.op_type != "Constant" for name in node.output if name]
    for value in made if lost_names(values, made) else [name for name in made if name in values]:
        kinds = [reader.op_type for reader in readers[value]]
        if value in given:
            yield value, value
        elif len(kinds) == 1 and kinds[0] in CUTS:
            continue
        elif kinds == [ROUND]:
            rounding = readers[value][0]
            inputs = [rounding.output[0], *rounding.input[1:]]
            added.append(helper.make_node(WIDEN, inputs, [f"{value}{READ}"], f"{value}{READ}"))
            added[-1].attribute.extend(one for one in rounding.attribute if one.name in ("axis", "block_size"))
            yield f"{value}{READ}", value
        else:
            model.graph.output.append(onnx.ValueInfoProto(name=value))
            yield value, value
    model.graph.node.extend(added)
    model.graph.output.extend(onnx.ValueInfoProto(name=node.output[0]) for node in added)
