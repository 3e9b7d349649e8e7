"""Account of what a .tflite file computes, node by node, from its own tensors, and of nodes that no delegate takes.

LiteRT chooses its kernels by the types of a product's operands: int8 weights beside float inputs mean that it rounds
these in each call, weights behind a DEQUANTIZE that it unpacks them first.

Read what LiteRT computes between a model's layers: the tensors of the raced file, from LiteRT's own kernels.

XNNPACK, which runs most of a raced file, keeps its tensors to itself, and LiteRT's profiler can't be reached from
Python. So the same file runs in LiteRT's own kernels, which may round otherwise, and no times are told. The converter
keeps no names: the harness finds the layers by their values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._litert.session import MODEL
from shootout.backends.common import Tally
from shootout.backends.optional import Inside
from shootout.core.contract import Array, Arrays, Precision

if TYPE_CHECKING:
    from shootout.core.adapter import Built

PRODUCTS: Mapping[str, tuple[int, int]] = {
    "FULLY_CONNECTED": (0, 1),
    "CONV_2D": (0, 1),
    "CONV_3D": (0, 1),
    "DEPTHWISE_CONV_2D": (0, 1),
    "BATCH_MATMUL": (0, 1),
    "TRANSPOSE_CONV": (2, 1),
}
"""The inputs of each product that are multiplied, its weights second."""
BRANCHING = ("WHILE", "IF", "STABLEHLO_WHILE", "STABLEHLO_CASE")
"""Nodes that run graphs of their own, as often as the numbers say."""
CONVERSIONS = ("QUANTIZE", "DEQUANTIZE", "CAST")
LABELS = {
    "FLOAT32": Precision.FP32.value,
    "FLOAT16": Precision.FP16.value,
    "FLOAT64": "fp64",
    "INT8": Precision.INT8.value,
    "UINT8": Precision.INT8.value,
    "INT4": Precision.INT4.value,
}
"""Our names for LiteRT's types."""
ROUNDING = {"INT8": Precision.INT8.value, "INT4": "int4-activations-8"}
"""Labels of products by their weights, if the inputs are float or 8 bits wide."""
UNPACKED = {"INT8": "int8-weights", "INT4": Precision.INT4.value}
"""Labels of products by the type that their weights are stored in, if these are unpacked first."""


@dataclass(frozen=True, slots=True)
class LiteRtNode:
    """One operation that each call runs.

    Attributes:
        inputs, outputs: tensors by their index.
        shapes: of the inputs, then of the first output.
        types: likewise, as the file has them; of weights that are unpacked first, the type that they are stored in.
        unpacked: whether the weights of a product are; they may stand on its left.
        name: of its first output.
    """

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[str, ...]
    unpacked: bool
    name: str = ""


def survey(path: Path) -> dict[str, Any]:
    """Count what one call computes, by the names of `Executed`, as JSON values.

    Beside it are the nodes that no delegate takes, and those with graphs of their own, in which nothing is counted.
    """
    nodes, tally = [*_read_nodes(path)], Tally()
    for node in nodes:
        if node.kind in PRODUCTS:
            tally.products[_product_label(node)] += 1
        else:
            label = LABELS.get(node.types[-1], node.types[-1].lower())
            tally.add_other(label, converts=node.kind in CONVERSIONS)
    return {
        **tally.facts(),
        "undelegated": _count_undelegated(path, nodes),
        "branching": dict(Counter(node.kind for node in nodes if node.kind in BRANCHING)),
    }


def list_products(path: Path) -> list[LiteRtNode]:
    """List the products in a file, in its order."""
    return [node for node in _read_nodes(path) if node.kind in PRODUCTS]


def _read_nodes(path: Path) -> Iterator[LiteRtNode]:
    """Yield the nodes that each call runs; what depends on constants only is left out: LiteRT runs it once."""
    from ai_edge_litert import schema_py_generated as schema
    from ai_edge_litert.tools import flatbuffer_utils

    kinds = {number: name for name, number in vars(schema.BuiltinOperator).items() if isinstance(number, int)}
    types = {number: name for name, number in vars(schema.TensorType).items() if isinstance(number, int)}
    model = flatbuffer_utils.read_model(str(path))
    graph = model.subgraphs[0]
    constant = {place for place, tensor in enumerate(graph.tensors) if model.buffers[tensor.buffer].data is not None}
    stored: dict[int, str] = {}
    for operator in graph.operators:
        kind = kinds[model.operatorCodes[operator.opcodeIndex].builtinCode]
        inputs, outputs = ([int(one) for one in ends if one >= 0] for ends in (operator.inputs, operator.outputs))
        if constant.issuperset(inputs):
            constant.update(outputs)
            stored |= {one: types[graph.tensors[inputs[0]].type] for one in outputs if kind == "DEQUANTIZE"}
            continue
        shown = [graph.tensors[one] for one in (*inputs, outputs[0])]
        yield LiteRtNode(
            kind=kind,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            shapes=tuple(tuple(int(size) for size in (one.shape if one.shape is not None else ())) for one in shown),
            types=tuple(stored.get(one, types[graph.tensors[one].type]) for one in (*inputs, outputs[0])),
            unpacked=any(stored.get(inputs[place]) in UNPACKED for place in PRODUCTS.get(kind, ())),
            name=shown[-1].name.decode(),
        )


def _product_label(node: LiteRtNode) -> str:
    left, right = (node.types[place] for place in PRODUCTS[node.kind])
    if node.unpacked:
        return UNPACKED.get(right) or UNPACKED[left]
    return ROUNDING.get(right) or LABELS.get(left, left.lower())


def _count_undelegated(path: Path, nodes: Sequence[LiteRtNode]) -> dict[str, int]:
    """Count by kind the nodes that LiteRT's own kernels run, by the plan that its interpreter makes of the file.

    A delegate holds what lies between its inputs and its outputs.
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    maker = {one: node for node in nodes for one in node.outputs}
    inside: set[LiteRtNode] = set()
    for part in interpreter._get_ops_details():
        if part["op_name"] == "DELEGATE":
            given, wanted = {int(one) for one in part["inputs"]}, [int(one) for one in part["outputs"]]
            while wanted:
                node = maker.get(wanted.pop())
                if node is not None and node not in inside:
                    inside.add(node)
                    wanted += [one for one in node.inputs if one not in given]
    return dict(Counter(node.kind for node in nodes if node not in inside))


OWN_KERNELS = "tensors are from LiteRT's own kernels on the raced file: XNNPACK shows none, and no times are told"


def look_inside(built: Built, sets: Sequence[Arrays]) -> Inside:
    """Run the input sets through an interpreter that keeps all tensors."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_path=str(built.folder / MODEL),
        num_threads=built.arm.threads or None,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    interpreter.allocate_tensors()
    made = [*dict.fromkeys(_list_made(built.folder / MODEL))]
    details = {one["index"]: one for one in interpreter.get_tensor_details()}
    signature = interpreter.get_signature_runner()
    seen, outputs = list[dict[int, Array]](), list[Arrays]()
    for one in sets:
        answers = signature(**_name_inputs(built, signature, one))
        outputs.append(
            {
                spec.name: _widen(
                    answers[f"output_{place}"], signature.get_output_details()[f"output_{place}"]
                ).reshape(spec.shape)
                for place, spec in enumerate(built.exported.outputs)
            }
        )
        seen.append({index: _read(interpreter, details[index]) for index in made if index in details})
    shown = [index for index in made if index in details and seen[0][index].dtype.kind == "f"]
    return Inside(
        tensors={f"{index} {details[index]['name']}": tuple(one[index] for one in seen) for index in shown},
        names="lost",
        outputs=tuple(outputs),
        notes=(OWN_KERNELS,),
    )


def _list_made(path: Path) -> Iterator[int]:
    """Yield the tensors that the file's operations make, by index, in the order in which they run."""
    from ai_edge_litert.tools import flatbuffer_utils

    graph = flatbuffer_utils.read_model(str(path)).subgraphs[0]
    for operator in graph.operators:
        yield from (int(one) for one in operator.outputs if one >= 0)


def _name_inputs(built: Built, signature: Any, inputs: Arrays) -> dict[str, Array]:
    """Name the inputs as the converter does, and round them where the file wants integers."""
    wanted = signature.get_input_details()
    named = {f"args_{place}": inputs[spec.name] for place, spec in enumerate(built.exported.inputs)}
    return {name: array.astype(wanted[name]["dtype"]) for name, array in named.items() if name in wanted}


def _read(interpreter: Any, detail: dict[str, Any]) -> Array:
    try:
        return _widen(interpreter.get_tensor(detail["index"]), detail)
    except ValueError:  # of a tensor that no operation filled
        return np.zeros(0, np.int8)


def _widen(array: Array, detail: dict[str, Any]) -> Array:
    """Return the floats that a tensor's integers stand for; others as they are."""
    scale, zero = detail["quantization"]
    return (array.astype(np.float32) - zero) * np.float32(scale) if scale and array.dtype.kind in "iu" else array
