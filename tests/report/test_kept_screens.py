"""The screens of runs that ship with the project: at every width the intervals stay."""

from __future__ import annotations

from functools import cache

import pytest
from support.plain import as_plain
from support.reference_runs import read

from shootout.tell.ratios import tell_ratio
from shootout.tell.table import render

SWEEP = "training"
"""A run of several groups, whose times share a table without --full."""
RUNS = ("shootout", "digits", "decide-digits", "decide-load", SWEEP)


@cache
def shown(name: str, width: int, *, full: bool = False) -> str:
    return as_plain([render(read(name).document, width, full=full)], width)


@pytest.mark.parametrize(
    ("name", "full"), [(name, full) for name in RUNS for full in (False, True) if full or name != SWEEP]
)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_each_comparison_has_its_interval_at_every_width(name: str, width: int, full: bool):
    text = shown(name, width, full=full)
    found = read(name).document
    ships = {answer.group for answer in found.answer if answer.ship}
    rows = [row for row in found.rows if row.group in ships and row.end_to_end and row.outcome == "measured"]
    told = [tell_ratio(ratio) for row in rows if row.end_to_end and (ratio := row.end_to_end.ship_ratio)]
    assert told
    assert [words for words in told if words not in text] == []
    assert any(" to " in words for words in told)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", RUNS)
def test_no_line_is_wider_than_the_screen(name: str, width: int):
    assert max(map(len, shown(name, width).splitlines())) <= width
