"""The answer of several groups: a line for each, and what holds for all of them; cells made by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from support.plain import as_plain
from support.races.cells import cell, document, row

from shootout.apps.judge.cell import Cell
from shootout.tell.document import Crossover, Document, Row
from shootout.tell.grid import render_answers
from shootout.tell.screen import INDENT

SLOW, FAST = row("slow", 2e6), row("fast", 5e5)


def shown(found: Document, width: int = 100) -> list[str]:
    """The screen's lines."""
    return as_plain(render_answers(found, width), width).splitlines()


def test_a_run_of_several_groups_has_a_next_command_for_each():
    def group(batch: int, *rows: Row) -> Cell:
        mine = [one.model_copy(update={"batch": batch, "group": f"toy, batch {batch}"}) for one in rows]
        return cell(*mine, group=f"toy, batch {batch}", named=("--group", f"toy, batch {batch}"))

    mine = {"model": "/c/exported/trees-1/forest.ubj.onnx"}
    own, ort = row("xgboost", 5e5, **mine), row("onnxruntime", 9e5, **mine)
    found = document(group(1, SLOW, FAST), group(1000, ort, own))
    text = " ".join(line.strip() for line in shown(found, 120) if line)
    assert "Next    xgboost: it runs forest.ubj as it is, so copy that file; at batch 1000 it was measured with" in text
    lines = [line.strip() for line in shown(found, 120) if line]
    assert lines[-2:] == [
        "shootout ship RUN --group 'toy, batch 1' -o model-1",
        "shootout ship RUN --group 'toy, batch 1000' --target onnxruntime -o model-2",
    ]


def at(batch: int, *rows: Any, **changes: Any) -> Cell:
    name = f"toy, batch {batch}"
    mine = [one.model_copy(update={"group": name, "batch": batch}) for one in rows]
    return cell(*mine, group=name, **changes)


def test_a_grid_is_a_line_a_cell_and_where_the_answer_changes():
    changes = Crossover(
        model="toy", axis="batch", fixed={"threads": 1}, scenario="latency", scope="end_to_end", ships=True,
        below=FAST.arm, low=16, above=SLOW.arm, high=64, between="shootout run --model toy --batch 24,32,48",
    )  # fmt: skip
    copies = changes.model_copy(update={"scope": "compute", "ships": False})
    found = document(
        at(1, SLOW, FAST),
        at(16, SLOW, FAST, row("near", 5.05e5)),
        at(64, row("slow", 3e5), FAST, row("near", 5.05e5)),
        at(256, SLOW, FAST, unvouched="the control differs", control_holds=False),
        at(512, SLOW, FAST, within=math.inf),
        crossovers=(changes, copies, copies.model_copy(update={"low": 1})),
    )
    lines = shown(found)
    assert lines[0] == "What to ship, in 5 groups"
    assert " ".join(lines[3].split()) == "1 fast 500 us 4.00x faster than slow (3.92 to 4.08)"
    assert " ".join(lines[4].split()) == "16 fast 500 us 4.00x faster than slow (3.92 to 4.08) near lower time"
    assert " ".join(lines[5].split()) == "64 slow 300 us 1.67x faster than fast (1.63 to 1.70)", "it is the baseline"
    assert lines[6].split() == ["256", "no", "answer"]
    assert lines[7].split()[:5] == ["512", "fast,", "leads", "so", "far"]
    assert "No answer  batch=256: the control differs" in lines
    assert "So far  batch=512: nothing is distinguished after 5 restarts" in lines
    assert "Changes by batch  fast up to 16, slow from 64 on" in lines
    assert "Faster by batch  fast up to 1, slow from 64 on without copies" in lines, "only where that differs"
    assert lines.count("        the sizes between:  shootout run --model toy --batch 24,32,48") == 1
    assert "DIFFERENT in 1 of 5 groups" in paragraph_of(lines, "Sure")


@pytest.mark.parametrize(
    ("holds", "told"),
    [
        ((True, True), "control (a hidden copy of each baseline) equal"),
        (
            (True, None),
            "control (a hidden copy of each baseline) equal in 1, not different in 1 of 2 groups",
        ),
        ((None, None), "control (a hidden copy of each baseline) not different"),
    ],
)
def test_a_grid_claims_no_control_that_nothing_shows(holds: tuple[bool | None, ...], told: str):
    found = document(*(at(batch, SLOW, FAST, control_holds=one) for batch, one in enumerate(holds, 1)))
    sure = paragraph_of(shown(found), "Sure")
    assert sure == f"up to 5 restarts of each process · 0 % of the rounds disturbed · {told}"


def paragraph_of(lines: list[str], label: str) -> str:
    """A labeled line with those that go on with it."""
    start = next(number for number, line in enumerate(lines) if line.startswith(label))
    more = itertools.takewhile(lambda line: line.startswith(" " * INDENT), lines[start + 1 :])
    return " ".join(line.removeprefix(label).strip() for line in (lines[start], *more))


@pytest.mark.parametrize(("ns", "within"), [(4.95e5, 0.02), (4.5e5, 0.2)])
def test_a_grid_in_which_an_arm_is_not_known_to_lose_does_not_change(ns: float, within: float):
    found = document(at(1, SLOW, FAST), at(16, SLOW, FAST, row("near", ns, artifact_bytes=9), within=within))
    assert [answer.ship and answer.ship.arm for answer in found.answer] == [FAST.arm, "near:cpu:fp32"]
    assert not any(line.startswith("Changes") for line in shown(found))


def test_a_large_grid_is_folded_and_counts_its_rest():
    found = document(*(at(batch, SLOW, FAST, row("g:cuda:fp32", None)) for batch in range(1, 41)))
    lines = shown(found)
    assert "and 16 groups more, which --json has" in lines
    assert len(lines) < 40
