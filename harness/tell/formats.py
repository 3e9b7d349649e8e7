"""Write a run as data for other programs, by the end of a file's name (`--to FILE`): JSON, CSV, Parquet, Bencher, XML.

Rows are a flat table: the same columns and types of every run, whatever is missing in it. A benchmark in Bencher's
Metric Format (https://bencher.dev/docs/reference/bencher-metric-format, schema v0, https://bencher.dev/bmf.json) is an
arm with a time; its measures have Bencher's own names if there is one.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from shootout.core.contract import Executed
from shootout.core.errors import UsageError, printable, tell_refusal
from shootout.core.install import require_pyarrow
from shootout.core.scenario import find_scenario
from shootout.tell.document import Document, Part, Row
from shootout.tell.junit import as_xml
from shootout.tell.wording import name_metric

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


LONGEST_NAME = 1024
"""Letters that Bencher takes for a benchmark's name."""
Metric = dict[str, float]
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet computes a text that begins with one of these."""


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
    """Write a line per row with the columns of `flatten_rows`, lists as JSON; no text is a formula."""
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
    text = printable(value)
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


PARQUET = ".parquet"
FORMATS: Mapping[str, Callable[[Any], bytes]] = {
    "bencher.json": lambda document: as_bencher(document).encode(),
    ".json": lambda document: document_text(document).encode(),
    ".xml": lambda document: as_xml(document),
    ".csv": lambda document: as_csv(document.rows).encode(),
    PARQUET: lambda document: as_parquet(document.rows),
}
"""Formats by the end of a file's name; the first that fits is taken."""
OF_ONE_RUN = ("bencher.json", ".xml")
"""Formats that can't hold runs of several machines."""
ENDS = ", ".join(FORMATS)


def check_files(paths: Iterable[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """Check, before anything is measured, that these files can be written, and return them.

    Raises:
        UsageError: a name has an unknown end, can't be written to, or needs a library that isn't installed.
    """
    return tuple(_check_target(Path(path)) for path in paths)


def write_files(document: Part, paths: Iterable[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """Write a run, or merged runs, into files in the format of their names; existing files are replaced.

    Raises:
        UsageError: as `check_files`; or a format can't hold runs of several machines.
    """
    checked = check_files(paths)
    refused = [path for path in checked if not isinstance(document, Document) and _find_ending(path) in OF_ONE_RUN]
    if refused:
        raise UsageError(f"{str(refused[0])!r} is a format for one run; of merged ones write .csv, .parquet or .json")
    for path in checked:
        write_file(path, FORMATS[_find_ending(path)](document))
    return checked


def write_file(path: Path, content: bytes) -> None:
    """Write one file, in the place of one that is there; make its folder if there is none.

    Raises:
        UsageError: the file can't be written.
    """
    with _explain_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        try:
            path.write_bytes(content)
        except OSError:
            if is_new:  # half a file would stand for a whole one
                path.unlink(missing_ok=True)
            raise


def check_file(path: Path) -> None:
    """Check that a file can be written, as far as can be known before.

    Raises:
        UsageError: it is a folder, or its folder may not be written to.
    """
    with _explain_errors(path):
        if path.is_dir():
            raise UsageError(f"{str(path)!r} is a folder; name a file in it")
        existing = path if path.exists() else next(folder for folder in path.absolute().parents if folder.exists())
        if not os.access(existing, os.W_OK) or (existing != path and not existing.is_dir()):
            why = "this user has no right to write there" if existing.is_dir() or existing == path else "it is a file"
            raise UsageError(f"{str(path)!r} can't be written: see {str(existing)!r}, {why}; choose another file")


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{str(path)!r} can't be written: {tell_refusal(error, 'choose another file')}") from None


def _check_target(path: Path) -> Path:
    if _find_ending(path) == PARQUET:
        require_pyarrow(str(path))
    check_file(path)
    return path


def _find_ending(path: Path) -> str:
    ending = next((end for end in FORMATS if path.name.lower().endswith(end)), None)
    if ending is None:
        raise UsageError(f"{path.name!r} has an unknown ending: use one of {ENDS}")
    return ending
