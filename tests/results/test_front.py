"""The rows that nothing beats in score and time together, over several models."""

from __future__ import annotations

from typing import Any

import pytest
from support.races.cells import fidelity, row, timing

from shootout.apps.judge.accuracy import find_front
from shootout.tell.document import Metric, Row


def scored(arm: str, ns: float, score: float, *, group: str = "g", **facts: Any) -> Row:
    """A row with a mean score and a time."""
    metric = Metric(name="accuracy", value=score, rows=100, lower_is_better=False, **facts)
    return row(arm, ns, group=group, end_to_end=timing(ns), fidelity=fidelity(metric=metric))


@pytest.mark.parametrize(
    ("slow", "names"),
    [
        (scored("slow", 200, 0.9, group="h"), ["a"]),
        (scored("slow", 200, 0.89, group="h"), ["a"]),
        (scored("slow", 200, 0.91, group="h"), ["a", "slow"]),
        (scored("slow", 200, 0.91, group="h", against="outputs"), []),  # one model alone is scored against truth
        (scored("slow", 200, 0.91), []),
    ],
)
def test_a_row_is_on_the_front_unless_a_faster_one_scores_as_well(slow: Row, names: list[str]):
    found = find_front([slow, scored("a", 100, 0.9)])
    assert [one.arm.partition(":")[0] for one in found] == names
