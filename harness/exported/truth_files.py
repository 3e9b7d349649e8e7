"""Read what is right for each row of a user's inputs: the truth that a metric scores outputs by.

An .npz file or a folder of .npy files has arrays by name, one entry a row along axis 0; a .npy file is one array. A
.jsonl file has a line for each row, so rows may differ in length. A line is a value, or an object with the same names
in all rows. A metric gets what the file has: arrays (or lists, if ragged) by name, or the one array without a name.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shootout.contract import Array, TensorSpec
from shootout.errors import UsageError
from shootout.exported import data_files

JSON_LINES = ".jsonl"
MOST_BYTES = 4 << 30
"""A process of its own reads all of the truth for each target."""

Column = Array | list[Any]
Truth = Mapping[str, Column] | Column
"""By name, or the one without a name; an entry for each row."""


def check(path: Path, counts: Collection[int]) -> None:
    """Refuse truth that can't be that of the rows, before anything is exported.

    Args:
        counts: each number of rows that the inputs may have; empty if none is known.

    Raises:
        UsageError: it can't be read, has another number of rows, is too large, or holds NaN; says where.
    """
    if path.suffix != JSON_LINES:
        headers = data_files.read_headers(path)
        for name, header in headers.items():
            _refuse_count(path, name, header.shape[0] if header.shape else None, counts)
        _refuse_size(path, headers.values())
    truth = read(path)
    columns = truth if isinstance(truth, Mapping) else {"": truth}
    lengths = {name: len(column) for name, column in columns.items()}
    for name, column in columns.items():
        _refuse_count(path, name, len(column), counts)
        if isinstance(column, np.ndarray):
            _refuse_nan(path, name, column)
    if len(set(lengths.values())) > 1:
        raise UsageError(f"{path}: every array needs an entry for each row; got {lengths}")


def read(path: Path) -> Truth:
    """Return all of the truth.

    Raises:
        UsageError: it can't be read.
    """
    if path.suffix == JSON_LINES:
        return _read_lines(path)
    arrays = data_files.read_arrays(path)
    return next(iter(arrays.values())) if path.suffix == ".npy" else arrays


def take_rows(truth: Truth, rows: Array) -> Any:
    """Return the truth of these rows, in the same form."""
    if isinstance(truth, Mapping):
        return {name: _take_column(column, rows) for name, column in truth.items()}
    return _take_column(truth, rows)


def _take_column(column: Column, rows: Array) -> Column:
    return column[rows] if isinstance(column, np.ndarray) else [column[row] for row in rows]


def _read_lines(path: Path) -> Truth:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"can't read {path}: {error}") from error
    values = []
    for number, line in enumerate(lines, 1):
        try:
            values.append(json.loads(line))
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: expected JSON, one row a line; {error}") from error
    if not values:
        raise UsageError(f"{path} is empty: write a line for each row")
    names = {tuple(sorted(value)) if isinstance(value, dict) else None for value in values}
    if len(names) > 1:
        odd = next(at for at, value in enumerate(values) if _names_of(value) != _names_of(values[0]))
        raise UsageError(f"{path}, line {odd + 1}: expected the names of line 1 in every row")
    if isinstance(values[0], dict):
        return {name: _as_column([value[name] for value in values]) for name in values[0]}
    return _as_column(values)


def _names_of(value: Any) -> tuple[str, ...] | None:
    return tuple(sorted(value)) if isinstance(value, dict) else None


def _as_column(values: list[Any]) -> Column:
    """Return an array if all rows have one shape and type of numbers, else the list."""
    try:
        found = np.asarray(values)
    except ValueError:  # rows of several lengths
        return values
    return found if found.dtype.kind in "biuf" else values


def _refuse_count(path: Path, name: str, count: int | None, counts: Collection[int]) -> None:
    if count is None or (counts and count not in counts):
        asked = f"the {' or '.join(map(str, sorted(counts)))} rows" if counts else "the rows"
        got = "a single number" if count is None else f"{count} entries"
        raise UsageError(f"{_place(path, name)}: expected an entry for each of {asked} of the inputs, got {got}")


def _refuse_size(path: Path, headers: Collection[TensorSpec]) -> None:
    size = sum(math.prod(one.shape) * _count_bits(one.dtype) // 8 for one in headers)
    if size > MOST_BYTES:
        raise UsageError(f"{path}: {size >> 20:,} MB of truth; at most {MOST_BYTES >> 20:,} MB: give fewer rows")


def _count_bits(dtype: str) -> int:
    """Return the bits of one entry, which most of NumPy's names of types end in: `float32`, `str96`."""
    digits = re.search(r"\d+$", dtype)
    return int(digits.group()) if digits else 8


def _refuse_nan(path: Path, name: str, column: Array) -> None:
    if column.dtype.kind == "f" and np.isnan(column).any():
        rows = np.flatnonzero(np.isnan(column).reshape(len(column), -1).any(axis=1))
        raise UsageError(f"{_place(path, name)}: expected numbers, got NaN in {len(rows)} rows, the first is {rows[0]}")


def _place(path: Path, name: str) -> str:
    return f"{path}: {name!r}" if name else str(path)
