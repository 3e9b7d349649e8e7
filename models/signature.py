"""What a user's own factory can be given, read from its source: nothing of it is run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from shootout.contract import Value
from shootout.errors import UsageError, unknown
from shootout.models.source import Source, read

BATCH = "batch"
"""A factory's parameter of this name gets the batch size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What a factory can be given: parameters with their defaults, and whether it takes the batch size."""

    defaults: Mapping[str, Value]
    takes_batch: bool


def signature(source: Source) -> Signature:
    """The factory's parameters, from its source.

    Raises:
        UsageError: the source is no Python, has no such function (with the nearest), or one that needs more than a
            batch size; or no function is named.
    """
    body = _parse(source.file.name, read(source.file)).body
    known = _names(body)
    if not source.function:
        functions = [name for name, node in known.items() if isinstance(node, ast.FunctionDef)]
        example = f"{source.short}{functions[0] if functions else 'make'}"
        raise UsageError(f"say which function makes the model, as in {example}; there is {_listed(functions)}")
    if source.function not in known and not _is_open(body):
        public = [name for name, node in known.items() if _is_own(node) and not name.startswith("_")]
        raise unknown(f"function in {source.short.rpartition(':')[0]}", source.function, public)
    node = known.get(source.function)
    if isinstance(node, ast.AsyncFunctionDef):
        raise UsageError(f"{source.short} is an async function: it must return the module and its inputs by itself")
    if not isinstance(node, ast.FunctionDef):
        return Signature(defaults={}, takes_batch=False)  # a class, or made by other code: it is called as it is
    parameters = _parameters(node.args)
    needed = [name for name, default in parameters.items() if default is None and name != BATCH]
    if needed:
        raise UsageError(f"{source.short} needs a value for {_listed(needed)}: give it a default")
    values = {name: _literal(default) for name, default in parameters.items() if default and name != BATCH}
    defaults = {name: value for name, value in values.items() if isinstance(value, int | float | str)}
    return Signature(defaults=defaults, takes_batch=BATCH in parameters)


@lru_cache(maxsize=16)
def _parse(name: str, text: bytes) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise UsageError(f"{name} line {error.lineno} isn't Python: {error.msg}") from None
    except ValueError as error:
        raise UsageError(f"{name} isn't Python: {error}") from None


def _names(body: Iterable[ast.stmt]) -> dict[str, ast.stmt]:
    """What a module's statements bind, also inside `if`, `try` and `with`."""
    found: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0]: node for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {name.id: node for one in targets for name in ast.walk(one) if isinstance(name, ast.Name)}
        else:
            parts = (getattr(node, part, []) for part in ("body", "orelse", "finalbody"))
            handlers = (handler.body for handler in getattr(node, "handlers", []))
            found |= {name: one for part in (*parts, *handlers) for name, one in _names(part).items()}
    return found


def _is_open(body: Iterable[ast.stmt]) -> bool:
    """Whether the module may have names that its source doesn't show."""
    names = _names(body)
    return "*" in names or "__getattr__" in names


def _is_own(node: ast.stmt) -> bool:
    return not isinstance(node, ast.Import | ast.ImportFrom)


def _parameters(args: ast.arguments) -> dict[str, ast.expr | None]:
    """Each parameter's default, None where it has none."""
    places = [*args.posonlyargs, *args.args]
    defaults = [*[None] * (len(places) - len(args.defaults)), *args.defaults]
    pairs = [*zip(places, defaults, strict=True), *zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    return {argument.arg: default for argument, default in pairs}


def _literal(default: ast.expr) -> object:
    try:
        return ast.literal_eval(default)
    except ValueError:
        return None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
