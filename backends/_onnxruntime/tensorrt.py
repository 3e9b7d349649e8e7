"""TensorRT inside ONNX Runtime, and plugins: engines are built once, kept beside the graph, and counted by that graph.

The provider tells no layer's type. So its nodes are counted as the graph that it was given asks for them, which a note
on the row says. The permutation probe shows from outside which float it computes in. Nothing shows INT8: products of
floats between the pairs would round to the same levels. The engine's inspector tells types only of engines built to
tell them, for which this provider documents no option.

The graph is not optimized before: TensorRT does that itself, and ONNX Runtime can't store a graph that holds an
engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.backends._onnxruntime import providers
from shootout.backends._onnxruntime.account import ENGINES, MODEL, count_kernels, open_session
from shootout.backends.common import precision_of
from shootout.backends.common_onnx import rest_note
from shootout.core.contract import Arm, Arrays, Device, Precision
from shootout.core.schemes import rest_of
from shootout.models.onnx.layers import is_product

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

NOTE = (
    "TensorRT inside ONNX Runtime doesn't tell its layers' types: nodes are counted as the graph asks for them, and "
    "the probe alone says what they compute in"
)
ASKED_NOTE = (
    "TensorRT inside ONNX Runtime doesn't tell its layers' types: INT8 is what the graph asks for; no check here would "
    "see products of floats between its Q/DQ pairs (the backend tensorrt tells of each layer)"
)
PLUGIN_NOTE = (
    "{name} doesn't tell its layers' types: nodes are counted as the graph asks for them, and the probe alone says "
    "what they compute in"
)
COPIES_NOTE = "ONNX Runtime copies this provider's inputs and outputs within a run, so `compute` has the copies in it"
DEQUANTIZE = "DequantizeLinear"
CONVERSIONS = ("QuantizeLinear", DEQUANTIZE, "Cast")
MOVES = ("Transpose", "Reshape", "Identity", "Squeeze", "Unsqueeze", "Flatten")
"""Operators that pass every value on as it is."""
UNKNOWN = "unknown"


def build(source: Path, arm: Arm, folder: Path) -> dict[str, Any]:
    """Build the engine of the model at `source` in the folder.

    Returns:
        What `Executed` says of it, and the row's notes.

    Raises:
        RuntimeError: TensorRT took no node, can't build the engine, or isn't there; in ONNX Runtime's words.
    """
    path = copy_model(source, folder / MODEL)
    (folder / ENGINES).mkdir()
    session = open_session(path, arm)
    parts = session.get_provider_graph_assignment_info()
    if not engine_files(folder):
        where = ", ".join(sorted({part.ep_name for part in parts})) or "no provider"
        raise RuntimeError(f"TensorRT took no node of this model: ONNX Runtime gave all to {where}")
    elsewhere = {node.name for part in parts if part.ep_name != providers.TENSORRT for node in part.get_nodes()}
    tf32 = arm.target.precision is Precision.TF32
    notes = [ASKED_NOTE, rest_note(rest_of(arm.target))] if arm.target.precision is Precision.INT8 else [NOTE]
    return {**count_asked_nodes(path, elsewhere - {""}, tf32=tf32), "notes": notes}


def build_plugin(source: Path, arm: Arm, folder: Path, inputs: Arrays) -> dict[str, Any]:
    """Keep the model at `source` for a provider that is a plugin, and count the nodes that it takes; returns as
    `build`.

    ONNX Runtime's own provider for CPUs is such a plugin and shows its kernels, so they are counted as they ran.

    Args:
        inputs: one input set.
    """
    path = copy_model(source, folder / MODEL)
    wanted = providers.provider_of(arm.target)
    if wanted == providers.CPU:
        return {**count_kernels(path, arm, inputs), "notes": []}
    parts = open_session(path, arm).get_provider_graph_assignment_info()
    elsewhere = {node.name for part in parts if part.ep_name != wanted for node in part.get_nodes()}
    notes = [PLUGIN_NOTE.format(name=wanted), *([COPIES_NOTE] if arm.target.device is Device.CUDA else [])]
    tf32 = arm.target.precision is Precision.TF32
    return {**count_asked_nodes(path, elsewhere - {""}, tf32=tf32), "notes": notes}


def engine_files(folder: Path) -> dict[str, int]:
    """List the files that TensorRT keeps in a build's folder, with the time when each was written."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / ENGINES).glob("*")}


def count_asked_nodes(path: Path, elsewhere: Collection[str], *, tf32: bool) -> dict[str, Any]:
    """Count the graph's nodes by the precision that they ask for.

    Args:
        path: the graph as it was handed over.
        elsewhere: names of nodes that another provider runs.
        tf32: whether float32 products may be rounded to TF32.
    """
    import onnx

    typed = Typed(onnx.load(path, load_external_data=False))
    nodes = [node for node in typed.graph.nodes if node.name not in elsewhere and node.op_type != "Constant"]
    products = [node for node in nodes if is_product(node.op_type)]
    rest = [node for node in nodes if not is_product(node.op_type)]
    others = [node for node in rest if node.op_type not in CONVERSIONS]
    labels = [_label_tf32(typed.product_precision(node), tf32=tf32) for node in products]
    return {
        "compute_nodes_by_precision": dict(Counter(labels)),
        "other_nodes_by_precision": dict(Counter(typed.precision(node.output[0]) for node in others)),
    }


class Typed:
    """A model's main graph, with its precisions."""

    def __init__(self, model: ModelProto) -> None:
        from shootout.models.onnx.onnx_graph import read_graph

        self.graph = read_graph(model)
        self._makers = {name: node for node in self.graph.nodes for name in node.output}

    def precision(self, name: str) -> str:
        """Return a value's precision, UNKNOWN if its type is."""
        return precision_of(_dtype_name(self.graph.types[name])) if name in self.graph.types else UNKNOWN

    def product_precision(self, node: NodeProto) -> str:
        """Return int8 if both operands are dequantized for the product, else the first operand's precision."""
        if all(self._operator_behind(name) == DEQUANTIZE for name in node.input[:2]):
            return Precision.INT8.value
        return self.precision(node.input[0])

    def _operator_behind(self, name: str) -> str:
        """Return the operator that made a value, past operators that only moved it."""
        maker = self._makers.get(name)
        if maker is None:
            return ""
        return self._operator_behind(maker.input[0]) if maker.op_type in MOVES else maker.op_type


def copy_model(source: Path, target: Path) -> Path:
    """Copy a model, with the weights that lie beside it."""
    import onnx

    from shootout.models.onnx import onnx_files

    onnx_files.save(onnx.load(source), target)
    return target


def _dtype_name(element: int) -> str:
    from onnx import helper

    return str(helper.tensor_dtype_to_np_dtype(element).name) if element else UNKNOWN


def _label_tf32(precision: str, *, tf32: bool) -> str:
    return Precision.TF32.value if tf32 and precision == Precision.FP32 else precision
