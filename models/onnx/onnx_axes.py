"""Read an ONNX file's inputs, and give every axis that the file leaves free its size: here are all rules for that.

An axis is free if it has a name instead of a size, or neither; one without a name of its own is called by its input and
position, e.g. `x.0`. One named by arithmetic on others, e.g. `past + 1`, follows from these (`_complete`). Sizes
come from a user's axes and whole shapes (`axis_sizes`, `sizes_asked`), or from the original that a file races
(`sizes_beside`); `core.exported.request` applies these rules to a request.
"""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor
from operator import floordiv, mod
from typing import Any

import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto

from shootout.core.constants import EMPTY
from shootout.core.contract import TensorSpec
from shootout.core.errors import ModelError, UsageError, unknown

BATCH_AXES = ("batch", "batch_size", "N")
"""The first of these names that is a free axis gets the batch size; without one, each input's first axis gets it."""
DTYPES = frozenset(
    "FLOAT DOUBLE FLOAT16 BOOL INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64".split()  # noqa: SIM905
)
"""Element types that NumPy has and that inputs can be drawn in."""
RACE_ALONE = "race each by itself, with a --model of its own"
_PLAIN = re.compile(r"[\w.]+")
_EXAMPLE_PIXELS, _EXAMPLE_LENGTH = 224, 128
TOKENS = "input_ids"
"""The input of a language model's tokens, as exporters call it."""
"""Sizes in the command that an error shows: usual ones for pictures (by their four axes), and for all else."""
_MOST_LETTERS = 200
_ARITHMETIC = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.Name, ast.Load),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.USub),
)
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "floor": floor,
    "ceil": ceil,
    "ceiling": ceil,
    "mod": mod,
    "floordiv": floordiv,
    "min": min,
    "max": max,
    "ceildiv": lambda left, right: -(-left // right),
}
"""By name in lower case: SymPy and torch write some in capitals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisSizes:
    """Hold the sizes of a file's free axes.

    Attributes:
        sizes: by axis.
        batch: rows of a call.
        guessed: which axes were taken for the batch without being called so.
    """

    sizes: Mapping[str, int]
    batch: int
    guessed: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the notes on a row about these sizes."""
        return (f"{', '.join(self.guessed)} taken for the batch",) if self.guessed else ()


def axis_sizes(model: ModelProto, batch: int, sets: Mapping[str, int], called: str = "model.onnx") -> AxisSizes:
    """Give every free axis its size.

    Args:
        model: the parsed file, weights or not.
        batch: for the axis called as in BATCH_AXES, else for the first axis of each input, where that is free.
        sets: the other sizes by axis, or by a name in an axis's arithmetic; may name the batch axis too, unless that
            contradicts `batch`.
        called: the file, as the user does.

    Raises:
        UsageError: an axis has no size, isn't in the file, or gets two sizes; or there is no axis for `batch`.
    """
    inputs = true_inputs(model)
    axes = list(dict.fromkeys(name for info in inputs for name, _ in _list_axes(info) if name))
    for name in sets:
        if name not in axes and not any(name in _symbols(axis) for axis in axes):
            raise _not_an_axis(name, axes, inputs)
    batch_axes, sets = _batch_axes(inputs), _complete(axes, sets)
    given = [sets[name] for name in batch_axes if name in sets]
    rows = given[0] if given else batch
    if batch not in (rows, 1):
        raise UsageError(f"batch {batch} and {batch_axes[0]}={rows} are the same axis: pass only one of them")
    if not batch_axes and batch != 1:
        raise UsageError(f"batch {batch}: no input's first axis is free: {_list_inputs(inputs)}; leave the batch out")
    sizes = _complete(axes, {**dict.fromkeys(batch_axes, rows), **sets})
    if missing := [name for name in axes if name not in sizes and not _follows(name, axes)]:
        raise UsageError(_missing_sizes(missing, inputs, called))
    guessed = tuple(name for name in batch_axes if name not in (*BATCH_AXES, *sets))
    return AxisSizes(sizes={name: sizes[name] for name in axes}, batch=rows if batch_axes else 1, guessed=guessed)


def sizes_of_shapes(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return the sizes of free axes that whole shapes give.

    Args:
        shapes: by input, "" for the only one; a size of 0 leaves its axis as it is.

    Raises:
        UsageError: an input isn't in the file, a shape doesn't fit it, or two give an axis two sizes.
    """
    inputs = {info.name: info for info in true_inputs(model)}
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in inputs and (name or len(inputs) > 1):
            raise unknown("input", name, inputs)
        info = inputs[name or next(iter(inputs))]
        asked, dims = f"--shape {name}{'=' if name else ''}{'x'.join(map(str, shape))}", _list_axes(info)
        if len(shape) != len(dims):
            raise UsageError(f"{asked}: expected {len(dims)} sizes, got {len(shape)}; the input is {_input_text(info)}")
        for (axis, fixed), size in zip(dims, shape, strict=True):
            if fixed and size not in (0, fixed):
                raise UsageError(f"{asked}: an axis of size {fixed} can't be {size}; the input is {_input_text(info)}")
            if size and axis and sizes.setdefault(axis, size) != size:
                raise UsageError(
                    f"{asked}: {axis} is {sizes[axis]} already; one axis has one size: {_list_inputs(inputs.values())}"
                )
    return sizes


def sizes_asked(
    model: ModelProto, shapes: Mapping[str, Sequence[int]], sets: Mapping[str, int], batch: int
) -> tuple[dict[str, int], int]:
    """Combine whole shapes and sizes of single axes into sizes by axis and the batch.

    Raises:
        UsageError: as `sizes_of_shapes`; or both give an axis, not alike.
    """
    told, axes, rows_of = sizes_of_shapes(model, shapes), open_axes(model), _batch_axes(true_inputs(model))
    for axis in told.keys() & sets.keys():
        if told[axis] != sets[axis]:
            raise UsageError(f"{axis} is {told[axis]} by --shape and {sets[axis]} by --set: pass only one of them")
    told = _complete(axes, {**told, **sets})
    rows = {told[axis] for axis in rows_of if axis in told and axis not in sets}
    if len(rows) == 1 and batch in (1, *rows):
        batch = rows.pop()
        told = {axis: size for axis, size in told.items() if axis not in rows_of}
    return {axis: told[axis] for axis in axes if axis in told and not _follows(axis, axes)} | dict(sets), batch


def sizes_of_rows(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return the sizes of open axes beside the batch that a user's data have, as rows or as sets of a call's inputs.

    Args:
        shapes: of the data, by input.
    """
    inputs = true_inputs(model)
    wanted, sizes = open_beside_batch(model), dict[str, int]()
    for info in inputs:
        dims, shape = _list_axes(info), tuple(shapes.get(info.name, ()))
        own = shape[1:] if len(shape) == len(dims) + 1 else shape  # sets, along a leading axis
        if len(own) == len(dims):
            sizes |= {
                axis: size
                for (axis, _), size in zip(dims, own, strict=True)
                if axis in wanted and axis not in sizes and size
            }
    return sizes


def sizes_beside(model: ModelProto, inputs: Sequence[TensorSpec], called: str, original: str) -> dict[str, int]:
    """Return the sizes of the file's free axes with which it takes the original's inputs.

    Args:
        model: the parsed file, weights or not.
        inputs: of the original, its axes fixed.
        called: the file's name; `original`: the other's.

    Raises:
        ModelError: it has other inputs; names all of both.
    """
    own = true_inputs(model)
    sizes: dict[str, int] | None = None
    if {info.name for info in own} == {spec.name for spec in inputs}:
        try:
            sizes = sizes_of_shapes(model, {spec.name: spec.shape for spec in inputs})
        except UsageError:
            sizes = None
    if sizes is not None:
        wanted = {spec.name: spec.dtype for spec in inputs}
        found = {spec.name: spec.dtype for spec in input_specs(model, sizes)}
        if all(dtype == wanted[name] or {dtype[0], wanted[name][0]} == {"f"} for name, dtype in found.items()):
            return sizes
    theirs = ", ".join(f"{spec.name} {spec.dtype}{list(spec.shape)}" for spec in inputs)
    mine = ", ".join(input_texts(model).values())
    raise ModelError(f"{called} can't race {original}, it has other inputs: {mine} beside {theirs}; {RACE_ALONE}")


def fix_axes(model: ModelProto, sizes: Mapping[str, int]) -> None:
    """Write the sizes into the file's shapes, so that every backend sees the same static model."""
    graph = model.graph
    for info in (*true_inputs(model), *graph.output, *graph.value_info):
        for dim, (name, _) in zip(info.type.tensor_type.shape.dim, _list_axes(info), strict=True):
            if name in sizes:
                dim.dim_value = sizes[name]


def true_inputs(model: ModelProto) -> list[ValueInfoProto]:
    """Return the inputs that a caller gives (older files list their weights among the inputs too).

    Raises:
        ModelError: there is none, or one isn't a tensor of a known shape and a supported type.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [info for info in model.graph.input if info.name not in weights]
    if not inputs:
        raise ModelError("the model has no inputs, so its output can't depend on anything: export it with inputs")
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
    maps = {name for node in model.graph.node if node.op_type == "ZipMap" for name in node.output}
    for info in model.graph.output:
        if info.name in maps:
            raise ModelError(
                f"output {info.name!r} is a list of maps (ZipMap); only tensors can be measured: convert the model "
                'again without it, with options={"zipmap": False} for skl2onnx.to_onnx, or with zipmap=False for '
                "onnxmltools.convert_lightgbm"
            )
        _require_tensor("output", info)


def input_specs(model: ModelProto, sizes: Mapping[str, int] | None = None) -> tuple[TensorSpec, ...]:
    """Return the inputs of a model whose axes are all fixed, in the file or by `sizes`."""
    known = sizes or {}
    return tuple(
        TensorSpec(
            name=info.name, shape=tuple(size or known[axis] for axis, size in _list_axes(info)), dtype=_dtype_of(info)
        )
        for info in true_inputs(model)
    )


def output_forms(model: ModelProto, sizes: Mapping[str, int]) -> dict[str, tuple[str, tuple[int, ...] | None]]:
    """Return the dtype and shape of each output as far as the file tells: -1 for an open axis, None for no shape."""
    forms = dict[str, tuple[str, tuple[int, ...] | None]]()
    for info in model.graph.output:
        axes = tuple(size or sizes.get(axis, -1) for axis, size in _list_axes(info))
        forms[info.name] = _dtype_of(info), axes if info.type.tensor_type.HasField("shape") else None
    return forms


def input_texts(model: ModelProto) -> dict[str, str]:
    """Write each input for people, such as `images float32[batch, 3, height, width]`."""
    return {info.name: _input_text(info) for info in true_inputs(model)}


def open_axes(model: ModelProto) -> list[str]:
    """Return the names of the axes that the file leaves open, each once."""
    return list(dict.fromkeys(axis for info in true_inputs(model) for axis, _ in _list_axes(info) if axis))


def open_beside_batch(model: ModelProto) -> list[str]:
    """Return the names of the open axes that aren't rows of a call."""
    axes, rows = open_axes(model), _batch_axes(true_inputs(model))
    return [axis for axis in axes if axis not in rows and not _follows(axis, axes)]


def _symbols(axis: str) -> frozenset[str]:
    """Return the names that an axis's arithmetic uses; none if its name is no arithmetic."""
    tree = _parse(axis)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)} if tree else set[int]()
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name)) if tree else ()
    return frozenset(node.id for node in names if id(node) not in called)


def _complete(axes: Collection[str], given: Mapping[str, int]) -> dict[str, int]:
    """Return the given sizes and those that follow from them.

    Args:
        axes: all axes of the inputs; `given`: sizes by axis, or by a name in an axis's arithmetic.

    Raises:
        UsageError: arithmetic gives another size than the given one, or none that can be measured.
    """
    sizes, before = dict(given), -1
    while before < len(sizes):
        before = len(sizes)
        for axis in axes:
            if (names := _symbols(axis)) and names <= sizes.keys():
                sizes[axis] = _work_out(axis, sizes)
    return sizes


def _work_out(axis: str, sizes: Mapping[str, int]) -> int:
    value, own = _value(axis, sizes), ", ".join(f"{name}={sizes[name]}" for name in sorted(_symbols(axis)))
    if value == 0:
        raise UsageError(f"axis {axis!r} is 0 by {own}: {EMPTY}")
    if value is None or value < 1 or value.denominator != 1:
        told = "has no value" if value is None else f"is {value}"
        raise UsageError(f"axis {axis!r} {told} by {own}: only a whole size of 1 or more can be measured")
    if value != sizes.get(axis, value):
        raise UsageError(f"axis {axis!r} is {value} by {own}, and {sizes[axis]} as given: leave one of them out")
    return int(value)


def _value(axis: str, sizes: Mapping[str, int]) -> Fraction | None:
    """Evaluate an axis's arithmetic, of which `_parse` lets nothing but numbers, sizes and a few functions through."""
    if (tree := _parse(axis)) is None:
        return None
    called = {one.func.id for one in ast.walk(tree) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)}
    names = {name: Fraction(size) for name, size in sizes.items()} | {name: _FUNCTIONS[name.lower()] for name in called}
    try:
        return Fraction(eval(compile(tree, axis, "eval"), {"__builtins__": {}}, names))  # noqa: S307
    except (ArithmeticError, TypeError, ValueError):  # a division by zero, a function with other arguments
        return None


@lru_cache(maxsize=256)
def _parse(axis: str) -> ast.Expression | None:
    """Return an axis's name as a tree of whole numbers, names, arithmetic and known functions; None if it is none."""
    if axis.isidentifier() or len(axis) > _MOST_LETTERS:
        return None
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(axis.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if all(map(_is_arithmetic, ast.walk(tree))) else None


def _is_arithmetic(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id.lower() in _FUNCTIONS and not node.keywords
    return isinstance(node, _ARITHMETIC)


def _input_text(info: ValueInfoProto) -> str:
    return f"{info.name} {_dtype_of(info)}[{', '.join(axis or str(size) for axis, size in _list_axes(info))}]"


def _list_inputs(inputs: Iterable[ValueInfoProto]) -> str:
    return ", ".join(map(_input_text, inputs))


def _dtype_of(info: ValueInfoProto) -> str:
    return onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type).name


def _batch_axes(inputs: Sequence[ValueInfoProto]) -> list[str]:
    """Return the free axes that are rows of a call: the one with such a name, else the first of each input."""
    firsts = [dims[0][0] for info in inputs if (dims := _list_axes(info)) and dims[0][0]]
    every = {axis for info in inputs for axis, _ in _list_axes(info)}
    named = next((name for name in BATCH_AXES if name in every), None)
    return [named] if named else [axis for axis in dict.fromkeys(firsts) if not _follows(axis, every)]


def _follows(axis: str, axes: Collection[str]) -> bool:
    """Return whether an axis is arithmetic on other axes alone, and so needs no size of its own."""
    return bool(names := _symbols(axis)) and names <= {*axes}


def _not_an_axis(name: str, axes: Sequence[str], inputs: Sequence[ValueInfoProto]) -> UsageError:
    if name in (info.name for info in inputs):
        return UsageError(f"{name} is an input: give its whole shape, as in --shape {name}=1x3x224x224")
    told = f"the inputs are {_list_inputs(inputs)}; an axis with a size is fixed: export the model with it open"
    return UsageError(f"{unknown('symbolic axis', name, axes)}; {told}")


def _missing_sizes(missing: Sequence[str], inputs: Sequence[ValueInfoProto], called: str) -> str:
    """Say which size is missing, list all inputs, and name the options of any command that give it."""
    usual = {
        axis: 1 if at == 0 else _EXAMPLE_PIXELS if len(dims) == 4 else _EXAMPLE_LENGTH
        for dims in map(_list_axes, inputs)
        for at, (axis, _) in enumerate(dims)
    }
    named = [word for axis in missing for word in ("--set", f"{axis}={usual[axis]}")]
    shaped = [(info.name, _list_axes(info)) for info in inputs if {axis for axis, _ in _list_axes(info)} & {*missing}]
    texts = (f"{name}={'x'.join(str(size or usual[axis]) for axis, size in dims)}" for name, dims in shaped)
    is_plain = all(_PLAIN.fullmatch(axis) for axis in missing)  # as `--set` takes the names of axes
    lines = [
        f"{called} has axes without a size: {', '.join(missing)}. Its inputs:",
        *(f"  {_input_text(info)}" for info in inputs),
        "Give sizes, in one of these ways:",
        *("  --texts texts.txt  (the sizes are the lengths of your texts)" for info in inputs if info.name == TOKENS),
        "  --inputs rows.npz  (the sizes are those of your rows)",
        f"  {shlex.join(named if is_plain else [word for text in texts for word in ('--shape', text)])}",
    ]
    return "\n".join(lines)


def _list_axes(info: ValueInfoProto) -> list[tuple[str, int]]:
    """Return each axis as (its name, 0) if it is free, else as ("", its size).

    "?", which some exporters give to different axes, is no name.
    """
    dims = enumerate(info.type.tensor_type.shape.dim)
    names = ((at, dim, "" if dim.dim_param == "?" else dim.dim_param) for at, dim in dims)
    return [("", dim.dim_value) if dim.dim_value > 0 else (name or f"{info.name}.{at}", 0) for at, dim, name in names]


def _require_tensor(what: str, info: ValueInfoProto) -> None:
    kind = info.type.WhichOneof("value") or "value of unknown type"
    if kind != "tensor_type":
        raise ModelError(f"{what} {info.name!r} is a {kind.removesuffix('_type')}; only tensors can be measured")
    known = {number: name for name, number in TensorProto.DataType.items()}
    dtype = known.get(info.type.tensor_type.elem_type, str(info.type.tensor_type.elem_type))
    if dtype not in DTYPES:
        raise ModelError(f"{what} {info.name!r} has type {dtype}; supported: {', '.join(sorted(DTYPES)).lower()}")
