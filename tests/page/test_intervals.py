"""The first figure: where each target stands, in which color and with which words."""

from __future__ import annotations

from typing import Any

from support.races.cells import cell, document, fidelity, row

from shootout.core.contract import short
from shootout.tell.document import Document
from shootout.tell.page import intervals
from shootout.tell.page.charts import BEHIND, CHOSEN, EVEN, SOFT
from shootout.tell.page.intervals import DotLine, find_group_panels, find_lines
from shootout.tell.table import compare_rows, tabulate


def lines(found: Document) -> dict[str, DotLine]:
    return {one.name: one for one in find_lines(compare_rows(found.groups[0], found))}


def inline(found: Document) -> list[dict[str, Any]]:
    """All data of a figure."""
    figure = intervals.draw_intervals(found)
    assert figure
    return [one for values in figure.chart.to_dict()["datasets"].values() for one in values]


def test_each_target_stands_at_its_ratio_to_what_ships_and_has_its_time():
    slow, fast, same, wrong = row("slow", 2e6), row("fast", 5e5), row("same", 5.05e5), row("wrong:cpu:int8", 2e5)
    wrong = wrong.model_copy(update={"fidelity": fidelity(0.2)})
    found = lines(document(cell(slow, fast, same, wrong, row("gone", None))))
    told = {name: (one.color, one.value, one.figure, one.told) for name, one in found.items()}
    assert told == {
        "fast": (CHOSEN, 1.0, "500 us", "ships"),
        "same": (EVEN, 1.01, "505 us", "same (within 3.0 %)"),
        "slow": (BEHIND, 4.0, "2 ms", "4.00x slower (3.92 to 4.08)"),
        "wrong:cpu:int8": (SOFT, 0.4, "200 us", "2.50x faster (2.45 to 2.55), accuracy unknown"),
    }
    assert [*found] == [*told], "what may not be shipped comes last, and what was skipped isn't drawn"


def test_without_anything_to_ship_the_baseline_is_the_reference():
    found = document(cell(row("slow", 2e6), row("fast", 5e5), control_holds=False, unvouched="the control differs"))
    assert found.answer[0].ship is None
    (panel,) = find_group_panels(found)
    assert panel.axis == "time relative to slow"
    assert {one.name: (one.value, one.color) for one in panel.lines} == {"slow": (1.0, SOFT), "fast": (0.25, SOFT)}


def test_a_target_that_was_never_measured_with_what_ships_has_no_interval():
    found = document(cell(row("slow", 2e6), row("fast", 5e5)))
    alone = found.rows[0].model_copy(
        update={"end_to_end": found.rows[0].end_to_end.model_copy(update={"ship_ratio": None})}
    )
    by_name = lines(found.model_copy(update={"rows": (alone, found.rows[1])}))
    slow = by_name["slow"]
    assert (slow.ends, slow.value, slow.told) == (None, 4.0, "not measured together"), "of the medians"


def test_the_figure_and_the_table_have_one_reference_and_the_same_words():
    """The reference is what ships; the words of a target are those of its row."""
    found = document(cell(row("slow", 2e6), row("fast", 5e5), row("mid", 8e5)))
    (panel,) = find_group_panels(found)
    headers, cells = tabulate(compare_rows(found.groups[0], found), full=False)
    assert panel.axis == "time relative to fast"
    assert [name for name in headers if name.startswith("against")] == ["against fast:cpu:fp32"]
    in_table = {short(str(one["target"])): (str(one["time"]), str(one["against fast:cpu:fp32"])) for one in cells}
    assert {one.name: (one.figure, one.told) for one in panel.lines} == in_table
    assert len(in_table) == 3


def test_an_end_that_nothing_is_known_of_goes_to_the_edge():
    found = document(cell(row("slow", 2e6), row("fast", 5e5), within=float("inf")))
    data = [one for one in inline(found) if "left" in one]
    assert data
    assert all(one["left"] and one["right"] for one in data)


def test_words_without_room_lose_what_is_drawn_and_keep_why_a_target_is_refused():
    names = "onnxruntime+tensorrt:cuda:int8", "b:cuda:int8"
    wrong = [row(name, 2e5).model_copy(update={"fidelity": fidelity(0.2)}) for name in names]
    drawn = inline(document(cell(row("slow", 2e6), row("fast", 5e5), *wrong)))
    told = {one["name"]: one["told"] for one in drawn if "told" in one}
    assert told["b:cuda:int8, 200 us"] == "2.50x faster, accuracy unknown"
    assert told["onnxruntime+tensorrt:cuda:int8, 200 us"] == "accuracy unknown"


def test_a_run_without_a_time_has_no_figure():
    assert intervals.draw_intervals(document(cell(row("gone", None)))) is None
