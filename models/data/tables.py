"""Hold a table's columns as arrays of numbers, and give them back as an application has them.

A column of texts is carried as the place of each text among all different ones of the table, which are kept beside
the rows. A session turns these codes into texts in each call. Numbers are carried as float64, as pandas has them:
float32 would put some on the other side of a model's thresholds.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from shootout.core.contract import Array, Arrays
from shootout.core.errors import UsageError

COLUMNS = "columns.json"
"""Lies beside a model's own file that takes columns, and beside the rows of a table."""
CODE, NUMBER = "/code", "/number"
"""The ends of the names of inputs: of texts' codes, and of numbers."""
TAKEN, COLUMN = ("variable", "label", "probabilities"), "column "
"""Names of outputs, which the converter can't give to columns, and what it puts before such a column's name."""
GAP = "nan"
"""A missing text in a graph, as skl2onnx writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """Describe a column of a table.

    Attributes:
        dtype: of its numbers in the table; "" for texts.
        texts: all different ones, by code; None for a missing one.
        odd: tells what it holds, if that is neither numbers nor texts.
    """

    name: str
    dtype: str = ""
    texts: tuple[str | None, ...] = ()
    odd: str = ""

    @property
    def input(self) -> str:
        """Return the name of the input that carries it."""
        return f"{self.graph}{NUMBER if self.dtype else CODE}"

    @property
    def graph(self) -> str:
        """Return what a graph calls it: its name, unless converters have a use of their own for that."""
        is_plain = self.name and self.name not in TAKEN and "/" not in self.name and not self.name.startswith(COLUMN)
        return self.name if is_plain else f"{COLUMN}{self.name}"

    def refuse_odd(self, file: str) -> None:
        """Refuse what is neither numbers nor texts.

        Args:
            file: the table's, for people.

        Raises:
            UsageError: it holds something else.
        """
        if self.odd:
            raise UsageError(f"{file}: column {self.name!r} holds {self.odd}: expected numbers or texts")


@dataclass(frozen=True, kw_only=True)
class Table:
    """Describe the columns that a model takes, in its order.

    Attributes:
        model: the model's own file, as it was named.
        file: the table's, for people.
        is_series: the model takes its only column by itself, and no table.
    """

    columns: tuple[TableColumn, ...]
    model: str = ""
    file: str = ""
    is_series: bool = False

    def write(self, folder: Path) -> None:
        """Write it into a folder."""
        (folder / COLUMNS).write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")

    def pick(self, names: Sequence[str], *, is_series: bool = False) -> Table:
        """Return the table with these of its columns."""
        known = {one.name: one for one in self.columns}
        return dataclasses.replace(self, columns=tuple(known[name] for name in names), is_series=is_series)

    @property
    def names(self) -> list[str]:
        """Return the columns' names."""
        return [one.name for one in self.columns]

    @property
    def has_texts(self) -> bool:
        """Return whether a column holds texts."""
        return not all(one.dtype for one in self.columns)

    def arrays(self, inputs: Arrays) -> dict[str, Array]:
        """Return the columns by a graph's names, as a converted model takes them: texts as str, numbers as float32."""
        return {
            one.graph: inputs[one.input].astype(np.float32) if one.dtype else self._words[one.name][inputs[one.input]]
            for one in self.columns
        }

    def frame(self, inputs: Arrays) -> Any:
        """Return the columns as a pandas table, in the types that the user's table has, or the only one by itself."""
        from pandas import DataFrame, Series

        columns = {
            one.name: inputs[one.input][:, 0].astype(one.dtype)
            if one.dtype
            else self._extensions[one.name].take(inputs[one.input][:, 0])
            for one in self.columns
        }
        return Series(*columns.values()) if self.is_series else DataFrame(columns, copy=False)

    @cached_property
    def _words(self) -> Mapping[str, Array]:
        return {
            one.name: np.array([GAP if text is None else text for text in one.texts], object)
            for one in self.columns
            if not one.dtype
        }

    @cached_property
    def _extensions(self) -> Mapping[str, Any]:
        """Return the texts as pandas stores them."""
        from pandas import Series

        return {one.name: Series([*one.texts]).array for one in self.columns if not one.dtype}


def read_beside(path: Path) -> Table | None:
    """Return the columns that the model's file at this place takes; None if it takes one array of numbers."""
    try:
        facts = json.loads((path.parent / COLUMNS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    columns = tuple(TableColumn(**{**one, "texts": tuple(one["texts"])}) for one in facts.pop("columns"))
    return Table(columns=columns, **facts)
