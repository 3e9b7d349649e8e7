"""A user's ONNX file: read with its weights, checked, its symbolic axes given sizes, written, and run as it is.

Nothing outside the model's own folder is ever opened: a file from elsewhere could name any path on this machine as its
external data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, ValueInfoProto
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_model, uses_external_data

from shootout.bundle.bundle import INLINE_BYTES
from shootout.contract import Array, Arrays, TensorSpec
from shootout.errors import ModelError, UsageError, one_line, unknown

BATCH_AXES = ("batch", "batch_size", "N")
"""The first of these that is a symbolic axis gets the batch size; no other axis is ever guessed."""
DTYPES = frozenset(
    "FLOAT DOUBLE FLOAT16 BOOL INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64".split()  # noqa: SIM905
)
"""Element types that NumPy has and that inputs can be drawn in."""


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
        hint = "drawn integers are 0 or 1: if that doesn't fit, give real inputs with --inputs data.npz"
        raise ModelError(f"ONNX Runtime can't run {name}: {one_line(str(error))}; {hint}") from error


def true_inputs(model: ModelProto) -> list[ValueInfoProto]:
    """The inputs that a caller gives (older files list their weights among the inputs too).

    Raises:
        ModelError: there is none, or one isn't a tensor of a known shape and a supported type.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [info for info in model.graph.input if info.name not in weights]
    if not inputs:
        raise ModelError("the model has no inputs, so its output can't depend on anything")
    for info in inputs:
        _require_tensor("input", info)
        if not info.type.tensor_type.HasField("shape"):
            raise ModelError(f"input {info.name!r} has no shape in the file; export it with one")
    return inputs


def require_tensor_outputs(model: ModelProto) -> None:
    """Refuse outputs that aren't tensors of a supported type.

    Raises:
        ModelError: names the output and what it is.
    """
    for info in model.graph.output:
        _require_tensor("output", info)


def axis_sizes(model: ModelProto, batch: int, sets: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Give every symbolic axis its size.

    An axis without a name of its own is called by its input and position, e.g. `x.0`.

    Args:
        model: the parsed file.
        batch: for the first symbolic axis that is called as in BATCH_AXES.
        sets: the other sizes by axis; may name the batch axis too, unless that contradicts `batch`.

    Returns:
        Sizes by axis, and the batch size that results.

    Raises:
        UsageError: an axis has no size, isn't in the file, or gets two sizes; or there is no axis for `batch`.
    """
    axes = list(dict.fromkeys(name for info in true_inputs(model) for name, _ in _dims(info) if name))
    for name in sets:
        if name not in axes:
            raise unknown("symbolic axis", name, axes)
    batch_axis = next((name for name in BATCH_AXES if name in axes), None)
    sizes = dict(sets)
    if batch_axis and sizes.setdefault(batch_axis, batch) != batch != 1:
        raise UsageError(f"batch {batch} and {batch_axis}={sets[batch_axis]} are the same axis: give one of them")
    if not batch_axis and batch != 1:
        known = ", ".join(BATCH_AXES)
        raise UsageError(f"batch {batch}: the file has no symbolic axis called {known}; leave the batch out")
    if missing := [name for name in axes if name not in sizes]:
        example = " ".join(f"--set {name}=SIZE" for name in missing)
        raise UsageError(f"symbolic axes without a size: {', '.join(missing)}; give them with {example}")
    return {name: sizes[name] for name in axes}, sizes[batch_axis] if batch_axis else 1


def fix_axes(model: ModelProto, sizes: Mapping[str, int]) -> None:
    """Write the sizes into the file's shapes, so that every backend sees the same static model."""
    graph = model.graph
    for info in (*true_inputs(model), *graph.output, *graph.value_info):
        for dim, (name, _) in zip(info.type.tensor_type.shape.dim, _dims(info), strict=True):
            if name in sizes:
                dim.dim_value = sizes[name]


def input_specs(model: ModelProto) -> tuple[TensorSpec, ...]:
    """The inputs of a model whose axes are all fixed."""
    return tuple(
        TensorSpec(
            name=info.name,
            shape=tuple(size for _, size in _dims(info)),
            dtype=onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type).name,
        )
        for info in true_inputs(model)
    )


def tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every tensor that the file holds, weights or others: some exporters write theirs as constant nodes."""
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        yield from _node_tensors(function.node)


def _external(model: ModelProto) -> Iterator[ExternalDataInfo]:
    return (ExternalDataInfo(tensor) for tensor in tensors(model) if uses_external_data(tensor))


def _graph_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        yield from _attribute_tensors(attribute)


def _attribute_tensors(attribute: AttributeProto) -> Iterator[TensorProto]:
    yield from (*([attribute.t] * attribute.HasField("t")), *attribute.tensors)
    for graph in (*([attribute.g] * attribute.HasField("g")), *attribute.graphs):
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


def _dims(info: ValueInfoProto) -> list[tuple[str, int]]:
    """Each axis as (its name, 0) where it is symbolic, else as ("", its size)."""
    dims = enumerate(info.type.tensor_type.shape.dim)
    return [("", dim.dim_value) if dim.dim_value > 0 else (_axis(dim) or f"{info.name}.{i}", 0) for i, dim in dims]


def _axis(dim: TensorShapeProto.Dimension) -> str:
    """The axis's own name; two that are called "?", as some exporters do, aren't the same axis."""
    return "" if dim.dim_param == "?" else dim.dim_param


def _require_tensor(what: str, info: ValueInfoProto) -> None:
    kind = info.type.WhichOneof("value") or "value of unknown type"
    if kind != "tensor_type":
        raise ModelError(f"{what} {info.name!r} is a {kind.removesuffix('_type')}; only tensors can be measured")
    dtype = TensorProto.DataType.Name(info.type.tensor_type.elem_type)
    if dtype not in DTYPES:
        raise ModelError(f"{what} {info.name!r} has type {dtype}; supported: {', '.join(sorted(DTYPES)).lower()}")
