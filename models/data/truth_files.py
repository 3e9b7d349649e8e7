"""Read what is right for each row of a user's inputs: the truth that a metric scores outputs by.

An .npz file has arrays by name, one entry a row along axis 0; a .npy file is one array. A
table has columns by name, whose rows may differ in length. A metric gets what the file has: arrays
(or lists, if ragged) by name, or the one array without a name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shootout.core.contract import Array
from shootout.core.errors import UsageError
from shootout.core.host.store import READ_ROWS
from shootout.models.data import data_files
from shootout.models.data.data_files import Column

Truth = Mapping[str, Column] | Column
KEPT = "truth.json"
"""Ragged truth that a user's function gave, beside the rows in the cache: a list of its rows."""


def check(path: Path, counts: Collection[int]) -> Truth:
    """Return the truth, after refusing what can't be that of the rows, before anything is exported.

    Args:
        counts: each number of rows that the inputs may have; empty if none is known.

    Raises:
        UsageError: it can't be read, has another number of rows, or holds NaN; says where.
    """
    if not _may_be_ragged(path):
        headers = data_files.read_headers(path)
        for name, header in headers.items():
            _refuse_count(path, name, header.shape[0] if header.shape else None, counts)
    truth = read(path)
    columns = truth if isinstance(truth, Mapping) else {"": truth}
    lengths = {name: len(column) for name, column in columns.items()}
    for name, column in columns.items():
        _refuse_count(path, name, len(column), counts)
        if (gaps := data_files.find_gaps(column)).size:
            got = f"none or NaN in {len(gaps)} rows, the first is {gaps[0]}"
            raise UsageError(f"{_place(path, name)}: expected a value for each row, got {got}")
    if len(set(lengths.values())) > 1:
        raise UsageError(f"{data_files.title(path)}: every array needs an entry for each row; got {lengths}")
    return truth


def read(path: Path) -> Truth:
    """Return all of the truth.

    Raises:
        UsageError: it can't be read.
    """
    if data_files.is_table(path):
        return data_files.read_table(path)
    if _may_be_ragged(path):
        return as_truth(json.loads(path.read_text(encoding="utf-8")))
    arrays = data_files.read_arrays(path)
    return next(iter(arrays.values())) if path.suffix == ".npy" else arrays


def as_truth(rows: list[Any]) -> Truth:
    """Return rows of values, or of dicts with the same names, as columns: arrays where all rows have one shape."""
    if not isinstance(rows[0], Mapping):
        return data_files.as_column(rows)
    return {name: data_files.as_column([row[name] for row in rows]) for name in rows[0]}


def _may_be_ragged(path: Path) -> bool:
    return data_files.is_table(path) or (path.name == KEPT and path.parent.name.startswith(READ_ROWS))


def read_ids(path: Path) -> tuple[str, Array]:
    """Return what rows belong to, as people may call it (`speaker`), and the one that each row belongs to.

    Raises:
        UsageError: it can't be read, or isn't one number or text for each row, or all rows belong to one.
    """
    found = read(path)
    if isinstance(found, Mapping) and len(found) != 1:
        raise UsageError(f"{path}: expected one array, the unit of each row; got {', '.join(found) or 'none'}")
    name, column = next(iter(found.items())) if isinstance(found, Mapping) else (path.stem, found)
    try:
        ids = np.asarray(column)
    except ValueError:  # rows of several lengths
        ids = np.zeros((0, 0))
    if ids.ndim != 1 or ids.dtype.kind not in "biufUS":
        raise UsageError(
            f"{path}: expected one number or text for each row, its unit; got {ids.dtype}{list(ids.shape)}"
        )
    unit = name.lower().removesuffix("s") if re.fullmatch("[A-Za-z]{2,}", name) else "unit"
    if len(np.unique(ids)) < 2:
        raise UsageError(
            f"{path}: all {len(ids)} rows are of one {unit}, and at least two are needed: give rows of more"
        )
    return unit, ids


def take_rows(truth: Truth, rows: Array) -> Any:
    """Return the truth of these rows, in the same form."""
    if isinstance(truth, Mapping):
        return {name: _take_column(column, rows) for name, column in truth.items()}
    return _take_column(truth, rows)


def _take_column(column: Column, rows: Array) -> Column:
    return column[rows] if isinstance(column, np.ndarray) else [column[row] for row in rows]


def _refuse_count(path: Path, name: str, count: int | None, counts: Collection[int]) -> None:
    if count is None or (counts and count not in counts):
        asked = f"the {' or '.join(map(str, sorted(counts)))} rows" if counts else "the rows"
        got = "a single number" if count is None else f"{count} entries"
        raise UsageError(f"{_place(path, name)}: expected an entry for each of {asked} of the inputs, got {got}")


def _place(path: Path, name: str) -> str:
    shown = data_files.title(path)
    return f"{shown}: {name!r}" if name else shown
