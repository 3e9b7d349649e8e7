"""Rows as a table: CSV for spreadsheets, Parquet for databases and data frames; the columns of `results.frame`."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import Any

from shootout.errors import printable
from shootout.results.document import Row
from shootout.results.frame import arrow_table, flatten_rows

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a text begins that a spreadsheet would compute."""
_PARTED = re.compile(r"""[;\n](?=["\s]*[=+@-])""")
"""Where another would begin: spreadsheets part cells at semicolons, and quotes then don't hold, where commas are
decimal points."""


def as_csv(rows: Sequence[Row]) -> str:
    """A line per row, UTF-8, empty where nothing is known, lists as JSON; a text is never a formula."""
    columns, flat = flatten_rows(rows)
    file = io.StringIO()
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(map(_cell, columns))
    lines.writerows([_cell(row.get(name)) for name in columns] for row in flat)
    return file.getvalue()


def as_parquet(rows: Sequence[Row]) -> bytes:
    """The same with types; zstd."""
    import pyarrow
    import pyarrow.parquet

    file = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(arrow_table(rows), file, compression="zstd")
    return bytes(file.getvalue())


def _cell(value: Any) -> Any:
    """A value as it stands in a cell; an apostrophe before a text keeps spreadsheets from computing it."""
    if isinstance(value, list):
        value = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        return value
    text = _PARTED.sub(r"\g<0>'", printable(value))
    return f"'{text}" if text.lstrip().startswith(_FORMULA) or text.startswith(_FORMULA) else text
