"""docs/evidence/comparing.md says how wide a learned floor is, and how often unchanged arms read as such."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from support.plain import as_plain
from support.reference_runs import read

from shootout.apps.judge.compare import screen as compared
from shootout.apps.judge.compare.compare import compare, compare_folders
from shootout.apps.judge.decide.objective import learn_floor
from shootout.core.constants import ALPHA
from shootout.core.errors import UsageError
from shootout.core.stats.verdicts import Verdict
from shootout.tell.document import Ratio

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = " ".join((ROOT / "docs" / "evidence" / "comparing.md").read_text().split())


def test_the_page_tells_how_wide_learned_floors_are():
    """The median of what sessions whose ratios move by an SD of 3 % teach."""
    rng, told = np.random.default_rng(0), []
    for sessions in (5, 10, 20):
        floors = [math.expm1(learn_floor(one, ALPHA)) for one in rng.normal(0.0, 0.03, (2_000, sessions))]
        told.append(f"{np.median(floors):.0%}".replace("%", " %"))
    five, ten, twenty = told
    assert f"it comes to {five}, after ten runs to {ten} and after twenty to {twenty}" in EVIDENCE


@pytest.mark.parametrize("width", [60, *(pytest.param(width, marks=pytest.mark.long) for width in (80, 120))])
def test_no_width_breaks_a_name_or_drops_an_interval(width: int):
    one, other = (ROOT / "results" / "reference" / name for name in ("width-sweep", "runtimes-widths"))
    lines = as_plain(compared.render_compared(compare_folders(one, other), width, full=False), width).splitlines()
    assert max(map(len, lines)) <= width
    names = [line.split()[0] for line in lines if re.search(r"about \S+ (faster|slower)", line)]
    assert sorted(names) == ["jax-jit", "jax-jit", "onnxruntime", "onnxruntime", "openvino", "openvino"]
    assert not any(line.strip().startswith("·") for line in lines)


UNCHANGED = (
    *("batch-crossover", "batch-sweep", "runtimes", "runtimes-batch", "runtimes-batches", "runtimes-widths"),
    *("shootout", "shootout-intel", "width-sweep"),
)
"""Runs that ship and ask the same as another one of them, on one machine."""


@pytest.mark.long
def test_the_page_tells_how_often_unchanged_arms_read_as_changed():
    runs = [read(name) for name in UNCHANGED]
    found: list[Ratio] = []
    for one, other in combinations(runs, 2):
        with suppress(UsageError):
            told = compare(one, other)
            moves = [move for session in told.sessions for move in session.moved]
            assert not any(move.sessions for move in moves)
            found += [move.ratio for move in moves if move.ratio and not move.changes]
    inside = sum((one.low or 0.0) <= 1 <= (one.high or math.inf) for one in found)
    false = sum(one.verdict in (Verdict.FASTER, Verdict.SLOWER) for one in found)
    words = f"Of {len(found)} comparisons of an unchanged arm, {inside} intervals hold 1, and {false} have a verdict"
    assert words in EVIDENCE
