"""What the bench takes for a run's answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.races.made import COPY, A, B, ended, header, played, rounds, write

from lab.whole_runs import settled_s, shipped
from shootout.results.analysis import analyse


@pytest.mark.parametrize(("restarts", "answer"), [(1, None), (5, B.label)])
def test_the_fastest_so_far_is_no_answer(restarts: int, answer: str | None, tmp_path: Path):
    race = [
        line
        for g in range(restarts)
        for line in (played(A, g, 1_000 + g), played(COPY, g, 1_001 + g), played(B, g, 500 + g), rounds(g))
    ]
    found = analyse(write(tmp_path / "run", header(), *race, ended()))
    assert found.answer[0].ship
    assert shipped(found) == answer


def test_an_answer_is_settled_where_a_verdict_first_stood_behind_it():
    assert settled_s([(1.0, None), (2.0, "a"), (3.0, "b"), (4.0, "b")]) == 3.0
    assert settled_s([(1.0, "a"), (2.0, None)]) is None
