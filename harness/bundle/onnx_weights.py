"""Which files beside a user's ONNX file hold its weights.

Nothing outside the model's own folder is ever opened: a file from elsewhere could name any path on this machine as its
external data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from shootout.errors import ModelError, UsageError


def external_files(path: Path) -> dict[str, Path]:
    """The files beside `path` that hold its weights, by the name it calls them.

    Raises:
        UsageError: `path` can't be read.
        ModelError: it is not an ONNX model, or names a file outside its folder or one that is missing or too short.
    """
    return {info.location: _inside(path, info) for info in _external(parse(path))}


def parse(path: Path) -> ModelProto:
    """The model without its external data; raises as `external_files` does for the file itself."""
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from error
    except DecodeError as error:
        raise ModelError(f"{path} is not an ONNX model, or is cut short ({error}); export it again") from error
    if not model.graph.output:
        raise ModelError(f"{path} is not an ONNX model: it has no graph with an output; export it again")
    return model


def _external(model: ModelProto) -> Iterator[ExternalDataInfo]:
    tensors = [*_graph_tensors(model.graph), *(t for f in model.functions for t in _node_tensors(f.node))]
    return (ExternalDataInfo(tensor) for tensor in tensors if uses_external_data(tensor))


def _graph_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        yield from _attribute_tensors(attribute)


def _attribute_tensors(attribute: AttributeProto) -> Iterator[TensorProto]:
    yield from (attribute.t, *attribute.tensors)
    for graph in (attribute.g, *attribute.graphs):
        yield from _graph_tensors(graph)


def _inside(model: Path, info: ExternalDataInfo) -> Path:
    location, folder = info.location, model.parent.resolve()
    file = (folder / location).resolve()  # an absolute location replaces the folder, and links are followed
    if not file.is_relative_to(folder) or ".." in Path(location).parts:
        raise ModelError(f"{model.name} reads its weights from {location!r}, outside its own folder: refused")
    if not file.is_file():
        raise ModelError(f"{model.name} needs {location!r} beside it, which is missing; copy it there")
    if (info.offset or 0) + (info.length or 0) > file.stat().st_size:
        raise ModelError(f"{file} is shorter than {model.name} says; copy it again")
    return file
