"""Every simulated target of docs/measurement.md at full size: minutes, so only `make test-full` runs it."""

from __future__ import annotations

import pytest

from lab import __main__ as bench
from lab import simulate


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_every_simulated_target_holds_at_full_size():
    assert [figure.name for figure in simulate.figures(4_000) if not figure.holds] == []


def test_the_bench_can_be_started():
    assert set(bench.SECTIONS) >= {"known", "verdicts", "onnx", "simulate"}
