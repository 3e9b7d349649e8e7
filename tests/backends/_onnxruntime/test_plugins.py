"""Providers that are plugins: ONNX Runtime's own one for CPUs tells of its device as they do, the others are fakes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from made_product import SIZE, product_file
from onnx import TensorProto, helper, numpy_helper, save

from shootout.apps.tune.settings import list_changes
from shootout.backends._onnxruntime import account, providers
from shootout.backends._onnxruntime.providers import CPU
from shootout.core import backends
from shootout.core.contract import Arm, Capabilities, Device, Precision, Target, TensorSpec
from shootout.core.errors import SkippedArm, UsageError
from shootout.core.study.target import parse_targets
from shootout.tell.option_values import read_options
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


def device_of(name: str, kind: str, vendor_id: int = 0) -> Any:
    return SimpleNamespace(ep_name=name, device=SimpleNamespace(type=SimpleNamespace(name=kind), vendor_id=vendor_id))


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


def test_a_library_is_a_path_or_a_package_that_knows_it_and_registered_once(monkeypatch: pytest.MonkeyPatch):
    registered: list[tuple[str, str]] = []
    known: list[Any] = []
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: known)
    monkeypatch.setattr(onnxruntime, "register_execution_provider_library", lambda *told: registered.append(told))
    package = SimpleNamespace(get_library_path=lambda: "/made/libup.so")
    monkeypatch.setitem(sys.modules, "made_up_plugin", package)  # type: ignore[arg-type]
    for library in ("made_up_plugin", __file__):
        providers.register_plugin(arm_of(NAME).target, {"ep_library": library})
    assert registered == [(NAME, "/made/libup.so"), (NAME, __file__)]
    known.append(device_of(NAME, "CPU"))
    providers.register_plugin(arm_of(NAME).target, {"ep_library": __file__})
    assert len(registered) == 2


@pytest.mark.parametrize(("device", "taken"), [(Device.CPU, ["CPU"]), (Device.CUDA, ["GPU"])])
def test_its_devices_are_of_the_kind_that_was_asked_for(
    device: Device, taken: list[str], monkeypatch: pytest.MonkeyPatch
):
    others = [device_of(CPU, "CPU"), device_of(NAME, "NPU"), device_of(NAME, "GPU", vendor_id=0x8086)]
    own = [device_of(NAME, "CPU"), device_of(NAME, "GPU", vendor_id=providers.NVIDIA)]
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: [*others, *own])
    found: list[Any] = []
    options = SimpleNamespace(add_provider_for_devices=lambda devices, given: found.append((devices, given)))
    providers.attach_plugin(options, NAME, device, {"a": "b"})
    ((devices, given),) = found
    assert [one.device.type.name for one in devices] == taken
    assert given == {"a": "b"}
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: others)
    with pytest.raises(SkippedArm, match=rf"no device of the kind {device} here \(it has GPU, NPU\)"):
        providers.attach_plugin(options, NAME, device, {})


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


def test_a_convolution_between_pairs_that_runs_in_float_is_not_int8(tmp_path: Path):
    """ONNX Runtime's CPU kernels need a pair behind it too."""
    shape = (1, 2, SIZE, SIZE)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    pair = [("QuantizeLinear", ["x", "scale", "zero"], "q"), ("DequantizeLinear", ["q", "scale", "zero"], "a")]
    convolution = [("DequantizeLinear", ["w", "scale"], "b"), ("Conv", ["a", "b"], "y")]
    nodes = [helper.make_node(op, read, [made]) for op, read, made in (*pair, *convolution)]
    arrays = {"scale": np.float32(0.1), "zero": np.uint8(128), "w": np.ones((2, 2, 1, 1), np.int8)}
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "made", [x], [y], weights)
    source = tmp_path / "source.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), source)
    exported: Any = SimpleNamespace(path=lambda artifact: source, input_buffers=lambda: [{"x": np.ones(shape, "f4")}])
    arm = arm_of(CPU, precision=Precision.INT8)
    arm = replace(arm, target=replace(arm.target, scheme="shared"))
    found = backends.get("onnxruntime").build(exported, arm, tmp_path).facts
    assert found["compute_nodes_by_precision"] == {"fp32": 1}
    assert found["flops_by_precision"] == {"fp32": 2 * 2 * 2 * SIZE * SIZE}


def test_only_a_gpu_s_account_is_on_cuda():
    assert providers.on_device(NAME, Device.CUDA) == f"{NAME} on CUDA"
    assert providers.on_device(NAME, Device.CPU) == NAME
    assert providers.on_device(CPU, Device.CUDA) == CPU, "which is no GPU's"


def test_the_mode_is_any_name_s_and_none_that_the_tuner_tries():
    def describe(name: str) -> tuple[Capabilities, Target]:
        return backends.get(name).capabilities, Target(backend=name)

    (target,) = parse_targets(f"onnxruntime+ep={NAME}", describe)
    assert target.mode == f"ep={NAME}"
    with pytest.raises(UsageError, match="mode"):
        parse_targets(f"onnxruntime+dp={NAME}", describe)
    assert not [one for one in list_changes(Arm(target=Target(backend="onnxruntime"), model="m"), 1) if one.mode]
    read = read_options("--option", [f"onnxruntime+ep={NAME}.ep_library=/a=b.so"])
    assert read == {f"onnxruntime+ep={NAME}": {"ep_library": "/a=b.so"}}
