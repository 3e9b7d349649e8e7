"""docs/evidence/shipping.md shows what shipped folders took and how fast they were, and docs/shipping.md sums it up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab import landings

ROOT = Path(__file__).resolve().parents[2]
PAGE = " ".join((ROOT / "docs" / "shipping.md").read_text().split())
EVIDENCE = (ROOT / "docs" / "evidence" / "shipping.md").read_text()
NUMBERS = {9: "Nine"}


def read_rows(name: str, section: str) -> dict[str, dict[str, Any]]:
    """Return the rows of a record's only table, by target."""
    found = json.loads((ROOT / "results" / "reference" / name).read_text())
    (rows,) = found["sections"][section]["tables"].values()
    return {row["target"]: row for row in rows}


def test_the_table_is_what_was_measured():
    folders, races = read_rows("shipped.json", "ship"), read_rows("shipped-races.json", "ship-race")
    assert folders.keys() == races.keys()
    for target, folder in folders.items():
        race = races[target]
        interval = f" [{race['low']:.3f}, {race['high']:.3f}]" if race["low"] else ""
        cells = (
            f"`{target}`",
            f"{folder['artifact_mb']:.2f} MB",
            f"{folder['install_mb']:.0f} MB",
            str(folder["packages"]),
            f"{folder['error']:.1e} ({folder['limit']:.1e})",
            "none" if not folder["max_abs_difference"] else f"{folder['max_abs_difference']:.1e}",
            f"{race['ratio']:.3f}{interval}",
        )
        assert f"| {' | '.join(cells)} |" in EVIDENCE


def test_the_page_sums_it_up():
    folders, races = read_rows("shipped.json", "ship"), read_rows("shipped-races.json", "ship-race")
    assert all(row["check"] == "passes" and not row["max_abs_difference"] for row in folders.values())
    assert not any(row["verdict"] == "slower" for row in races.values())
    assert f"{NUMBERS[len(folders)]} backends were shipped" in PAGE
    assert "All give the same outputs to the bit, and none was significantly slower" in PAGE


def test_a_choice_counts_only_where_the_run_has_a_clear_winner(monkeypatch: pytest.MonkeyPatch):
    """One of two clear ones agrees; of a third, the margin is too small, and a fourth had nothing beside it."""
    names = ("chosen", "fastest_in_run", "second_to_fastest", "chosen_to_fastest", "agrees", "decided_s")
    figures = [("a", "a", 1.5, 1.0, True, 3.0), ("a", "b", 1.2, 1.2, False, 9.0)]
    figures += [("a", "b", 1.1, 1.1, None, 5.0), ("a", "a", None, 1.0, None, 4.0)]
    rows = [{"model": "m", "place": "1 CPU", **dict(zip(names, one, strict=True))} for one in figures]
    monkeypatch.setattr(landings, "read_rows", lambda: rows)
    assert landings.write_sum()[-1] == "| 4 | 2 | 1 | 5.0 | 9.0 | 1.20 |"
    assert landings.write_each()[-1] == "| m | 1 CPU | a | a | – | 1.00 | 4.0 |"
