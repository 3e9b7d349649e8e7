"""The tables of simulated levels on the method's page are those that are kept, and keep what the page promises."""

from __future__ import annotations

import json

from lab.levels import KEPT, PAGE, fill_page

TABLES = json.loads(KEPT.read_text())["sections"]["levels"]["tables"]


def test_the_page_has_the_kept_tables():
    assert fill_page(PAGE.read_text(), TABLES) == PAGE.read_text(), "run `python -m lab.levels`"


def test_no_kept_level_is_above_five_percent_but_by_chance():
    alike = [value for row in TABLES["false verdicts by SD"] for name, value in row.items() if name != "SD"]
    assert max(alike) <= 0.05
    for row in TABLES["false verdicts in uneven groups"]:
        assert row["worst"] <= 0.05 + 2 * (0.05 * 0.95 / row["runs"]) ** 0.5, row


def test_intervals_to_read_hold_the_truth():
    found = TABLES["intervals to read"]
    assert sum(row["covered"] for row in found) / len(found) >= 0.93
    assert min(row["covered"] for row in found) >= 0.80
