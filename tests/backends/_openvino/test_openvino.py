"""OpenVINO's own traps: silent bf16, fused nodes that hide their products, NNCF's options, telemetry, users' files."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, save

from shootout.backends._openvino import account
from shootout.backends._openvino.graph import listed_precisions
from shootout.core import backends
from shootout.core.build.builder import probe_request
from shootout.core.contract import Arm, Executed, Precision, Target
from shootout.core.errors import SkippedArm
from shootout.core.exported import fidelity
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel
from shootout.core.install import install
from shootout.core.worker.verification import executed_fault, probe_fault
from shootout.models import probes
from shootout.testing.checks import OURS, call, exported_models, warm_of
from shootout.testing.fresh import run_fresh

PROBE = probe_request("permutation_probe", "")
DIGITS = Request(model="digits", batch=1)
INT8 = Target(backend="openvino", precision=Precision.INT8)


@dataclass(frozen=True)
class Ran:
    """What one arm did: its account, its outputs for every input buffer, and what its process had imported."""

    arm: Arm
    executed: Executed
    outputs: list[dict[str, np.ndarray]]
    imported: set[str]


def arm_of(exported: ExportedModel, precision: Precision = Precision.FP32, **options: str) -> Arm:
    target = Target(backend="openvino", precision=precision)
    return Arm(
        target=target, model=exported.model, parameters=exported.parameters, batch=exported.batch, options=options
    )


@cache
def offered() -> frozenset[Precision]:
    """What OpenVINO lists for this CPU."""
    found: frozenset[Precision] = run_fresh(listed_precisions, warm=OURS)
    return found


def build(exported: ExportedModel, arm: Arm, folder: Path) -> Any:
    return backends.get("openvino").build(exported, arm, folder)


def load_and_run(built: Any) -> Ran:
    session = backends.get("openvino").load(built)
    buffers = built.exported.input_buffers()
    outputs = [dict(call(session, inputs, slot)) for slot, inputs in enumerate(buffers)]
    imported = {"torch", "jax", "nncf", "openvino_telemetry"} & {n for n, m in sys.modules.items() if m}
    return Ran(built.arm, session.executed, outputs, imported)


def build_and_run(exported: ExportedModel, arm: Arm, folder: Path) -> Ran:
    return load_and_run(build(exported, arm, folder))


def run_all(work: list[tuple[ExportedModel, Arm]]) -> list[Ran]:
    found = []
    for exported, arm in work:
        with TemporaryDirectory() as folder:
            found.append(build_and_run(exported, arm, Path(folder)))
    return found


HONORED = {
    "CPU_DENORMALS_OPTIMIZATION": "YES",
    "ENABLE_CPU_PINNING": "NO",
    "PERFORMANCE_HINT": "THROUGHPUT",
    "SNIPPETS_MODE": "DISABLE",
}
ARMS: dict[str, tuple[Request, Precision, dict[str, str]]] = {
    "as fp32 in bf16": (PROBE, Precision.FP32, {"INFERENCE_PRECISION_HINT": "bf16"}),
    "as fp32 in f16": (PROBE, Precision.FP32, {"INFERENCE_PRECISION_HINT": "f16"}),
    "with options": (DIGITS, Precision.FP32, HONORED),
    "fp32": (DIGITS, Precision.FP32, {}),
    "bf16": (DIGITS, Precision.BF16, {}),
    "int8": (DIGITS, Precision.INT8, {}),
}


@cache
def everything() -> dict[str, Ran]:
    """What these arms do, one after the other in a fresh process; those that this CPU can't do left out."""
    able = {name: asked for name, asked in ARMS.items() if asked[1] in offered()}
    exported = exported_models(*(request for request, *_ in able.values()))
    work = [
        (exported, arm_of(exported, precision, **options))
        for exported, (_, precision, options) in zip(exported, able.values(), strict=True)
    ]
    found: list[Ran] = run_fresh(run_all, work, warm=warm_of(INT8))
    return dict(zip(able, found, strict=True))


def error_of(found: Ran, request: Request) -> float:
    (exported,) = exported_models(request)
    error = fidelity.compare(found.outputs, exported.reference_outputs()).relative_l2
    assert error is not None
    return error


@pytest.mark.parametrize(("hint", "asked"), [("bf16", Precision.BF16), ("f16", Precision.FP16)])
def test_half_precision_under_an_fp32_label_is_caught_twice(hint: str, asked: Precision):
    """Where the CPU lacks what the hint asks, OpenVINO takes another precision: the other half one, or FP32."""
    found = everything()[f"as fp32 in {hint}"]
    (ran,) = found.executed.compute_nodes_by_precision
    assert ran == asked or asked not in offered()
    assert ran in offered()
    assert found.executed.staged == "fp32", "OpenVINO converts inside of the call"
    by_account = executed_fault(found.executed, found.arm)
    by_probe = probe_fault(probes.read_permutation(found.outputs[0]), found.arm.target)
    if ran == "fp32":
        assert (by_account, by_probe) == (None, None)
    else:
        assert f"elsewhere: 1 in {ran}" in str(by_account)
        assert f"finds {ran}" in str(by_probe)


def refusal(exported: ExportedModel, arm: Arm, folder: Path) -> tuple[str, str, str]:
    """The type, words and fix of what `build` raises."""
    try:
        build(exported, arm, folder)
    except SkippedArm as error:
        return "SkippedArm", error.reason, error.fix
    except Exception as error:
        return type(error).__name__, str(error), ""
    return "", "", ""


def refusals(exported: ExportedModel, arms: list[Arm], folder: Path) -> list[tuple[str, str, str]]:
    return [refusal(exported, arm, folder) for arm in arms]


def refused(folder: Path, *arms: tuple[Precision, dict[str, str]], request: Request = DIGITS) -> Any:
    """What each of these arms is told, all in one process."""
    (exported,) = exported_models(request)
    return run_fresh(
        refusals, exported, [arm_of(exported, precision, **options) for precision, options in arms], folder, warm=OURS
    )


REFUSED_OPTIONS = [
    (Precision.FP32, {"NUM_STREAM": "2"}, "ValueError", "unknown option 'NUM_STREAM'"),
    (
        Precision.FP32,
        {"model_type": "transformer"},
        "ValueError",
        "'model_type' is for int8, not for fp32",
    ),
    (Precision.INT4, {"model_type": "transformer"}, "ValueError", "not for int4"),
    (Precision.INT8, {"group_size": "32"}, "ValueError", "'group_size' is for int4, not for int8"),
    (Precision.INT8, {"preset": "mixed"}, "ValueError", "unknown option 'preset'"),
    (Precision.FP32, {"NUM_STREAMS": "2"}, "RuntimeError", "did not honor NUM_STREAMS=2: it runs with 1"),
    (Precision.INT8, {"model_type": "cnn"}, "ValueError", "'model_type': expected transformer, got 'cnn'"),
]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, str]]:
    """What an FP16 arm is told, then all of these."""
    arms = [(Precision.FP16, dict[str, str]()), *((precision, options) for precision, options, _, _ in REFUSED_OPTIONS)]
    found: list[tuple[str, str, str]] = refused(tmp_path_factory.mktemp("refused"), *arms)
    return found


def test_fp16_runs_or_would_become_another_precision_and_is_skipped(told: list[tuple[str, str, str]]):
    kind, reason, fix = told[0]
    if Precision.FP16 in offered():
        assert kind == "", reason
    else:
        assert kind == "SkippedArm"
        assert "no fp16 arithmetic for this CPU; it would silently run" in reason
        assert "openvino:cpu:fp32" in fix


def test_options_are_honored_or_refused(told: list[tuple[str, str, str]]):
    for (_, options, kind, words), (got, said, _) in zip(REFUSED_OPTIONS, told[1:], strict=True):
        assert got == kind, f"{options}: {said}"
        assert words in said, options


def test_honored_options_run():
    assert error_of(everything()["with options"], DIGITS) < 1e-6


def test_without_products_there_is_nothing_to_quantize(tmp_path: Path):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Tanh", ["x"], ["y"])], "plain", [x], [y])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "tanh.onnx")
    request = Request(model=str(tmp_path / "tanh.onnx"), batch=1)
    ((kind, said, _),) = refused(tmp_path, (Precision.INT8, {}), request=request)
    assert (kind, said) == ("ValueError", "nothing to quantize: the model has no matrix product and no convolution")


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.BF16, Precision.INT8])
def test_products_inside_fused_nodes_are_counted(precision: Precision):
    """Of this model OpenVINO makes one or two nodes, which it reports as f32 whatever they compute in."""
    if precision not in offered():
        pytest.skip(f"OpenVINO lists no {precision} for this CPU")
    found = everything()[precision]
    (exported,) = exported_models(DIGITS)
    assert found.executed.compute_nodes_by_precision == {precision: 3}
    assert executed_fault(found.executed, found.arm) is None
    assert (
        fidelity.gate(fidelity.compare(found.outputs, exported.reference_outputs()), exported.error_bounds[precision])
        is None
    )
    least = {Precision.FP32: 0.0, Precision.BF16: 1e-4, Precision.INT8: 1e-3}
    assert error_of(found, DIGITS) > least[precision], "too exact for what it claims"


def built_on(exported: ExportedModel, splits: list[Any], folder: Path) -> list[bytes | str]:
    """The weights that come out with each calibration split, or what was said; None is the exported model's own."""
    own, found = type(exported).calibration, list[bytes | str]()
    for split in splits:
        type(exported).calibration = own if split is None else lambda self, split=split: split  # type: ignore[assignment,method-assign,misc]
        _, said, _ = refusal(exported, arm_of(exported, Precision.INT8), folder)
        found.append(said or (folder / "model.bin").read_bytes())
    return found


def test_ranges_come_from_the_calibration_split(tmp_path: Path):
    (exported,) = exported_models(DIGITS)
    own = exported.calibration()
    wider = [{"x": 3 * one["x"]} for one in own]
    broken = [own[0], {"x": np.full_like(own[0]["x"], np.nan)}]
    plain, same, other, told, empty = run_fresh(
        built_on, exported, [None, own, wider, broken, []], tmp_path, warm=warm_of(INT8)
    )
    assert plain == same
    assert plain != other
    assert told == "calibration set 1: input 'x' has NaN or infinity"
    assert "needs at least 2 sets: the calibration split has only 0" in str(empty)


def refusal_without_nncf(exported: ExportedModel, folder: Path) -> list[tuple[str, str, str]]:
    sys.modules["nncf"] = None  # type: ignore[assignment]
    return [refusal(exported, arm_of(exported, one), folder) for one in (Precision.INT8, Precision.FP32)]


def test_only_int8_needs_nncf(tmp_path: Path):
    (exported,) = exported_models(DIGITS)
    (kind, reason, fix), plain = run_fresh(refusal_without_nncf, exported, tmp_path, warm=OURS)
    assert (kind, fix) == ("SkippedArm", install("openvino"))
    assert "nncf is not installed" in reason
    assert plain == ("", "", "")


def build_at_home(home: Path, exported: ExportedModel, arm: Arm, folder: Path) -> Any:
    """`build` with that home folder, before NNCF is imported."""
    os.environ["HOME"] = str(home)
    os.environ.pop("CI", None)
    return build(exported, arm, folder)


def test_nothing_is_reported_to_anyone_and_a_session_needs_openvino_only(tmp_path: Path):
    """Telemetry leaves a client id in the home folder; nothing may."""
    home, built = tmp_path / "home", tmp_path / "built"
    for folder in (home, built):
        folder.mkdir()
    (exported,) = exported_models(DIGITS)
    done = run_fresh(build_at_home, home, exported, arm_of(exported, Precision.INT8), built, warm=warm_of(INT8))
    assert run_fresh(load_and_run, done).imported == set()
    assert [path.relative_to(home) for path in home.rglob("*") if "intel" in path.parts] == []


@pytest.mark.parametrize(
    ("said", "exported", "text"),
    [
        (None, b"head<net a/></net>tail", b"<net a/></net>"),
        (None, BytesIO(b"head<net a/></net>tail"), b"<net a/></net>"),
        ("Unsupported attribute type.", None, b"<net/>"),
    ],
)
def test_older_releases_export_bytes_or_nothing_that_can_be_read(
    said: str | None, exported: object, text: bytes, monkeypatch: pytest.MonkeyPatch
):
    def compile_model(path: Path, arm: Arm, **more: object) -> object:
        if said and "CACHE_ENCRYPTION_CALLBACKS" in more:
            raise RuntimeError(said)
        return SimpleNamespace(export_model=lambda: exported)

    monkeypatch.setattr(account, "compile_model", compile_model)
    assert account._compile_and_export(Path(), Arm(target=Target(backend="openvino"), model="made"))[1] == text
    said = "too few registers"
    with pytest.raises(RuntimeError, match=said):
        account._compile_and_export(Path(), Arm(target=Target(backend="openvino"), model="made"))
