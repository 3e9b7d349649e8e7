"""TensorRT without a GPU: engines are really built, their types are proven, and no label gets another precision."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from onnx import ModelProto, TensorProto, helper, load, numpy_helper, save

from shootout.backends import common_onnx
from shootout.backends._tensorrt.account import Network, Product, count_layers
from shootout.backends._tensorrt.engine import FULL, RTX, EnginePlan, Library, compile_engine, reopen
from shootout.core import backends
from shootout.core.contract import Arm, Artifact, Availability, Device, Precision, Target, TensorSpec
from shootout.core.exported import fidelity
from shootout.core.exported.model import ExportedModel
from shootout.testing.checks import OURS, case_of, has_gpu
from shootout.testing.fresh import run_fresh

LIBRARIES = (*FULL, *RTX)
FP16, FP32, TF32, BF16 = Precision.FP16, Precision.FP32, Precision.TF32, Precision.BF16
X = TensorSpec(name="x", shape=(4, 4), dtype="float32")
WEIGHTS = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
STORED = {"fp16": np.float16, "fp32": np.float32, "tf32": np.float32, "bf16": bfloat16}
without_gpu = pytest.mark.skipif(has_gpu(), reason="this is about machines without a GPU")


def arm_of(precision: Precision, **options: str) -> Arm:
    target = Target(backend="tensorrt", device=Device.CUDA, precision=precision)
    return Arm(target=target, model="residual_mlp", options=options)


def toy() -> ExportedModel:
    return case_of(arm_of(FP16).target).exported


def onnx_file(path: Path, nodes: list[Any], shape: tuple[Any, ...] = (4, 4), **weights: np.ndarray) -> Path:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "made", [x], [y], initializers)
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    save(model, path)
    return path


def product(path: Path, shape: tuple[Any, ...] = (4, 4)) -> Path:
    return onnx_file(path, [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], shape, w=WEIGHTS)


def rtx() -> Library:
    return reopen("tensorrt_rtx_bindings")


def compiled(
    source: Path,
    precision: Precision,
    folder: Path,
    inputs: tuple[TensorSpec, ...] = (X,),
    rest: Precision = Precision.FP32,
) -> dict[str, Any]:
    plan = EnginePlan(precision=precision, rest=rest, inputs=inputs, current=False, options={})
    return compile_engine(rtx(), source, plan, folder)


def probe(device: Device = Device.CUDA) -> Availability:
    return backends.get("tensorrt").probe(device)


def probe_without_library() -> Availability:
    for name in LIBRARIES:
        sys.modules[name] = None  # type: ignore[assignment]
    return probe()


@without_gpu
def test_without_a_gpu_the_probe_says_that_it_still_builds():
    found = run_fresh(probe, warm=OURS)
    assert not found.ok
    assert found.builds
    assert found.version
    assert "NVIDIA" in found.reason
    assert "GPU" in found.fix


def test_no_library_no_builds():
    found = run_fresh(probe_without_library, warm=OURS)
    assert (found.ok, found.builds, found.version) == (False, False, "")
    assert "not installed" in found.reason
    assert "pip install" in found.fix


def build_all(exported: ExportedModel, folder: Path) -> dict[str, tuple[dict[str, Any], bytes, list[str]]]:
    """Facts, engine and file names of each precision."""
    found = {}
    for precision in (FP16, FP32, TF32, BF16):
        (folder / precision).mkdir()
        built = backends.get("tensorrt").build(exported, arm_of(precision), folder / precision)
        names = [path.name for path in built.folder.iterdir()]
        found[precision.value] = (dict(built.facts), (built.folder / "engine.plan").read_bytes(), names)
    return found


@without_gpu
def test_every_precision_builds_and_every_product_is_in_it(tmp_path: Path):
    exported = toy()
    found = run_fresh(build_all, exported, tmp_path, warm=OURS)
    for precision, (facts, engine, names) in found.items():
        typed_as = "fp32" if precision == "tf32" else precision
        assert facts["compute_nodes_by_precision"] == {typed_as: 4}, precision
        assert facts["compute_capabilities"] == ["portable"]
        assert facts["artifact_bytes"] > 0
        assert facts["network_nodes_by_precision"] == {typed_as: 4}, "asked for, and built"
        assert sorted(names) == ["engine.plan", "network.json"], "nothing else is left in the folder"
        assert facts["conversion_nodes"] <= (2 if precision in ("fp16", "bf16") else 0), "only at the edges"
        for weight in exported.weights().values():
            assert weight.astype(STORED[precision]).tobytes() in engine, f"{precision}: its weights are in the engine"
            assert (weight.tobytes() in engine) == (precision in ("fp32", "tf32")), f"{precision}: no float32 ones are"
    assert found["fp32"][1] != found["tf32"][1], "the flag reaches the engine"


def test_the_half_graph_computes_the_model_and_keeps_its_tensors(tmp_path: Path):
    from onnx.reference import ReferenceEvaluator

    exported = toy()
    source = load(exported.path(Artifact.ONNX))
    for precision in common_onnx.NARROWED:
        (tmp_path / precision).mkdir()
        half = load(common_onnx.write_half(exported.path(Artifact.ONNX), precision, tmp_path / precision))
        assert [one.name for one in half.graph.input] == [one.name for one in source.graph.input]
        kinds = {one.type.tensor_type.elem_type for one in (*half.graph.input, *half.graph.output)}
        assert kinds == {TensorProto.FLOAT}
        [outputs] = [dict(zip("y", ReferenceEvaluator(half).run(None, exported.input_buffers()[0]), strict=True))]
        found = fidelity.compare([outputs], exported.reference_outputs()[:1])
        assert fidelity.gate(found, exported.error_bounds[precision]) is None, precision
        assert found.relative_l2 is not None
        assert found.relative_l2 > (exported.error_bounds[FP32] or 0), f"{precision}: this is float32"


def test_constants_and_branches_are_narrowed_too(tmp_path: Path):
    constant = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(WEIGHTS, "value"))
    inner = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["inner"])],
        "branch",
        [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, [4, 4])],
    )
    choice = helper.make_node("If", ["yes"], ["y"], then_branch=inner, else_branch=inner)
    source = onnx_file(tmp_path / "if.onnx", [constant, choice], yes=np.array(True))
    for precision in common_onnx.NARROWED:
        (tmp_path / precision).mkdir()
        half = common_onnx.write_half(source, precision, tmp_path / precision)
        assert compiled(half, precision, tmp_path)["compute_nodes_by_precision"] == {precision.value: 1}


def test_bfloat16_weights_are_rounded_once_and_from_float32(tmp_path: Path):
    big = np.float32(1e5)  # beyond float16
    scale = helper.make_node("Constant", [], ["scale"], value=numpy_helper.from_array(big, "value"))
    nodes = [scale, helper.make_node("Mul", ["x", "scale"], ["a"]), helper.make_node("Mul", ["a", "w"], ["y"])]
    source = onnx_file(tmp_path / "big.onnx", nodes, w=np.full((4, 4), big))
    (tmp_path / "half").mkdir()
    half = load(common_onnx.write_half(source, BF16, tmp_path / "half"))
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in half.graph.initializer}
    for name in ("scale", "w"):
        assert np.unique(found[name].astype(np.float32)) == [big.astype(bfloat16).astype(np.float32)], name


def test_a_float32_network_is_refused_under_a_half_label(tmp_path: Path):
    source = product(tmp_path / "wide.onnx")
    for precision in common_onnx.NARROWED:
        with pytest.raises(RuntimeError, match=f"labeled {precision}.*'product' is fp32"):
            compiled(source, precision, tmp_path)
    assert not (tmp_path / "engine.plan").exists()


def test_an_unknown_operator_fails_in_tensorrt_s_words(tmp_path: Path):
    source = onnx_file(tmp_path / "odd.onnx", [helper.make_node("NoSuchOperator", ["x"], ["y"])])
    with pytest.raises(RuntimeError, match=r"can't parse the model: .*NoSuchOperator"):
        compiled(source, FP32, tmp_path)


def test_a_symbolic_axis_gets_the_one_size_that_is_run(tmp_path: Path):
    source = product(tmp_path / "symbolic.onnx", ("rows", 4))
    assert compiled(source, FP32, tmp_path)["compute_nodes_by_precision"] == {"fp32": 1}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cuda_graph": "yes"}, "'cuda_graph': expected 0 or 1, got 'yes'"),
        ({"builder_optimization_level": "9"}, "builder_optimization_level.*got '9'"),
        ({"compute_capability": "8.9"}, "compute_capability.*got '8.9'"),
        ({"compute_capability": "SM90"}, "SM90.*knows.*SM89"),
        ({"timing_cache": "old.cache"}, "timing_cache.*no such thing"),
        ({"fp16": "1"}, "unknown option 'fp16'"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], said: str, tmp_path: Path):
    with pytest.raises(ValueError, match=said):
        backends.get("tensorrt").build(toy(), arm_of(FP32, **options), tmp_path)


MYELIN = {"LayerType": "gemm", "Name": "__myl_Fc_myl0_1", "TacticName": "sm80_xmma_gemm_f16f16_f16f16"}
CLASSIC = {"LayerType": "CaskConvolution", "Name": "conv1", "TacticName": "0x1"}
HALF, FLOAT = {"Format/Datatype": "Half"}, {"Format/Datatype": "Row major linear FP32 format"}
INTEGER, WEIGHTS_4 = {"Format/Datatype": "Int8 NC/32HW32"}, {"Datatype": "Int4", "Dimensions": [4, 4]}
SCALE = {"Datatype": "Float", "Dimensions": [1]}
NOTHING = Network(products=(), converters=())


@pytest.mark.parametrize(
    ("layer", "counted"),
    [
        ({**MYELIN, "Inputs": [HALF], "Outputs": [HALF]}, {"fp16": 1}),
        ({**MYELIN, "Inputs": [FLOAT], "Outputs": [HALF]}, {"fp16": 1}),
        ({**MYELIN, "Inputs": [HALF], "Constants": [HALF, SCALE], "Outputs": [FLOAT]}, {"fp16": 1}),
        ({**MYELIN, "Inputs": [{"DataType": "BFloat16"}], "Outputs": [FLOAT]}, {"bf16": 1}),
        ({**CLASSIC, "Inputs": [FLOAT], "Outputs": [FLOAT]}, {"fp32": 1}),
        ({**CLASSIC, "TacticName": "gemm_tf32f32", "Inputs": [FLOAT], "Outputs": [FLOAT]}, {"tf32": 1}),
        ({**CLASSIC, "Inputs": [INTEGER], "Weights": {"Type": "Int8", "Count": 9}, "Outputs": [FLOAT]}, {"int8": 1}),
        ({**MYELIN, "Inputs": [INTEGER], "Constants": [INTEGER, SCALE], "Outputs": [FLOAT]}, {"int8": 1}),
        ({**MYELIN, "Inputs": [FLOAT], "Constants": [FLOAT], "Outputs": [INTEGER]}, {"fp32": 1}),
        ({**MYELIN, "Inputs": [FLOAT], "Constants": [INTEGER], "Outputs": [FLOAT]}, {"unknown": 1}),
        ({**MYELIN, "Inputs": [HALF], "Constants": [WEIGHTS_4, HALF], "Outputs": [HALF]}, {"int4": 1}),
        ({**CLASSIC}, {"unknown": 1}),
        ({"LayerType": "kgen", "Name": "_gemm_mha_v2_myl0_5", "Inputs": [INTEGER] * 3}, {"int8": 1}),
        ({"LayerType": "runtime_fusion", "Name": "__myl_CorrSilu_myl0_1", "Inputs": [HALF]}, {"fp16": 1}),
        ({"LayerType": "kgen", "Name": "__myl_AddMax", "Inputs": [HALF]}, {}),
        ({"LayerType": "kgen", "Name": "__myl_AddReshTran_myl0_2", "Metadata": "[ONNX Layer: node_linear]"}, {}),
        ({"LayerType": "Reformat", "Name": "convert x"}, {}),
    ],
)
def test_the_inspector_s_layers_are_counted(layer: dict[str, Any], counted: dict[str, int]):
    assert count_layers([layer], NOTHING)["compute_nodes_by_precision"] == counted


@pytest.mark.parametrize(
    ("layer", "converts"),
    [
        ({"Name": "__myl_MulMinMaxRounCast_myl0_0", "Metadata": "[ONNX Layer: q]"}, 1),
        ({"Name": "__myl_Mul_myl0_2", "Metadata": "[ONNX Layer: product]\x1e[ONNX Layer: q]"}, 1),
        ({"Name": "__myl_Mul_myl0_2", "Metadata": "[ONNX Layer: gate]"}, 0),
        ({"Name": "__myl_MulAdd_myl0_2", "Metadata": "[ONNX Layer: product]"}, 0),
        ({"Name": "__myl_Move_myl0_0", "Metadata": ""}, 1),
        ({"Name": "product_myl0_1", "LayerType": "gemm", "Metadata": "[ONNX Layer: product]"}, 0),
        ({"Name": "Reformatting CopyNode for x", "LayerType": "Reformat"}, 1),
    ],
)
def test_layers_that_only_convert_are_counted(layer: dict[str, Any], converts: int):
    product = Product(name="product", origin="[ONNX Layer: product]", precision="int8")
    network = Network(products=(product,), converters=("[ONNX Layer: q]",))
    assert count_layers([{"LayerType": "kgen", **layer}], network)["conversion_nodes"] == converts
