"""The tables of runs in the pages are those of the runs that ship, and a mark that asks for nothing is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.marked_tables import ROOT, fill_tables, find_names, find_pages, write_table
from lab.run_tables import RECORD, RECORDS, RUN, fill, read_mark, write_run

LARGEST = ("findings", "quantization")
PAGES = [
    pytest.param(page, marks=[pytest.mark.long] if page.parent.name == "evidence" or page.stem in LARGEST else [])
    for page in sorted({*find_pages(RUN), *find_pages(RECORD)})
]
"""Those of evidence, and these two, have the largest runs."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_the_tables_of_the_runs_that_ship(page: Path):
    text = page.read_text(encoding="utf-8")
    assert fill(text) == text, "run `python -m lab.run_tables`"


def test_every_record_stands_on_a_page():
    shown = {name for page in find_pages(RECORD) for name in find_names(page.read_text(encoding="utf-8"), RECORD)}
    assert shown == {*RECORDS}


def test_only_tables_of_their_kind_are_filled():
    text = "<!-- run: a -->\n| old |\n| row |\n\n| kept |\n\n<!-- record: b -->\n| other |\n"
    filled = fill_tables(text, "run", lambda name: write_table([name], [["new"]]))
    assert filled == "<!-- run: a -->\n| a |\n| --- |\n| new |\n\n| kept |\n\n<!-- record: b -->\n| other |\n"
    assert find_names(text, "record") == ["b"]


def test_a_mark_without_columns_shows_the_time_and_what_it_is_against():
    plain, compared = read_mark("runtimes batch=1"), read_mark("a+b against=own model=mlp targets=x,y")
    assert (plain.columns, plain.where) == (("time",), {"batch": 1})
    assert (compared.runs, compared.columns) == (("a", "b"), ("time", "against"))
    assert (compared.against, compared.targets, compared.where) == ("own", ("x", "y"), {"model": "mlp"})


def test_rows_come_by_their_time_and_the_reference_has_no_ratio():
    lines = write_run("runtimes targets=onnxruntime:cpu:fp32,litert:cpu:fp32,a:cpu:fp32 against=onnxruntime:cpu:fp32")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert cells[0] == ["target", "time", "against `onnxruntime:cpu:fp32`"]
    assert [row[0] for row in cells[2:]] == ["`litert:cpu:fp32`", "`onnxruntime:cpu:fp32`"]
    assert "faster" in cells[2][2]
    assert cells[3][2] == "–"


def test_a_column_of_each_size_compares_within_it():
    lines = write_run("runtimes-widths targets=litert:cpu:fp32,onnxruntime:cpu:fp32 by=d_model against=litert:cpu:fp32")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert cells[0] == ["target, by d_model", "64", "512"]
    assert cells[2] == ["`litert:cpu:fp32`", "–", "–"]
    assert all("slower" in cell for cell in cells[3][1:])


@pytest.mark.parametrize(
    ("mark", "why"),
    [
        ("no-such-run", "no run no-such-run"),
        ("runtimes model=none", "no row of runtimes fits"),
        ("runtimes columns=time,speed", "no such column: speed"),
        ("runtimes-widths", "2 groups fit, narrow it down"),
        ("runtimes-widths by=model", "has several rows at model=residual_mlp"),
    ],
)
def test_a_mark_that_cannot_be_filled_says_why(mark: str, why: str):
    with pytest.raises(ValueError, match=why):
        write_run(mark)
