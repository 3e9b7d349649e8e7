"""TensorRT's FP8 without a GPU: engines are really built, and only a product of two E4M3 operands is called one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_dtypes import float8_e4m3fn
from onnx import helper, load, save
from test_tensorrt import compiled, onnx_file, product, toy, without_gpu
from test_tensorrt_quantized import TOY_FLOPS, build, shared_arm

from shootout import backends
from shootout.backends import cuda_memory
from shootout.backends._tensorrt.account import precision_of
from shootout.backends._tensorrt.quantize import write_half_float8
from shootout.backends.cuda_memory import lacks_float8
from shootout.contract import Precision, TensorSpec
from shootout.errors import SkippedArm
from shootout.testing.cases import OURS
from shootout.testing.fresh import run_fresh

FP8 = Precision.FP8
BOTH = {"LayerType": "gemm", "Inputs": [{"Datatype": "FP8"}], "Constants": [{"Datatype": "FP8"}]}


@without_gpu
def test_the_toy_is_fp8_in_the_network_and_in_the_engine(tmp_path: Path):
    facts, engine = run_fresh(build, toy(), shared_arm(FP8, ""), tmp_path, warm=OURS)
    assert facts["network_nodes_by_precision"] == facts["compute_nodes_by_precision"] == {"fp8": 4}
    assert facts["flops_by_precision"] == {"fp8": TOY_FLOPS}
    assert facts["compute_capabilities"] == ["SM89", "SM120"], "TensorRT-RTX's portable targets have two without FP8"
    wide = toy().weights().values()
    assert not any(one.astype(kind).tobytes() in engine for one in wide for kind in (np.float32, np.float16))
    assert "are weights" in facts["notes"][0]


@without_gpu
def test_a_convolution_model_is_fp8(tmp_path: Path):
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["h"], kernel_shape=[3, 3], pads=[1] * 4, name="wide"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "b"], ["y"], kernel_shape=[1, 1], name="back"),
    ]
    kernels = {"a": rng.standard_normal((32, 16, 3, 3)), "b": rng.standard_normal((16, 32, 1, 1))}
    shape = (1, 16, 6, 6)
    stored = {name: one.astype(np.float32) for name, one in kernels.items()}
    source = onnx_file(tmp_path / "conv.onnx", nodes, shape, **stored)
    sets = [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(4)]
    (tmp_path / "work").mkdir()
    half = write_half_float8(source, sets, tmp_path / "work")
    facts = compiled(half, FP8, tmp_path, (TensorSpec(name="x", shape=shape, dtype="float32"),))
    assert facts["compute_nodes_by_precision"] == facts["network_nodes_by_precision"] == {"fp8": 2}


def weights_only(path: Path) -> Path:
    """One product on E4M3 weights and float activations."""
    onnx_file(
        path,
        [
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], name="widen"),
            helper.make_node("MatMul", ["x", "w"], ["y"], name="product"),
        ],
        q=np.eye(4, dtype=float8_e4m3fn),
        s=np.float32(1),
        z=np.zeros((), float8_e4m3fn),
    )
    model = load(path)
    model.opset_import[0].version = 19
    save(model, path)
    return path


def test_a_product_with_one_fp8_operand_or_none_is_refused(tmp_path: Path):
    with pytest.raises(RuntimeError, match=r"labelled fp8.*'product' is fp32\+fp8"):
        compiled(weights_only(tmp_path / "weights.onnx"), FP8, tmp_path)
    with pytest.raises(RuntimeError, match="labelled fp8, but the parsed network is not: 'product' is fp32"):
        compiled(product(tmp_path / "float.onnx"), FP8, tmp_path)
    assert not (tmp_path / "engine.plan").exists()


@without_gpu
def test_an_engine_that_widens_before_it_multiplies_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    wide = {"Name": "first_myl0_1", "LayerType": "gemm", "Inputs": [{"Datatype": "Half"}]}
    monkeypatch.setattr("shootout.backends._tensorrt.library.read_log", lambda message: [wide])
    with pytest.raises(RuntimeError, match=r"labelled fp8, but tensorrt_rtx_bindings built .* otherwise: 1 in fp16"):
        backends.get("tensorrt").build(toy(), shared_arm(FP8, ""), tmp_path)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, "fp8"),
        ({"Constants": [{"Datatype": "Half"}]}, "unknown"),
        ({"Constants": [{"Datatype": "Int8"}]}, "unknown"),
        ({"Inputs": [{"Datatype": "Half"}], "Constants": [{"Datatype": "Half"}]}, "fp16"),
    ],
)
def test_a_layer_counts_as_fp8_by_two_operands(changes: dict[str, Any], found: str):
    assert precision_of({**BOTH, **changes, "Outputs": [{"Datatype": "Half"}]}) == found


def test_it_is_for_ada_and_later_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    known = ("SM75", "SM80", "SM86", "SM89", "SM90", "SM100", "SM120", "CURRENT")
    assert [lacks_float8(one) for one in known] == [True] * 3 + [False] * 5
    monkeypatch.setattr(cuda_memory, "capability", lambda: "SM86")
    with pytest.raises(SkippedArm) as caught:
        backends.get("tensorrt").build(toy(), shared_arm(FP8, ""), tmp_path)
    assert "SM89 or later" in caught.value.reason
    assert caught.value.reason.endswith("this is SM86")
    assert "int8/shared" in caught.value.fix


@without_gpu
def test_an_older_gpu_is_no_target_of_its_build(tmp_path: Path):
    arm = replace(shared_arm(FP8, ""), options={"compute_capability": "SM120,SM86"})
    with pytest.raises(ValueError, match="'SM86' multiplies no FP8: SM89 and later do"):
        backends.get("tensorrt").build(toy(), arm, tmp_path)
