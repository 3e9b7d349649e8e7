"""Read tables of a user's rows, which are Parquet files.

A column is an array if all of its rows are numbers of one shape, as lists and fixed-size lists are. Otherwise it is a
list with a value for each row. A missing number is NaN in an array, any other missing value is None.
"""

from __future__ import annotations

import math
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shootout.core.contract import Array, TensorSpec
from shootout.core.errors import UsageError, tell_refusal
from shootout.core.exported.model import LABELS
from shootout.core.install import require_pyarrow

PARQUET = ".parquet"
MOST_BYTES = 4 << 30
"""Numbers of one table."""
_PANDAS_INDEX = "__index_level_"

Column = Array | list[Any]


def is_table(path: Path) -> bool:
    """Return whether a path is meant as a table."""
    return path.suffix == PARQUET and not path.is_dir()


def read(path: Path) -> dict[str, Column]:
    """Read all columns of a table by name, in the file's order.

    Raises:
        UsageError: it can't be read, or is too large; says where. Or the library for it isn't installed.
    """
    require_pyarrow(str(path))
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise UsageError(f"{path} is not a regular file: name a .parquet file")
        return _read_parquet(path)
    except OSError as error:
        raise UsageError(f"can't read {path}: {tell_refusal(error)}") from error


def fit(path: Path, specs: Sequence[TensorSpec], *, takes_nan: bool = False) -> dict[str, Array]:
    """Read the rows of a model's inputs, each as an array of its type: a table has few types of numbers of its own.

    If the only input has no column of its name, columns of one number a row are its features, in the file's order.

    Args:
        takes_nan: a missing number is a value of the model's, NaN.

    Raises:
        UsageError: as `read`; or a column is missing, ragged, not numbers, or has gaps; says the row.
    """
    table, expected = read(path), [spec.name for spec in specs]
    if len(specs) == 1 and expected[0] not in table and len(specs[0].shape) == 2:
        return {expected[0]: _join_features(path, specs[0], table, takes_nan)}
    if missing := [name for name in expected if name not in table]:
        raise UsageError(f"{path}: expected columns {expected}; {missing} missing, got {_list_some([*table])}")
    return {spec.name: _fit_column(path, spec, table[spec.name], takes_nan) for spec in specs}


def _join_features(path: Path, spec: TensorSpec, table: Mapping[str, Column], takes_nan: bool) -> Array:
    names, count = [name for name in table if name != LABELS], spec.shape[1]
    if len(names) != count:
        asked = f"one column {spec.name!r} of lists, or {count} columns of a number, its features in order"
        raise UsageError(f"{path}: expected {asked}; got {len(names)} columns: {_list_some(names)}")
    one = replace(spec, shape=spec.shape[:1])
    columns = [_fit_column(path, replace(one, name=name), table[name], takes_nan) for name in names]
    return np.stack(columns, axis=1)


def find_gaps(column: Column) -> Array:
    """Return the numbers of the rows that hold NaN or a missing value."""
    if not isinstance(column, np.ndarray):
        return np.flatnonzero([_has_gap(value) for value in column])
    if column.dtype.kind != "f":
        return np.flatnonzero([])
    return np.flatnonzero(np.isnan(column).reshape(len(column), -1).any(axis=1))


def _has_gap(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_gap, value.values() if isinstance(value, dict) else value))
    return value is None or (isinstance(value, float) and math.isnan(value))


def _with_nan(value: Any) -> Any:
    """Return a row with NaN in place of what is missing."""
    if isinstance(value, list):
        return [_with_nan(one) for one in value]
    return math.nan if value is None else value


def as_column(values: list[Any]) -> Column:
    """Return an array if all rows have one shape and are numbers, else the list."""
    try:
        found = np.asarray(values)
    except (ValueError, OverflowError):  # rows of several lengths; more than 64 bits
        return values
    return found if found.dtype.kind in "biuf" else values


def _read_parquet(path: Path) -> dict[str, Column]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if (size := _count_bytes(file.metadata)) > MOST_BYTES:
                limit = f"{size >> 20:,} MB of numbers; at most {MOST_BYTES >> 20:,} MB"
                raise UsageError(f"{path}: {limit}: give fewer rows or columns")
            table = file.read()
        names = [name for name in table.column_names if not name.startswith(_PANDAS_INDEX)]
        if len(set(names)) < len(names):
            raise UsageError(f"{path}: two columns have the same name: {names}")
        return {name: _read_column(pyarrow.concat_arrays(table.column(name).chunks)) for name in names}
    except pyarrow.ArrowException as error:
        raise UsageError(f"can't read {path} as Parquet: {' '.join(str(error).split())}") from error


def _count_bytes(metadata: Any) -> int:
    """Return what the columns take in memory at least, by the file's footer."""
    widths = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}
    groups = (metadata.row_group(at) for at in range(metadata.num_row_groups))
    chunks = (group.column(at) for group in groups for at in range(group.num_columns))
    return sum(max(one.num_values * widths.get(one.physical_type, 8), one.total_uncompressed_size) for one in chunks)


def _read_column(column: Any) -> Column:
    found = _as_array(column)
    values: list[Any] = column.to_pylist() if found is None else []
    return values if found is None else found


def _as_array(column: Any) -> Array | None:
    """Return numbers of one shape as an array; None for anything else."""
    import pyarrow.compute
    from pyarrow import types

    kind = column.type
    if isinstance(column, pyarrow.ExtensionArray):
        return _as_array(column.storage)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        if column.null_count and types.is_boolean(kind):
            return None
        array: Array = column.to_numpy(zero_copy_only=False)
        return array
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)) or column.null_count:
        return None
    lengths = set(pyarrow.compute.unique(pyarrow.compute.list_value_length(column)).to_pylist())
    inner = _as_array(column.flatten()) if len(lengths) == 1 else None
    return None if inner is None else inner.reshape(len(column), lengths.pop(), *inner.shape[1:])


def _fit_column(path: Path, spec: TensorSpec, column: Column, takes_nan: bool) -> Array:
    """Return a column as an array of the input's type and with a row's axes.

    Raises:
        UsageError: as `fit`.
    """
    place = f"{path}: column {spec.name!r}"
    if takes_nan and not isinstance(column, np.ndarray):
        column = as_column([_with_nan(value) for value in column])
    elif not takes_nan and (gaps := find_gaps(column)).size:
        got = f"none or NaN in {len(gaps)} rows, the first is {gaps[0]}"
        raise UsageError(f"{place}: expected a value for each row, got {got}")
    if not isinstance(column, np.ndarray):
        raise UsageError(f"{place}: {_explain_list(spec, column)}")
    if spec.shape[1:] == (1,) and column.ndim == 1:
        column = column[:, None]
    if column.shape[1:] not in (spec.shape[1:], spec.shape):  # a row, or a set
        raise UsageError(f"{place}: expected {[*spec.shape[1:]]} in every row, got {[*column.shape[1:]]}")
    if not np.can_cast(column.dtype, spec.dtype, "same_kind"):
        raise UsageError(f"{place}: expected {spec.dtype}, got {column.dtype}")
    cast: Array = column.astype(spec.dtype)
    if spec.dtype.startswith(("int", "uint")) and not np.array_equal(cast, column):
        raise UsageError(f"{place}: expected {spec.dtype}, got whole numbers from {column.min()} to {column.max()}")
    return cast


def _explain_list(spec: TensorSpec, values: Sequence[Any]) -> str:
    """Say which row of a column that is no array isn't a row of the input."""
    shapes = [_shape_of(value) for value in values]
    odd = next((at for at, shape in enumerate(shapes) if shape != shapes[0]), 0)
    if shapes[odd] is None:
        return f"expected numbers, got {str(values[odd])[:40]!r} in row {odd}"
    fix = "the model takes rows of one size, so pad or cut them"
    return f"row {odd} is {shapes[odd]}, row 0 is {shapes[0]}; expected {[*spec.shape[1:]]} in every row: {fix}"


def _shape_of(value: Any) -> list[int] | None:
    """Return the shape of a row's numbers; None if it is something else or ragged."""
    array = as_column([value])
    return [*array.shape[1:]] if isinstance(array, np.ndarray) else None


def _list_some(names: Sequence[str]) -> str:
    most = 12
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
