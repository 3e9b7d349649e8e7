"""The user's own ONNX file, on every backend that takes one: integers, several inputs and outputs, float64."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save
from support import onnx_made

from shootout.core import backends
from shootout.core.contract import Arm, Artifact, Device, Precision, Target
from shootout.core.errors import SkippedArm
from shootout.core.exported import fidelity
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel
from shootout.core.install import install
from shootout.testing.checks import OURS, call, exported_models, lacks
from shootout.testing.fresh import run_fresh

TAKERS = [
    name
    for name in backends.names()
    if Artifact.ONNX in (can := backends.get(name).capabilities).consumes
    and (Device.CPU, Precision.FP32) in can.targets
    and name != "ncnn"  # its converter tries indices of its own, beyond this small table, and ends
]
NO_FLOAT64 = {"openvino"}
"""Compute a float64 file in float32, by their own account."""
ROWS, WIDTH = 4, 8


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What came out of one backend."""

    outputs: list[dict[str, np.ndarray]]
    compute: dict[str, int]


def write(path: Path, float_type: int) -> Path:
    """`score = table[ids] @ w + offset`, `best = argmax(score)`; the batch axis is called N."""
    rng, dtype = np.random.default_rng(3), helper.tensor_dtype_to_np_dtype(float_type)
    weights = {
        "table": rng.standard_normal((ROWS, WIDTH)).astype(dtype),
        "w": rng.standard_normal((WIDTH, WIDTH)).astype(dtype),
    }
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "ids"], ["row"], axis=0),
            helper.make_node("MatMul", ["row", "w"], ["product"]),
            helper.make_node("Add", ["product", "offset"], ["score"]),
            helper.make_node("ArgMax", ["score"], ["best"], axis=1, keepdims=0),
        ],
        "users_own",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["N"]),
            helper.make_tensor_value_info("offset", float_type, ["N", WIDTH]),
        ],
        [
            helper.make_tensor_value_info("best", TensorProto.INT64, ["N"]),
            helper.make_tensor_value_info("score", float_type, ["N", WIDTH]),
        ],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def run_file(exported: ExportedModel, name: str, folder: Path) -> Ran:
    """Build, load and call one backend on every input buffer, in this process."""
    precision = Precision.NATIVE if exported.model in OWN else Precision.FP32
    target = Target(backend=name, precision=precision)
    arm = Arm(target=target, model=exported.model, parameters=exported.parameters, batch=exported.batch)
    adapter = backends.get(name)
    session = adapter.load(adapter.build(exported, arm, folder))
    outputs = [dict(call(session, inputs, slot)) for slot, inputs in enumerate(exported.input_buffers())]
    return Ran(outputs=outputs, compute=dict(session.executed.compute_nodes_by_precision))


def run_files(files: list[ExportedModel], name: str) -> list[Ran]:
    ran = []
    for exported in files:
        with TemporaryDirectory() as folder:
            ran.append(run_file(exported, name, Path(folder)))
    return ran


FLOATS = {TensorProto.FLOAT: "fp32", TensorProto.DOUBLE: "fp64"}
OWN = {"half.onnx": onnx_made.half, "int8.onnx": onnx_made.quantized}
"""Files in precisions of their own."""
AS_WRITTEN = {
    "half.onnx": {"numpy": "fp16", "onnxruntime": "fp32", "openvino": "fp32"},
    "int8.onnx": {"onnxruntime": "int8", "openvino": "int8"},
}
"""What their one product is computed in: `onnx.reference` doesn't know the integers of this opset."""


def as_written(name: str, model: str) -> str:
    """What the file's product is computed in on this CPU: OpenVINO says whether it has FP16 arithmetic for it."""
    half = Target(backend=name, precision=Precision.FP16)
    if (name, model) == ("openvino", "half.onnx") and not run_fresh(lacks, half, warm=OURS):
        return "fp16"
    return AS_WRITTEN[model][name]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[ExportedModel]:
    """The file in each of these types, and those in precisions of their own."""
    folder = tmp_path_factory.mktemp("files")
    paths = [write(folder / f"{precision}.onnx", kind) for kind, precision in FLOATS.items()]
    paths += [make(folder / name) for name, make in OWN.items()]
    return exported_models(*(Request(model=str(path), batch=3) for path in paths))


@pytest.mark.parametrize("name", TAKERS)
def test_a_users_file_runs_and_its_precision_is_told(name: str, files: list[ExportedModel]):
    taken = [one for one in files if one.model not in OWN or name in AS_WRITTEN[one.model]]
    found: list[Ran] = run_fresh(run_files, taken, name, warm=OURS)
    for exported, ran, (float_type, precision) in zip(taken, found, FLOATS.items(), strict=False):
        check(name, exported, ran, float_type, precision)
    for exported, ran in list(zip(taken, found, strict=True))[len(FLOATS) :]:
        error = fidelity.compare(ran.outputs, exported.reference_outputs())
        error_bound, least = exported.error_bound(Target(backend=name, precision=Precision.NATIVE))
        assert fidelity.gate(error, error_bound, least) is None
        assert ran.compute == {as_written(name, exported.model): 1}


def check(name: str, exported: ExportedModel, ran: Ran, float_type: int, precision: str) -> None:
    found = fidelity.compare(ran.outputs, exported.reference_outputs())
    assert [fidelity.check_outputs(exported.outputs, one) for one in ran.outputs] == [None] * len(ran.outputs)
    assert found.mismatches == 0
    assert found.relative_l2 is not None
    assert found.relative_l2 < 1e-6
    assert ran.compute == {"fp32" if name in NO_FLOAT64 else precision: 1}
    assert {array.dtype.name for one in ran.outputs for array in one.values()} == {
        "int64", helper.tensor_dtype_to_np_dtype(float_type).name
    }  # fmt: skip


def load_without_onnx(exported: ExportedModel, folder: Path) -> tuple[str, str]:
    """Why NumPy can't take the file where the onnx package is missing, and the fix."""
    sys.modules["onnx"] = None  # type: ignore[assignment]
    adapter, arm = (
        backends.get("numpy"),
        Arm(target=Target(backend="numpy"), model=exported.model, batch=exported.batch),
    )
    with pytest.raises(SkippedArm) as caught:
        adapter.load(adapter.build(exported, arm, folder))
    return caught.value.reason, caught.value.fix


def test_without_the_onnx_package_numpy_skips_a_users_file(tmp_path: Path):
    (exported,) = exported_models(Request(model=str(write(tmp_path / "users_own.onnx", TensorProto.FLOAT)), batch=3))
    reason, fix = run_fresh(load_without_onnx, exported, tmp_path)
    assert "onnx package, which is not installed" in reason
    assert fix == install("onnxruntime")
