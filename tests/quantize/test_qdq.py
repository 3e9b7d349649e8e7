from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from shootout.commands.fleet import saturates_there
from shootout.core.contract import Artifact, Device, Precision
from shootout.core.errors import ModelError, UsageError
from shootout.core.exported.client import Request, obtain_all
from shootout.core.exported.fidelity import compare, gate
from shootout.core.exported.model import ExportedModel
from shootout.core.exported.request import checked
from shootout.core.host import environment
from shootout.models.onnx import onnx_files
from shootout.quantize import qdq
from shootout.testing.checks import exported_models
from shootout.testing.fresh import run_fresh

MODELS = {
    "digits": Request(model="digits", batch=2),
    "residual_mlp": Request(model="residual_mlp", parameters={"d_model": 64, "n_layers": 4}, batch=2),
    "digits_cnn": Request(model="digits_cnn", batch=2),
}
F32 = TensorProto.FLOAT
rng = np.random.default_rng(0)


@cache
def exported() -> dict[str, tuple[ExportedModel, ExportedModel]]:
    """Each model, plain and shared."""
    requests = [replace(one, variant=variant) for one in MODELS.values() for variant in ("", "shared")]
    made = exported_models(*requests)
    return dict(zip(MODELS, zip(made[::2], made[1::2], strict=True), strict=True))


def value(name: str, shape: Sequence[int]) -> Any:
    return helper.make_tensor_value_info(name, F32, shape)


def write(path: Path, nodes: Sequence[Any], shapes: Sequence[Sequence[int]], opset: int = 17, **weights: Any) -> Path:
    tensors = [numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(list(nodes), "g", [value("x", shapes[0])], [value("y", shapes[1])], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def quantized(source: Path, folder: Path, shape: Sequence[int]) -> tuple[Path, float]:
    """The written file, and its relative error against the float one."""
    sets = [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(8)]
    qdq.write_shared(source, sets, folder / "q.onnx")
    got, wanted = (onnx_files.run(path, sets, "m") for path in (folder / "q.onnx", source))
    return folder / "q.onnx", compare(got, wanted).relative_l2 or 0.0


@pytest.mark.parametrize("name", list(MODELS))
def test_the_shared_model_is_inside_the_int8_error_bound_and_not_float(name: str):
    plain, made = exported()[name]
    found = compare(onnx_files.run(made.path(Artifact.ONNX), made.input_buffers(), name), made.reference_outputs())
    assert gate(found, plain.error_bounds[Precision.INT8]) is None
    assert gate(found, plain.error_bounds[Precision.FP32])


@pytest.mark.parametrize("name", list(MODELS))
def test_every_pair_is_symmetric_and_every_weight_is_stored_as_int8(name: str):
    _, made = exported()[name]
    graph = onnx.load(made.path(Artifact.ONNX)).graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    by_output = {output: node for node in graph.node for output in node.output}
    pairs = [node for node in graph.node if node.op_type.endswith("quantizeLinear") or node.op_type == "QuantizeLinear"]
    assert pairs
    assert {stored[node.input[2]].dtype.name for node in pairs} == {"int8"}
    assert not any(stored[node.input[2]].any() for node in pairs)
    products = [node for node in graph.node if node.op_type in qdq.QUANTIZABLE]
    assert products
    for node in products:
        activation, weight = by_output[node.input[0]], by_output[node.input[1]]
        assert activation.op_type == weight.op_type == "DequantizeLinear"
        assert stored[weight.input[0]].dtype == np.int8
        assert stored[weight.input[1]].size == stored[weight.input[0]].shape[0], "one scale for each output channel"
        assert np.abs(stored[weight.input[0]].astype(int)).max() <= 127
        assert all(stored[bias].dtype == np.float32 for bias in node.input[2:])
    assert not [name for name, array in stored.items() if array.dtype == np.float32 and array.ndim > 1]


def test_all_but_the_graph_is_the_plain_exported_models():
    plain, made = exported()["digits"]
    assert made.artifacts == (Artifact.ONNX,)
    assert made.variant == "shared"
    assert made.key != plain.key
    for name in (
        "inputs.npz",
        "reference.npz",
        "unseen.npz",
        "unseen-reference.npz",
        "calibration.npz",
        "report.npz",
        "selection.npz",
    ):
        assert (made.folder / name).read_bytes() == (plain.folder / name).read_bytes()
    same = ("model", "parameters", "batch", "inputs", "outputs", "error_bounds", "parameter_count", "weights_sha256")
    assert [getattr(made, one) for one in same] == [getattr(plain, one) for one in same]
    assert not (made.folder / "model.pt2").exists()
    ours, theirs = made.path(Artifact.ONNX), plain.path(Artifact.ONNX)
    assert ours.stat().st_size < 0.4 * theirs.stat().st_size


def openvino_types(paths: list[Path]) -> list[set[str]]:
    """Return the types in which OpenVINO runs each file's products."""
    import openvino

    found = []
    for path in paths:
        compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        infos = [node.get_rt_info() for node in compiled.get_runtime_model().get_ops()]
        products = [one for one in infos if one["layerType"].astype(str) in {"FullyConnected", "Convolution"}]
        found.append({one["runtimePrecision"].astype(str) for one in products})
    return found


def test_openvino_runs_them_in_eight_bits():
    for found in run_fresh(openvino_types, [made.path(Artifact.ONNX) for _, made in exported().values()]):
        assert found
        assert found <= {"i8", "u8"}


def test_a_relu_lends_its_range_to_a_pair_before_it(tmp_path: Path):
    """A wide negative side would otherwise cost most of the levels of who adds one, though the Relu throws it away."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["y"]),
    ]
    weights = {"w": np.ones((4, 1, 1, 1)), "b": [-50.0, 0, 0, 0], "v": rng.standard_normal((4, 4, 1, 1))}
    path, error = quantized(
        write(tmp_path / "m.onnx", nodes, ([1, 1, 8, 8], [1, 4, 8, 8]), **weights), tmp_path, (1, 1, 8, 8)
    )
    scales = qdq.scales_of(onnx.load(path))
    assert scales["c"] == scales["r"] < 6 / 127
    assert error < 0.03


def test_pairs_stand_before_products_and_on_one_branch_of_a_residual_sum(tmp_path: Path):
    """What else reads a rounded value, the graph's output among it, reads it as it was."""
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["stem"]),
        helper.make_node("Relu", ["stem"], ["r"]),
        helper.make_node("Conv", ["r", "b"], ["short"]),
        helper.make_node("Conv", ["r", "c"], ["inner"]),
        helper.make_node("Sigmoid", ["inner"], ["s"]),
        helper.make_node("Mul", ["inner", "s"], ["swish"]),
        helper.make_node("Conv", ["swish", "d"], ["long"]),
        helper.make_node("Add", ["long", "short"], ["sum"]),
        helper.make_node("Conv", ["sum", "e"], ["last"]),
        helper.make_node("Add", ["sum", "last"], ["y"]),
        helper.make_node("Add", ["r", "r"], ["twice"]),
        helper.make_node("Conv", ["y", "f"], ["z"]),
        helper.make_node("Add", ["z", "twice"], ["other"]),
    ]
    weights = {name: rng.standard_normal((4, 4, 1, 1)) for name in "abcdef"}
    source = write(tmp_path / "m.onnx", nodes, ([1, 4, 8, 8], [1, 4, 8, 8]), **weights)
    model = onnx.load(source)
    model.graph.output.append(value("other", [1, 4, 8, 8]))
    onnx.save(model, source)
    path, error = quantized(source, tmp_path, (1, 4, 8, 8))
    graph = onnx.load(path).graph
    onnx.checker.check_model(onnx.load(path))
    rounded = {node.output[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    read = {(node.output[0], at) for node in graph.node for at, name in enumerate(node.input) if name in rounded}
    convolutions = {(name, at) for name in ("stem", "short", "inner", "long", "last", "z") for at in (0, 1)}
    assert read == convolutions | {("sum", 1), ("y", 0), ("other", 1)}
    assert error < 0.05


def test_weights_of_7_bits_leave_room_for_two_products_in_16(tmp_path: Path):
    """And activations keep theirs; the row and the export's key say so."""
    plain, _ = exported()["digits_cnn"]
    folders = [tmp_path / name for name in ("whole", "reduced")]
    for folder in folders:
        folder.mkdir()
    whole, made = (qdq.quantized(plain.folder, "shared", one, reduced=one is folders[1]) for one in folders)
    assert made.notes[-1].startswith("7-bit weights: this CPU has no VNNI")
    largest, scales = {}, {}
    for one in (whole, made):
        graph = onnx.load(one.path(Artifact.ONNX)).graph
        stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        rounded = [stored[node.input[0]] for node in graph.node if node.input[0] in stored and "Dequ" in node.op_type]
        largest[one.folder] = max(int(np.abs(weight.astype(int)).max()) for weight in rounded)
        scales[one.folder] = [float(stored[node.input[1]]) for node in graph.node if node.op_type == "QuantizeLinear"]
    assert largest == {whole.folder: 127, made.folder: 64}
    assert 2 * 255 * 64 < 2**15 < 2 * 255 * 127
    assert scales[whole.folder] == scales[made.folder]
    found = compare(onnx_files.run(made.path(Artifact.ONNX), made.input_buffers(), "m"), made.reference_outputs())
    assert gate(found, plain.error_bounds[Precision.INT8]) is None


@pytest.mark.parametrize("saturates", [True, False])
def test_the_cpu_settles_the_weights_bits_of_a_quantized_variant_alone(
    saturates: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(environment, "saturates", lambda: saturates)
    jobs = [checked(Request(model="digits", variant=one)) for one in ("", "shared")]
    assert [isinstance(one, Request) and bool(one.saturates) for one in jobs] == [False, saturates]
    on_gpu = checked(Request(model="digits", variant="shared", device=Device.CUDA))
    assert isinstance(on_gpu, Request)
    assert not on_gpu.saturates, "a GPU has no such kernels"
    assert (on_gpu.key == jobs[1].key) is not saturates  # type: ignore[union-attr]


def test_what_another_cpu_saturates_is_read_from_its_facts():
    def flags(*names: str) -> dict[str, dict[str, list[str]]]:
        return {"cpu": {"flags": [*names]}}

    assert saturates_there(flags("sse4_2", "avx2"))
    assert not saturates_there(flags("sse4_2", "avx2", "avx512_vnni"))
    assert not saturates_there(flags("asimd", "asimddp"))
    assert not saturates_there({})


def test_an_old_file_without_node_names_gets_both(tmp_path: Path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    source = write(tmp_path / "old.onnx", nodes, ([4, 8], [4, 8]), opset=9, w=rng.standard_normal((8, 8)))
    path, error = quantized(source, tmp_path, (4, 8))
    model = onnx.load(path)
    assert model.opset_import[0].version >= 13
    assert all(node.name for node in model.graph.node)
    assert 0 < error < 0.05


@pytest.mark.parametrize(
    ("kind", "more"),
    [("Gemm", {"beta": 0.5, "alpha": 2.0}), ("Gemm", {"transB": 1}), ("MatMul", {})],
)
def test_what_the_quantizer_would_get_wrong_stays_right(tmp_path: Path, kind: str, more: dict[str, Any]):
    """Beside a layer that is quantized, one with a scaled bias, a transposed weight, or a weight of three axes."""
    weight = rng.standard_normal((8, 8) if kind == "Gemm" else (2, 8, 8))
    bias = ["b"] if kind == "Gemm" else []
    shape = (4, 8) if kind == "Gemm" else (2, 4, 8)
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["m"]),
        helper.make_node(kind, ["m", "w", *bias], ["y"], **more),
    ]
    weights = {"v": rng.standard_normal((8, 8)), "w": weight, **{name: rng.standard_normal(8) * 30 for name in bias}}
    _, error = quantized(write(tmp_path / "m.onnx", nodes, (shape, shape), **weights), tmp_path, shape)
    assert 0 < error < 0.05


def test_nothing_to_quantize_is_said_and_the_plain_exported_is_fine(tmp_path: Path):
    path = write(tmp_path / "tanh.onnx", [helper.make_node("Tanh", ["x"], ["y"])], ([2, 4], [2, 4]))
    plain, error = obtain_all([Request(model=str(path)), Request(model=str(path), variant="shared")])
    assert isinstance(plain, ExportedModel)
    assert isinstance(error, ModelError)
    assert "has nothing to quantize: no matrix product or convolution in float32" in str(error)


def test_a_scheme_that_is_no_variant_is_refused():
    (error,) = obtain_all([Request(model="digits", variant="shared+minmax")])
    assert isinstance(error, UsageError)
    assert "'shared+minmax'" in str(error)
