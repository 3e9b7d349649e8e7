"""What a worker hands to an adapter: the same memory to each, whoever reads it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.sessions import EchoSession

from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.contract import Arm, Target, TensorSpec
from shootout.core.exported.model import ALIGNMENT, INPUTS, ExportedModel, save_sets
from shootout.core.worker.worker import Worker


def exported_of(sets: list[dict[str, Any]], folder: Path) -> ExportedModel:
    save_sets(folder / INPUTS, sets)
    return ExportedModel(
        folder=folder,
        key="",
        model="m",
        parameters={},
        batch=1,
        inputs=tuple(TensorSpec(name=name, shape=one.shape, dtype=str(one.dtype)) for name, one in sets[0].items()),
        outputs=(),
        artifacts=(),
        error_bounds={},
        parameter_count=0,
        weights_sha256="",
        versions={},
        export_s=0.0,
    )


@pytest.mark.parametrize(("scenario", "instances"), [("latency", 1), ("throughput", 2)])
def test_every_input_begins_where_all_runtimes_read_it_in_place(
    scenario: str, instances: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    handed: list[int] = []

    class Session(EchoSession):
        def stage(self, inputs: Any, slot: int) -> Any:
            handed.extend(array.__array_interface__["data"][0] for array in inputs.values())
            return inputs

        def fetch(self, raw: Any) -> Any:
            return {name: np.copy(array) for name, array in raw.items()}

    monkeypatch.setattr(backends, "get", lambda name: SimpleNamespace(load=lambda built: Session()))
    exported = exported_of(
        [{"x": np.full((3, 5), at, np.float32), "ids": np.arange(at, at + 3)} for at in range(8)], tmp_path
    )
    arm = Arm(target=Target(backend="any"), model="m", scenario=scenario, instances=instances)
    Worker().load(Built(arm=arm, exported=exported, folder=tmp_path))
    assert len(set(handed)) == 2 * 8 * instances
    assert {address % ALIGNMENT for address in handed} == {0}
