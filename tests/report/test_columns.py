"""Each figure with a column is declared once: it is in the document, and the documents explain it."""

from __future__ import annotations

import io
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.races import cells

from shootout.report import table
from shootout.report.columns import BY_HEADER, COLUMNS, Column
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


@pytest.mark.parametrize("figure", [figure for figure in COLUMNS if figure.name], ids=lambda figure: figure.header)
def test_a_figure_is_in_the_document_and_explained(figure: Column):
    kind: Any = Row
    for part in figure.name.split("."):
        assert part in parts_of(kind), figure.name
        kind = inner(parts_of(kind)[part])
    assert f"`{figure.name.rpartition('.')[2]}`" in (ROOT / "docs" / "reference" / "keys.md").read_text()


def test_every_header_is_one_figure_and_in_a_table():
    assert len(BY_HEADER) == len(COLUMNS)
    assert set(BY_HEADER) == {*RACE, *COSTS}


LONG = tuple(f"onnxruntime({name}_static_per_channel_quantized.onnx):cpu:int8/per-tensor" for name in ("a", "b"))


def shown(rows: Sequence[Row], width: int, *, full: bool = False) -> str:
    page = io.StringIO()
    found = cells.document(cells.cell(*rows))
    Console(width=width, file=page, highlight=False).print(table.render_tables(found, width, full=full))
    return page.getvalue()


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_console_is_so_narrow_that_a_figure_is_cut(width: int, full: bool):
    found = shown([cells.row(name, ns) for name, ns in zip(LONG, (2.25e6, 1e6), strict=True)], width, full=full)
    assert "…" not in found
    assert all(figure in found for figure in ("2.25 ms", "2.25x faster", "baseline"))
    if full:
        assert "2.25 ms ±4%" in found
        assert width < 60 or "0.444 [0.436, 0.453]" in found


@pytest.mark.parametrize(
    ("width", "header", "says"),
    [
        (100, "target time ratio verdict error accuracy", ""),
        (68, "target time ratio verdict error accuracy", "Left out in 68 columns: the interval of ratio."),
        (57, "target time ratio verdict error accuracy", "Left out in 57 columns: the interval of ratio, time."),
        (53, "target time verdict error accuracy", ": the interval of time; the column ratio."),
        (45, "target time verdict accuracy", ": the interval of time; the column ratio, error."),
    ],
)
def test_a_narrow_console_has_one_table_and_says_what_it_lost(width: int, header: str, says: str):
    accurate = cells.fidelity(accuracy=0.98)
    found = shown([cells.row(name, ns, fidelity=accurate) for name, ns in (("onnxruntime", 2e6), ("b", 1e6))], width)
    assert [line.split() for line in found.splitlines() if line.startswith("target")] == [header.split()]
    told = " ".join(found.split())
    assert says in told
    assert says or "Left out" not in told
