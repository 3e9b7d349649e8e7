"""docs/comparing.md shows what its reference runs say, to the letter, and what moved in the runs that were repeated."""

from __future__ import annotations

import json
import re
from io import StringIO
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console, Group, RenderableType

from shootout.compare.compare import SESSION_FLOOR, compare_folders, learn_floor
from shootout.compare.merge import merge_runs
from shootout.report import compared

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "comparing.md").read_text()
WIDTH, FIRST = 100, 5


def test_the_page_tells_how_wide_floors_are():
    """The least of nine controls' floors, for ten arms, in the median."""
    rng = np.random.default_rng(0)
    arms, told = 10, []
    for sessions in (5, 10, 20):
        drawn = rng.normal(0.0, 0.03, (200, arms - 1, sessions))
        least = [some[np.argmin(some.std(axis=1))] for some in drawn]
        floors = [learn_floor(one, arms * (arms - 1)) for one in least]
        told.append(f"{np.median(floors):.0%}".replace("%", " %"))
    five, ten, twenty = told
    text = " ".join(PAGE.split())
    assert f"it comes to {five}, after ten runs to {ten} and after twenty to {twenty}" in text


@pytest.fixture(autouse=True)
def _at_home(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)  # the page names folders from here


def shown(command: str) -> tuple[list[Path], str]:
    """The runs of a command on the page, and what it says that is printed."""
    ((runs, text),) = re.findall(rf"<!-- {command} (.+?) -->\n```\n(.*?)\n?```", PAGE, re.DOTALL)
    return [Path(run) for run in runs.split()], text


def printed(parts: list[RenderableType]) -> str:
    page = StringIO()
    Console(width=WIDTH, file=page, highlight=False).print(Group(*parts))
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines()).strip("\n")


def test_the_page_shows_two_sessions():
    (one, other), text = shown("compare")
    assert printed(compared.render_compared(compare_folders(one, other), WIDTH, full=False)) == text


def test_the_page_shows_two_machines():
    runs, text = shown("merge")
    assert printed(compared.render_merged(merge_runs(runs), WIDTH, full=False)) == text


def test_the_page_tells_which_control_moved_least_and_how_far():
    """SD of the log ratio over the last five of ten runs, the median over arms and the most; and pairs of runs."""
    bench = json.loads((ROOT / "results" / "reference" / "repeated.json").read_text())
    tables = bench["sections"]["repeated"]["tables"]
    times = {
        row["arm"]: np.median([float(one) for one in row["median_us"].split() if one != "–"])
        for row in tables["arms against the baseline, a letter and a figure for each run"]
    }
    moved: dict[tuple[str, str], np.ndarray] = {}
    for row in tables["pairs, a letter and a figure for each run"]:
        one, other = row["pair"].split(" ÷ ")
        values = np.log([np.nan if word == "–" else float(word) for word in row["ratios"].split()])
        moved[one, other], moved[other, one] = values, -values

    def sd(arm: str, control: str, part: slice) -> float:
        return float(np.nanstd(moved[arm, control][part], ddof=1))

    chosen, near, base = [], [], []
    early, late = slice(0, FIRST), slice(FIRST, None)
    for arm in times:
        others = [one for one in times if one != arm]
        chosen.append(sd(arm, min(others, key=lambda one: sd(arm, one, early)), late))
        near.append(sd(arm, min(others, key=lambda one: abs(np.log(times[one] / times[arm]))), late))
        base += [sd(arm, "torch-eager:cpu:fp32", late)] if not arm.startswith("torch-eager") else []
    apart = []
    for arm in times:
        control = min((one for one in times if one != arm), key=lambda one: abs(np.log(times[one] / times[arm])))
        apart += [abs(one - other) for one, other in combinations(moved[arm, control][late], 2)]
    known = [one for one in apart if np.isfinite(one)]
    beyond = sum(one > np.log1p(SESSION_FLOOR) for one in known)
    assert f"beside the arm nearest in time, {beyond} of {len(known)} pairs lay further apart" in PAGE
    for words, found in (("moved least before", chosen), ("nearest in time", near), ("torch-eager", base)):
        assert f"{words} | {100 * np.median(found):.1f} % | {100 * max(found):.1f} % |" in PAGE
