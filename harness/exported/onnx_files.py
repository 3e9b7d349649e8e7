"""A user's ONNX file: read with its weights, checked, written, and run as it is.

Nothing outside the model's own folder is ever opened: a file from elsewhere could name any path on this machine as its
external data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_model, uses_external_data

from shootout.contract import Array, Arrays
from shootout.errors import ModelError, one_line
from shootout.exported.model import INLINE_BYTES
from shootout.exported.onnx_header import header


def external_files(path: Path) -> dict[str, Path]:
    """The files beside `path` that hold its weights, by the name it calls them.

    Raises:
        UsageError: `path` can't be read.
        ModelError: it is not an ONNX model, or names a file outside its folder or one that is missing or too short.
    """
    return {info.location: _inside(path, info) for info in _external(header(path))}


def parse(path: Path) -> ModelProto:
    """The model without its external data; raises as `external_files` does for the file itself."""
    header(path)
    return onnx.load(path, load_external_data=False)


def load(path: Path) -> ModelProto:
    """The model with all its weights in memory; raises as `external_files` does."""
    external_files(path)
    model = parse(path)
    load_external_data_for_model(model, str(path.parent))
    return model


def is_big(path: Path) -> bool:
    """Whether a model's weights lie beside it, or are so many that they should; raises as `external_files` does.

    What is made of such a model has its own beside it too: runtimes leave untouched tensors where they lie.
    """
    return path.stat().st_size > INLINE_BYTES or bool(external_files(path))


def save(model: ModelProto, path: Path) -> None:
    """Write the model, big weights to one file beside it.

    Args:
        model: with all its weights in memory, so that a file of that name may give way to the new one.
    """
    big = sum(len(tensor.raw_data) for tensor in model.graph.initializer) > INLINE_BYTES
    beside = path.with_name(f"{path.name}.data")
    beside.unlink(missing_ok=True)  # ONNX would write behind what is there
    onnx.save(model, path, save_as_external_data=big, location=beside.name)
    if big:  # saving moved the weights out of `model`
        load_external_data_for_model(model, str(path.parent))


def run(path: Path, inputs: Sequence[Arrays], name: str) -> list[dict[str, Array]]:
    """The outputs of the file at `path` as it is written: no optimisation, one thread.

    Raises:
        ModelError: it can't be loaded or run; calls it `name`.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ModelError(f"ONNX Runtime can't load {name}: {one_line(str(error))}") from error
    names = [output.name for output in session.get_outputs()]
    try:
        return [dict(zip(names, session.run(names, dict(one)), strict=True)) for one in inputs]
    except Exception as error:
        hint = "if drawn inputs don't fit, give real ones with --inputs data.npz"
        raise ModelError(f"ONNX Runtime can't run {name}: {one_line(str(error))}; {hint}") from error


def tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every tensor that the file holds, weights or others: some exporters write theirs as constant nodes."""
    inside = [graph for nodes in _main_nodes(model) for graph in graphs_inside(nodes)]
    for graph in (model.graph, *inside):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for attribute in (attribute for node in every_node(model) for attribute in node.attribute):
        yield from (*([attribute.t] * attribute.HasField("t")), *attribute.tensors)


def every_node(model: ModelProto) -> Iterator[NodeProto]:
    """All nodes, those inside branches, loops and the model's own functions too."""
    for nodes in _main_nodes(model):
        yield from nodes
        for graph in graphs_inside(nodes):
            yield from graph.node


def graphs_inside(nodes: Iterable[NodeProto]) -> Iterator[GraphProto]:
    """The graphs inside nodes, such as branches and a loop's body, and those inside these."""
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        for graph in (*([attribute.g] * attribute.HasField("g")), *attribute.graphs):
            yield graph
            yield from graphs_inside(graph.node)


def parameter_count(model: ModelProto) -> int:
    """Elements of all that the file stores."""
    return sum(math.prod(tensor.dims) for tensor in tensors(model))


def _external(model: ModelProto) -> Iterator[ExternalDataInfo]:
    for tensor in filter(uses_external_data, tensors(model)):
        try:
            info = ExternalDataInfo(tensor)
        except (ValueError, TypeError) as error:
            raise ModelError(
                f"tensor {tensor.name!r} lies nowhere that can be read: {error}; export it again"
            ) from None
        if (info.offset or 0) < 0 or (info.length or 0) < 0 or not isinstance(info.location, str):
            raise ModelError(f"tensor {tensor.name!r} lies at a place that is none; export it again")
        yield info


def _main_nodes(model: ModelProto) -> Iterator[Iterable[NodeProto]]:
    """The nodes of the main graph, and those of each of the model's own functions."""
    yield model.graph.node
    for function in model.functions:
        yield function.node


def _inside(model: Path, info: ExternalDataInfo) -> Path:
    location, folder = info.location, model.parent.resolve()
    try:
        file = (folder / location).resolve()  # an absolute location replaces the folder, and links are followed
        found = file.is_file()
    except (OSError, ValueError):  # too long, or with a letter that no name may have
        raise ModelError(f"{model.name} reads its weights from {location[:100]!r}, which is no file's name") from None
    if not file.is_relative_to(folder) or ".." in Path(location).parts:
        raise ModelError(f"{model.name} reads its weights from {location!r}, outside its own folder: refused")
    if not found:
        raise ModelError(f"{model.name} needs {location!r} beside it, which is missing; copy it there")
    if (info.offset or 0) + (info.length or 0) > file.stat().st_size:
        raise ModelError(f"{file} is shorter than {model.name} says; copy it again")
    return file
