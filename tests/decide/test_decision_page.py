"""docs/deciding.md shows what its reference runs say, to the letter; docs/evidence/deciding.md, what was simulated."""

from __future__ import annotations

import json
import math
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console, Group

from lab.common import Bench
from lab.decisions_simulated import figures
from shootout.apps.judge.decide.candidates import read_question
from shootout.apps.judge.decide.decision import decide
from shootout.apps.judge.decide.policy import read_policy
from shootout.apps.judge.decide.screen import render
from shootout.core.host.placement import place
from shootout.tell.limits import Limit

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "deciding.md").read_text()
EVIDENCE = (ROOT / "docs" / "evidence" / "deciding.md").read_text()
EXAMPLES = re.findall(r"<!-- decide (results/\S+) -->\n```toml\n(.*?)\n```\n```\n(.*?)\n```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("run", "policy", "shown"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_page_shows_what_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str, policy: str, shown: str
):
    """But for the backends that nobody asked for, which are those of the day."""
    path = tmp_path / "deploy.toml"
    path.write_text(policy)
    monkeypatch.chdir(ROOT)  # the page names folders from here
    question = read_question([Path(run)])
    found = decide(read_policy(path, {}), question)
    page = StringIO()
    Console(width=100, file=page, highlight=False).print(Group(*render(found, question, 100)))
    told = re.sub(r"^Skipped.*\n(?: .*\n)*", "", page.getvalue(), flags=re.MULTILINE)
    lines = [line.rstrip() for line in told.splitlines()]
    assert "\n".join(lines).strip("\n") == shown


def test_there_are_three_needs():
    assert len(EXAMPLES) == 3


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
