"""Find where to cut an ONNX file whose outputs' shapes depend on values, such as a detector with NMS inside.

What follows the first operator of that kind can't be compared: another runtime may keep another row. What stands before
it can.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto, NodeProto, shape_inference, utils

from shootout.core.contract import Arrays
from shootout.core.errors import Instead, ModelError
from shootout.models.onnx.onnx_files import graphs_inside, header, names_read

SELECTORS = frozenset({"NonMaxSuppression", "NonZero", "Unique", "Compress", "StringSplit"})
"""Operators whose outputs have as many rows as the values of their inputs make."""
SIZED_BY: Mapping[str, Collection[int]] = {
    **dict.fromkeys(("Reshape", "Expand", "Tile", "OneHot", "TopK", "Pad"), (1,)),
    "ConstantOfShape": (0,),
    "Range": (0, 1, 2),
    "Slice": (1, 2, 3, 4),
    "Resize": (1, 2, 3),
    "Loop": (0, 1),
}
"""By operator: the inputs whose values decide the shape of its output."""
DECISIONS = frozenset({"Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "And", "Or", "Not", "Xor", "IsNaN"})
"""Operators that make the masks which selectors read: a cut is told before these, where numbers are."""

REARRANGING = frozenset(
    (
        *("Add", "ArgMax", "Cast", "Concat", "Div", "Expand", "Flatten", "Gather", "Identity", "Mul", "ReduceMax"),
        *("Reshape", "Slice", "Split", "Squeeze", "Sub", "Transpose", "Unsqueeze"),
    )
)
"""Operators that take values apart, such as boxes and scores of a detector's raw head, or write them otherwise."""
KEEPING = frozenset({"ScatterElements", "ScatterND"})
"""Operators whose output has the shape of their first input, however many rows the others have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Hold between which values of a file a part lies whose shapes are fixed.

    Attributes:
        inputs: those of the file that the part needs.
        outputs: outputs of the file, and values that the rest of the file reads.
        operators: the kinds of operators at which shapes begin to depend on values.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operators: tuple[str, ...]


def find_cut(model: ModelProto) -> Cut | None:
    """Return the largest part of a file with fixed shapes; None if there is none that `onnx` can take out.

    Args:
        model: the file as its owner has it, weights or not.
    """
    graph = model.graph
    variable, shaped, begins = _spread(model)
    fixed = variable - shaped
    makers = {name: node for node in graph.node for name in node.output if name}
    ends, inner = [info.name for info in graph.output if info.name not in shaped], list[str]()
    for node in graph.node:
        if shaped & {*node.output}:
            read = [name for name in names_read(node) if name in fixed]
            inner += _before_decisions(read, makers, variable)
    ends += _find_common_source(dict.fromkeys(inner), makers, variable)
    outputs = tuple(one for one in dict.fromkeys(ends) if one in makers)
    needed = _names_behind(outputs, makers)
    inputs = tuple(info.name for info in graph.input if info.name in needed)
    if not begins or not outputs or not inputs or not _can_extract(model, inputs, outputs):
        return None
    return Cut(inputs=inputs, outputs=outputs, operators=tuple(dict.fromkeys(begins)))


def _name_part(path: Path) -> str:
    """Return the name of the file that a cut makes of this one."""
    return f"{path.stem}-cut.onnx"


def tell_cut(path: Path) -> str:
    """Say where to cut a file, with the command that does it; "" if nothing is known."""
    if (cut := find_cut(header(path))) is None:
        return ""
    place = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    part = _name_part(path)
    words = (json.dumps(one, ensure_ascii=False) for one in (str(place), part, cut.inputs, cut.outputs))
    program = f"import onnx.utils; onnx.utils.extract_model({', '.join(words)}, check_model=False)"
    return (
        f". The values decide how much {' and '.join(cut.operators)} keeps. Cut the file before that, and measure "
        f"{part}: python -c {shlex.quote(program)}"
    )


def tell_doubt(path: Path) -> str:
    """Say that values may decide how large an output is, as far as the graph shows, and where to cut; "" if not."""
    model = header(path)
    _, shaped, begins = _spread(model)
    name = next((info.name for info in model.graph.output if info.name in shaped), "")
    if not name or not SELECTORS.intersection(begins) or not (cut := tell_cut(path)):
        return ""
    return f"the shape of output {name!r} may depend on the input values, and then nothing can be measured{cut}"


def require_fixed_shapes(outputs: Sequence[Arrays], path: Path) -> None:
    """Refuse a file if values decide how large an output is; one that is empty each time may be such.

    Raises:
        ModelError: names the output and shapes that came, and says where to cut the file.
    """
    for name in outputs[0]:
        shapes = sorted({one[name].shape for one in outputs})
        if len(shapes) > 1:
            told = f"{path.name}: the shape of output {name!r} depends on the input values: {shapes[0]} to {shapes[-1]}"
            cut = tell_cut(path)
            raise ModelError(f"{told}{cut}", instead=Instead(str(path), _name_part(path)) if cut else None)
        if 0 in shapes[0] and (cut := tell_cut(path)):
            empty = f"{path.name}: output {name!r} has no rows, so every backend would agree with it"
            told = f"{empty}; give real inputs with --inputs data.npz{cut}"
            raise ModelError(told, instead=Instead(str(path), _name_part(path)))


def _spread(model: ModelProto) -> tuple[set[str], set[str], list[str]]:
    """Return the names that depend on inputs' values, those whose shapes do, and at which operators that begins."""
    own = {(function.domain, function.name): function for function in model.functions}
    inside = {key: {node.op_type for node in function.node} for key, function in own.items()}
    variable, shaped, begins = {info.name for info in model.graph.input}, set[str](), list[str]()
    for node in model.graph.node:
        read = {*names_read(node)}
        shapes = {node.input[0]} if node.op_type in KEEPING else read
        if not read & variable or (node.op_type in ("Shape", "Size") and not read & shaped):
            continue
        variable |= {*node.output}
        if shapes & shaped:
            shaped |= {*node.output}
        elif found := _begins_at(node, variable, inside.get((node.domain, node.op_type), set())):
            begins.append(found)
            shaped |= {*node.output}
    return variable, shaped, begins


def _begins_at(node: NodeProto, variable: Collection[str], inside: Collection[str]) -> str:
    """Return the operator from which on shapes depend on values, the node's own or one inside it; "" if none is."""
    kinds = {node.op_type, *inside, *(one.op_type for graph in graphs_inside([node]) for one in graph.node)}
    if selectors := sorted(kinds & SELECTORS):
        return str(selectors[0])
    deciding = {name for at, name in enumerate(node.input) if at in SIZED_BY.get(node.op_type, ())}
    return str(node.op_type) if deciding & {*variable} or _ends_by_values(node) else ""


def _ends_by_values(node: NodeProto) -> bool:
    """Return whether it is a loop whose body computes whether to go on, and which collects what each pass makes."""
    if node.op_type != "Loop":
        return False
    body = next(one.g for one in node.attribute if one.name == "body")
    maker = next((one.op_type for one in body.node if body.output[0].name in one.output), "Identity")
    return len(body.output) > len(node.input) - 1 and maker not in ("Identity", "Constant")


def _before_decisions(
    names: Sequence[str], makers: Mapping[str, NodeProto], variable: Collection[str]
) -> Iterator[str]:
    """Yield these names; of a mask, the numbers from which it is made."""
    waiting = [*names]
    for name in waiting:  # which grows
        maker = makers.get(name)
        is_cast = maker is not None and maker.op_type == "Cast" and maker.input[0] in makers
        last = makers[maker.input[0]] if maker is not None and is_cast else maker
        if last is not None and last.op_type in DECISIONS:
            waiting += [one for one in last.input if one in variable and one not in waiting]
        else:
            yield name


def _find_common_source(
    names: Collection[str], makers: Mapping[str, NodeProto], variable: Collection[str]
) -> Sequence[str]:
    """Return the last value of which all of these are but parts, since they would hold it several times; or these."""

    made = [name for name in names if name in makers]

    def walk(until: str) -> tuple[set[str], bool]:
        """Return what is passed on the way back to a value, and whether all ways lead there."""
        waiting, leads = [*made], True
        for name in waiting:  # which grows
            is_part = name in makers and makers[name].op_type in REARRANGING and name != until
            behind = [one for one in names_read(makers[name]) if one in variable] if is_part else []
            waiting += [one for one in behind if one not in waiting]
            leads &= bool(behind) or name == until
        return {*waiting}, leads

    passed = walk("")[0] if len(made) > 1 else set[str]()
    source = next((one for one in reversed([*makers]) if one in passed and walk(one)[1]), None)
    return [*names] if source is None else [source]


def _names_behind(names: Sequence[str], makers: Mapping[str, NodeProto]) -> set[str]:
    """Return these names and all from which they are computed."""
    waiting, seen = [*names], {*names}
    for name in waiting:  # which grows
        more = [one for one in (names_read(makers[name]) if name in makers else ()) if one not in seen]
        seen |= {*more}
        waiting += more
    return seen


def _can_extract(model: ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> bool:
    """Return whether `onnx.utils.extract_model` makes a whole model of this part."""
    try:
        inferred = shape_inference.infer_shapes(model)
        part = utils.Extractor(inferred).extract_model([*inputs], [*outputs])
    except Exception:  # a type that isn't known, or what the function doesn't take: there is no command then
        return False
    made = {name for node in part.graph.node for name in node.output}
    made |= {one.name for one in (*part.graph.input, *part.graph.initializer)}
    return all(made.issuperset(names_read(node)) for node in part.graph.node)
