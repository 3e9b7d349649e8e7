"""Read a table beside a model of scikit-learn, LightGBM or XGBoost: its columns by their names, and what is right.

A table of numbers gives one array. If a model of scikit-learn's takes columns of texts, each column is an input by
itself, and the model is converted for this table. Categories of a booster are numbered as it numbers them itself.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from shootout.core.contract import Array
from shootout.core.errors import UsageError, unknown
from shootout.core.exported.model import sha256
from shootout.core.exported.request import find_claim
from shootout.models.data import columns, tables
from shootout.models.data.data_files import Column, RowFacts, as_column
from shootout.models.data.tables import Table, TableColumn
from shootout.models.native_trees import NativeFacts, choose_columns, read_facts
from shootout.models.readers.reader import Reader, keep_rows

VERSION = 1
"""Raised when rows of the same table come out differently."""
LABELS, TRUTH = "labels.npy", "truth.npy"
ALONE = "X"
"""The input of a model that takes one array of numbers."""
ERROR_METRIC = "mae"
MOST_SHOWN, MOST_LETTERS = 5, 40


class TableReader(Reader):
    """A table for a model that takes columns."""

    option = "data"
    also = ("target",)
    takes = "a table (.parquet or .csv)"

    def claims(self, given: str) -> bool:
        """Return whether this is meant as a table."""
        return Path(given).suffix.lower() in columns.TABLES

    def read(self, model: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rows of the columns that the model takes, and the target's classes or numbers."""
        path = Path(str(given["data"])).expanduser()
        if both := [name for name in ("labels", "truth") if name in given and "target" in given]:
            raise UsageError(f"--target and --{both[0]} both say what is right: pass only one of them")
        if columns.names_column(labels := str(given.get("labels", ""))):
            column = labels.rpartition(":")[2]
            raise UsageError(f"--labels {labels}: beside --data give the table's own column, as --target {column}")
        found = {name: _as_kind(path, column) for name, column in columns.read_columns(path).items()}
        target = _take_target(path, found, given.get("target"))
        if not found or not len(next(iter(found.values()))):
            raise UsageError(f"{path} is a table without {'rows' if found else 'columns'}: give one with both")
        table = Table(columns=tuple(map(_describe, found, found.values())), model=model, file=path.name)
        word, facts, converted = _ask_model(model, table)
        table = choose_columns(table, facts, Path(model).name)
        by_column = (converted.parent / tables.COLUMNS).exists()
        inputs = _as_inputs(table, found) if by_column else {ALONE: _as_matrix(table, found, facts.levels, model)}
        right, fields = _score(target, facts, path, Path(model).name, given)
        made_of = [VERSION, sha256(path), path.name, table.names, str(given.get("target")), str(facts)]
        told = RowFacts(told=f"{len(table.columns)} columns of {path.name}", notes=tuple(_notes(table, by_column)))
        stored = f"{path.stem}.npz"  # by which screens call it

        def write(folder: Path) -> int:
            np.savez(folder / stored, **inputs)  # type: ignore[arg-type] # its stubs take names for options
            if right is not None:
                np.save(folder / next(iter(fields.values())), right)
            return len(next(iter(inputs.values())))

        folder = keep_rows(made_of, told, write)
        places = {name: str(folder / file) for name, file in fields.items()}
        metric = {"metric": ERROR_METRIC} if "truth" in fields and "metric" not in given else {}
        return {"inputs": str(folder / stored), **places, **metric, "model": word}


def _ask_model(model: str, table: Table) -> tuple[str, NativeFacts, Path]:
    """Return the model's word for this table, what it takes and gives, and the file that it is converted to.

    Raises:
        UsageError: it takes no columns.
    """
    source = find_claim(model)
    path = Path(model).expanduser().absolute()
    word = _link_model(path, table) if path.is_file() else model
    converted = source.resolve(word) if source else ""
    facts = read_facts(converted)
    if not facts:
        fix = "for other models write an array for each input (numpy.savez), and give that as --inputs"
        raise UsageError(f"--data {table.file}: {model!r} has no columns, as a model of scikit-learn has; {fix}")
    return word, facts, Path(converted)


def _link_model(path: Path, table: Table) -> str:
    """Return a link to the model beside the table's columns, for which it is converted then."""

    def write(folder: Path) -> int:
        table.write(folder)
        (folder / path.name).symlink_to(path)
        return 0

    return str(keep_rows([str(path), repr(table)], RowFacts(told=f"columns of {table.file}"), write) / path.name)


def _take_target(path: Path, found: dict[str, Column], target: Any) -> Column | None:
    """Take the column that is right out of the others.

    Raises:
        UsageError: there is no such column, says the nearest; or it can't be a target.
    """
    if target is None:
        return None
    if target not in found:
        raise unknown(f"column of {path.name} as --target", str(target), found)
    _describe(str(target), found[target]).refuse_odd(path.name)
    return found.pop(str(target))


def _as_kind(path: Path, column: Column) -> Column:
    """Return a column as numbers with NaN for gaps, as texts with None for gaps, or as it is if it is neither."""
    if isinstance(column, np.ndarray) and column.ndim == 1:
        return column
    gap = "" if path.suffix.lower() == ".csv" else None  # as pandas reads a field that is empty
    values = [None if one == gap else one for one in column]
    if any(values) and all(isinstance(one, str) for one in values if one is not None):
        return values
    filled = as_column([math.nan if one is None else one for one in values])
    return filled if isinstance(filled, np.ndarray) and filled.ndim == 1 else values


def _describe(name: str, column: Column) -> TableColumn:
    if isinstance(column, np.ndarray):
        return TableColumn(name=name, dtype=column.dtype.name)
    held = [one for one in column if one is not None]
    if not all(isinstance(one, str) for one in held):
        odd = next((one for one in held if not isinstance(one, numbers.Real)), held[0])
        kind = "dates" if isinstance(odd, date) else f"{type(odd).__name__} values"
        return TableColumn(name=name, odd=f"{kind} such as {str(odd)[:MOST_LETTERS]!r}")
    return TableColumn(name=name, texts=(*sorted({*held}), *_gap(column)))


def _gap(column: Sequence[Any]) -> tuple[None, ...]:
    return (None,) if None in column else ()


def _as_inputs(table: Table, found: Mapping[str, Column]) -> dict[str, Array]:
    """Return an array for each column, with codes for texts."""
    return {
        one.input: _as_codes(found[one.name], one.texts)
        if one.texts
        else np.asarray(found[one.name], np.float64)[:, None]
        for one in table.columns
    }


def _as_codes(values: Column, texts: Sequence[str | None]) -> Array:
    codes = {text: code for code, text in enumerate(texts)}
    return np.array([[codes[value]] for value in values], np.int64)


def _as_matrix(table: Table, found: Mapping[str, Column], levels: Mapping[str, Sequence[Any]], model: str) -> Array:
    """Return the columns side by side; categories as the model's library numbers them, NaN if it has no number.

    Raises:
        UsageError: a column of texts has no categories.
    """
    made = list[Array]()
    for one in table.columns:
        column: Any = found[one.name]
        if known := levels.get(one.name):
            codes = {level: float(code) for code, level in enumerate(known)}
            column = [codes.get(value, math.nan) for value in np.asarray(column, object).tolist()]
        elif one.texts:
            name = Path(model).name
            fix = "and it knows no categories of it: fit it on a column of pandas' category type, or give their codes"
            got = f"{table.file}: column {one.name!r} holds texts such as {one.texts[0]!r}"
            raise UsageError(f"{got}; {name} takes numbers there, {fix}")
        made.append(np.asarray(column, np.float64))
    return np.stack(made, axis=1)


def _score(
    target: Column | None, facts: NativeFacts, path: Path, model: str, given: Mapping[str, Any]
) -> tuple[Array | None, dict[str, str]]:
    """Return what is right for each row, and the study's field that takes it with the name of its file.

    Raises:
        UsageError: it isn't of the model's classes, or no number.
    """
    if target is None:
        return None, {}
    place = f"{path.name}: --target {given['target']}"
    if facts.classes is None:
        if not isinstance(target, np.ndarray):
            raise UsageError(f"{place} holds texts such as {target[0]!r}, and {model} gives a number")
        if (gaps := np.flatnonzero(np.isnan(target.astype(np.float64)))).size:
            raise UsageError(f"{place} has no value in {gaps.size} rows, the first is {gaps[0]}: leave these rows out")
        return target.astype(np.float32)[:, None], {"truth": TRUTH}
    codes = {one: code for code, one in enumerate(facts.classes)}
    values = target.tolist() if isinstance(target, np.ndarray) else target
    if odd := [at for at, value in enumerate(values) if value not in codes]:
        known = ", ".join(map(repr, facts.classes[:MOST_SHOWN])) + ", …" * (len(codes) > MOST_SHOWN)
        raise UsageError(f"{place} is {values[odd[0]]!r} in row {odd[0]}, and {model} knows the classes {known}")
    return np.array([codes[value] for value in values], np.int64), {"labels": LABELS}


def _notes(table: Table, by_column: bool) -> list[str]:
    if not by_column:
        return []
    texts = ", ".join(one.name for one in table.columns if one.texts)
    return [f"columns of texts: {texts}; each call, end to end, begins by making them of stored codes"]
