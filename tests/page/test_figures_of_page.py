"""The other five figures, as charts: what is drawn of a run, and when there is nothing to draw. Nothing is rendered."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.races.cells import cell, document, fidelity, row

from shootout.journal.records import LoadTestResult, Played, TriedRate
from shootout.page import curves, precisions, readiness, run_order, sources
from shootout.page.charts import BEHIND, EVEN, SOFT, cut, spread_labels
from shootout.page.sources import MeasuredRun
from shootout.results.document import Rate, Row, Serving
from shootout.study.group import short

SHARED_OUTPUTS = Path(__file__).resolve().parents[2] / "results" / "reference"
PLAIN = document(cell(row("slow", 2e6), row("fast", 5e5)))


@cache
def read(name: str) -> MeasuredRun:
    return sources.read(SHARED_OUTPUTS / name)


def inline(chart: Any) -> list[list[dict[str, Any]]]:
    """Each layer's data."""
    return list(chart.to_dict()["datasets"].values())


def holding(chart: Any, key: str) -> list[dict[str, Any]]:
    """The data whose items have this key."""
    return next(values for values in inline(chart) if values and key in values[0])


def served(arm: str, rate: float, **changes: Any) -> Row:
    facts: dict[str, Any] = {
        "rate_per_s": Rate(value=rate, low=rate, high=rate), "searched": True, "holds": True, "p99_ns": 4e6,
        "limit_ns": 5e6, "unloaded_ns": 1e6, "start_late_ns": 0.0,
    }  # fmt: skip
    return row(arm, 1e9 / rate, scenario="serve", serve=Serving(**{**facts, **changes}))


def test_a_sweep_is_drawn_with_the_bracket_in_which_the_lead_changes():
    found = read("batch-crossover").document
    bracket = holding(curves.draw_sizes(found, narrow=False), "from")
    (crossing,) = (one for one in found.crossovers if one.outcome == "bracket" and one.scope == "end_to_end")
    assert [(one["from"], one["to"]) for one in bracket] == [(crossing.low, crossing.high)]
    told = f"Shaded: {short(crossing.a)} or {short(crossing.b)}: {crossing.below} wins up to {crossing.low}, "
    assert curves.tell_brackets(found).startswith(told)
    points = [one for values in inline(curves.draw_sizes(found, narrow=True)) for one in values if "size" in one]
    assert {one["size"] for one in points} == {row.batch for row in found.rows if row.end_to_end}


def test_one_size_is_no_sweep():
    assert curves.draw_sizes(PLAIN, narrow=False) is None
    assert curves.tell_brackets(PLAIN) == ""


def test_an_arrow_goes_from_each_backends_own_fp32():
    kept, lost, unknown = (
        row("a:cpu:int8", 5e5, artifact_bytes=250_000, fidelity=fidelity(0.01, (0.0, 0.004, "a:cpu:fp32"))),
        row("a:cpu:int4", 4e5, artifact_bytes=125_000, fidelity=fidelity(0.1, (-0.05, 0.01, "a:cpu:fp32"))),
        row("a:cpu:bf16", 8e5, artifact_bytes=500_000, fidelity=fidelity(0.002)),
    )
    found = document(cell(row("a", 1e6), kept, lost, unknown, row("b:cpu:int8", 1e5)))
    arrows = holding(precisions.draw_precisions(found, narrow=False), "turn")
    assert [(one["mb"], one["from_mb"], one["from_ms"], one["color"]) for one in arrows] == [
        (0.25, 1.0, 1.0, EVEN),
        (0.125, 1.0, 1.0, BEHIND),
        (0.5, 1.0, 1.0, SOFT),
    ]
    assert all(180 < one["turn"] % 360 < 270 for one in arrows)  # smaller and faster: to the left, and down
    names = {
        one["name"]
        for values in inline(precisions.draw_precisions(found, narrow=False))
        for one in values
        if "side" in one
    }
    assert {"a", "a:cpu:int8, +0.0 points", "a:cpu:bf16, error 2.0e-3"} <= names
    assert precisions.draw_precisions(PLAIN, narrow=False) is None


def test_an_arrow_is_the_precision_and_not_the_setting():
    """From FP32 to FP32 there is none, nor from one of other instances, nor to an arm that failed."""
    settings: list[dict[str, Any]] = [{"instances": count, "setting": f"instances={count}"} for count in (1, 2)]
    one, two = settings
    own = [row("a", 1e6, **one), row("a", 9e5, **two)]
    eight = row("a:cpu:int8", 5e5, **two, artifact_bytes=250_000)
    broken = row("a:cpu:bf16", 4e5, artifact_bytes=500_000, outcome="failed")
    rows = [row("a", 1.1e6), row("a:cpu:fp32#2", 1.2e6), broken, *own, eight]
    rows = [each.model_copy(update={"arm": f"{each.arm}{{{each.setting}}}"}) if each.setting else each for each in rows]
    arrows = holding(precisions.draw_precisions(document(cell(*rows)), narrow=False), "turn")
    assert [(one["mb"], one["from_ms"]) for one in arrows] == [(0.25, 0.9)]


def test_two_of_one_backends_fp32_have_the_first_for_their_lower_precision():
    rows = row("a", 1e6), row("a:cpu:fp32#2", 2e6), row("a:cpu:int8", 5e5, artifact_bytes=250_000)
    arrows = holding(precisions.draw_precisions(document(cell(*rows)), narrow=False), "turn")
    assert [one["from_ms"] for one in arrows] == [1.0]


def test_the_later_start_pays_back_after_what_it_gains_a_call():
    soon, late = row("soon", 2e6, load_s=0.1, first_call_s=0.0), row("late", 1e6, load_s=1.0, first_call_s=0.1)
    slow = row("slow", 3e6, load_s=3.0, first_call_s=0.0)
    assert readiness.pay_back_calls(late, soon) == 1000
    assert readiness.pay_back_calls(slow, soon) is None
    texts = holding(readiness.draw_readiness(document(cell(slow, late, soon)), narrow=False), "told")
    assert [(one["figure"], one["told"]) for one in texts] == [
        ("0.1 s", "ready first"),
        ("1.1 s", "ahead after 1,000 calls"),
        ("3 s", "never ahead"),
    ]


def test_what_failed_or_has_no_time_of_a_call_is_never_ready_first():
    good = row("good", 2e6, load_s=0.1), row("fine", 1e6, load_s=1.0)
    failed = row("failed", 1e5, load_s=0.0, outcome="failed", reason="it gave NaN")
    texts = holding(readiness.draw_readiness(document(cell(*good, failed)), narrow=False), "told")
    assert [one["name"] for one in texts] == ["good:cpu:fp32", "fine:cpu:fp32"]
    by_item = [one.model_copy(update={"scenario": "throughput"}) for one in good]
    assert readiness.draw_readiness(document(cell(*by_item)), narrow=False) is None


def test_an_arm_that_failed_has_no_line_along_the_sizes():
    cells = [
        cell(
            row("a", 1e6, group=f"toy, batch {batch}", batch=batch),
            row("b", 2e6, group=f"toy, batch {batch}", batch=batch, outcome="failed"),
            group=f"toy, batch {batch}",
        )
        for batch in (1, 8)
    ]
    points = holding(curves.draw_sizes(document(*cells), narrow=False), "size")
    assert [(one["arm"], one["size"]) for one in points] == [("a", 1), ("a", 8)]


def test_each_rate_has_the_median_of_its_restarts():
    found = served("a", 200.0)
    steps = [
        (
            TriedRate(rate_per_s=100.0, requests=9, bound_ns=bound, held=True),
            TriedRate(rate_per_s=400.0, requests=9, bound_ns=end, held=False),
        )
        for bound, end in ((1e6, 8e6), (3e6, None), (2e6, 9e6))
    ]
    lines = [
        Played.model_construct(
            group=found.group,
            arm=found.arm,
            served=LoadTestResult(limit_ns=5e6, unloaded_ns=1e6, start_late_ns=0.0, steps=one),
        )
        for one in steps
    ]
    assert list(curves.find_points(found, lines)) == [(100.0, 2e6, True), (400.0, 9e6, False)]
    assert list(curves.find_points(found, [])) == [(200.0, 4e6, True)]


@pytest.mark.parametrize(
    ("held", "gave_up", "point"),
    [(3, 2, (100.0, 3e6, True)), (2, 3, (100.0, None, False)), (2, 2, (100.0, None, False))],
)
def test_a_rate_that_most_held_is_drawn_where_they_held_it(held: int, gave_up: int, point: tuple[Any, ...]):
    found = served("a", 200.0)
    steps = [TriedRate(rate_per_s=100.0, requests=9, bound_ns=ns, held=True) for ns in (1e6, 2e6, 3e6)[:held]]
    steps += [TriedRate(rate_per_s=100.0, requests=9, bound_ns=None, held=False)] * gave_up
    lines = [
        Played.model_construct(
            group=found.group,
            arm=found.arm,
            served=LoadTestResult(limit_ns=5e6, unloaded_ns=1e6, start_late_ns=0.0, steps=(one,)),
        )
        for one in steps
    ]
    assert list(curves.find_points(found, lines)) == [point]
    chart = curves.draw_serving(MeasuredRun(document(cell(found)), tuple(lines)), narrow=False)
    assert [(one["shape"] == "circle", one["ms"] < 5.0) for one in holding(chart, "rate")] == [(point[2], point[2])]


def test_the_limit_is_a_line_and_what_was_given_up_lies_above_it():
    source = MeasuredRun(document(cell(served("a", 200.0), served("b", 100.0, p99_ns=None, holds=False))))
    chart = curves.draw_serving(source, narrow=False)
    shapes = {one["arm"]: (one["shape"], one["ms"]) for one in holding(chart, "rate")}
    assert shapes == {"a": ("circle", 4.0), "b": ("triangle-up", 15.0)}
    assert holding(chart, "told")[0] == {"ms": 5.0, "told": "limit 5 ms"}
    assert curves.draw_serving(MeasuredRun(PLAIN), narrow=False) is None


def test_rounds_stand_in_the_order_in_which_they_were_played():
    source = read("shootout")
    chart = run_order.draw_run_order(source, narrow=False)
    ats = [{one["at"] for one in holding(chart, "part") if one["part"].endswith(f" {number}")} for number in (0, 1)]
    rounds = len(source.played[0].block_median_ns["end_to_end"])
    assert ats == [set(range(1, rounds + 1)), set(range(rounds + 1, 2 * rounds + 1))]  # one goes on behind the other
    group = source.document.answer[0].group
    assert run_order.tell_scale(source).startswith(f"{group}. From the middle of a strip to its edge: ")
    assert not [one for one in holding(chart, "name") if "control" in one["name"]]
    assert run_order.draw_run_order(MeasuredRun(PLAIN), narrow=False) is None


def test_of_more_rounds_than_can_be_seen_neighbors_make_one_point():
    found = document(cell(row("slow", 2e6), row("fast", 5e5)))
    times = (5e5, 5e5, 6e5, 6e5, 4e5)
    lines = [
        Played.model_construct(
            group=found.rows[0].group,
            arm="fast:cpu:fp32",
            restart=restart,
            flagged=(),
            block_median_ns={"end_to_end": times},
        )
        for restart in range(run_order.MOST_POINTS // 5 + 1)
    ]
    source = MeasuredRun(found, tuple(lines))
    points = holding(run_order.draw_run_order(source, narrow=False), "part")
    assert [one["at"] for one in points[:4]] == [1.5, 3.5, 5.0, 6.5]
    assert len(points) == 3 * len(lines)
    assert run_order.tell_scale(source).endswith(" Each point is the median of up to 2 rounds.")


@pytest.mark.parametrize("ns", [0.0, -1.0, float("inf"), float("nan")])
def test_a_journals_impossible_time_costs_its_own_line_alone(ns: float):
    found = document(cell(row("slow", 2e6), row("fast", 5e5)))
    group, flagged = found.rows[0].group, (1, 10**400)
    lines = [
        Played.model_construct(
            group=group, arm=arm, restart=0, flagged=flagged, block_median_ns={"end_to_end": (5e5, last)}
        )
        for arm, last in (("slow:cpu:fp32", ns), ("fast:cpu:fp32", 6e5))
    ]
    source = MeasuredRun(found, tuple(lines))
    assert len(holding(run_order.draw_run_order(source, narrow=False), "part")) == 2
    assert "of the target's median" in run_order.tell_scale(source)


def test_disturbed_rounds_without_a_gap_are_one_stretch():
    found = run_order.find_stretches({1, 2, 3, 7, 9, 10})
    assert [(one["from"], one["to"]) for one in found] == [(0.5, 3.5), (6.5, 7.5), (8.5, 10.5)]


@pytest.mark.parametrize("narrow", [False, True])
def test_no_chart_asks_for_data_elsewhere(narrow: bool):
    source = read("batch-crossover")
    charts = (curves.draw_sizes(source.document, narrow=narrow), run_order.draw_run_order(source, narrow=narrow))
    assert all("url" not in str(chart.to_dict()["datasets"]) for chart in charts if chart)


def test_labels_stand_apart_and_inside():
    found = spread_labels({"a": 10.0, "b": 12.0, "c": 99.0, "d": 100.0}, 10.0, 100.0)
    assert found == {"a": 10.0, "b": 20.0, "c": 90.0, "d": 100.0}


def test_letters_beyond_16_bits_are_never_cut_in_two():
    assert cut("😀" * 30, 10) == "😀😀😀😀…"
    assert cut("one\ntwo", 10) == "one two"
