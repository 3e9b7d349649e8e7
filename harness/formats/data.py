"""A run as data for other programs: JSON, CSV for spreadsheets, Parquet for databases, and Bencher's JSON.

Bencher Metric Format: https://bencher.dev/docs/reference/bencher-metric-format (schema v0, https://bencher.dev/bmf.json).
A benchmark is an arm with a time; its measures have Bencher's own names if there is one.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from shootout.errors import printable
from shootout.results.document import Document, Part, Row
from shootout.results.frame import arrow_table, flatten_rows
from shootout.results.rows import BY_CALL

LONGEST_NAME = 1024
"""Letters that Bencher takes for a benchmark's name."""
Metric = dict[str, float]
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a text begins that a spreadsheet would compute."""
_PARTED = re.compile(r"""[;\n](?=["\s]*[=+@-])""")
"""Where another would begin: spreadsheets part cells at semicolons, and quotes then don't hold, where commas are
decimal points."""


def document_text(document: Part) -> str:
    """A whole document, of a run or of several."""
    return json_text(document.model_dump(mode="json", by_alias=True))


def json_text(data: Any) -> str:
    """JSON values as lines of text."""
    return json.dumps(_finite(data), indent=1, allow_nan=False) + "\n"


def _finite(data: Any) -> Any:
    """The same for JSON, which has no infinity and no NaN: null, as for all that isn't known."""
    if isinstance(data, dict):
        return {name: _finite(one) for name, one in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(one) for one in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


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


def as_bencher(document: Document) -> str:
    """The file's content; `group / arm` names a benchmark, which is the same in the next run of that study."""
    found: dict[str, dict[str, Metric]] = {}
    for row in document.rows:
        if measures := dict(_measures(row)):
            found[_name(row, found)] = measures
    return json_text(found)


def _name(row: Row, taken: dict[str, dict[str, Metric]]) -> str:
    """One that nobody has: of names that differ only in what can't be shown, or far behind, the later is numbered."""
    name = printable(f"{row.group} / {row.arm}").replace("\n", " ").replace("\t", " ")
    found, number = name[:LONGEST_NAME], 1
    while found in taken:
        number += 1
        found = f"{name[: LONGEST_NAME - 8]} ({number})"
    return found


def _measures(row: Row) -> Iterator[tuple[str, Metric]]:
    """Each measure that a row has; nothing of a row that wasn't measured to its end."""
    if row.outcome != "measured":
        return
    timing = row.end_to_end
    of_calls = timing if row.scenario in BY_CALL else None
    if of_calls:
        yield "latency", _metric(of_calls.median_ns, of_calls.low_ns, of_calls.high_ns)
    if timing and timing.ratio:
        yield "ratio", _metric(timing.ratio.value, timing.ratio.low, timing.ratio.high)
    if rate := row.serve.rate_per_s if row.serve else row.items_per_s:
        yield "throughput", _metric(rate.value, rate.low, rate.high)
    if row.serve and row.serve.p99_ns is not None:
        ends = (timing.low_ns, timing.high_ns) if timing and not row.serve.searched else ()  # p99 is its time then
        yield "latency-p99", _metric(row.serve.p99_ns, *ends)
    elif of_calls and of_calls.p99_ns is not None:
        yield "latency-p99", _metric(of_calls.p99_ns, of_calls.p99_low_ns)
    plain: dict[str, float | None] = {
        "file-size": row.artifact_bytes,
        "install-size": row.install_bytes,
        "memory": row.memory_bytes,
        "build-time": None if row.build_cached else row.build_s,
        "ready-time": row.ready_s,
        "accuracy": row.fidelity.accuracy if row.fidelity else None,
        "error": row.fidelity.relative_l2 if row.fidelity else None,
    }
    yield from ((name, _metric(value)) for name, value in plain.items() if value is not None and math.isfinite(value))


def _metric(value: float, low: float | None = None, high: float | None = None) -> Metric:
    """One figure with the ends that are known of its interval."""
    ends = {"lower_value": low, "upper_value": high}
    return {"value": value, **{name: end for name, end in ends.items() if end is not None and math.isfinite(end)}}
