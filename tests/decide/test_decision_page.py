"""docs/deciding.md lists all limits; docs/evidence/deciding.md tells what was simulated."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

from lab.common import Bench
from lab.decisions_simulated import figures
from shootout.core.host.placement import place
from shootout.tell.limits import Limit

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "deciding.md").read_text()
EVIDENCE = (ROOT / "docs" / "evidence" / "deciding.md").read_text()


def test_the_table_of_limits_has_each_limit():
    table = PAGE[PAGE.index("## The limits") :]
    rows = "\n".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))
    assert re.findall(r"`(\S+?)`", rows) == list(Limit)


def test_the_pages_tell_what_was_simulated():
    found = json.loads((ROOT / "results" / "reference" / "decisions.json").read_text())
    (rows,) = found["sections"]["decisions"]["tables"].values()
    least = 100 * min(row["within 5 % of the best"] for row in rows)
    assert f"at least {math.floor(least)} % of the choices were right" in PAGE
    for row in rows:
        shares = (row[name] for name in ("chosen", "tied", "undecided", "within 5 % of the best"))
        told = [f"{100 * one:.1f}".removesuffix(".0") + " %" for one in shares]
        assert f"| {row['SD']:.0%} | {row['restarts']} | {' | '.join(told)} |" in EVIDENCE
        assert row["breaks the limit"] == 0.0, "no choice broke the limit"
        assert row["chosen alone and wrong"] <= 0.05


def test_decisions_can_be_simulated(tmp_path: Path):
    """The simulated group has all that `decide` reads of one."""
    (rows,) = figures(Bench(quick=True, placement=place(None), folder=tmp_path)).values()
    assert {row["breaks the limit"] for row in rows} <= {0.0, None}
