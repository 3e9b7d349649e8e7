"""What a module computes, by the compiler's own accounts: which pieces of code a call dispatches, and what is in each.

A dispatch's source is told as the compiler has it before it chooses vectors and tiles: the sums and products of whole
tensors, with the types of what is read. What else it knows of a dispatch is its name, which nothing promises.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shootout.contract import Precision
from shootout.exported.workload import flops_by_precision

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
COUNTS = ("compute_nodes_by_precision", "other_nodes_by_precision", "flops_by_precision", "conversion_nodes")
"""What a survey counts, by the names of `Executed`."""
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
class Node:
    """One operation on whole tensors.

    Attributes:
        label: what a product multiplies; of any other node, the type of its floats, or of what it gives.
        flops: of a product, where its loops tell.
        converts: whether it only changes types or moves.
    """

    label: str
    is_product: bool
    flops: float | None
    converts: bool


def dumps(folder: Path) -> list[str]:
    """The compiler's flags for what `survey` reads."""
    return [
        f"--iree-scheduling-dump-statistics-file={folder / STATISTICS}",
        "--iree-scheduling-dump-statistics-format=csv",
        f"--iree-hal-dump-executable-sources-to={folder / SOURCES}",
    ]


def survey(folder: Path) -> dict[str, Any]:
    """What `Executed` says of one call, by its own names; JSON.

    Args:
        folder: with what the compiler told by `dumps`.
    """
    once, inside = _dispatches(folder / STATISTICS)
    contents, every = _contents(folder / SOURCES), once + inside
    nodes = [node for entry, calls in every.items() for node in contents.get(entry, []) * calls]
    is_whole = every.keys() <= contents.keys()
    is_known = is_whole and not any(node.is_product for entry in inside for node in contents[entry])
    products = [node for node in nodes if node.is_product]
    others = [node for node in nodes if not node.is_product]
    return {
        "compute_nodes_by_precision": dict(Counter(node.label for node in products)),
        "other_nodes_by_precision": dict(Counter(node.label for node in others if not node.converts)),
        "flops_by_precision": flops_by_precision((node.label, node.flops if is_known else None) for node in products),
        "conversion_nodes": sum(node.converts for node in others),
        "fallbacks": [*([LOOPS] if inside else []), *([] if is_whole else [UNTOLD])],
    }


def _dispatches(path: Path) -> tuple[Counter[str], Counter[str]]:
    """How often a call runs each entry point, and how often each turn of a loop or branch does; what loading runs once
    is left out.
    """
    once, inside = Counter[str](), Counter[str]()
    found = None
    for line in path.read_text(encoding="utf-8").splitlines():  # not by csv: names of graphs bring quotes of their own
        if section := _SECTION.match(line):
            found = {"func": inside if " > scf." in line else once}.get(section[1])
        elif found is not None and (row := _DISPATCH.match(line)):
            found[row[1].rpartition("::@")[2].strip('"')] += 1
    return once, inside


def _contents(folder: Path) -> dict[str, list[Node]]:
    """By entry point, the nodes of its source."""
    from iree.compiler import ir

    found: dict[str, list[Node]] = {}
    for path in sorted(folder.glob("*.mlir")):
        with ir.Context():
            for function in _operations(ir.Module.parse(path.read_text(encoding="utf-8")).operation, "func.func"):
                name = ir.StringAttr(function.attributes["sym_name"]).value
                found[name] = [_node(one) for one in _operations(function, "linalg.") if one.name not in _SILENT]
                found[name] += [_node(one) for one in _operations(function, "iree_linalg_ext.") if one.operands]
    return found


def _operations(root: Any, kind: str) -> Iterator[Any]:
    """Those inside an operation whose name begins so; an operation on tensors has none of these inside."""
    for region in root.regions:
        for block in region:
            for inner in block.operations:
                if inner.operation.name.startswith(kind):
                    yield inner.operation
                else:
                    yield from _operations(inner.operation, kind)


def _node(operation: Any) -> Node:
    kinds = [_kind(value) for value in operation.operands]
    inside = [one.operation for region in operation.regions for block in region for one in block.operations]
    if operation.name.endswith("attention"):
        return Node(label=_named(kinds[0]), is_product=True, flops=None, converts=False)
    if factors := _factors(inside, len(kinds)):
        left, right = (max((kinds[place] for place in side), key=_bits) for side in factors)
        return Node(label=_multiplied(left, right), is_product=True, flops=_flops(operation), converts=False)
    converts = bool(inside) and all(one.name in _CONVERTS for one in inside)
    floats = [kind for one in inside for kind in map(_kind, one.results) if kind in LABELS and "f" in kind]
    label = max(floats, key=_bits) if floats else kinds[-1]
    return Node(label=_named(label), is_product=False, flops=None, converts=converts)


def _factors(inside: Sequence[Any], operands: int) -> tuple[set[int], set[int]] | None:
    """Which operands a node multiplies with which others, to sum that up; None where it does nothing of the kind."""
    sums = {one.name for one in inside} & _ADDS
    for one in inside:
        if sums and one.name in _MULTIPLIES:
            left, right = (_sources(value) - {operands - 1} for value in one.operands)
            if left and right and not left & right and _is_summed(one, operands - 1):
                return left, right
    return None


def _sources(value: Any) -> set[int]:
    """The operands that a number inside a node is made of."""
    from iree.compiler import ir

    if isinstance(value.owner, ir.Block):
        return {ir.BlockArgument(value).arg_number}
    return {one for operand in value.owner.operands for one in _sources(operand)}


def _is_summed(product: Any, total: int) -> bool:
    """Whether a product is added to what the node gives, which comes in as its last operand."""
    users = [use.owner.operation for use in product.result.uses]
    adds = [one for one in users if one.name in _ADDS]
    return any(total in _sources(value) for one in adds for value in one.operands)


def _kind(value: Any) -> str:
    """A tensor's or a number's type of element."""
    return str(getattr(value.type, "element_type", value.type))


def _bits(kind: str) -> int:
    digits = re.search(r"\d+", kind)
    return int(digits[0]) if digits else 0


def _named(kind: str) -> str:
    return LABELS.get(kind, kind)


def _multiplied(left: str, right: str) -> str:
    """What a product is: where one side is stored more narrowly than the other, that is what it unpacks."""
    narrow, wide = sorted((left, right), key=_bits)
    return _named(wide) if narrow == wide else f"{_named(narrow)}-weights"


def _flops(operation: Any) -> float | None:
    """Two for each turn of the innermost loop; None where a loop's length isn't an axis of some operand."""
    from iree.compiler import ir

    lengths: dict[int, int] = {}
    maps = [ir.AffineMapAttr(one).value for one in operation.attributes["indexing_maps"]]
    for value, axes in zip(operation.operands, maps, strict=True):
        shape = ir.ShapedType(value.type).shape if axes.results else ()
        for length, axis in zip(shape, axes.results, strict=True):
            if isinstance(axis, ir.AffineDimExpr) and length > 0:
                lengths[axis.position] = length
    return 2.0 * math.prod(lengths.values()) if len(lengths) == maps[0].n_dims else None
