"""TensorRT's INT8, INT4 and FP8 without a GPU: what the network asks for, what the engine made of it, refusals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_dtypes import float8_e4m3fn, int4
from onnx import TensorProto, helper, load, numpy_helper, save
from test_tensorrt import compiled, onnx_file, product, toy, without_gpu

from shootout.backends import common_onnx, cuda_memory
from shootout.backends._tensorrt.account import precision_of
from shootout.backends._tensorrt.quantize import write_half_float8, write_int4
from shootout.backends.cuda_memory import lacks_float8
from shootout.core import backends
from shootout.core.contract import Arm, Artifact, Device, Precision, Target, TensorSpec
from shootout.core.errors import SkippedArm
from shootout.core.exported import fidelity
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel
from shootout.quantize import qdq
from shootout.testing.checks import OURS, exported_models
from shootout.testing.fresh import run_fresh

INT8, INT4, FP8, FP32 = Precision.INT8, Precision.INT4, Precision.FP8, Precision.FP32
BOTH = {"LayerType": "gemm", "Inputs": [{"Datatype": "FP8"}], "Constants": [{"Datatype": "FP8"}]}
SCALES = {"sx": np.float32(0.05), "sw": np.full(32, 0.02, np.float32)}


def shared_toy() -> ExportedModel:
    [exported] = exported_models(
        Request(model="residual_mlp", parameters={"d_model": 64, "n_layers": 4}, batch=2, variant="shared")
    )
    return exported


def shared_arm(precision: Precision = INT8, scheme: str = "shared") -> Arm:
    target = Target(backend="tensorrt", device=Device.CUDA, precision=precision, scheme=scheme)
    return Arm(target=target, model="residual_mlp")


def build(exported: ExportedModel, arm: Arm, folder: Path) -> tuple[dict[str, Any], bytes]:
    built = backends.get("tensorrt").build(exported, arm, folder)
    return dict(built.facts), (folder / "engine.plan").read_bytes()


def sandwich(path: Path, *, activation: bool = True, weight: bool = True, second: bool = False) -> Path:
    """One product, with its pairs or without one of them; `second` adds a float product behind it."""
    rng = np.random.default_rng(0)
    integers = rng.integers(-127, 128, (32, 32)).astype(np.int8)
    floats = rng.standard_normal((32, 32)).astype(np.float32)
    nodes = []
    if activation:
        nodes += [
            helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["xq"], name="round"),
            helper.make_node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"], name="widen"),
        ]
    if weight:
        nodes.append(helper.make_node("DequantizeLinear", ["q", "sw"], ["wd"], axis=1, name="widen_weight"))
    operands = ["xd" if activation else "x", "wd" if weight else "w"]
    nodes.append(helper.make_node("MatMul", operands, ["h" if second else "y"], name="first"))
    if second:
        nodes.append(helper.make_node("MatMul", ["h", "w"], ["y"], name="second"))
    read = {name for node in nodes for name in node.input}
    weights = {"q": integers, "w": floats, "zx": np.int8(0), **SCALES}
    kept = {name: np.asarray(array) for name, array in weights.items() if name in read}
    return onnx_file(path, nodes, (4, 32), **kept)


@without_gpu
def test_the_shared_model_is_int8_in_the_network_and_in_the_engine(tmp_path: Path):
    exported = shared_toy()
    facts, engine = run_fresh(build, exported, shared_arm(), tmp_path, warm=OURS)
    assert facts["network_nodes_by_precision"] == {"int8": 4}
    assert facts["compute_nodes_by_precision"] == {"int8": 4}
    assert facts["conversion_nodes"] == 1, "the input's; the others are fused"
    assert facts["artifact_bytes"] == len(engine)
    (rest,) = facts["notes"]
    assert rest.startswith("what isn't quantized computes in fp16")
    stored = [numpy_helper.to_array(one) for one in load(exported.path(Artifact.ONNX)).graph.initializer]
    weights = [array for array in stored if array.dtype == np.int8 and array.ndim == 2]
    assert len(weights) == 4
    assert all(array.tobytes() in engine for array in weights), "what ships are the 8-bit weights"
    assert not any(array.tobytes() in engine for array in toy().weights().values())


@without_gpu
@pytest.mark.parametrize("precision", [INT4, FP8])
def test_the_toy_has_narrow_products_and_no_wide_weights(precision: Precision, tmp_path: Path):
    facts, engine = run_fresh(build, toy(), shared_arm(precision, ""), tmp_path, warm=OURS)
    assert facts["network_nodes_by_precision"] == facts["compute_nodes_by_precision"] == {precision.value: 4}
    wide = toy().weights().values()
    assert not any(one.astype(kind).tobytes() in engine for one in wide for kind in (np.float32, np.float16))
    if precision is FP8:
        assert facts["compute_capabilities"] == ["SM89", "SM120"], "TensorRT-RTX's portable targets have two without"


@without_gpu
@pytest.mark.parametrize("precision", [INT8, FP8])
def test_a_convolution_model_is_quantized(precision: Precision, tmp_path: Path):
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["h"], kernel_shape=[3, 3], pads=[1] * 4, name="wide"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "b"], ["y"], kernel_shape=[1, 1], name="back"),
    ]
    kernels = {"a": rng.standard_normal((32, 16, 3, 3)), "b": rng.standard_normal((16, 32, 1, 1))}
    shape = (1, 16, 6, 6)
    source = onnx_file(
        tmp_path / "conv.onnx", nodes, shape, **{name: one.astype(np.float32) for name, one in kernels.items()}
    )
    sets = [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(4)]
    (tmp_path / "work").mkdir()
    if precision is INT8:
        quantized = tmp_path / "shared.onnx"
        qdq.write_shared(source, sets, quantized)
    else:
        quantized = write_half_float8(source, sets, tmp_path / "work")
    facts = compiled(quantized, precision, tmp_path, (TensorSpec(name="x", shape=shape, dtype="float32"),))
    found = facts["compute_nodes_by_precision"]
    assert found == facts["network_nodes_by_precision"] == {precision.value: 2}


@without_gpu
def test_a_mixed_model_is_told_by_both_its_precisions(tmp_path: Path):
    facts = compiled(sandwich(tmp_path / "mixed.onnx", second=True), INT8, tmp_path)
    assert facts["compute_nodes_by_precision"] == facts["network_nodes_by_precision"] == {"int8": 1, "fp32": 1}


@without_gpu
def test_what_int8_leaves_is_half_or_float_and_no_mixture(tmp_path: Path):
    source = sandwich(tmp_path / "mixed.onnx", second=True)
    (tmp_path / "half").mkdir()
    half = common_onnx.write_half(source, Precision.FP16, tmp_path / "half")
    facts = compiled(half, INT8, tmp_path, rest=Precision.FP16)
    assert facts["compute_nodes_by_precision"] == facts["network_nodes_by_precision"] == {"int8": 1, "fp16": 1}
    with pytest.raises(RuntimeError, match=r"labeled int8.*'second' is fp16"):
        compiled(half, INT8, tmp_path)
    with pytest.raises(RuntimeError, match=r"labeled int8.*'second' is fp32"):
        compiled(source, INT8, tmp_path, rest=Precision.FP16)


def float8_weights(path: Path) -> Path:
    """One product on E4M3 weights and float activations."""
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], name="widen"),
        helper.make_node("MatMul", ["x", "w"], ["y"], name="product"),
    ]
    onnx_file(path, nodes, q=np.eye(4, dtype=float8_e4m3fn), s=np.float32(1), z=np.zeros((), float8_e4m3fn))
    model = load(path)
    model.opset_import[0].version = 19
    save(model, path)
    return path


NO_ACTIVATIONS, NO_WEIGHTS = partial(sandwich, activation=False), partial(sandwich, weight=False)


@pytest.mark.parametrize(
    ("source", "label", "found"),
    [
        (product, INT8, "'product' is fp32"),
        (product, FP8, "'product' is fp32"),
        (NO_ACTIVATIONS, INT8, r"'first' is fp32\+int8"),
        (NO_WEIGHTS, INT8, r"'first' is fp32\+int8"),
        (float8_weights, FP8, r"'product' is fp32\+fp8"),
        (sandwich, FP32, "'first' is int8"),
    ],
)
def test_a_product_whose_operands_are_not_both_of_the_label_is_refused(
    source: Callable[[Path], Path], label: Precision, found: str, tmp_path: Path
):
    with pytest.raises(RuntimeError, match=rf"labeled {label}, but the parsed network is not: {found}"):
        compiled(source(tmp_path / "made.onnx"), label, tmp_path)
    assert not (tmp_path / "engine.plan").exists()


def test_the_adapter_refuses_a_float_model_under_an_int8_label(tmp_path: Path):
    with pytest.raises(RuntimeError, match=r"labeled int8.*is fp16 and 1 more"):
        backends.get("tensorrt").build(toy(), shared_arm(), tmp_path)


@without_gpu
@pytest.mark.parametrize(("precision", "widened", "counted"), [(INT8, "Float", "fp32"), (FP8, "Half", "fp16")])
def test_an_engine_that_widens_before_it_multiplies_is_refused(
    precision: Precision, widened: str, counted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """TensorRT was asked for narrow products, and its own list of layers says that it multiplied floats."""
    wide = {"Name": "first_myl0_1", "LayerType": "gemm", "Inputs": [{"Datatype": widened}]}
    monkeypatch.setattr("shootout.backends._tensorrt.engine.read_log", lambda message: [wide])
    words = f"labeled {precision}, but tensorrt_rtx_bindings built .* otherwise: 1 in {counted}"
    exported, arm = (shared_toy(), shared_arm()) if precision is INT8 else (toy(), shared_arm(FP8, ""))
    with pytest.raises(RuntimeError, match=words):
        backends.get("tensorrt").build(exported, arm, tmp_path)
    assert not (tmp_path / "engine.plan").exists()


def test_tensorrt_quantizes_nothing_itself_and_says_what_to_ask_for(tmp_path: Path):
    with pytest.raises(SkippedArm) as caught:
        backends.get("tensorrt").build(toy(), shared_arm(scheme=""), tmp_path)
    assert "only as Q/DQ" in caught.value.reason
    assert "tensorrt:cuda:int8/shared" in caught.value.fix
    assert list(tmp_path.iterdir()) == []


def test_the_int4_graph_computes_the_model_with_weights_of_15_levels(tmp_path: Path):
    from onnx.reference import ReferenceEvaluator

    exported = toy()
    path = write_int4(exported.path(Artifact.ONNX), tmp_path)
    model = load(path)
    stored = [numpy_helper.to_array(one) for one in model.graph.initializer if one.data_type == TensorProto.INT4]
    assert [one.shape for one in stored] == [(64, 64)] * 4
    for one in stored:
        assert one.dtype == int4
        assert np.abs(one.astype(np.int8)).max() == 7
    assert not any(one.dims == [64, 64] and one.data_type == TensorProto.FLOAT16 for one in model.graph.initializer)
    outputs = [ReferenceEvaluator(model).run(None, inputs) for inputs in exported.input_buffers()]
    found = [dict(zip("y", one, strict=True)) for one in outputs]
    close = fidelity.compare(found, exported.reference_outputs())
    assert close.relative_l2 is not None
    assert 1e-3 < close.relative_l2 < 0.5, "4 bits, not 16 and not noise"


def test_a_model_without_products_to_quantize_is_refused(tmp_path: Path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    source = onnx_file(tmp_path / "small.onnx", nodes, (4, 4), w=np.eye(4, dtype=np.float32))
    (tmp_path / "work").mkdir()
    with pytest.raises(ValueError, match="nothing to quantize"):
        write_int4(source, tmp_path / "work")


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
