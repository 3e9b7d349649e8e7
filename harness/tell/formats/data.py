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

from shootout.core.errors import printable
from shootout.core.scenario import find_scenario
from shootout.tell.document import Document, Part, Row
from shootout.tell.formats.frame import arrow_table, flatten_rows
from shootout.tell.wording import name_metric

LONGEST_NAME = 1024
"""Letters that Bencher takes for a benchmark's name."""
Metric = dict[str, float]
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet computes a text that begins with one of these."""
_LATER_FORMULA = re.compile(r"""[;\n](?=["\s]*[=+@-])""")
"""If commas are decimal points, spreadsheets split cells at semicolons, even in quotes; a formula can begin there."""


def document_text(document: Part) -> str:
    """Write a whole document, of a run or of several, as `--json` prints it."""
    return json_text(document.model_dump(mode="json", by_alias=True))


def json_text(data: Any) -> str:
    """Write values as lines of JSON."""
    return json.dumps(_replace_infinities(data), indent=1, allow_nan=False) + "\n"


def _replace_infinities(data: Any) -> Any:
    """Replace infinity and NaN, which JSON hasn't, by null, which stands for all that is unknown."""
    if isinstance(data, dict):
        return {name: _replace_infinities(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_replace_infinities(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def as_csv(rows: Sequence[Row]) -> str:
    """Write a line per row with the columns of `tell.formats.frame`, lists as JSON; no text is a formula."""
    columns, flat = flatten_rows(rows)
    file = io.StringIO()
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(map(_guard_cell, columns))
    lines.writerows([_guard_cell(row.get(name)) for name in columns] for row in flat)
    return file.getvalue()


def as_parquet(rows: Sequence[Row]) -> bytes:
    """Write the same columns with types, compressed by zstd."""
    import pyarrow
    import pyarrow.parquet

    file = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(arrow_table(rows), file, compression="zstd")
    return bytes(file.getvalue())


def _guard_cell(value: Any) -> Any:
    """Return a value as a cell has it; an apostrophe before a text keeps spreadsheets from computing it."""
    if isinstance(value, list):
        value = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        return value
    text = _LATER_FORMULA.sub(r"\g<0>'", printable(value))
    return f"'{text}" if text.lstrip().startswith(_FORMULA) or text.startswith(_FORMULA) else text


def as_bencher(document: Document) -> str:
    """Write a benchmark per measured arm; its name, `group / arm`, is the same in the next run of that study."""
    benchmarks: dict[str, dict[str, Metric]] = {}
    for row in document.rows:
        if measures := dict(_list_measures(row)):
            benchmarks[_name_benchmark(row, benchmarks)] = measures
    return json_text(benchmarks)


def _name_benchmark(row: Row, taken: dict[str, dict[str, Metric]]) -> str:
    """Return a name that isn't taken; of names that became equal when letters were removed, the later is numbered."""
    name = printable(f"{row.group} / {row.arm}").replace("\n", " ").replace("\t", " ")
    unique, number = name[:LONGEST_NAME], 1
    while unique in taken:
        number += 1
        unique = f"{name[: LONGEST_NAME - 8]} ({number})"
    return unique


def _list_measures(row: Row) -> Iterator[tuple[str, Metric]]:
    """List the measures of a row; a row that wasn't measured to its end has none."""
    if row.outcome != "measured":
        return
    timing = row.end_to_end
    of_calls = timing if find_scenario(row.scenario).is_by_call else None
    if of_calls:
        yield "latency", _make_metric(of_calls.median_ns, of_calls.low_ns, of_calls.high_ns)
    if timing and timing.ratio:
        yield "ratio", _make_metric(timing.ratio.value, *timing.ratio.ends)
    if rate := row.serve.rate_per_s if row.serve else row.items_per_s:
        yield "throughput", _make_metric(rate.value, rate.low, rate.high)
    if row.serve and row.serve.p99_ns is not None:
        ends = (timing.low_ns, timing.high_ns) if timing and not row.serve.searched else ()  # p99 is its time then
        yield "latency-p99", _make_metric(row.serve.p99_ns, *ends)
    elif of_calls and of_calls.p99_ns is not None:
        yield "latency-p99", _make_metric(of_calls.p99_ns, of_calls.p99_low_ns)
    if row.cpu:
        yield "cpu-time", _make_metric(row.cpu.median_ns, row.cpu.low_ns, row.cpu.high_ns)
    if row.fidelity and (metric := row.fidelity.metric):
        yield name_metric(metric), _make_metric(metric.value, metric.low, metric.high)
    plain: dict[str, float | None] = {
        "file-size": row.artifact_bytes,
        "install-size": row.install_bytes,
        "memory": row.memory_bytes,
        "build-time": None if row.build_cached else row.build_s,
        "ready-time": row.ready_s,
        "error": row.fidelity.relative_l2 if row.fidelity else None,
    }
    yield from (
        (name, _make_metric(value)) for name, value in plain.items() if value is not None and math.isfinite(value)
    )


def _make_metric(value: float, low: float | None = None, high: float | None = None) -> Metric:
    """Make a figure with the known ends of its interval."""
    ends = {"lower_value": low, "upper_value": high}
    return {"value": value, **{name: end for name, end in ends.items() if end is not None and math.isfinite(end)}}
