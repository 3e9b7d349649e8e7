"""Rows as a flat table: the same columns of every run, and objects that say what they are in a line."""

from __future__ import annotations

from pathlib import Path

from support.races import cells
from support.races.made import COPY, A, B, ended, header, played, rounds, write

import shootout
from shootout.tell.document import Row
from shootout.tell.formats import flatten_rows


def race(folder: Path, restarts: int) -> shootout.Run:
    lines = [
        line
        for g in range(restarts)
        for line in (played(A, g, 1_000 + g), played(COPY, g, 1_001 + g), played(B, g, 500 + g), rounds(g))
    ]
    return shootout.load(write(folder / f"run{restarts}", header(), *lines, ended()))


def test_an_empty_run_has_the_columns_of_a_full_one(tmp_path: Path):
    full, empty = (race(tmp_path, restarts).to_pandas() for restarts in (5, 0))
    fixed, _ = flatten_rows(())
    assert list(empty.columns)[: len(fixed)] == list(full.columns)[: len(fixed)] == fixed
    named = {"arm", "end_to_end.ratio.verdict", "fidelity.metric.change.low", "executed.version", "serve.p99_ns"}
    assert named <= set(fixed)
    assert not any(name in Row.model_fields and name in {"end_to_end", "executed", "gpu"} for name in full.columns)
    assert full["end_to_end.median_ns"].notna().all()
    assert empty["end_to_end.median_ns"].isna().all()


def test_what_is_named_freely_has_columns_where_it_is():
    columns, rows = flatten_rows((cells.row("a", 1e6, parameters={"width": 3}), cells.row("b", None)))
    assert columns[-1] == "parameters.width"
    assert [row.get("parameters.width") for row in rows] == [3, None]
    assert rows[0]["end_to_end.median_ns"] == 1e6


def test_objects_say_what_they_are_in_a_line(tmp_path: Path):
    run = race(tmp_path, 5)
    assert repr(run) == f"<Run {run.document.run!r}: 2 rows; ship b:cpu:fp32>"
    assert repr(run.rows[1]) == str(run.rows[1]) == "<Row b:cpu:fp32: measured, 502 ns>"
    assert repr(run.answer[0]) == "<Answer identity, batch 1: ship b:cpu:fp32>"
    assert repr(run.document).endswith("2 rows in 1 group>")
    (ratio,) = run.verdicts.values()
    assert repr(ratio) == str(ratio) == "<Ratio 2.00x faster (1.99 to 2.00)>"
    assert repr(race(tmp_path, 1)).endswith("; ship b:cpu:fp32, leads so far>"), "no verdict stands behind it"
