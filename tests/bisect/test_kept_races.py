"""What a kept race shows of its releases in each quantity, and which release left it for good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.races import made

from shootout.apps.bisect.racing import name_python, read_race
from shootout.apps.bisect.search import Question, Raced, Side, Skipped
from shootout.core.contract import Arm, NotRunKind, Target
from shootout.core.journal.records import Setback
from shootout.core.results.run import Run, read_run

ENDS = Question(good="1.0", bad="1.1")
GOOD, BAD = (Arm(target=Target(backend="a", python=name_python(one)), model="identity") for one in ENDS.releases)
COPY = replace(GOOD, control=True)
BASES = {"time": 1e6, "ready": 0.2, "memory": 1e8, "outputs": 1e-8}


def show(kind: str, figure: float) -> Mapping[str, Any]:
    """The part of a restart's line that shows this figure."""
    match kind:
        case "ready":
            return {"load_s": figure / 2, "first_call_s": figure / 2}
        case "memory":
            return {"rss_before_bytes": 10**7, "peak_rss_bytes": 10**7 + int(figure)}
        case "outputs":
            return {"fidelity": replace(made.EXACT, relative_l2=figure, error_bound=1e-6)}
    return {}


def race(folder: Path, kind: str, factor: float, *more: Setback) -> Run:
    """Ten restarts in which the bad end's figure is larger by a factor, under noise of 0.5 %."""
    rng, lines = np.random.default_rng(5), list[Any]()
    for restart in range(10):
        for arm, mine in ((GOOD, 1.0), (BAD, factor), (COPY, 1.0)):
            noise = 1.0 if kind == "outputs" else np.exp(rng.normal(0.0, 0.005))
            ns, figure = BASES["time"], float(BASES[kind] * mine * noise)
            lines.append(made.played(arm, restart, figure if kind == "time" else ns, **show(kind, figure)))
        lines.append(made.rounds(restart))
    return read_run(made.write(folder, made.header((GOOD, BAD, COPY)), *lines, *more, made.ended()))


@pytest.mark.parametrize(("kind", "factor"), [("time", 1.1), ("ready", 1.1), ("memory", 1.1), ("outputs", 1e4)])
def test_a_difference_of_each_quantity_is_read_and_no_difference_too(tmp_path: Path, kind: str, factor: float):
    found = read_race(kind, ENDS, race(tmp_path / "run", kind, factor))
    assert isinstance(found, Raced)
    assert (found.side, found.restarts, found.is_over) == (Side.BAD, 10, True)
    assert found.figures == {
        "1.0": pytest.approx(BASES[kind], rel=0.01),
        "1.1": pytest.approx(BASES[kind] * factor, rel=0.01),
    }
    same = read_race(kind, ENDS, race(tmp_path / "same", kind, 1.0))
    assert isinstance(same, Raced)
    assert same.side is Side.GOOD


def test_a_release_that_was_killed_is_raced_again_and_one_that_failed_is_left_out(tmp_path: Path):
    def leave(why: NotRunKind) -> Raced | Skipped:
        gone = Setback(kind="failure", group=made.GROUP, arm=BAD, reason="no /home/me/libfake.so.3", cause=why)
        return read_race("time", ENDS, race(tmp_path / str(why), "time", 1.05, gone))

    killed = leave(NotRunKind.KILLED)
    assert isinstance(killed, Raced)
    assert not killed.is_over
    assert leave(NotRunKind.FAILED) == Skipped("1.1", "no libfake.so.3")
