"""What the documents say a page costs is what was measured, and within what a page may cost."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_documents_figures_are_the_measured_ones():
    tables = json.loads((ROOT / "results/reference/pages.json").read_text())["sections"]["pages"]["tables"]
    measured = {
        (row["page"].removeprefix("shootout report, "), row["form"], f"{row['cpu_s']:.2f}", f"{row['bytes']:,}")
        for row in tables["pages"]
    }
    told = (ROOT / "docs/figures.md").read_text().partition("## Pages")[2].partition("\n## ")[0]
    lines = {tuple(cells) for cells in re.findall(r"^\| (.+) \| `(.+)` \| (.+) \| (.+) \|$", told, re.MULTILINE)}
    assert len(lines) == 6
    assert lines <= measured
    assert all(row["holds"] for rows in tables.values() for row in rows)
