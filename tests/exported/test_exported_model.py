from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.exports import bare_exported, obtain

from shootout import models
from shootout.backends.common_torch import exported_program
from shootout.core.contract import Arm, Artifact, Device, Precision, Target
from shootout.core.errors import ModelError
from shootout.core.exported.client import Request, obtain_all
from shootout.core.exported.fidelity import compare, gate
from shootout.core.exported.model import ExportedModel, Origin, open_exported
from shootout.models.onnx.effort import Effort
from shootout.models.sources import __main__ as exporter
from shootout.models.sources.assembly import UNSEEN_SETS, make_unseen
from shootout.quantize import torch_error_bounds
from shootout.tell.delivery import files_read

REQUESTS = {
    "residual_mlp": Request(model="residual_mlp", parameters={"d_model": 16, "n_layers": 3}, batch=2),
    "digits": Request(model="digits", batch=4),
    "permutation_probe": Request(model="permutation_probe", batch=6),
    "identity": Request(model="identity", batch=2),
}
ExportedByName = dict[str, ExportedModel]


@pytest.fixture(scope="module")
def exported_models() -> ExportedByName:
    made = obtain_all(list(REQUESTS.values()))
    assert all(isinstance(exported, ExportedModel) for exported in made), made
    return dict(zip(REQUESTS, made, strict=True))  # type: ignore[arg-type]


def outputs_of(exported: ExportedModel, artifact: Artifact) -> list[dict[str, Any]]:
    """The exported model's outputs for its input buffers, run from one of its files."""
    if artifact is Artifact.FORWARD:
        forward, weights = models.get(exported.model).forward, exported.weights()
        assert forward
        run = forward(np, weights, exported.parameters)
        return [run(one) for one in exported.input_buffers()]
    if artifact is Artifact.ONNX:
        import onnxruntime as ort

        session = ort.InferenceSession(exported.path(artifact), providers=["CPUExecutionProvider"])
        assert [i.name for i in session.get_inputs()] == [spec.name for spec in exported.inputs]
        assert [i.shape for i in session.get_inputs()] == [list(spec.shape) for spec in exported.inputs]
        return [{"y": session.run(["y"], dict(one))[0]} for one in exported.input_buffers()]

    if artifact is Artifact.PT2:
        module: Any = exported_program(exported).module()
    else:
        module = models.get(exported.model).module(exported.parameters)
        module.load_state_dict({name: torch.from_numpy(array) for name, array in exported.weights().items()})
    with torch.no_grad():
        return [{"y": module(torch.from_numpy(one["x"])).numpy()} for one in exported.input_buffers()]


@pytest.mark.parametrize("name", list(REQUESTS))
def test_no_arm_gets_the_unseen_inputs_and_their_outputs_are_right(exported_models: ExportedByName, name: str):
    exported = exported_models[name]
    forward = models.get(exported.model).forward
    assert forward
    run = forward(np, exported.weights(), exported.parameters)
    found = exported.unseen()
    assert len(found) == UNSEEN_SETS
    assert compare([run(inputs) for inputs, _ in found], [right for _, right in found]).relative_l2 < 1e-5  # type: ignore[operator]
    for given, _ in found:
        assert not any(np.array_equal(given["x"], known["x"]) for known in exported.input_buffers())
        assert {spec.name: spec.dtype for spec in exported.inputs} == {key: x.dtype.name for key, x in given.items()}


def answering(**outputs: Any) -> Any:
    return lambda sets: [outputs for _ in sets]


def failing(_sets: Any) -> Any:
    raise ValueError("a scale above 1")


@pytest.mark.parametrize(
    "run",
    [failing, answering(y=np.array([1.0, np.nan])), answering(y=np.ones(3))],
    ids=["it fails", "NaN", "another shape"],
)
def test_a_model_that_cannot_take_mixed_inputs_has_none(run: Any):
    buffers = [{"x": np.array([0.5, 0.25])}, {"x": np.array([0.1, 0.2])}]
    assert make_unseen(buffers, run, {"y": np.ones(2)}) == []
    found = make_unseen(buffers, answering(y=np.ones(2)), {"y": np.ones(2)}, is_brief=True)
    assert len(found) == 1


@pytest.mark.parametrize("name", ["residual_mlp", "digits", "permutation_probe"])
def test_every_artifact_computes_the_references_function(exported_models: ExportedByName, name: str):
    exported = exported_models[name]
    assert len(exported.artifacts) >= 3
    for artifact in exported.artifacts:
        found = compare(outputs_of(exported, artifact), exported.reference_outputs())
        assert gate(found, exported.error_bounds[Precision.FP32]) is None, artifact


def test_calibration_sets_have_the_models_shape_and_no_report_rows(exported_models: ExportedByName):
    for exported in exported_models.values():
        assert all(exported.inputs[0].matches(one["x"]) for one in exported.calibration())
        assert len(exported.calibration()) >= 8
    report = exported_models["digits"].report()
    assert report
    secret = {image.tobytes() for image in report.inputs["x"]}
    assert not secret & {row.tobytes() for one in exported_models["digits"].calibration() for row in one["x"]}


@pytest.mark.parametrize("name", ["residual_mlp", "digits"])
def test_error_bounds_widen_as_precision_narrows(exported_models: ExportedByName, name: str):
    error_bounds = exported_models[name].error_bounds
    fp32, tf32, fp16, bf16 = (error_bounds[p] or np.nan for p in ("fp32", "tf32", "fp16", "bf16"))
    assert 1e-5 == fp32 < tf32 <= fp16 < bf16 < 0.2


@pytest.mark.parametrize("precision", [Precision.INT8_DYNAMIC, Precision.INT4, Precision.FP8])
def test_on_a_gpu_the_error_bound_has_bf16_s_on_top(exported_models: ExportedByName, precision: Precision):
    """What a quantizer leaves is BF16 or FP16 there, while on a CPU it is FP32."""
    exported = exported_models["digits"]
    own, rest = exported.error_bounds[precision], exported.error_bounds[Precision.BF16]
    assert own
    assert rest
    targets = [Target(backend="any", device=device, precision=precision) for device in (Device.CPU, Device.CUDA)]
    assert [exported.error_bound(target)[0] for target in targets] == [own, own + rest]


def test_what_errs_as_fp32_rounded_nothing_to_tf32(exported_models: ExportedByName):
    """At batch 1 cuBLAS takes a kernel that multiplies in FP32, whatever TF32's switch says: seen on an H200."""
    exported = exported_models["residual_mlp"]
    bound, least = exported.error_bound(Target(backend="any", device=Device.CUDA, precision=Precision.TF32))
    assert bound is not None
    assert 0 < least == exported.error_bounds[Precision.FP32] < bound
    assert exported.error_bound(Target(backend="any"))[1] == 0


def test_a_model_that_overflows_fp16_has_no_error_bound_for_it():
    inputs = [{"x": np.full((1, 4), 2.0**17, np.float32)}]
    module = torch.nn.Linear(4, 4, bias=False)
    module.load_state_dict({"weight": torch.eye(4)})
    reference_outputs = [{"y": inputs[0]["x"].astype(np.float64)}]
    (found,), _ = torch_error_bounds.error_bounds(module.double(), inputs, reference_outputs, by_rows=True)
    assert found[Precision.FP16] is None
    assert found[Precision.BF16] is not None


GOOD = np.random.default_rng(3).random((3, 2, 64)).astype(np.float32)
SPOILT = GOOD.copy()
SPOILT[1, 0, :2] = np.nan, np.inf
UNUSABLE: dict[str, tuple[Any, str]] = {
    "missing": (None, "can't read {path}: No such file or directory"),
    "not an npz": (b"PK no", "{path} is not an .npz of plain arrays"),
    "other names": ({"image": GOOD, "mask": GOOD}, "{path}: expected inputs ['x'], got ['image', 'mask']: write them"),
    "another shape": (
        {"x": GOOD[:, :1]},
        "expected float32[2, 64], or K of them along a leading axis, or rows [rows, 64]; got float32[3, 1, 64]",
    ),
    "another dtype": ({"x": GOOD.astype(np.float64)}, "got float64[3, 2, 64]"),
    "NaN": ({"x": SPOILT}, "input 'x': expected numbers, got NaN in 1 places"),
    "infinity": ({"x": np.where(np.isnan(SPOILT), 0, SPOILT).astype(np.float32)}, "got infinity in 1 places"),
    "no set": ({"x": GOOD[:0]}, "at least one; got {{'x': '0 rows'}}"),
    "one set": ({"x": GOOD[:1]}, "1 calibration set gives no reliable range; give at least 2, as rows or stacked"),
    "one set, no axis": ({"x": GOOD[0]}, "1 calibration set gives no reliable range"),
}


@pytest.mark.parametrize("what", list(UNUSABLE))
def test_calibration_data_that_cannot_be_used_cost_only_what_needs_them(tmp_path: Path, what: str):
    content, says = UNUSABLE[what]
    path = tmp_path / "mine.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.savez(path, **content)
    exported = obtain("identity", {}, 2, calibration_npz=path)
    assert says.format(path=path) in exported.calibration_fault
    assert exported.calibration_fault.startswith("the calibration data can't be used: ")
    with pytest.raises(ValueError, match="the calibration data can't be used"):
        exported.calibration()
    assert exported.reference_outputs()


def test_good_calibration_data_replace_the_models_own_and_judge_what_they_quantize(
    exported_models: ExportedByName, tmp_path: Path
):
    np.savez(tmp_path / "mine.npz", x=GOOD[:, :, :16])
    request = REQUESTS["residual_mlp"]
    mine = obtain(request.model, request.parameters, request.batch, calibration_npz=tmp_path / "mine.npz")
    assert mine.calibration_fault == ""
    assert np.array_equal(np.stack([one["x"] for one in mine.calibration()]), GOOD[:, :, :16])
    plain = exported_models["residual_mlp"]
    assert np.array_equal(np.stack([one["x"] for one in mine.input_buffers()]), GOOD[:8, :, :16])
    assert (mine.drawn, plain.drawn, exported_models["digits"].drawn) == (False, True, False)
    assert mine.error_bounds["int8-dynamic"] != plain.error_bounds["int8-dynamic"]


def test_asking_for_exported_models_imports_no_framework(exported_models: ExportedByName):
    code = """if True:
        import sys
        from shootout.core.exported.client import Request, obtain
        exported = obtain(Request(model="identity", batch=2))
        heavy = ("torch", "onnx", "onnxruntime", "safetensors", "sklearn", "scipy")
        loaded = [name for name in heavy if name in sys.modules]
        assert not loaded, loaded
        exported.input_buffers(), exported.reference_outputs(), exported.weights()
        """
    subprocess.run([sys.executable, "-c", code], check=True)
    assert exported_models["identity"].key


def test_the_manifest_hashes_every_other_file(exported_models: ExportedByName):
    folder = exported_models["digits"].folder
    files = json.loads((folder / "manifest.json").read_text())["files"]
    assert set(files) == {path.name for path in folder.iterdir()} - {"manifest.json"}
    assert {"model.onnx", "model.pt2", "params.safetensors", "report.npz"} <= set(files)


def test_one_that_lacks_what_no_target_reads_opens_where_that_is_expected(
    exported_models: ExportedByName, tmp_path: Path
):
    whole, sent = exported_models["digits"], tmp_path / "sent"
    read = files_read(whole, [Arm(target=Target(backend="onnxruntime"), model="digits")])
    assert {"inputs.npz", "reference.npz", "report.npz", "model.onnx"} <= {*read}
    assert not {"model.pt2", "params.safetensors", "calibration.npz", "selection.npz"} & {*read}
    sent.mkdir()
    for name in read:
        (sent / name).hardlink_to(whole.folder / name)
    found = open_exported(sent, is_whole=False)
    assert found == replace(whole, folder=sent), "a target whose build was sent is of an artifact that isn't"
    with pytest.raises(ModelError, match="should hold"):
        open_exported(sent)
    (sent / "reference.npz").unlink()
    with pytest.raises(ModelError, match="should hold"):
        open_exported(sent, is_whole=False)


@pytest.mark.parametrize(
    ("origin", "module"),
    [
        ("code", {"params.safetensors"}),
        ("file", {"model.pt2"}),
        ("program", {"params.safetensors", "model.pt2"}),
    ],
)
def test_a_torch_module_is_read_from_weights_or_from_a_program(tmp_path: Path, origin: Origin, module: set[str]):
    files = {"params.safetensors", "model.pt2", "model.onnx", "inputs.npz"}
    for name in files:
        (tmp_path / name).touch()
    exported = bare_exported({}, folder=tmp_path, origin=origin, artifacts=(Artifact.MODULE,))
    assert {*files_read(exported, [Arm(target=Target(backend="torch-eager"), model="m")])} == module | {"inputs.npz"}


def test_big_weights_lie_beside_the_onnx_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from shootout.models.sources import torch_files

    monkeypatch.setattr(torch_files, "INLINE_BYTES", 1_000)
    parameters = models.get("residual_mlp").check({"d_model": 64, "n_layers": 2})
    exporter.make(Request(model="residual_mlp", parameters=parameters, folder=tmp_path), Effort())
    exported = open_exported(tmp_path)
    assert exported.path(Artifact.ONNX).stat().st_size < 64 * 64 * 4 < (tmp_path / "model.onnx.data").stat().st_size
    found = compare(outputs_of(exported, Artifact.ONNX), exported.reference_outputs())
    assert gate(found, exported.error_bounds[Precision.FP32]) is None
