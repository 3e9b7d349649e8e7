"""Each figure with a column is declared once: it is in the document, and the documents explain it."""

from __future__ import annotations

import types
import typing
from pathlib import Path
from typing import Any

import pytest

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
