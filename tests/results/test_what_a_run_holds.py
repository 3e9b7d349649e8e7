"""What an app may read of a run: its facts, what became of each arm, ratios and samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.races.made import ARMS, COPY, GROUP, A, B, ended, header, played, prepared, rounds, write

from shootout.core.errors import NotRun, NotRunKind, UsageError
from shootout.core.journal import samples
from shootout.core.journal.records import Line, not_run
from shootout.core.messages import SCOPES, Turn
from shootout.core.results.run import Run, read_run
from shootout.core.stats.verdicts import Verdict

BROKEN = not_run(GROUP, B, NotRun(NotRunKind.FAILED, "it broke", during="load"))


def run(folder: Path, *more: Line, restarts: int = 6) -> Run:
    """B takes half of A's time in each restart, whose spread tells them apart."""
    lines: list[Line] = [prepared(A), prepared(B)]
    for g in range(restarts):
        ns = 1e6 + 1e3 * g
        lines += [played(A, g, ns), played(B, g, ns / 2), played(COPY, g, ns), rounds(g)]
    return read_run(write(folder, header(given={"labels": "y.npz"}), *lines, *more, ended()))


def test_the_rows_are_those_of_the_arms_without_the_control(tmp_path: Path):
    found = run(tmp_path / "run", BROKEN)
    assert [row.arm for row in found.rows] == [A, B]
    first, second = found.rows
    assert [line.restart for line in first.played] == [*range(6)]
    assert (first.prepared, first.out, first.checked) == (prepared(A), None, None)
    assert second.out == BROKEN.why
    assert found.facts.given == {"labels": "y.npz"}
    assert found.complete


def test_a_ratio_has_a_verdict_unless_it_may_not_be_given(tmp_path: Path):
    ratio = run(tmp_path / "sound").ratio("b", "a")
    assert (ratio.value, ratio.verdict, ratio.reason) == (pytest.approx(0.5), Verdict.FASTER, None)
    ratio = run(tmp_path / "broken", BROKEN).ratio("b", "a")
    assert (ratio.value, ratio.verdict) == (pytest.approx(0.5), Verdict.CANT_TELL)
    assert ratio.reason == "b:cpu:fp32 left the race: it broke"
    with pytest.raises(UsageError, match="never timed in the same restart"):
        run(tmp_path / "none", restarts=0).ratio("b", "a")


def test_samples_come_by_restart_and_what_is_lost_is_said(tmp_path: Path):
    found = run(tmp_path / "run", restarts=2)
    turn = Turn(latency_ns={scope: np.full(3, 1e6) for scope in SCOPES})
    samples.write(found.folder, "samples/g0-000.npz", [(arm.label, [turn]) for arm in ARMS[:2]])
    assert {restart: values.tolist() for restart, values in found.samples(found.rows[1]).items()} == {0: [1e6] * 3}
    assert found.readings.lost
    assert found.samples(found.rows[1], samples.SINGLE) == {}
