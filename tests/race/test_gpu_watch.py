"""A run with arms on a GPU: its noise meter looks at the card."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.races import planted
from support.races.fakes import FakeWatch
from support.races.planted import ByBatch, on_stage

from shootout.backends.devices.cuda import UsedGpu
from shootout.core.host.noise import NoiseMeter


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> list[ByBatch]:
    monkeypatch.setitem(planted.LINES, "torch-eager", (1e5, 10.0))
    monkeypatch.setattr("shootout.backends.devices.cuda.UsedGpu.open", lambda: UsedGpu(None, None, None))
    return on_stage(monkeypatch)


def cuda_study(*batches: int) -> Any:
    return planted.study(*batches, targets=("torch-eager:cuda", "onnxruntime:cuda"))


def test_a_run_watches_the_gpu_where_an_arm_is_on_it(
    stage: list[ByBatch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = SimpleNamespace(processes=lambda: 3, evidence=lambda: ("GPU clock",))
    monkeypatch.setattr("shootout.backends.devices.cuda.UsedGpu.open", lambda: card)
    meters: list[Any] = []

    def watch(*cpus: Any, **given: Any) -> FakeWatch:
        meters.append(NoiseMeter(*cpus, **given))
        return FakeWatch()

    monkeypatch.setattr("shootout.core.race.runner.NoiseMeter", watch)
    assert planted.run(tmp_path / "cuda", cuda_study(1))
    assert planted.run(tmp_path / "cpu", planted.study(1))
    assert ["GPU clock" in meter.sources() for meter in meters] == [True, False]
