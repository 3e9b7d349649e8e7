"""What a run leaves open: nothing where all verdicts stand, else each pair and cell that waits for one."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.races.made import COPY, A, B, ended, header, played, rounds, write

from shootout.apps.judge.analysis import analyse


def questions(folder: Path, b_ns: float, restarts: int) -> tuple[str, ...]:
    lines = [
        line
        for g in range(restarts)
        for line in (played(A, g, 1_000), played(COPY, g, 1_000), played(B, g, b_ns), rounds(g))
    ]
    return analyse(write(folder / "run", header(), *lines, ended())).open_questions


@pytest.mark.parametrize(
    ("b_ns", "restarts", "open_"),
    [
        (500, 6, ()),
        (1_100, 1, ("identity, batch 1: nothing is distinguished after 1 restart",)),
        (1_100, 0, ("identity, batch 1: nothing was timed",)),
    ],
)
def test_a_cell_without_an_answer_is_an_open_question(
    tmp_path: Path, b_ns: float, restarts: int, open_: tuple[str, ...]
):
    assert questions(tmp_path, b_ns, restarts) == open_


def test_a_pair_that_the_goal_waits_for_is_an_open_question(tmp_path: Path):
    lines = [
        line
        for g, b_ns in enumerate((400, 1_600, 500, 1_900))
        for line in (played(A, g, 1_000), played(COPY, g, 1_001), played(B, g, b_ns), rounds(g))
    ]
    found = analyse(write(tmp_path / "run", header(), *lines, ended()))
    assert len(found.open_questions) == 1
