"""Each figure with a column is declared once: it is in the document, and the documents explain it."""

from __future__ import annotations

import io
import types
import typing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.races import cells

from shootout.report import table
from shootout.report.figures import BY_HEADER, FIGURES, Figure
from shootout.report.table import COSTS, RACE
from shootout.results.document import Row

ROOT = Path(__file__).resolve().parents[2]


def parts_of(kind: Any) -> dict[str, Any]:
    """The type of each of a part's keys."""
    return typing.get_type_hints(kind)


def inner(annotation: Any) -> Any:
    """`Timing | None` → `Timing`."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return next(one for one in typing.get_args(annotation) if one is not type(None))
    return annotation


@pytest.mark.parametrize("figure", [figure for figure in FIGURES if figure.name], ids=lambda figure: figure.header)
def test_a_figure_is_in_the_document_and_explained(figure: Figure):
    kind: Any = Row
    for part in figure.name.split("."):
        assert part in parts_of(kind), figure.name
        kind = inner(parts_of(kind)[part])
    assert f"`{figure.name.rpartition('.')[2]}`" in (ROOT / "docs" / "file-formats.md").read_text()


def test_every_header_is_one_figure_and_in_a_table():
    assert len(BY_HEADER) == len(FIGURES)
    assert set(BY_HEADER) == {*RACE, *COSTS}


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_console_is_so_narrow_that_a_figure_is_cut(width: int):
    names = [f"onnxruntime({name}_static_per_channel_quantized.onnx):cpu:int8/per-tensor" for name in ("a", "b")]
    headers = ("target", "time", "ratio", "verdict")
    found = cells.with_ratios(tuple(cells.row("x", ns) for ns in (2.25e6, 1e6)), 0.02)
    lines = [
        {name: BY_HEADER[name].of(row, is_baseline=not index) for name in headers} | {"target": names[index]}
        for index, row in enumerate(found)
    ]
    text = io.StringIO()
    Console(width=width, file=text).print(*table._tables(lines, table.ANSWER, width))
    assert "…" not in text.getvalue()
    assert all(figure in text.getvalue() for figure in ("2.25 ms ±4%", "2.25x faster", "baseline"))
    assert width < 60 or "0.444 [0.436, 0.453]" in text.getvalue()
