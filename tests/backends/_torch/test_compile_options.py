"""What torch.compile's options come to: which weights are frozen, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shootout.backends._torch.compile import inductor_config
from shootout.core import backends
from shootout.core.contract import Arm, Device, Precision, Target
from shootout.core.exported.fidelity import compare
from shootout.testing.checks import ConformanceCase, case_of, warm_of
from shootout.testing.fresh import run_fresh

PLAIN = Target(backend="torch-compile")


def arm_of(mode: str = "", precision: Precision = Precision.FP32, device: Device = Device.CPU, **options: str) -> Arm:
    target = Target(backend="torch-compile", mode=mode, precision=precision, device=device)
    return Arm(target=target, model="made", options=options)


@pytest.mark.parametrize(
    ("arm", "config"),
    [
        (arm_of(), {}),
        (arm_of(freezing="1"), {"freezing": True}),
        (arm_of("aoti", freezing="1"), {"freezing": True}),
        (arm_of(max_autotune="1"), {"max_autotune": True, "freezing": True}),
        (arm_of("aoti", max_autotune="1"), {"max_autotune": True}),
        (arm_of(device=Device.CUDA, max_autotune="1"), {"max_autotune": True}),
        (arm_of(precision=Precision.INT8), {"freezing": True}),
    ],
)
def test_a_cpus_tuned_kernels_come_with_frozen_weights(arm: Arm, config: dict[str, bool]):
    assert inductor_config(arm) == config


@pytest.mark.parametrize(
    ("arm", "trained", "words"),
    [
        (arm_of(precision=Precision.INT8, freezing="0"), (), r"not for int8: .* \(integers always are\)"),
        (arm_of(max_autotune="1", freezing="0"), (), "'max_autotune': .* take frozen weights only"),
        (arm_of(max_autotune="1"), ("weight",), "'max_autotune': .* take frozen weights only"),
        (arm_of(freezing="1"), ("weight",), "'freezing' is for inference"),
        (arm_of(device=Device.CUDA, freezing="1"), (), "is for cpu"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(arm: Arm, trained: tuple[str, ...], words: str, tmp_path: Path):
    exported: Any = SimpleNamespace(trained=trained)
    with pytest.raises(ValueError, match=words):
        backends.get("torch-compile").build(exported, arm, tmp_path)


def frozen_package(case: ConformanceCase, folder: Path) -> float:
    """How far a package with frozen weights is from the reference outputs."""
    adapter, arm = backends.get("torch-compile"), replace(case.arm, options={"freezing": "1"})
    session = adapter.load(adapter.build(case.exported, arm, folder))
    outputs = [session.fetch(session.execute(session.stage(one, 0))) for one in case.exported.input_buffers()]
    return compare(outputs, case.exported.reference_outputs()).relative_l2 or 0.0


@pytest.mark.slow
def test_a_package_takes_frozen_weights(tmp_path: Path):
    target = replace(PLAIN, mode="aoti")
    assert 0 < run_fresh(frozen_package, case_of(target), tmp_path, warm=warm_of(target)) < 1e-5
