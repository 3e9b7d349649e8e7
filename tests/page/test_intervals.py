"""The first figure's arms: who stands where, in which colour and with which words."""

from __future__ import annotations

from typing import Any

import pytest
from support.races.cells import cell, document, fidelity, row

from shootout.page import intervals
from shootout.page.charts import BEHIND, CHOSEN, EVEN, SOFT, choose_ticks
from shootout.page.intervals import DotLine, find_lines
from shootout.results.document import Document


def lines(found: Document) -> dict[str, DotLine]:
    return {one.name: one for one in find_lines(found.answer[0], found.rows)}


def inline(chart: Any) -> list[dict[str, Any]]:
    """All data of a chart."""
    return [one for values in chart.to_dict()["datasets"].values() for one in values]


def test_each_arm_stands_at_its_ratio_to_the_chosen_one():
    slow, fast, same, wrong = row("slow", 2e6), row("fast", 5e5), row("same", 5.05e5), row("wrong:cpu:int8", 2e5)
    wrong = wrong.model_copy(update={"fidelity": fidelity(0.2)})
    found = lines(document(cell(slow, fast, same, wrong, row("gone", None))))
    assert [*found] == ["wrong:cpu:int8", "fast", "same", "slow", "gone"]
    assert {name: one.colour for name, one in found.items()} == {
        "wrong:cpu:int8": SOFT, "fast": CHOSEN, "same": EVEN, "slow": BEHIND, "gone": SOFT,
    }  # fmt: skip
    assert found["slow"].value == 4.0
    assert found["slow"].told == "4 [3.92, 4.08], slower"
    assert found["wrong:cpu:int8"].told == "0.4 [0.392, 0.408], error 2.0e-01"
    assert (found["gone"].value, found["gone"].told) == (None, "not raced: no GPU")


def test_an_arm_never_beside_the_chosen_one_has_no_interval():
    found = document(cell(row("slow", 2e6), row("fast", 5e5)))
    answer = found.answer[0]
    (passed,) = answer.passed
    answer = answer.model_copy(update={"passed": (passed.model_copy(update={"against": "other:cpu:fp32"}),)})
    by_name = {one.name: one for one in find_lines(answer, found.rows)}
    assert not by_name["slow"].is_known
    assert by_name["slow"].value == 4.0  # of the medians
    assert by_name["slow"].told == "4 [3.92, 4.08] × other's time"


def test_an_end_that_nothing_is_known_of_goes_to_the_edge():
    found = document(cell(row("slow", 2e6), row("fast", 5e5), within=float("inf")))
    data = [one for one in inline(intervals.draw_intervals(found, narrow=False)) if one.get("known")]
    assert data
    assert all(one["left"] and one["right"] for one in data)


def test_what_has_no_room_is_told():
    many = document(cell(*(row(f"arm{index}", 1e6 * (1 + index)) for index in range(35))))
    assert intervals.tell_undrawn_arms(many) == "Not drawn: 5 more arms, which the tables have."
    assert intervals.tell_undrawn_arms(document(cell(row("slow", 2e6), row("fast", 5e5)))) == ""


def test_a_run_without_a_time_has_no_figure():
    assert intervals.draw_intervals(document(cell(row("gone", None))), narrow=False) is None


def test_the_ticks_of_an_axis_are_round():
    assert choose_ticks(0.18, 30, 7) == [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
    assert choose_ticks(0.18, 30, 5) == pytest.approx([0.3, 1.0, 3.0, 10.0, 30.0])
    assert len(choose_ticks(1e-3, 1e6, 4)) <= 4
    assert choose_ticks(0.92, 1.09, 7) == [0.95, 1.0, 1.05]
    assert choose_ticks(0.7, 1.6, 5) == [0.8, 1.0, 1.2, 1.4, 1.6]
