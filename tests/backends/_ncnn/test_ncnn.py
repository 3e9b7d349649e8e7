"""ncnn's own traps: weights in FP16 under an FP32 label, layers that write to their inputs, operators it lacks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, save

from shootout.core import backends
from shootout.core.contract import Arm, Artifact, Executed, Precision, Target, TensorSpec
from shootout.core.errors import SkippedArm
from shootout.core.exported import fidelity
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel
from shootout.core.worker.verification import executed_fault, probe_fault
from shootout.testing.checks import OURS, call, exported_models, lacks
from shootout.testing.fresh import run_fresh

SMALL = {"d_model": 64, "n_layers": 4}
MLP = Request(model="residual_mlp", parameters=SMALL, batch=2)
IMAGES = Request(model="digits_cnn", parameters={"channels": 32, "n_blocks": 3}, batch=2)
SINE = Request(model="nested_sin", parameters={"elements": 256, "depth": 4}, batch=1)
FP32, WEIGHTS = Target(backend="ncnn"), Target(backend="ncnn", precision=Precision.FP16, scheme="weights-only")


@dataclass(frozen=True)
class Ran:
    """What one arm did: its account, its outputs for every input buffer, twice, whether its inputs changed, and
    what the converter left beside the model.
    """

    arm: Arm
    executed: Executed
    outputs: list[dict[str, np.ndarray]]
    again: list[dict[str, np.ndarray]]
    kept: bool
    strangers: set[str]


def arm_of(exported: ExportedModel, target: Target, options: dict[str, str]) -> Arm:
    parameters = exported.parameters
    return Arm(target=target, model=exported.model, parameters=parameters, batch=exported.batch, options=options)


def run_one(exported: ExportedModel, arm: Arm) -> Ran:
    adapter, buffers, files = backends.get("ncnn"), exported.input_buffers(), set(exported.folder.iterdir())
    with TemporaryDirectory() as folder:
        session = adapter.load(adapter.build(exported, arm, Path(folder)))
        outputs = [dict(call(session, inputs, slot)) for slot, inputs in enumerate(buffers)]
        staged = session.stage(buffers[0], 0)
        again = [dict(session.fetch(session.execute(staged))) for _ in range(2)]
        kept = all(np.array_equal(buffers[0][name], array) for name, array in exported.input_buffers()[0].items())
        strangers = {path.name for path in set(exported.folder.iterdir()) - files}
        return Ran(arm, session.executed, outputs, again, kept, strangers)


def run_all(work: list[tuple[ExportedModel, Arm]]) -> list[Ran | str]:
    """Each arm's, or why it is skipped."""
    found: list[Ran | str] = []
    for exported, arm in work:
        try:
            found.append(run_one(exported, arm))
        except SkippedArm as error:  # on ARM ncnn computes in FP16 where weights are kept so
            found.append(error.reason)
    return found


ARMS: dict[str, tuple[Request, Target, dict[str, str]]] = {
    "fp32": (MLP, FP32, {}),
    "pnnx's default as fp32": (MLP, FP32, {"fp16": "1"}),
    "fp16 weights": (MLP, WEIGHTS, {}),
    "images": (IMAGES, FP32, {"use_winograd_convolution": "0"}),
    "images in bf16": (IMAGES, replace(FP32, precision=Precision.BF16), {}),
    "sine": (SINE, FP32, {}),
}


@cache
def everything() -> dict[str, Ran | str]:
    exported = exported_models(*(request for request, *_ in ARMS.values()))
    work = [
        (exported, arm_of(exported, target, options))
        for exported, (_, target, options) in zip(exported, ARMS.values(), strict=True)
    ]
    found: list[Ran | str] = run_fresh(run_all, work, warm=OURS)
    return dict(zip(ARMS, found, strict=True))


def ran(name: str) -> Ran:
    found = everything()[name]
    if name == "fp16 weights" and not run_fresh(lacks, replace(FP32, precision=Precision.FP16), warm=OURS):
        pytest.skip(f"{found}")
    assert isinstance(found, Ran), found
    return found


def fault_of(name: str, target: Target) -> str | None:
    """What the gate says of an arm's outputs under a label."""
    (exported,) = exported_models(ARMS[name][0])
    return fidelity.gate(
        fidelity.compare(ran(name).outputs, exported.reference_outputs()), *exported.error_bound(target)
    )


def test_the_vendor_s_default_conversion_under_an_fp32_label_is_caught_twice():
    found = ran("pnnx's default as fp32")
    assert executed_fault(found.executed, found.arm) == (
        "labeled fp32, but ncnn ran its compute nodes elsewhere: 4 in fp16-weights"
    )
    said = fault_of("pnnx's default as fp32", FP32)
    assert said is not None
    assert said.startswith("relative L2 error 0.000")
    assert said.endswith("is above the error bound of this precision, 1e-05")
    assert "fp32" in ran("fp32").executed.compute_nodes_by_precision
    assert fault_of("fp32", FP32) is None


def test_fp16_weights_are_an_arm_of_their_own_with_half_the_file():
    found, whole = ran("fp16 weights"), ran("fp32")
    assert found.executed.compute_nodes_by_precision == {"fp16-weights": 4}
    assert found.executed.other_nodes_by_precision == {"fp32": 8}
    assert executed_fault(found.executed, found.arm) is None
    assert found.executed.artifact_bytes < 0.6 * whole.executed.artifact_bytes
    assert fault_of("fp16 weights", WEIGHTS) is None
    assert fault_of("fp32", WEIGHTS) is not None, "an error of float32 is no error of FP16 weights"
    assert probe_fault("fp32", WEIGHTS) is None
    assert "finds fp16" in str(probe_fault("fp16", WEIGHTS))


def test_a_batch_of_images_is_counted_with_its_operations():
    found = ran("images")
    (exported,) = exported_models(IMAGES)
    assert exported.work is not None
    assert set(found.executed.compute_nodes_by_precision) == {"fp32"}
    assert fault_of("images", FP32) is None
    assert fault_of("images", replace(FP32, precision=Precision.BF16)) is None
    assert set(ran("images in bf16").executed.compute_nodes_by_precision) == {"bf16"}


def test_a_first_layer_that_computes_in_place_leaves_its_input_alone():
    found = ran("sine")
    assert found.kept
    for again in found.again:
        assert np.array_equal(again["y"], found.outputs[0]["y"])
    assert fault_of("sine", FP32) is None


def refusal(exported: ExportedModel, arm: Arm) -> Any:
    with TemporaryDirectory() as folder:
        try:
            backends.get("ncnn").build(exported, arm, Path(folder))
        except SkippedArm as error:
            return error.reason, error.fix
    return None


def written(
    folder: Path, operator: str, kind: int = TensorProto.FLOAT, shape: tuple[int, ...] = (2, 3)
) -> ExportedModel:
    """An exported model of nothing but an ONNX file with one operator of one input."""
    ends = [helper.make_tensor_value_info(name, kind, shape) for name in "xy"]
    node = helper.make_node(operator, ["x"], ["y"])
    graph = helper.make_graph([node], "one", ends[:1], ends[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), folder / "model.onnx")
    (plain,) = exported_models(SINE)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind)).name
    x, y = (TensorSpec(name=name, shape=shape, dtype=dtype) for name in "xy")
    return replace(plain, folder=folder, inputs=(x,), outputs=(y,), artifacts=(Artifact.ONNX,))


def test_what_ncnn_has_no_layer_or_type_for_is_a_skip_that_says_so(tmp_path: Path):
    for name in ("operator", "kind"):
        (tmp_path / name).mkdir()
    unknown = written(tmp_path / "operator", "Det", shape=(3, 3))
    double = written(tmp_path / "kind", "Abs", TensorProto.DOUBLE)
    reason, fix = run_fresh(refusal, unknown, arm_of(unknown, FP32, {}), warm=OURS)
    assert "ncnn has no layer for what pnnx left of this model: Det" in reason
    assert fix
    reason, fix = run_fresh(refusal, double, arm_of(double, FP32, {}), warm=OURS)
    assert reason == "ncnn takes tensors of float32, int64, int32, and input 'x' is float64[2, 3]"
