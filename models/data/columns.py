"""Read one column of a user's table, which is given as FILE:COLUMN, or the lines of a text file.

A table is a Parquet or a CSV file; pyarrow reads both.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from shootout.core.errors import UsageError, explained, unknown
from shootout.core.exported.model import sha256
from shootout.core.host.folders import Scratch
from shootout.core.host.store import READ_ROWS, cache_folder, mark_used
from shootout.core.install import require_pyarrow
from shootout.models.data.data_files import Column, as_column, read_table
from shootout.models.source import explaining_refusal

TABLES = (".parquet", ".csv")
COLUMN = "labels.npy"


def names_column(word: str) -> bool:
    """Return whether a word is meant as FILE:COLUMN of a table."""
    return Path(word.rpartition(":")[0]).suffix.lower() in TABLES


def read_columns(path: Path) -> dict[str, Column]:
    """Read all columns of a table by name, in the file's order; dates of a CSV file as the texts that it has.

    Raises:
        UsageError: it can't be read, or pyarrow isn't installed.
    """
    path = path.expanduser()
    if path.suffix.lower() != ".csv":
        return read_table(path)
    require_pyarrow(str(path))
    import pyarrow
    from pyarrow import csv

    try:
        with explaining_refusal(path):
            table = csv.read_csv(path)
            if dates := [one.name for one in table.schema if pyarrow.types.is_temporal(one.type)]:
                as_texts = csv.ConvertOptions(column_types=dict.fromkeys(dates, pyarrow.string()))
                table = csv.read_csv(path, convert_options=as_texts)
    except pyarrow.ArrowException as error:
        raise UsageError(f"{path} is no table of comma-separated values: {explained(error)}") from error
    return {name: as_column(table[name].to_pylist()) for name in table.column_names}


def read_column(word: str) -> Column:
    """Read the column that FILE:COLUMN names.

    Raises:
        UsageError: the file can't be read, or has no such column; says the nearest.
    """
    file, _, name = word.rpartition(":")
    found = read_columns(Path(file))
    if name not in found:
        raise unknown(f"column of {file}", name, found)
    return found[name]


def read_lines(path: Path) -> list[str]:
    """Read the lines of a text file that aren't empty.

    Raises:
        UsageError: it can't be read, or has none.
    """
    try:
        with explaining_refusal(path):
            lines = path.expanduser().read_text(encoding="utf-8").splitlines()
    except ValueError as error:
        raise UsageError(f"{path} is not a text file in UTF-8: {error}") from error
    if found := [line for line in lines if line.strip()]:
        return found
    raise UsageError(f"{path} holds no texts: give one with a text in each line")


def as_file(word: str) -> str:
    """Return the file in the cache that holds the column that FILE:COLUMN names, as an array of whole numbers.

    Raises:
        UsageError: as `read_column`, or it doesn't hold whole numbers.
    """
    column: Any = read_column(word)
    if not isinstance(column, np.ndarray) or column.dtype.kind not in "biu":
        kind = f"{column.dtype}" if isinstance(column, np.ndarray) else f"such as {column[0]!r}"
        raise UsageError(f"{word}: expected a whole number for each row, its class; got values {kind}")
    key = hashlib.sha256(f"{sha256(Path(word.rpartition(':')[0]).expanduser())} {word}".encode()).hexdigest()[:32]
    folder = cache_folder() / f"{READ_ROWS}{key}"
    if not folder.is_dir():
        with Scratch(cache_folder()) as made:
            np.save(made / COLUMN, column)
            if not folder.is_dir():
                made.rename(folder)
    mark_used(folder)
    return str(folder / COLUMN)
