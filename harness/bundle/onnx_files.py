"""What is in a user's ONNX file: its tensors' shapes and types, and its symbolic axes, which are given sizes here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto
from onnx.external_data_helper import load_external_data_for_model

from shootout.bundle.bundle import INLINE_BYTES
from shootout.bundle.onnx_weights import external_files, parse
from shootout.contract import TensorSpec
from shootout.errors import ModelError, UsageError, unknown

BATCH_AXES = ("batch", "batch_size", "N")
"""The first of these that is a symbolic axis gets the batch size; no other axis is ever guessed."""
DTYPES = frozenset(
    "FLOAT DOUBLE FLOAT16 BOOL INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64".split()  # noqa: SIM905
)
"""Element types that NumPy has and that inputs can be drawn in."""


def load(path: Path) -> ModelProto:
    """The model with all its weights in memory; raises as `onnxweights.external_files` does."""
    external_files(path)
    model = parse(path)
    load_external_data_for_model(model, str(path.parent))
    return model


def save(model: ModelProto, path: Path) -> None:
    """Write the model, big weights to one file beside it."""
    big = sum(len(tensor.raw_data) for tensor in model.graph.initializer) > INLINE_BYTES
    onnx.save(model, path, save_as_external_data=big, location=f"{path.name}.data")
    if big:  # saving moved the weights out of `model`
        load_external_data_for_model(model, str(path.parent))


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


def _dims(info: ValueInfoProto) -> list[tuple[str, int]]:
    """Each axis as (its name, 0) where it is symbolic, else as ("", its size)."""
    dims = enumerate(info.type.tensor_type.shape.dim)
    return [("", dim.dim_value) if dim.dim_value > 0 else (dim.dim_param or f"{info.name}.{i}", 0) for i, dim in dims]


def _require_tensor(what: str, info: ValueInfoProto) -> None:
    kind = info.type.WhichOneof("value") or "value of unknown type"
    if kind != "tensor_type":
        raise ModelError(f"{what} {info.name!r} is a {kind.removesuffix('_type')}; only tensors can be measured")
    dtype = TensorProto.DataType.Name(info.type.tensor_type.elem_type)
    if dtype not in DTYPES:
        raise ModelError(f"{what} {info.name!r} has type {dtype}; supported: {', '.join(sorted(DTYPES)).lower()}")
