"""Convert a user's ONNX graph to a torch module, by onnx2fx: PyTorch's backends and JAX run it.

An ONNX graph hands shapes, axes and bounds around as tensors, where a torch program has plain numbers. So what doesn't
depend on the inputs, or only on their fixed shapes, is worked out once here: small values become the numbers that the
operators are called with, large float ones weights. Export process only.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnx2fx
import torch
from onnx.external_data_helper import load_external_data_for_model
from onnxscript import ir, optimizer
from torch import Tensor, fx, nn

from shootout.core.constants import WIDE_BOUND
from shootout.core.contract import Array, Arrays, Artifact, Precision, TensorSpec
from shootout.core.errors import ModelError, explained
from shootout.core.exported.fidelity import check_outputs, compare, gate, useful_flips
from shootout.core.exported.model import FILES, ExportedModel
from shootout.core.install import UNINSTALLED, pip_install
from shootout.models.sources import torch_files

CONVERTER = "onnx2fx"
SHAPES = frozenset({"Shape", "Size"})
"""Operators that only read the shape of their input."""
BRANCHES = frozenset({"If", "Loop"})
LONGEST = 8
"""Take a float vector of so many elements at most for the bounds, scales or padding of an operator."""


def write_program_of(
    graph: Path, found: ExportedModel, buffers: Sequence[Arrays], reference_outputs: Sequence[Arrays]
) -> ExportedModel:
    """Write a file's torch program and its weights into the exported model's folder; or say there why there is none.

    Args:
        graph: the file.
        found: its error bounds tell how far from the reference outputs the program's may be.
    """
    try:
        module = module_of(graph, tuple(torch.from_numpy(buffers[0][spec.name]) for spec in found.inputs))
    except ModuleNotFoundError as error:  # of an operator of this file alone; torch stays as it is
        package = (error.name or "").partition(".")[0]
        fix = pip_install(package, f"torch=={torch.__version__.partition('+')[0]}")
        return replace(found, unmade=f"{CONVERTER} takes this file with {package}, {UNINSTALLED}", unmade_fix=fix)
    except ModelError as error:
        return replace(found, unmade=str(error))
    made, program = f"what {CONVERTER} makes of this file", found.folder / FILES[Artifact.PT2]
    try:
        run = torch_files.write_program(module, buffers[0], found.folder).module(check_guards=False)
        outputs = [_run_module(run, one, found.outputs) for one in buffers]
    except Exception as error:
        traceback.print_exc()
        program.unlink(missing_ok=True)
        return replace(found, unmade=f"torch.export can't take {made}: {explained(error)}")
    if fault := check_outputs(found.outputs, outputs[0]) or _find_doubt(outputs, found, reference_outputs):
        program.unlink()
        return replace(found, unmade=f"{made} isn't the same model, as far as can be told: {fault}")
    torch_files.write_weights(module, found.folder)
    return replace(found, artifacts=(*found.artifacts, Artifact.MODULE, Artifact.PT2))


def _find_doubt(outputs: Sequence[Arrays], exported: ExportedModel, reference_outputs: Sequence[Arrays]) -> str | None:
    """Return why the outputs don't prove a conversion, or None.

    Another model's may also lie within a wide error bound.
    """
    bound = exported.error_bounds.get(Precision.NATIVE)
    flips = useful_flips(exported.flips.get(Precision.NATIVE, {}), reference_outputs)
    bound = min(WIDE_BOUND if bound is None else bound, WIDE_BOUND)
    return gate(compare(outputs, reference_outputs), bound, flips=flips)


def _run_module(module: nn.Module, inputs: Arrays, outputs: Sequence[TensorSpec]) -> dict[str, Array]:
    with torch.no_grad():
        raw = module(*map(torch.from_numpy, inputs.values()))
    tensors = raw if isinstance(raw, tuple | list) else (raw,)
    return {spec.name: tensor.numpy() for spec, tensor in zip(outputs, tensors, strict=True)}


class StaticModule(nn.Module):
    """Run a converted graph in which all that is known before a call is a number or a weight."""

    def __init__(self, graph: fx.GraphModule, example: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.converted = graph
        _own_weights(graph)
        survey = _Survey(graph)
        with torch.no_grad():
            survey.run(*example)
        read = {one for node in graph.graph.nodes if node not in survey.known for one in node.all_input_nodes}
        known = {node: value for node, value in survey.known.items() if node in read}
        self._weights = {node: f"weight_{index}" for index, node in enumerate(filter(survey.is_weight, known))}
        for node, name in self._weights.items():
            self.register_parameter(name, nn.Parameter(known[node].clone(), requires_grad=False))
        self._values = {
            node: value
            for node, value in known.items()
            if node not in self._weights and not (node.op == "get_attr" and _is_large(value))
        }
        # All others are values by now, or are never read; torch can't store a program that holds an empty tensor.
        weights = {node.target for node in read if node.op == "get_attr" and node not in self._values}
        for name in [one for one in (*graph._parameters, *graph._buffers) if one not in weights]:
            delattr(graph, name)
        self._unread = {node for node in survey.known if node not in read}

    def forward(self, *inputs: Tensor) -> Any:
        """Return the outputs, in the file's order; a single one by itself."""
        weights = {node: getattr(self, name) for node, name in self._weights.items()}
        return _Run(self.converted, {**self._values, **weights, **dict.fromkeys(self._unread)}).run(*inputs)


class _Survey(fx.Interpreter):
    """Run once on real inputs to find what no call changes."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self.extra_traceback = False  # into the error's own words
        self.known: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        operator = n.meta.get("onnx_op_type")
        if n.op == "call_module" and operator in BRANCHES and not all(one in self.known for one in _deciding_inputs(n)):
            name = n.meta.get("onnx_name", "")
            raise ModelError(f"its {operator} {name!r} goes by the values of inputs, and a torch program can't branch")
        value = super().run_node(n)
        computed = n.op not in ("placeholder", "output") and all(one in self.known for one in n.all_input_nodes)
        if computed or operator in SHAPES:
            self.known[n] = value
        return value

    def is_weight(self, node: fx.Node) -> bool:
        """Return whether a known value was computed, and is too large for anything but a weight."""
        return node.op != "get_attr" and _is_large(self.known[node])


class _Run(fx.Interpreter):
    """Run with the known values taken from where they are."""

    def __init__(self, graph: fx.GraphModule, known: Mapping[fx.Node, Any]) -> None:
        super().__init__(graph)
        self._known = known

    def run_node(self, n: fx.Node) -> Any:
        return self._known[n] if n in self._known else super().run_node(n)


def module_of(path: Path, example: tuple[Tensor, ...]) -> nn.Module:
    """Return the torch module of a file whose axes are fixed, in eval mode.

    Args:
        path: the file.
        example: one input set, in the file's order.

    Raises:
        ModelError: it can't be converted; in the converter's words.
        ModuleNotFoundError: one of its operators takes a package that isn't installed.
    """
    try:
        return StaticModule(onnx2fx.convert(_simplify_graph(path)), example).eval()
    except ModelError as error:
        raise ModelError(f"{CONVERTER} can't take this file: {error}") from error
    except ModuleNotFoundError:
        raise
    except Exception as error:
        raise ModelError(f"{CONVERTER} can't take this file: {explained(error)}") from error


def _simplify_graph(path: Path) -> onnx.ModelProto:
    """Read the model and simplify it as torch's own exporter does: work out shape arithmetic and the branches that it
    decides.

    Constants get names of our own: the converter makes attributes of them, which may not be called `to` or `half`.
    Weights that lie beside the file are read last, so that they are in memory once.
    """
    model = ir.load(path)
    optimizer.optimize(model)
    for index, constant in enumerate(list(model.graph.initializers.values())):
        if not constant.is_graph_output():
            constant.name = f"constant_{index}_of_file"
    proto = ir.serde.serialize_model(model)
    load_external_data_for_model(proto, str(path.parent))
    return proto


def _deciding_inputs(node: fx.Node) -> Iterator[fx.Node]:
    """Yield a branch's condition, and for a loop the number of rounds too."""
    first = 1 if node.meta["onnx_op_type"] == "If" else 2
    return (one for one in node.args[:first] if isinstance(one, fx.Node))


def _is_large(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and (value.ndim > 1 or value.numel() > LONGEST)


def _own_weights(graph: fx.GraphModule) -> None:
    """Return float constants as parameters, as a torch module has its weights; the converter gives them as buffers."""
    for path, tensor in list(graph.named_buffers()):
        if tensor.is_floating_point():
            place, _, name = path.rpartition(".")
            owner = graph.get_submodule(place)
            delattr(owner, name)
            owner.register_parameter(name, nn.Parameter(tensor, requires_grad=False))
