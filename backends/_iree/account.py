"""Account of what a module computes, by the compiler's own files: the code that a call dispatches, and what is in it.

A dispatch's source is told as the compiler has it before it chooses vectors and tiles: the sums and products of whole
tensors, with the types of what is read. What else it knows of a dispatch is its name, which nothing promises.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shootout.core.contract import Precision

LABELS = {
    "f64": "fp64",
    "f32": Precision.FP32.value,
    "f16": Precision.FP16.value,
    "bf16": Precision.BF16.value,
    "f8E4M3FN": Precision.FP8.value,
    "i8": Precision.INT8.value,
    "i4": Precision.INT4.value,
}
"""Our names for the compiler's types."""
COUNTS = ("compute_nodes_by_precision", "other_nodes_by_precision", "conversion_nodes")
"""Counts of a survey, by the names of `Executed`."""
LOOPS = "counted once each: what runs inside loops and branches, as often as the numbers say"
UNTOLD = "not counted: some of what runs, whose code the compiler doesn't tell"
STATISTICS, SOURCES = "statistics.csv", "sources"
_SECTION = re.compile(r"; .*> util\.(func|initializer)\b")
_DISPATCH = re.compile(r'\d+,"dispatch","(.*?)",')
_MULTIPLIES, _ADDS = {"arith.mulf", "arith.muli"}, {"arith.addf", "arith.addi"}
_CONVERTS = {f"arith.{name}" for name in ("extf", "truncf", "extsi", "extui", "trunci", "sitofp", "uitofp")}
_CONVERTS |= {"arith.fptosi", "arith.fptoui", "linalg.yield"}
_SILENT = {"linalg.fill", "linalg.yield", "linalg.index"}
"""Nodes that compute nothing."""


@dataclass(frozen=True, slots=True)
class TensorOperation:
    """One operation on whole tensors.

    Attributes:
        label: what a product multiplies; of any other node, the type of its floats, or of what it gives.
        converts: whether it only changes types or moves.
    """

    label: str
    is_product: bool
    converts: bool


def dumps(folder: Path) -> list[str]:
    """Return the compiler's flags that make it write what `survey` reads."""
    return [
        f"--iree-scheduling-dump-statistics-file={folder / STATISTICS}",
        "--iree-scheduling-dump-statistics-format=csv",
        f"--iree-hal-dump-executable-sources-to={folder / SOURCES}",
    ]


def survey(folder: Path) -> dict[str, Any]:
    """Count what one call computes, by the names of `Executed`, as JSON values.

    Args:
        folder: with what the compiler told by `dumps`.
    """
    once, inside = _count_dispatches(folder / STATISTICS)
    contents, every = _read_sources(folder / SOURCES), once + inside
    nodes = [node for entry, calls in every.items() for node in contents.get(entry, []) * calls]
    is_whole = every.keys() <= contents.keys()
    products = [node for node in nodes if node.is_product]
    others = [node for node in nodes if not node.is_product]
    return {
        "compute_nodes_by_precision": dict(Counter(node.label for node in products)),
        "other_nodes_by_precision": dict(Counter(node.label for node in others if not node.converts)),
        "conversion_nodes": sum(node.converts for node in others),
        "fallbacks": [*([LOOPS] if inside else []), *([] if is_whole else [UNTOLD])],
    }


def _count_dispatches(path: Path) -> tuple[Counter[str], Counter[str]]:
    """Count how often a call runs each entry point, and how often each turn of a loop or branch does.

    What loading runs once is left out.
    """
    once, inside = Counter[str](), Counter[str]()
    counted = None
    for line in path.read_text(encoding="utf-8").splitlines():  # not by csv: names of graphs bring quotes of their own
        if section := _SECTION.match(line):
            counted = {"func": inside if " > scf." in line else once}.get(section[1])
        elif counted is not None and (row := _DISPATCH.match(line)):
            counted[row[1].rpartition("::@")[2].strip('"')] += 1
    return once, inside


def _read_sources(folder: Path) -> dict[str, list[TensorOperation]]:
    """Return the operations in each entry point's source."""
    from iree.compiler import ir

    operations: dict[str, list[TensorOperation]] = {}
    for path in sorted(folder.glob("*.mlir")):
        with ir.Context():
            for function in _find_operations(ir.Module.parse(path.read_text(encoding="utf-8")).operation, "func.func"):
                name = ir.StringAttr(function.attributes["sym_name"]).value
                operations[name] = [
                    _read_operation(operation)
                    for operation in _find_operations(function, "linalg.")
                    if operation.name not in _SILENT
                ]
                operations[name] += [
                    _read_operation(operation)
                    for operation in _find_operations(function, "iree_linalg_ext.")
                    if operation.operands
                ]
    return operations


def _find_operations(root: Any, kind: str) -> Iterator[Any]:
    """Yield the operations inside one whose names begin so; an operation on tensors has none of these inside."""
    for region in root.regions:
        for block in region:
            for inner in block.operations:
                if inner.operation.name.startswith(kind):
                    yield inner.operation
                else:
                    yield from _find_operations(inner.operation, kind)


def _read_operation(operation: Any) -> TensorOperation:
    kinds = [_element_type(value) for value in operation.operands]
    inside = [one.operation for region in operation.regions for block in region for one in block.operations]
    if operation.name.endswith("attention"):
        return TensorOperation(label=_label_of(kinds[0]), is_product=True, converts=False)
    if factors := _find_factors(inside, len(kinds)):
        left, right = (max((kinds[place] for place in side), key=_type_bits) for side in factors)
        return TensorOperation(label=_product_label(left, right), is_product=True, converts=False)
    converts = bool(inside) and all(one.name in _CONVERTS for one in inside)
    floats = [kind for one in inside for kind in map(_element_type, one.results) if kind in LABELS and "f" in kind]
    label = max(floats, key=_type_bits) if floats else kinds[-1]
    return TensorOperation(label=_label_of(label), is_product=False, converts=converts)


def _find_factors(inside: Sequence[Any], operands: int) -> tuple[set[int], set[int]] | None:
    """Return which operands an operation multiplies with which others, to sum that up; None if it does no such
    thing.
    """
    sums = {one.name for one in inside} & _ADDS
    for one in inside:
        if sums and one.name in _MULTIPLIES:
            left, right = (_operands_behind(value) - {operands - 1} for value in one.operands)
            if left and right and not left & right and _is_summed(one, operands - 1):
                return left, right
    return None


def _operands_behind(value: Any) -> set[int]:
    """Return the operands that a number inside an operation is made of."""
    from iree.compiler import ir

    if isinstance(value.owner, ir.Block):
        return {ir.BlockArgument(value).arg_number}
    return {one for operand in value.owner.operands for one in _operands_behind(operand)}


def _is_summed(product: Any, total: int) -> bool:
    """Return whether a product is added to what the operation gives, which comes in as its last operand."""
    users = [use.owner.operation for use in product.result.uses]
    adds = [one for one in users if one.name in _ADDS]
    return any(total in _operands_behind(value) for one in adds for value in one.operands)


def _element_type(value: Any) -> str:
    """Return the element type of a tensor or a number."""
    return str(getattr(value.type, "element_type", value.type))


def _type_bits(kind: str) -> int:
    digits = re.search(r"\d+", kind)
    return int(digits[0]) if digits else 0


def _label_of(kind: str) -> str:
    return LABELS.get(kind, kind)


def _product_label(left: str, right: str) -> str:
    """Return what a product computes in; if one side is stored more narrowly than the other, what it unpacks."""
    narrow, wide = sorted((left, right), key=_type_bits)
    return _label_of(wide) if narrow == wide else f"{_label_of(narrow)}-weights"
