"""Large inputs on the CPU are read where they lie and large outputs handed out, small ones are copied: memory tells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shootout.backends.common import HANDED_BYTES, SHARED_BYTES
from shootout.core import backends
from shootout.core.contract import Arm, Target
from shootout.core.exported.client import Request, obtain_all
from shootout.core.exported.model import ExportedModel
from shootout.testing.checks import ConformanceCase, warm_of
from shootout.testing.fresh import run_fresh

SIZES = {"small": SHARED_BYTES // 4 - 1, "large": HANDED_BYTES // 4}
SHARED = {"numpy": list(SIZES), "jax-jit": list(SIZES), "onnxruntime": ["large"], "openvino": ["large"]}


@pytest.fixture(scope="module")
def exported_models() -> dict[str, ExportedModel]:
    asked = [Request(model="nested_sin", parameters={"elements": size, "depth": 1}) for size in SIZES.values()]
    made = obtain_all(asked)
    assert all(isinstance(one, ExportedModel) for one in made), made
    return dict(zip(SIZES, made, strict=True))  # type: ignore[arg-type]


WRITTEN: dict[str, Callable[[Any], np.ndarray]] = {
    "onnxruntime": lambda staged: staged.binding.get_outputs()[0].numpy(),
    "openvino": lambda staged: staged.run.func.__self__.get_output_tensor(0).data,
}
"""What the runtime wrote its output to."""


def which_are_handed_out(cases: dict[str, ConformanceCase], folder: Path) -> list[str]:
    """The cases where `fetch` gives the memory that was written; in all, it must stay as it is whatever runs next."""
    found = []
    for name, case in cases.items():
        backend, place = case.arm.target.backend, folder / name
        place.mkdir()
        session = backends.get(backend).load(backends.get(backend).build(case.exported, case.arm, place))
        first, second, *_ = case.exported.input_buffers()
        staged = session.stage(first, 0)
        for _ in range(2):
            session.execute(staged)
        written = WRITTEN[backend](staged).ctypes.data
        kept = session.fetch(staged)["y"]
        found += [name] if kept.ctypes.data == written else []
        after = answer(session, session.stage(second, 0))
        wrong = [np.abs(got - np.sin(one["x"])).max() for got, one in ((kept, first), (after, second))]
        assert max(wrong) < 1e-6
        session.close()
        assert np.abs(kept - np.sin(first["x"])).max() < 1e-6, "it outlives the session"
    return found


def which_are_shared(cases: dict[str, ConformanceCase], folder: Path) -> list[str]:
    """The cases where a change of an array after `stage` reaches the result; all must be right in two slots."""
    found = []
    for name, case in cases.items():
        adapter, place = backends.get(case.arm.target.backend), folder / name
        place.mkdir()
        session = adapter.load(adapter.build(case.exported, case.arm, place))
        sets = [{key: array.copy() for key, array in one.items()} for one in case.exported.input_buffers()[:2]]
        staged = [session.stage(one, slot) for slot, one in enumerate(sets)]
        wrong = [np.abs(answer(session, at) - np.sin(one["x"])).max() for at, one in zip(staged, sets, strict=True)]
        assert max(wrong) < 1e-6
        staged[0] = session.stage(sets[0], 0)
        sets[0]["x"][:] = 0.0
        after = answer(session, staged[0])
        assert not after.any() or after.all()
        found += [] if after.any() else [name]
        session.close()
    return found


def answer(session, staged) -> np.ndarray:  # type: ignore[no-untyped-def]
    raw = session.execute(staged)
    session.synchronize()
    return np.array(session.fetch(raw)["y"])


def cases_of(backend: str, exported_models: dict[str, ExportedModel]) -> dict[str, ConformanceCase]:
    arm = Arm(target=Target(backend=backend), model="nested_sin")
    return {
        name: ConformanceCase(exported=exported, arm=arm, probe_exported=None)
        for name, exported in exported_models.items()
    }


@pytest.mark.parametrize("backend", SHARED)
def test_large_inputs_are_shared_and_small_ones_copied(
    backend: str, exported_models: dict[str, ExportedModel], tmp_path: Path
):
    cases, warm = cases_of(backend, exported_models), warm_of(Target(backend=backend))
    assert run_fresh(which_are_shared, cases, tmp_path, warm=warm) == SHARED[backend]


@pytest.mark.parametrize("backend", WRITTEN)
def test_large_outputs_are_handed_out_and_small_ones_copied(
    backend: str, exported_models: dict[str, ExportedModel], tmp_path: Path
):
    cases, warm = cases_of(backend, exported_models), warm_of(Target(backend=backend))
    assert run_fresh(which_are_handed_out, cases, tmp_path, warm=warm) == ["large"]
