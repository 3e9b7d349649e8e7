"""The tables of simulated levels on the pages are those that are kept, and keep what the pages promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.levels import MARK, fill_page, read_kept
from lab.marked_tables import find_names, find_pages

TABLES = read_kept()
SHOWN = {
    "false verdicts",
    "false verdicts, the others told",
    "intervals that miss",
    "leader sets",
    "false verdicts where restarts depend on each other",
    "restarts to tell",
    "reach",
}
STATISTICS = Path(__file__).resolve().parents[2] / "docs" / "statistics.md"


def test_the_pages_have_the_kept_tables():
    pages = {page: page.read_text() for page in find_pages(MARK)}
    for page, text in pages.items():
        assert fill_page(text, TABLES) == text, f"{page.name}: run `python -m lab.levels`"
    names = [name for text in pages.values() for name in find_names(text, MARK)]
    assert sorted(names) == sorted(SHOWN), "each table stands on one page"


@pytest.mark.parametrize(
    "title", ["false verdicts", "false verdicts, the others told", "intervals that miss", "leader sets"]
)
def test_no_kept_level_is_above_five_percent_but_by_chance(title: str):
    for row in TABLES[title]:
        assert row["worst"] <= 0.05 + 2 * (0.05 * 0.95 / row["runs"]) ** 0.5, row
        assert row["mean"] <= 0.05


def test_the_page_tells_the_worst_and_the_mean():
    told = [row for title in ("false verdicts", "false verdicts, the others told") for row in TABLES[title]]
    settings = sum(row["settings"] for row in told)
    mean = sum(row["mean"] * row["settings"] for row in told) / settings
    missed = max(row["worst"] for row in TABLES["intervals that miss"])
    text = " ".join(STATISTICS.read_text().split())
    assert f"at most {max(row['worst'] for row in told):.1%}".replace("%", " %") in text
    assert f"worst of {settings:,} settings; the mean is {100 * mean:.1f} %" in text
    assert f"At most {100 * missed:.1f} % print any interval" in text
