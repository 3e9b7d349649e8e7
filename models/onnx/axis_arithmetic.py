"""Work out axes whose name is arithmetic, such as `past_sequence_length + 1`, `2*s1` or `floor(s/2)`, from other sizes.

Names come from a stranger's file: they are parsed and walked here, never evaluated as Python. Numbers stay exact.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor

from shootout.core.constants import EMPTY
from shootout.core.errors import UsageError

MOST_LETTERS = 200
MOST_POWER = 8
MOST_SIZE = 1 << 40
_OPERATORS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: lambda left, right: left / right,
    ast.FloorDiv: lambda left, right: Fraction(left // right),
    ast.Mod: lambda left, right: left % right,
    ast.Pow: lambda left, right: left ** int(right) if right in range(MOST_POWER + 1) else _refuse(),
}
_FUNCTIONS: Mapping[str, Callable[..., Fraction]] = {
    "floor": lambda value: Fraction(floor(value)),
    "ceil": lambda value: Fraction(ceil(value)),
    "ceiling": lambda value: Fraction(ceil(value)),
    "floordiv": lambda left, right: Fraction(left // right),
    "ceildiv": lambda left, right: Fraction(-(-left // right)),
    "mod": lambda left, right: left % right,
    "min": lambda *values: min(values),
    "max": lambda *values: max(values),
}
"""By name in lower case: SymPy and torch write some in capitals."""


def symbols(axis: str) -> frozenset[str]:
    """Return the names that an axis's arithmetic uses; none if its name is no arithmetic."""
    tree = _parse(axis)
    if tree is None:
        return frozenset()
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called)


def complete(axes: Collection[str], given: Mapping[str, int]) -> dict[str, int]:
    """Return the given sizes and those that follow from them, in both directions.

    Args:
        axes: all axes of the inputs; `given`: sizes by axis, or by a name in an axis's arithmetic.

    Raises:
        UsageError: arithmetic gives another size than the given one, or none that can be measured.
    """
    sizes, before = dict(given), -1
    while before < len(sizes):
        before = len(sizes)
        for axis in axes:
            unknown = symbols(axis) - sizes.keys()
            if len(unknown) == 1 and axis in sizes:
                (name,) = unknown
                solved = _solve(axis, name, sizes)
                if solved is not None and solved >= 1:
                    sizes[name] = solved
                elif solved == 0 and name in axes:
                    raise UsageError(f"{axis}={sizes[axis]} makes {name} 0: {EMPTY}")
            elif symbols(axis) and not unknown:
                sizes[axis] = _work_out(axis, sizes)
    return sizes


def _work_out(axis: str, sizes: Mapping[str, int]) -> int:
    value, own = _value(axis, sizes), ", ".join(f"{name}={sizes[name]}" for name in sorted(symbols(axis)))
    if value == 0:
        raise UsageError(f"axis {axis!r} is 0 by {own}: {EMPTY}")
    if value is None or value < 1 or value.denominator != 1:
        told = "has no value" if value is None else f"is {value}"
        raise UsageError(f"axis {axis!r} {told} by {own}: only a whole size of 1 or more can be measured")
    if value != sizes.get(axis, value):
        raise UsageError(f"axis {axis!r} is {value} by {own}, and {sizes[axis]} as given: leave one of them out")
    return int(value)


def _solve(axis: str, name: str, sizes: Mapping[str, int]) -> int | None:
    """Return the size of the only unknown name, if the arithmetic is a straight line in it; None if none fits."""
    at = [_value(axis, {**sizes, name: size}) for size in (1, 2, 3)]
    first, second, third = at
    if first is None or second is None or third is None or third - second != second - first or first == second:
        return None
    size = 1 + (sizes[axis] - first) / (second - first)
    fits = size.denominator == 1 and _value(axis, {**sizes, name: int(size)}) == sizes[axis]
    return int(size) if fits else None


def _value(axis: str, sizes: Mapping[str, int]) -> Fraction | None:
    tree = _parse(axis)
    try:
        return None if tree is None else _walk(tree, sizes)
    except (ArithmeticError, TypeError, ValueError):  # a division by zero, a function with other arguments, too large
        return None


def _walk(node: ast.expr, sizes: Mapping[str, int]) -> Fraction:
    match node:
        case ast.Constant(value=int(number)):
            found = Fraction(number)
        case ast.Name():
            found = Fraction(sizes[node.id])
        case ast.UnaryOp():
            found = -_walk(node.operand, sizes)
        case ast.BinOp():
            found = _OPERATORS[type(node.op)](_walk(node.left, sizes), _walk(node.right, sizes))
        case ast.Call(func=ast.Name(id=called)):
            found = _FUNCTIONS[called.lower()](*(_walk(one, sizes) for one in node.args))
        case _:
            raise ValueError(ast.dump(node))
    return found if abs(found) <= MOST_SIZE else _refuse()


def _refuse() -> Fraction:
    raise OverflowError


@lru_cache(maxsize=256)
def _parse(axis: str) -> ast.expr | None:
    """Return an axis's name as a tree of whole numbers, names, arithmetic and known functions; None if it is none."""
    if axis.isidentifier() or len(axis) > MOST_LETTERS:
        return None
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(axis.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if _is_arithmetic(tree) else None


def _is_arithmetic(node: ast.expr) -> bool:
    match node:
        case ast.Constant():
            return type(node.value) is int
        case ast.Name():
            return True
        case ast.UnaryOp(op=ast.USub()):
            return _is_arithmetic(node.operand)
        case ast.BinOp():
            return type(node.op) in _OPERATORS and _is_arithmetic(node.left) and _is_arithmetic(node.right)
        case ast.Call(func=ast.Name(id=called), keywords=[]):
            return called.lower() in _FUNCTIONS and all(map(_is_arithmetic, node.args))
        case _:
            return False
