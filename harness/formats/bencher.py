"""Bencher Metric Format: a benchmark per arm with a time, its measures by Bencher's own names where it has one.

The format: https://bencher.dev/docs/reference/bencher-metric-format (schema v0, https://bencher.dev/bmf.json).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from shootout.errors import printable
from shootout.formats.json_text import json_text
from shootout.results.document import Document, Row
from shootout.results.rows import BY_CALL

LONGEST_NAME = 1024
"""Letters that Bencher takes for a benchmark's name."""
Metric = dict[str, float]


def as_text(document: Document) -> str:
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
    yield from ((name, _metric(value)) for name, value in plain.items() if value is not None and isfinite(value))


def _metric(value: float, low: float | None = None, high: float | None = None) -> Metric:
    """One figure with the ends that are known of its interval."""
    ends = {"lower_value": low, "upper_value": high}
    return {"value": value, **{name: end for name, end in ends.items() if end is not None and isfinite(end)}}
