"""A seeded share of `python -m lab --only kills`: kill -9 of a run, and of one of its processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.kills import ENDED, PARENT, WORKER, Drill, drill
from shootout.core.host.folders import NAME

ROOT = Path(__file__).resolve().parents[2]


def exports(run: Drill) -> bool:
    """Whether an export is at work."""
    return any((run.cache / "exported").glob(f"{NAME}*/*"))


def has_line(kind: str) -> Callable[[Drill], bool]:
    """Whether there is such a line in the journal."""
    return lambda run: any(line.kind == kind for line in getattr(run.history(), "lines", ()))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "reached"),
    [(PARENT, exports), (PARENT, has_line("rounds")), (WORKER, has_line("checked"))],
    ids=["parent, exports", "parent, restarts", "worker"],
)
def test_nothing_is_lost_measured_twice_or_left_behind(tmp_path: Path, kind: str, reached: Callable[[Drill], bool]):
    found = drill(tmp_path, kind, "a", reached=reached)
    assert not found.fault
    assert found.during != ENDED


def as_sentence(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write the table in words, for the documents."""
    kills, means = ([row[column] for row in rows] for column in ("kills", "commands, mean"))
    lost, twice, left, without, unfinished = (
        sum(row[column] for row in rows)
        for column in (
            "runs with records lost",
            "measured twice",
            "with something left behind",
            "with an arm without a time",
            "unfinished",
        )
    )
    return (
        f"of {kills[0]} runs that were killed, and {kills[1]} of which another process was, {lost} lost a record, "
        f"{twice} measured something twice, {left} left anything behind, {without} had an arm without a time "
        f"and {unfinished} could not be finished, by {means[0]:g} and {means[1]:g} commands in the mean"
    )


def test_the_documents_say_what_the_bench_found():
    found = json.loads((ROOT / "results" / "reference" / "kills.json").read_text())
    rows = found["sections"]["kills"]["tables"]["kill -9 at random instants"]
    assert as_sentence(rows) in " ".join((ROOT / "docs" / "evidence" / "figures.md").read_text().split())
