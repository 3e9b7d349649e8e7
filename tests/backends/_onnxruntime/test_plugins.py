"""Providers that are plugins: ONNX Runtime's own one for CPUs tells of its device as they do, the others are fakes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from made_product import SIZE, product_file

from shootout.backends._onnxruntime import account, providers
from shootout.backends._onnxruntime.providers import CPU
from shootout.core import backends
from shootout.core.contract import Arm, Device, Precision, Target, TensorSpec
from shootout.core.errors import SkippedArm
from shootout.testing.checks import call

X, Y = (TensorSpec(name=name, shape=(SIZE, SIZE), dtype="float32") for name in "xy")
NAME = "MadeUpExecutionProvider"


def arm_of(name: str, device: Device = Device.CPU, precision: Precision = Precision.FP32, **options: str) -> Arm:
    target = Target(backend="onnxruntime", device=device, precision=precision, mode=f"ep={name}")
    return Arm(target=target, model="made", options=options)


def exported_in(folder: Path) -> Any:
    source = product_file(folder / "source.onnx")
    buffers = [{"x": np.eye(SIZE, dtype=np.float32)}]
    return SimpleNamespace(inputs=(X,), outputs=(Y,), path=lambda artifact: source, input_buffers=lambda: buffers)


def test_a_provider_is_asked_for_by_its_name_and_runs(tmp_path: Path):
    arm = arm_of(CPU)
    (tmp_path / "built").mkdir()
    built = backends.get("onnxruntime").build(exported_in(tmp_path), arm, tmp_path / "built")
    assert built.facts["compute_nodes_by_precision"] == {"fp32": 1}
    assert built.facts["notes"] == [], "its kernels are ONNX Runtime's own, which are counted as they ran"
    session = backends.get("onnxruntime").load(built)
    x = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
    np.testing.assert_allclose(call(session, {"x": x})["y"], 2 * x)
    assert (session.executed.device, session.executed.fallbacks) == (CPU, ())


def test_one_that_nobody_registered_is_a_skip_that_says_how(tmp_path: Path):
    with pytest.raises(SkippedArm, match=f"built without {NAME}") as caught:
        backends.get("onnxruntime").build(exported_in(tmp_path), arm_of(NAME), tmp_path)
    assert caught.value.why.fix == f"name its library: --option onnxruntime+ep={NAME}.ep_library=PATH"
    with pytest.raises(SkippedArm, match=f"can't register {NAME} from '/none.so': .*cannot open") as caught:
        backends.get("onnxruntime").build(exported_in(tmp_path), arm_of(NAME, ep_library="/none.so"), tmp_path)


def test_a_product_that_it_leaves_to_the_cpu_fails_the_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        account, "_open_on_provider", lambda model, *others: onnxruntime.InferenceSession(str(model), others[1])
    )
    with pytest.raises(RuntimeError, match="ONNX Runtime leaves products to the CPU"):
        account.open_session(product_file(tmp_path / "made.onnx"), arm_of(NAME))


def test_it_quantizes_nothing_itself():
    for precision in (Precision.INT8, Precision.INT4):
        with pytest.raises(SkippedArm) as caught:
            backends.get("onnxruntime").build(Any, arm_of(CPU, precision=precision), Path())
        assert caught.value.why.fix == f"use onnxruntime+ep={CPU}:cpu:int8/shared"


@pytest.mark.parametrize("device", [Device.CPU, Device.CUDA])
@pytest.mark.parametrize("name", [NAME, providers.CUDA])
def test_int8_of_a_provider_that_doesn_t_tell_is_refused(name: str, device: Device):
    arm = arm_of(name, device, Precision.INT8)
    arm = replace(arm, target=replace(arm.target, scheme="shared"))
    with pytest.raises(SkippedArm, match=f"{name} doesn't tell what its kernels compute in") as caught:
        backends.get("onnxruntime").build(Any, arm, Path())
    assert caught.value.why.fix == f"use a float, such as onnxruntime+ep={name}:{device}:fp32"
