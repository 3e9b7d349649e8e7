"""Large inputs on the CPU are read where they lie, small ones are copied: the caller's array tells which."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shootout import backends
from shootout.backends.common import SHARED_BYTES
from shootout.bundle.bundle import ModelBundle
from shootout.contract import Arm, Target
from shootout.export.client import Request, obtain_all
from shootout.testing.cases import Case, warm_of
from shootout.testing.fresh import run_fresh

LARGE = SHARED_BYTES // 4
SIZES = {"small": LARGE - 1, "large": LARGE}
SHARED = {"numpy": list(SIZES), "jax-jit": list(SIZES), "onnxruntime": ["large"], "openvino": ["large"]}


@pytest.fixture(scope="module")
def bundles() -> dict[str, ModelBundle]:
    asked = [Request(model="nested_sin", parameters={"elements": size, "depth": 1}) for size in SIZES.values()]
    made = obtain_all(asked)
    assert all(isinstance(one, ModelBundle) for one in made), made
    return dict(zip(SIZES, made, strict=True))  # type: ignore[arg-type]


def which_are_shared(cases: dict[str, Case], folder: Path) -> list[str]:
    """The cases where a change of an array after `stage` reaches the result; all must be right in two slots."""
    found = []
    for name, case in cases.items():
        adapter, place = backends.get(case.arm.target.backend), folder / name
        place.mkdir()
        session = adapter.load(adapter.build(case.bundle, case.arm, place))
        sets = [{key: array.copy() for key, array in one.items()} for one in case.bundle.input_buffers()[:2]]
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


@pytest.mark.parametrize("backend", SHARED)
def test_large_inputs_are_shared_and_small_ones_copied(backend: str, bundles: dict[str, ModelBundle], tmp_path: Path):
    target = Target(backend=backend)
    cases = {
        name: Case(bundle=bundle, arm=Arm(target=target, model="nested_sin"), probe_bundle=None)
        for name, bundle in bundles.items()
    }
    assert run_fresh(which_are_shared, cases, tmp_path, warm=warm_of(target)) == SHARED[backend]
