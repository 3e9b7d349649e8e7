"""What was measured of shipped folders is what the documents say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from lab.shipped.table import write_table

ROOT = Path(__file__).resolve().parents[2]
SHIPPED, RACED = "results/reference/shipped.json", "results/reference/shipped-races.json"
"""The second is there once the folders were raced."""


def found() -> list[dict[str, Any]]:
    return [json.loads((ROOT / file).read_text()) for file in (SHIPPED, RACED) if (ROOT / file).exists()]


def test_the_table_is_the_measured_one():
    page = (ROOT / "docs" / "shipping.md").read_text()
    told = re.search(rf"<!-- {SHIPPED} -->\n(.*?)\n\n", page, re.DOTALL)
    assert told
    assert told[1].splitlines() == [*write_table(*found())], f"python -m lab.shipped.table {SHIPPED} {RACED}"


def test_at_least_six_backends_answer_as_their_arms_do_where_nothing_else_is_installed():
    (rows,) = found()[0]["sections"]["ship"]["tables"].values()
    assert len(rows) >= 6
    assert all(row["check"] == "passes" and row["error"] <= row["limit"] for row in rows)
    assert all(row["max_abs_difference"] == 0 for row in rows)
