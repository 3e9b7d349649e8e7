"""The three figures, as charts: what is drawn of a run, when there is nothing to draw, and how SVG is made."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from support import reference_runs
from support.races.cells import cell, document, fidelity, row

from shootout.apps.judge.decide import figure
from shootout.apps.judge.decide.policy import read_policy
from shootout.apps.judge.decide.question import PolicyAnswer
from shootout.core.journal.records import Played
from shootout.core.messages import LoadTestResult, TriedRate
from shootout.tell.document import Document, Rate, Row, Serving
from shootout.tell.page import contents, figures, intervals
from shootout.tell.page.charts import BEHIND, CHOSEN, DARK, EVEN, SOFT, cut, to_svg
from shootout.tell.page.contents import MeasuredRun
from shootout.tell.page.intervals import DotLine, find_group_panels, find_lines
from shootout.tell.report import Figure
from shootout.tell.table import compare_rows
from shootout.tell.wording import bound_metric

SHARED_OUTPUTS = Path(__file__).resolve().parents[2] / "results" / "reference"
PLAIN = document(cell(row("slow", 2e6), row("fast", 5e5)))


@cache
def read(name: str) -> MeasuredRun:
    return contents.read(SHARED_OUTPUTS / name, reference_runs.read(name).document)


def inline(figure: Figure | None) -> list[list[dict[str, Any]]]:
    """Each layer's data."""
    assert figure
    return list(figure.chart.to_dict()["datasets"].values())


def holding(figure: Figure | None, key: str) -> list[dict[str, Any]]:
    """The data whose items have this key."""
    return next(values for values in inline(figure) if values and key in values[0])


def served(arm: str, rate: float, **changes: Any) -> Row:
    facts: dict[str, Any] = {
        "rate_per_s": Rate(value=rate, low=rate, high=rate), "searched": True, "holds": True, "p99_ns": 4e6,
        "limit_ns": 5e6, "unloaded_ns": 1e6,
    }  # fmt: skip
    return row(arm, 1e9 / rate, scenario="serve", serve=Serving(**{**facts, **changes}))


def play(found: Row, *steps: TriedRate) -> Played:
    served = LoadTestResult(limit_ns=5e6, unloaded_ns=1e6, steps=steps)
    return Played.model_construct(group=found.group, arm=found.arm, served=served)


def test_one_drawing_fits_every_width_and_turns_dark():
    drawn = intervals.draw_intervals(PLAIN)
    assert drawn
    svg = to_svg(replace(drawn, description="how <fast>"))
    opening = svg[: svg.index(">")]
    assert 'width="480"' in opening
    assert ' viewBox="0 0 ' in opening
    assert "max-width:100%;height:auto" in opening
    assert 'aria-label="Time relative to what ships or leads. how &lt;fast&gt;"' in opening
    assert all(f'[fill="{light}"]{{fill:{dark}}}' in svg for light, dark in DARK.items())
    assert svg.count("@media screen and (prefers-color-scheme:dark)") == svg.count("<svg") == 1


def lines_of(found: Document) -> dict[str, DotLine]:
    return {one.name: one for one in find_lines(compare_rows(found.groups[0], found))}


def data_of(found: Document) -> list[dict[str, Any]]:
    """All data of the intervals."""
    return [one for values in inline(intervals.draw_intervals(found)) for one in values]


def test_each_target_stands_at_its_ratio_to_what_ships_and_has_its_time():
    slow, fast, same, wrong = row("slow", 2e6), row("fast", 5e5), row("same", 5.05e5), row("wrong:cpu:int8", 2e5)
    wrong = wrong.model_copy(update={"fidelity": fidelity(0.2)})
    found = lines_of(document(cell(slow, fast, same, wrong, row("gone", None))))
    told = {name: (one.color, one.value, one.figure, one.told) for name, one in found.items()}
    assert told == {
        "fast": (CHOSEN, 1.0, "500 us", "ships"),
        "same": (EVEN, 1.01, "505 us", "same (within 3.0 %)"),
        "slow": (BEHIND, 4.0, "2,000 us", "4.00x slower (3.92 to 4.08)"),
        "wrong:cpu:int8": (SOFT, 0.4, "200 us", "2.50x faster (2.45 to 2.55), accuracy unknown"),
    }
    assert [*found] == [*told], "what may not be shipped comes last, and what was skipped isn't drawn"


def test_without_anything_to_ship_the_baseline_is_the_reference():
    found = document(cell(row("slow", 2e6), row("fast", 5e5), control_holds=False, unvouched="the control differs"))
    assert found.answer[0].ship is None
    (panel,) = find_group_panels(found)
    assert panel.axis == "time relative to slow"
    assert {one.name: (one.value, one.color) for one in panel.lines} == {"slow": (1.0, SOFT), "fast": (0.25, SOFT)}


def test_an_end_that_nothing_is_known_of_goes_to_the_edge():
    found = document(cell(row("slow", 2e6), row("fast", 5e5), within=float("inf")))
    data = [one for one in data_of(found) if "from" in one and "name" in one]
    assert data
    assert all(one["from"] < one["value"] < one["to"] for one in data)


def test_words_without_room_lose_the_interval_that_is_drawn():
    wrong = row("b:cuda:int8", 2e5).model_copy(update={"fidelity": fidelity(0.2)})
    drawn = data_of(document(cell(row("slow", 2e6), row("fast", 5e5), wrong)))
    told = {one["name"]: one["told"] for one in drawn if "told" in one}
    assert told["b:cuda:int8, 200 us"] == "2.50x faster, accuracy unknown"


def test_a_run_without_a_time_has_no_figure():
    assert intervals.draw_intervals(document(cell(row("gone", None)))) is None


def test_without_a_chosen_one_all_stand_against_the_least():
    impossible = read_policy(None, {"p99": "1us"})
    decision = PolicyAnswer.of_runs([SHARED_OUTPUTS / "decide-digits"], impossible).decision
    panel = next(figure.find_panels(decision))
    assert (panel.title, panel.axis) == ("Objective: latency", "time relative to the least")
    assert min(line.value for line in panel.lines if line.value) == 1.0


def test_a_sweep_has_a_place_for_each_size():
    run = read("batch-crossover")
    chart = figures.draw_curves(run)
    assert {one["x"] for one in holding(chart, "x")} == {row.batch for row in run.document.rows if row.end_to_end}


def test_each_target_stands_at_its_time_and_its_error_and_is_hollow_where_it_may_not_ship():
    unknown = row("a:cpu:int8", 5e5, fidelity=fidelity(0.01))
    found = document(cell(row("a", 1e6), row("b", 2e6), unknown))
    (panel,) = figures.find_panels(found)
    told = {point.name + point.kind: (point.x, point.y, point.is_filled) for point in panel.points}
    (fp32,) = {one.fidelity.relative_l2 for one in found.rows if one.fidelity and one.precision == "fp32"}
    assert told == {"afp32": (1.0, fp32, True), "bfp32": (2.0, fp32, True), "aint8": (0.5, 0.01, False)}
    assert figures.draw_accuracy(MeasuredRun(PLAIN)) is None, "nothing but plain FP32 of one model"


def test_a_metric_has_the_interval_of_its_change_and_models_share_a_panel():
    found = read("frontier").document
    (panel,) = figures.find_panels(found)
    assert (panel.y_title, panel.title) == ("accuracy", "5 models")
    metrics = [row.fidelity.metric for row in found.rows if row.fidelity and row.fidelity.metric]
    changed = next(metric for metric in metrics if metric.change)
    assert bound_metric(changed) in [point.y_ends for point in panel.points]


def test_each_rate_has_the_median_of_its_restarts_and_the_limit_is_a_line():
    found = served("a", 200.0)
    lines = [
        play(
            found,
            TriedRate(rate_per_s=100.0, requests=9, bound_ns=bound, held=True),
            TriedRate(rate_per_s=400.0, requests=9, bound_ns=end, held=False),
            TriedRate(rate_per_s=800.0, requests=9, bound_ns=None, held=False),
        )
        for bound, end in ((1e6, 8e6), (3e6, None), (2e6, 9e6))
    ]
    figure = figures.draw_curves(MeasuredRun(document(cell(found)), tuple(lines)))
    assert [(one["x"], one["y"]) for one in holding(figure, "x")] == [(100.0, 2.0), (400.0, 9.0)]
    assert holding(figure, "limit") == [{"limit": 5.0}]


def test_letters_beyond_16_bits_are_never_cut_in_two():
    assert cut("😀" * 30, 10) == "😀😀😀😀…"
    assert cut("one\ntwo", 10) == "one two"
