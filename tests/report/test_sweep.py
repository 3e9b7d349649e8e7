"""The screen of several groups in each of its states, a golden screen each; cells made by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from support.kept_screen import hold
from support.plain import as_plain
from support.races.cells import cell, document, fidelity, row
from support.reference_runs import read

from shootout.apps.judge.cell import Cell
from shootout.tell.document import Crossover, Document, Row
from shootout.tell.report import WIDEST
from shootout.tell.table import render, render_tables

MINE: dict[str, Any] = {"model": "net.onnx"}
COMMAND: dict[str, Any] = {"command": "shootout run net.onnx --batch 1..2048x2", "run": "results/net"}
SIZES = tuple(2**power for power in range(12))


def at(batch: int, *rows: Row, **changes: Any) -> Cell:
    """One group of a sweep over the batch."""
    name = f"net.onnx, batch {batch}"
    mine = [one.model_copy(update={"group": name, "batch": batch}) for one in rows]
    return cell(*mine, group=name, named=("--group", name), **{**COMMAND, **changes})


def of(*cells: Cell, **facts: Any) -> Document:
    return document(*cells, **facts).model_copy(update={"run": "results/net"})


def swept(batch: int) -> list[Row]:
    """Three targets of which one is fastest up to a batch of 64, and INT8 that is faster than both."""
    times = {"onnxruntime": 5e4 + 2e4 * batch, "torch-compile": 1e6 + 4e3 * batch, "numpy": 1e5 + 1e5 * batch}
    rows = [row(name, ns, **MINE) for name, ns in times.items()]
    return [*rows, row("onnxruntime:cpu:int8", 3e4 + 1e4 * batch, fidelity=fidelity(2e-3), **MINE)]


def of_twelve_sizes() -> Document:
    changes = Crossover(
        model="net.onnx", axis="batch", fixed={"threads": 1}, scenario="latency", scope="end_to_end", ships=True,
        below="onnxruntime:cpu:fp32", low=32, above="torch-compile:cpu:fp32", high=64, between=None,
    )  # fmt: skip
    return of(*(at(batch, *swept(batch)) for batch in SIZES), crossovers=(changes,))


def of_one_winner() -> Document:
    return of(*(at(batch, *swept(batch)[:1], *swept(batch)[2:]) for batch in SIZES))


def of_all_states() -> Document:
    """A choice that is sure, a tie, one that is open, a control that differs, and a group without a time."""
    slow, fast = row("slow", 2e6, **MINE), row("fast", 5e5, **MINE)
    near, far = row("near", 5.15e5, **MINE), row("far", 5.9e5, **MINE)
    return of(
        at(1, slow, fast),
        at(2, slow, fast, near, within=0.2),
        at(4, slow, fast, far, within=0.3, complete=False),
        at(8, slow, fast, unvouched="the control differs", control_holds=False),
        at(16, row("gone", None, **MINE), restarts=0, control_holds=None),
        at(32, fast),
        complete=False,
    )


def of_two_axes() -> Document:
    cells = []
    for batch in (1, 64):
        for scenario in ("latency", "train-step"):
            name = f"net.onnx, batch {batch}, {scenario}"
            facts = {"group": name, "batch": batch, "scenario": scenario}
            rows = [one.model_copy(update=facts) for one in (row("slow", 2e6, **MINE), row("fast", 5e5, **MINE))]
            cells.append(cell(*rows, group=name, named=("--group", name), **COMMAND))
    return of(*cells)


def of_none() -> Document:
    rows = row("slow", 2e6, **MINE), row("fast", 5e5, **MINE)
    return of(*(at(batch, *rows, within=math.inf, complete=False) for batch in (1, 2)), complete=False)


def of_one_default() -> Document:
    """No group has a folder: the next command sets the threads first."""
    rows = [row(name, ns, threads=0, **MINE) for name, ns in (("slow", 2e6), ("fast", 5e5))]
    return of(*(at(batch, *rows) for batch in (1, 2)))


def of_one_decided() -> Document:
    rows = row("slow", 2e6, **MINE), row("fast", 5e5, **MINE)
    return of(*(at(batch, *rows, within=math.inf) for batch in (1, 2)), at(4, *rows))


def of_biased_controls() -> Document:
    rows = row("slow", 2e6, **MINE), row("fast", 5e5, **MINE)
    return of(*(at(batch, *rows, unvouched="the control differs", control_holds=False) for batch in (1, 2)))


STATES: dict[str, Callable[[], Document]] = {
    "twelve sizes": of_twelve_sizes,
    "one winner": of_one_winner,
    "all states": of_all_states,
    "two axes": of_two_axes,
    "nothing decided": of_none,
    "one of three decided": of_one_decided,
    "no answer": of_biased_controls,
    "threads that aren't set": of_one_default,
}
LINES = 30
"""The most lines of a sweep's screen."""


def test_a_sweep_in_each_state_is_the_one_that_is_kept():
    told = [f"== {name}\n{as_plain([render(make(), 100)], 100)}\n" for name, make in STATES.items()]
    hold("sweeps", "\n".join(told))


def test_a_table_is_as_wide_as_the_terminal():
    runs = {name: read(name).document for name in ("shootout", "decide-digits", "h200-batch")}
    told = [
        f"== {name}, {width}\n{as_plain([render_tables(found, width)], width)}\n"
        for name, found in runs.items()
        for width in (60, 80, 140)
    ]
    hold("widths", "\n".join(told))


@pytest.mark.parametrize("name", STATES)
def test_a_sweep_has_a_short_screen_and_no_line_is_wider_than_the_terminal(name: str):
    found = STATES[name]()
    lines = as_plain([render(found, WIDEST)], WIDEST).splitlines()
    assert len(lines) <= LINES
    assert sum(line.startswith("Next ") for line in lines) == 1
    word = max(len(word) for answer in found.answer for word in (answer.next or "").split(" "))  # which isn't broken
    for width in (60, 80, 140):
        longest = max(map(len, as_plain([render(found, width)], width).splitlines()))
        assert longest <= max(width, len("        ") + word + len(" \\"))


def test_a_large_grid_is_folded_and_counts_its_rest():
    rows = [[row("slow", 2e6 - batch % 2 * 1.9e6, **MINE), row("fast", 5e5, **MINE)] for batch in range(40)]
    found = of(*(at(batch, *some) for batch, some in enumerate(rows)))
    assert "and 16 groups more, which --json has" in as_plain([render(found, 100)], 100)
