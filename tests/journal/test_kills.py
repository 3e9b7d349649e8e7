"""A seeded share of `python -m tests.bench --only kills`: kill -9 of a run, and of one of its processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.kills.drill import PARENT, WORKER, Found, as_row, as_sentence, drill

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), [(PARENT, "a"), (PARENT, "b"), (WORKER, "a")])
def test_nothing_is_lost_measured_twice_or_left_behind(tmp_path: Path, kind: str, seed: str):
    found = drill(tmp_path, kind, seed, whole_s=5.0)
    assert not found.fault


def test_the_documents_say_what_the_bench_found():
    found = json.loads((ROOT / "results" / "reference" / "kills.json").read_text())
    rows = found["sections"]["kills"]["tables"]["kill -9 at random instants"]
    assert as_sentence(rows) in " ".join((ROOT / "docs" / "figures.md").read_text().split())


def test_the_table_counts_the_runs_that_had_not_ended():
    well = {"after_s": 1.0, "lost": (), "twice": (), "left": (), "without_verdict": (), "ended": ""}
    found = [
        Found(kind=PARENT, seed="0", during="exports and builds", commands=2, **well),
        Found(kind=PARENT, seed="1", during="it had ended", commands=1, **well),
        Found(kind=PARENT, seed="2", during="exports and builds", commands=3, **{**well, "left": ("process 1",)}),
    ]
    row = as_row(found, PARENT)
    assert (row["kills"], row["with something left behind"], row["commands, mean"]) == (2, 1, 2.0)
    assert [one.fault for one in found] == ["", "", "left: process 1"]
