"""The tables of simulated levels on the pages are those that are kept, and keep what the pages promise."""

from __future__ import annotations

from lab.levels import MARK, fill_page, read_kept
from lab.marked_tables import find_names, find_pages

TABLES = read_kept()
SHOWN = {
    "false verdicts by SD",
    "false verdicts in uneven groups",
    "false verdicts where restarts depend on each other",
    "the smallest ratio told every second time",
    "intervals to read",
}


def test_the_pages_have_the_kept_tables():
    pages = {page: page.read_text() for page in find_pages(MARK)}
    for page, text in pages.items():
        assert fill_page(text, TABLES) == text, f"{page.name}: run `python -m lab.levels`"
    names = [name for text in pages.values() for name in find_names(text, MARK)]
    assert sorted(names) == sorted(SHOWN), "each table stands on one page"


def test_no_kept_level_is_above_five_percent_but_by_chance():
    alike = [value for row in TABLES["false verdicts by SD"] for name, value in row.items() if name != "SD"]
    assert max(alike) <= 0.05
    for row in TABLES["false verdicts in uneven groups"]:
        assert row["worst"] <= 0.05 + 2 * (0.05 * 0.95 / row["runs"]) ** 0.5, row


def test_intervals_to_read_hold_the_truth():
    found = TABLES["intervals to read"]
    assert sum(row["covered"] for row in found) / len(found) >= 0.93
    assert min(row["covered"] for row in found) >= 0.80
