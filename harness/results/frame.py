"""Rows as a flat table for other libraries: the same columns of every run, whatever is missing in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from shootout.contract import Executed
from shootout.results.document import Row

_KNOWN = {"executed": Executed}
"""What lies in a row as a mapping of known keys."""


def flatten_rows(rows: Sequence[Row]) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns, and of each row a value by column; a nested figure is `end_to_end.median_ns`.

    Returns:
        Columns that every run has, then those of what is named freely (parameters, options, precisions).
    """
    fixed = list(_columns(TypeAdapter(Row).json_schema(mode="serialization")))
    known = frozenset(fixed)
    flat = [dict(_leaves(row.model_dump(mode="json"), known)) for row in rows]
    found = dict.fromkeys(name for row in flat for name in row)
    return [*fixed, *(name for name in found if name not in known)], flat


def _columns(schema: Mapping[str, Any], prefix: str = "", shared: Mapping[str, Any] | None = None) -> Iterator[str]:
    """The name of each leaf of a schema; of a mapping with free keys none, since these are known only where it is."""
    shared = shared or schema.get("$defs", {})
    for name, value in schema["properties"].items():
        part = _part(value, shared)
        if name in _KNOWN and not prefix:
            yield from _columns(TypeAdapter(_KNOWN[name]).json_schema(mode="serialization"), f"{name}.")
        elif part is None:
            yield prefix + name
        elif "properties" in part:
            yield from _columns(part, f"{prefix}{name}.", shared)


def _part(value: Mapping[str, Any], shared: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema of an object, with known keys or free ones; None: it is a leaf."""
    for one in value.get("anyOf", [value]):
        found = shared[one["$ref"].rpartition("/")[2]] if "$ref" in one else one
        if found.get("type") == "object":
            return found  # type: ignore[no-any-return]
    return None


def _leaves(value: Mapping[str, Any], known: frozenset[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, part in value.items():
        name = prefix + key
        if isinstance(part, dict):
            yield from _leaves(part, known, f"{name}.")
        elif part is not None or name in known:
            yield name, part
