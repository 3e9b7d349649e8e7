"""Rows as a flat table for other libraries: the same columns and types of every run, whatever is missing in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from shootout.core.contract import Executed
from shootout.core.install import require_pyarrow
from shootout.tell.document import Row

if TYPE_CHECKING:
    import pyarrow

_OPEN_MAPPINGS = {"executed": Executed}
"""The parts of a row that are mappings of known keys."""


def flatten_rows(rows: Sequence[Row]) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the columns, and of each row a value by column; a nested figure is `end_to_end.median_ns`.

    Returns:
        Columns that every run has, then those of what is named freely (parameters, options, precisions).
    """
    fixed = list(_fixed_columns(_row_class(rows)))
    known = frozenset(fixed)
    flat = [dict(_list_leaves(row.model_dump(mode="json"), known)) for row in rows]
    found = dict.fromkeys(name for row in flat for name in row)
    return [*fixed, *(name for name in found if name not in known)], flat


def arrow_table(rows: Sequence[Row]) -> pyarrow.Table:
    """Return the same as an Arrow table; a column that every run has is of the same type in all of them.

    Raises:
        UsageError: pyarrow isn't installed.
    """
    require_pyarrow("an Arrow table")
    import pyarrow

    columns, flat = flatten_rows(rows)
    schemas = _fixed_columns(_row_class(rows))
    values = {name: [row.get(name) for row in flat] for name in columns}
    types = {name: _arrow_type(schema) for name, schema in schemas.items()}
    return pyarrow.table({name: _make_array(found, types.get(name)) for name, found in values.items()})


def _make_array(values: Sequence[Any], type_: pyarrow.DataType | None) -> pyarrow.Array:
    """Return values as an Arrow array; those that no one type holds as text."""
    import pyarrow

    try:
        return pyarrow.array(values, type_)
    except (pyarrow.ArrowException, OverflowError):
        return pyarrow.array([None if value is None else str(value) for value in values])


def _arrow_type(schema: Mapping[str, Any]) -> pyarrow.DataType:
    """Return the type of a leaf; what may be null is no other one."""
    import pyarrow

    (one,) = [part for part in schema.get("anyOf", [schema]) if part.get("type") != "null"]
    if one.get("type") == "array":
        return pyarrow.list_(_arrow_type(one["items"]))
    simple = {"number": pyarrow.float64(), "integer": pyarrow.int64(), "boolean": pyarrow.bool_()}
    return simple.get(one.get("type", ""), pyarrow.string())


def _row_class(rows: Sequence[Row]) -> type[Row]:
    """Return the class of the rows, for rows of several machines have columns of their own."""
    return type(rows[0]) if rows else Row


@cache
def _fixed_columns(kind: type[Row]) -> dict[str, Mapping[str, Any]]:
    """Return the columns that every run has, each with its schema."""
    return dict(_list_columns(TypeAdapter(kind).json_schema(mode="serialization")))


def _list_columns(
    schema: Mapping[str, Any], prefix: str = "", shared: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each leaf of a schema by name; of a mapping with free keys none, since these are known only if it is."""
    shared = shared or schema.get("$defs", {})
    for name, value in schema["properties"].items():
        part = _object_schema(value, shared)
        if name in _OPEN_MAPPINGS and not prefix:
            yield from _list_columns(TypeAdapter(_OPEN_MAPPINGS[name]).json_schema(mode="serialization"), f"{name}.")
        elif part is None:
            yield prefix + name, value
        elif "properties" in part:
            yield from _list_columns(part, f"{prefix}{name}.", shared)


def _object_schema(value: Mapping[str, Any], shared: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the schema of an object, with known keys or free ones; None: it is a leaf."""
    for one in value.get("anyOf", [value]):
        found = shared[one["$ref"].rpartition("/")[2]] if "$ref" in one else one
        if found.get("type") == "object":
            return found  # type: ignore[no-any-return]
    return None


def _list_leaves(value: Mapping[str, Any], known: frozenset[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, part in value.items():
        name = prefix + key
        if isinstance(part, dict):
            yield from _list_leaves(part, known, f"{name}.")
        elif part is not None or name in known:
            yield name, part
