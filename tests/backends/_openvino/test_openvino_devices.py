"""OpenVINO's GPU and NPU, which no machine of ours has: with a library that pretends, and on its own CPU."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from shootout.backends import chosen_gpu
from shootout.backends._openvino import graph
from shootout.backends._openvino.account import read_executed
from shootout.backends._openvino.graph import PLUGINS, chosen_plugin, describe_devices, import_openvino
from shootout.core import backends
from shootout.core.adapter import GpuSide
from shootout.core.contract import Arm, Device, Executed, NotRunKind, Precision, Target
from shootout.core.errors import SkippedArm
from shootout.core.exported import fidelity
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel
from shootout.core.worker.verification import executed_fault
from shootout.testing.checks import call, exported_models, warm_of
from shootout.testing.fresh import run_fresh

DIGITS = Request(model="digits", batch=1)
ALL = ("CPU", "GPU.0", "GPU.1", "NPU")
NAMES = {"GPU": "Intel Arc", "GPU.0": "Intel Arc", "GPU.1": "Intel Flex", "NPU": "Intel AI Boost"}


@pytest.fixture(autouse=True)
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(chosen_gpu.CHOSEN, raising=False)


def arm_of(device: Device, precision: Precision = Precision.FP16, **options: str) -> Arm:
    return Arm(target=Target(backend="openvino", device=device, precision=precision), model="digits", options=options)


def kind(name: str) -> Any:
    return SimpleNamespace(get_type_name=lambda: name)


def pretend(
    monkeypatch: pytest.MonkeyPatch, devices: tuple[str, ...] = ALL, capabilities: tuple[str, ...] = ("FP32", "FP16")
) -> MagicMock:
    """An OpenVINO with these devices; returns its core."""
    told = {"OPTIMIZATION_CAPABILITIES": capabilities, "INFERENCE_PRECISION_HINT": kind("f32")}
    core = MagicMock(available_devices=list(devices))
    core.get_property.side_effect = lambda name, key: NAMES[name] if key == "FULL_DEVICE_NAME" else told[key]
    library = SimpleNamespace(__version__="2026.4.0-1", Core=lambda: core, Model=MagicMock(), opset13=MagicMock())
    monkeypatch.setitem(sys.modules, "openvino", library)  # type: ignore[arg-type] # it is asked like a module
    return core


@pytest.mark.parametrize(
    ("device", "what", "driver"),
    [
        (Device.XPU, "no Intel GPU", "apt-get install intel-opencl-icd"),
        (Device.NPU, "no Intel NPU", "linux-npu-driver"),
    ],
)
def test_a_device_without_a_driver_is_a_skip_that_names_it(
    monkeypatch: pytest.MonkeyPatch, device: Device, what: str, driver: str
):
    pretend(monkeypatch, devices=("CPU",))
    found = backends.get("openvino").probe(device)
    assert found.why
    assert found.why.kind is NotRunKind.UNAVAILABLE
    assert f"OpenVINO finds {what} with a driver that works" in found.reason
    assert driver in found.fix
    with pytest.raises(SkippedArm, match=what):
        graph.compile_model(Path("model.xml"), arm_of(device))


def test_of_several_gpus_one_is_chosen_by_number(monkeypatch: pytest.MonkeyPatch):
    pretend(monkeypatch)
    assert chosen_plugin(Device.XPU) == "GPU", "OpenVINO's own choice"
    monkeypatch.setenv(chosen_gpu.CHOSEN, "1")
    assert [chosen_plugin(one) for one in (Device.CPU, Device.XPU, Device.NPU)] == ["CPU", "GPU.1", "NPU"]
    monkeypatch.setenv(chosen_gpu.CHOSEN, "2")
    with pytest.raises(SkippedArm, match="gpu 2: OpenVINO has only 2 here") as caught:
        chosen_plugin(Device.XPU)
    assert caught.value.fix == "choose one below 2, or leave --gpu out"


def test_each_is_compiled_with_what_it_knows(monkeypatch: pytest.MonkeyPatch):
    core = pretend(monkeypatch)
    asked = [
        (arm_of(Device.XPU, Precision.FP32), "GPU", {"INFERENCE_PRECISION_HINT": "f32"}),
        (arm_of(Device.XPU), "GPU", {"INFERENCE_PRECISION_HINT": "f16"}),
        (arm_of(Device.NPU), "NPU", {}),
    ]
    for arm, plugin, more in asked:
        graph.compile_model(Path("model.xml"), arm)
        assert core.compile_model.call_args.args[1:] == (plugin, {"PERFORMANCE_HINT": "LATENCY", **more})
    assert graph.properties_of(arm_of(Device.NPU, PERFORMANCE_HINT="THROUGHPUT")) == {"PERFORMANCE_HINT": "THROUGHPUT"}


@pytest.mark.parametrize(("own", "label"), [("f16", "fp16"), ("f32", "fp32")])
def test_a_file_s_own_half_precision_is_told_as_the_cpu_runs_it(own: str, label: str):
    """In FP16 on a CPU with such arithmetic, in FP32 on others: OpenVINO's graph says which."""
    x = node("x", "Input")
    product = node("product", "FullyConnected", own, x)
    told = {"EXECUTION_DEVICES": ["CPU"], "INFERENCE_PRECISION_HINT": kind("dynamic")}
    ran = SimpleNamespace(
        get_property=told.__getitem__,
        get_runtime_model=lambda: SimpleNamespace(
            get_ordered_ops=lambda: [x, product, node("y", "Output", own, product)]
        ),
    )
    facts = {"products": {"product": [""]}, "conversions": [], "layers": {}, "node_ns": {}}
    assert read_executed(ran, facts)["compute_nodes_by_precision"] == {label: 1}


def node(name: str, layer: str, precision: str = "f16", *sources: Any) -> Any:
    info = {"layerType": layer, "runtimePrecision": precision, "originalLayersNames": ""}
    return SimpleNamespace(
        get_friendly_name=lambda: name,
        get_rt_info=lambda: {key: SimpleNamespace(value=value) for key, value in info.items()},
        inputs=lambda: [
            SimpleNamespace(get_source_output=lambda one=one: SimpleNamespace(get_node=lambda: one)) for one in sources
        ],
    )


def compiled(devices: Any, *nodes: Any) -> Any:
    told = {"EXECUTION_DEVICES": devices, "INFERENCE_PRECISION_HINT": kind("f16")}
    model = SimpleNamespace(get_ordered_ops=lambda: nodes)
    return SimpleNamespace(get_property=told.__getitem__, get_runtime_model=lambda: model)


def test_where_it_ran_is_read_from_what_was_compiled(monkeypatch: pytest.MonkeyPatch):
    pretend(monkeypatch)
    told = {"xpu: Intel Flex (GPU.1)": ["GPU.1"], "npu: Intel AI Boost (NPU)": "NPU", "CPU": ["CPU"]}
    for text, devices in told.items():
        assert describe_devices(compiled(devices)) == text


def test_a_gpus_graph_is_counted_by_its_nodes_and_an_npu_tells_none():
    facts: dict[str, Any] = {"products": {}, "conversions": [], "layers": {}, "node_ns": {}}
    x = node("x", "Input")
    moved = node("moved", "Reorder", "f16", x)
    product = node("product", "FullyConnected", "f16", moved)
    found = read_executed(compiled(["GPU.0"], x, moved, product, node("out", "Result", "f16", product)), facts)
    assert found["compute_nodes_by_precision"] == {"fp16": 1}
    assert found["other_nodes_by_precision"] == {"fp16": 1}
    assert (found["conversion_nodes"], found["kernel_ns"]) == (1, {})
    assert read_executed(compiled("NPU"), facts) == {"compute_nodes_by_precision": {}}


@dataclass(frozen=True)
class Played:
    """What an arm for a GPU did on OpenVINO's CPU."""

    executed: Executed
    side: GpuSide | None
    error: float | None
    taken_by_npu: dict[str, str]


def taken_by_npu() -> dict[str, str]:
    """What the NPU's plugin knows without an NPU, and whether it can be set; nothing where it isn't in the package."""
    try:
        return dict(import_openvino().Core().get_property(PLUGINS[Device.NPU], "SUPPORTED_PROPERTIES"))
    except RuntimeError:
        return {}


def play_on_cpu(exported: ExportedModel, folder: Path) -> Played:
    graph.chosen_plugin = lambda _: "CPU"  # type: ignore[assignment] # this process is the test's own
    adapter, arm = backends.get("openvino"), arm_of(Device.XPU, Precision.FP32)
    session = adapter.load(adapter.build(exported, replace(arm, parameters=exported.parameters), folder))
    outputs = [dict(call(session, inputs, slot)) for slot, inputs in enumerate(exported.input_buffers())]
    error = fidelity.compare(outputs, exported.reference_outputs()).relative_l2
    return Played(session.executed, session.gpu, error, taken_by_npu())


def test_an_arm_that_openvino_runs_elsewhere_is_caught_and_else_runs_as_on_a_gpu(tmp_path: Path):
    (exported,) = exported_models(DIGITS)
    played: Played = run_fresh(play_on_cpu, exported, tmp_path, warm=warm_of(Target(backend="openvino")))
    assert executed_fault(played.executed, arm_of(Device.XPU, Precision.FP32)) == (
        "labeled xpu, but openvino computes on CPU"
    )
    assert played.executed.compute_nodes_by_precision.keys() == {"fp32"}
    assert (played.executed.threads, played.executed.kernel_ns) == (None, {})
    assert played.side == GpuSide(copies="staged")
    assert played.error is not None
    assert played.error < 1e-5
    npu = graph.properties_of(arm_of(Device.NPU))
    assert not played.taken_by_npu or {played.taken_by_npu.get(name) for name in npu} == {"RW"}
