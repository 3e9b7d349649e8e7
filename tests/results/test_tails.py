"""Percentiles of a row: of calls that were read one by one, wherever those come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.races.made import A, B, ended, header, played, rounds, write

from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.compare.merged import pack
from shootout.core.journal import samples
from shootout.core.messages import SCOPES, LoadTestResult, TriedRate, Turn
from shootout.tell.document import Timing

SHARED = {"end_to_end": 4, "compute": 4}
SINGLY = SHARED | {samples.SINGLE: 1}


def run(folder: Path, *per_reading: dict[str, int], single: int = 1_000, **more: Any) -> Path:
    """A restart of A and B for each of these; B's rounds take 1,000 ns, its single calls from 2,000 ns on."""
    lines = [
        (played(A, g, 1e3, per_reading=calls), played(B, g, 1e3, per_reading=calls, **more), rounds(g))
        for g, calls in enumerate(per_reading)
    ]
    write(folder, header(), *(line for restart in lines for line in restart), ended())
    turn = Turn(latency_ns={scope: np.full(200, 1e3) for scope in SCOPES})
    for g, calls in enumerate(per_reading):
        alone = [(B.label, 2e3 + g + np.arange(single))] if samples.SINGLE in calls else []
        samples.write(folder, f"samples/g0-{g:03}.npz", [(A.label, [turn]), (B.label, [turn])], alone)
    return folder


def timings(folder: Path) -> tuple[Timing, Timing]:
    row = analyse(folder).rows[1]
    assert row.end_to_end
    assert row.compute
    return row.end_to_end, row.compute


def test_readings_of_several_calls_leave_the_tail_to_calls_read_one_by_one(tmp_path: Path):
    end_to_end, compute = timings(run(tmp_path / "run", *[SINGLY] * 4))
    assert (end_to_end.p99_low_ns, end_to_end.p99_ns, end_to_end.p99_highest_ns) == (2_989.5, 2_992.5, 2_992.5)
    assert (end_to_end.median_ns, end_to_end.samples) == (1_000, 800), "nothing else rests on them"
    assert compute.p99_ns is None


def test_a_restart_whose_readings_hold_one_call_counts_beside(tmp_path: Path):
    one = {"end_to_end": 1, "compute": 1}
    end_to_end, _ = timings(run(tmp_path / "run", one, SINGLY, SINGLY, SINGLY))
    assert end_to_end.p99_low_ns == 1_000
    assert timings(run(tmp_path / "shared", one, SHARED, SHARED, SHARED))[0].p99_ns is None


def test_calls_read_after_the_rounds_of_long_ones_count_with_these(tmp_path: Path):
    """A restart is one, however its calls were read: a p99 of 200 calls at 1,000 ns and 4 from 2,000 ns on."""
    long = {"end_to_end": 1, "compute": 1, samples.SINGLE: 1}
    end_to_end, _ = timings(run(tmp_path / "run", *[long] * 4, single=4))
    assert (end_to_end.p99_low_ns, end_to_end.p99_highest_ns) == (2_001, 2_004)


def test_a_packed_run_keeps_them(tmp_path: Path):
    whole = run(tmp_path / "whole", *[SINGLY] * 4)
    pack(whole, tmp_path / "small")
    assert timings(tmp_path / "small") == timings(whole)


@pytest.mark.parametrize("given", [500.0, None])
def test_requests_at_a_given_rate_have_percentiles_of_their_own(tmp_path: Path, given: float | None):
    """A search offers many rates, whose requests are of no one kind."""
    step = TriedRate(rate_per_s=500.0, requests=1_000, bound_ns=1e3, held=True)
    served = LoadTestResult(given_per_s=given, limit_ns=5e6, unloaded_ns=1e3, steps=(step,))
    end_to_end, _ = timings(run(tmp_path / "run", *[SHARED] * 4, served=served))
    assert end_to_end.p99_low_ns == (1_000 if given else None)
