"""Each figure with a column is declared once: it is in the document, and the documents explain it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.races import cells

from shootout.tell import table
from shootout.tell.columns import BY_HEADER, COLUMNS, choose_unit, stack_tables, write_time
from shootout.tell.document import Rate, Row, Serving
from shootout.tell.table import ALL, FIRST

ROOT = Path(__file__).resolve().parents[2]


def test_every_header_is_one_figure():
    assert len(BY_HEADER) == len(COLUMNS)
    assert {*FIRST} - {"error"} <= {*ALL}


LONG = tuple(f"onnxruntime({name}_static_per_channel_quantized.onnx):cpu:int8/per-tensor" for name in ("a", "b"))


def shown(rows: Sequence[Row], width: int, *, full: bool = False) -> str:
    page = io.StringIO()
    found = cells.document(cells.cell(*rows))
    Console(width=width, file=page, highlight=False).print(table.render_tables(found, width, full=full))
    return page.getvalue()


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_console_is_so_narrow_that_an_interval_is_cut_or_left_out(width: int, full: bool):
    found = shown([cells.row(name, ns) for name, ns in zip(LONG, (2.25e6, 1e6), strict=True)], width, full=full)
    assert "…" not in found
    assert all(figure in found for figure in ("2.25 ms", "2.25x slower (2.21 to 2.29)", "not"))
    assert "±" not in found
    assert ("0.960 ms to 1.04 ms" in found) is full


@pytest.mark.parametrize("full", [True, False])
def test_what_ran_elsewhere_than_its_target_says_is_told_once_beside_its_time(full: bool):
    told = "2 nodes on another provider"
    rows = [cells.row("a", 2e6), cells.row("b", 1e6).model_copy(update={"executed": {"fallbacks": (told,)}})]
    assert shown(rows, 200, full=full).count(told) == 1


def test_of_many_lines_on_what_ran_elsewhere_the_first_is_told_and_the_others_are_counted():
    elsewhere = tuple(f"node {number} on another provider: {'long ' * 90}why" for number in range(100))
    rows = [cells.row("a", 2e6), cells.row("b", 1e6).model_copy(update={"executed": {"fallbacks": elsewhere}})]
    found = shown(rows, 1000)
    assert "b: node 0 on another provider: long" in found
    assert "long…, and 99 more: --full." in found
    assert "node 1 " not in found
    assert max(map(len, found.splitlines())) < 500
    rows[1] = rows[1].model_copy(update={"executed": {"fallbacks": elsewhere[:1]}})
    assert "long…: --full." in shown(rows, 1000)


def test_a_time_is_that_of_what_ships_times_the_ratio():
    found = cells.document(cells.cell(cells.row("a", 2e6), cells.row("b", 1e6)))
    odd = [
        row.model_copy(update={"end_to_end": row.end_to_end.model_copy(update={"median_ns": 2.5e6})})
        if row.end_to_end and row.end_to_end.ship_ratio
        else row
        for row in found.rows
    ]
    page = io.StringIO()
    changed = found.model_copy(update={"rows": tuple(odd)})
    Console(width=200, file=page, highlight=False).print(table.render_tables(changed, 200))
    assert "a 2.00 ms 2.00x slower" in " ".join(page.getvalue().split())


@pytest.mark.parametrize(
    ("ships", "others", "told"),
    [
        (80.1e3, (13.3e6, 997e3, 35.3e3), ["80.1 us", "13,300 us", "997 us", "35.3 us"]),
        (1.34e6, (35.3e3, 5e9), ["1.34 ms", "0.0353 ms", "5,000 ms"]),
        (7.22e3, (5e11, 0.9), ["7.22 us", "500 s", "1 ns"]),
        (90.0, (20.0, 999.6), ["90.0 ns", "20.0 ns", "1,000 ns"]),
    ],
)
def test_a_table_has_one_unit_of_time_but_for_rows_that_are_far_off(
    ships: float, others: tuple[float, ...], told: list[str]
):
    unit = choose_unit(ships)
    assert [write_time(ns, unit) for ns in (ships, *others)] == told


def test_a_p99_has_the_unit_of_its_limit():
    rate = Rate(value=200.0, low=190.0, high=210.0)
    facts: dict[str, Any] = {"rate_per_s": rate, "searched": True, "holds": True, "limit_ns": 5e6}
    served = Serving(p99_ns=880_000, unloaded_ns=1.0, **facts)
    row = cells.row("a", 1e5, serve=served)
    assert [BY_HEADER[header].of(row, "us") for header in ("p99", "limit")] == ["0.880 ms", "holds 5 ms"]


def test_a_table_without_marks_is_one_as_long_as_it_fits():
    lines = [{"target": "onnxruntime", "time": "1.00 ms", "size": "3 MB"}]
    widest = len("onnxruntime  1.00 ms  3 MB")
    assert [len(stack_tables([*lines[0]], lines, width)) for width in (widest, widest - 1)] == [1, 2]
