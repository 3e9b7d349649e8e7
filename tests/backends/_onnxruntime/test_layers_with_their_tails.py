"""A layer that stays in float takes with it what follows it up to the next layer."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from shootout.backends import common_onnx
from shootout.backends._onnxruntime import quantize
from shootout.core.contract import Arm, Target
from shootout.core.schemes import parse
from shootout.models.onnx.layers import layers_of

SIDE = 4


def save(graph: onnx.GraphProto, path: Path) -> None:
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two products; the second's result, and a hundred times as much, share a tensor."""
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("MatMul", ["b", "w"], ["c"], name="head"),
        helper.make_node("Mul", ["c", "hundred"], ["d"]),
        helper.make_node("Concat", ["c", "d"], ["y"], name="concat", axis=1),
    ]
    stored = [helper.make_tensor(name, TensorProto.FLOAT, [SIDE, SIDE], [1.0] * SIDE**2) for name in "vw"]
    stored.append(helper.make_tensor("hundred", TensorProto.FLOAT, [], [100.0]))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIDE, width])
        for name, width in (("x", SIDE), ("y", 2 * SIDE))
    ]
    path = tmp_path / "net.onnx"
    save(helper.make_graph(nodes, "net", ends[:1], ends[1:], stored), path)
    return path


@pytest.mark.parametrize(
    ("word", "names"),
    [("float-0", {"first", "relu"}), ("float-1", {"head", "float_d", "concat"}), ("", set())],
)
def test_what_follows_a_layer_stays_in_float_with_it(
    word: str, names: set[str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common_onnx, "layers_in", lambda _: layers_of(onnx.load(file)))
    exported: Any = None
    assert {*quantize._name_floats(file, exported, parse(word))} == names
    assert names <= {"", *(node.name for node in onnx.load(file).graph.node)}


@pytest.mark.parametrize(("floats", "multiplied"), [(["attended"], 1), ([], 0)])
def test_a_product_of_two_activations_that_is_left_in_float_multiplies_floats(
    floats: list[str], multiplied: int, tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["q"], name="query"),
        helper.make_node("MatMul", ["x", "w"], ["k"], name="key"),
        helper.make_node("Transpose", ["k"], ["t"], name="turned", perm=[1, 0]),
        helper.make_node("MatMul", ["q", "t"], ["y"], name="attended"),
    ]
    stored = [numpy_helper.from_array(np.eye(SIDE, dtype=np.float32), name) for name in "vw"]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIDE, SIDE]) for name in "xy"]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], stored)
    source, target = tmp_path / "net.onnx", tmp_path / "quantized.onnx"
    save(graph, source)
    sets = [{"x": np.linspace(-1, edge, SIDE**2, dtype=np.float32).reshape(SIDE, SIDE)} for edge in (1, 2)]
    quantize._quantize_static(source, target, sets, parse(""), floats, tmp_path / "ranges.json")
    settings = onnxruntime.SessionOptions()
    settings.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(target, settings)
    ran = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert ran.count("MatMul") + ran.count("FusedMatMul") == multiplied, ran
    assert sum("MatMul" in kind for kind in ran) == 3, ran


def test_an_einsum_of_one_operand_may_stay_in_float(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["k"], name="key"),
        helper.make_node("Einsum", ["k"], ["y"], name="turned", equation="ij->ji"),
    ]
    stored = [numpy_helper.from_array(np.eye(SIDE, dtype=np.float32), "w")]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIDE, SIDE]) for name in "xy"]
    source, target = tmp_path / "net.onnx", tmp_path / "quantized.onnx"
    save(helper.make_graph(nodes, "net", ends[:1], ends[1:], stored), source)
    x = np.linspace(-1, 1, SIDE**2, dtype=np.float32).reshape(SIDE, SIDE)
    quantize._quantize_static(source, target, [{"x": x}], parse(""), ["turned"], tmp_path / "ranges.json")
    (y,) = onnxruntime.InferenceSession(target).run(None, {"x": x})
    np.testing.assert_allclose(y, x.T, atol=0.02)


@pytest.mark.parametrize("scheme", ["", "entropy", "percentile"])
def test_a_mix_by_ranges_of_another_is_the_same_bytes(scheme: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxruntime.quantization import CalibraterBase

    if "calibration_cache_path" not in signature(onnxruntime.quantization.quantize_static).parameters:
        pytest.skip("this ONNX Runtime reads no ranges from a file")
    rng = np.random.default_rng(0)
    sets = [{"x": rng.standard_normal((SIDE, SIDE)).astype(np.float32)} for _ in range(3)]

    def mix(name: str, floats: list[str], ranges: str) -> bytes:
        target = file.with_name(name)
        quantize._quantize_static(file, target, sets, parse(scheme), floats, file.with_name(ranges))
        return target.read_bytes()

    alone = mix("alone.onnx", ["head"], "other.json")
    mix("whole.onnx", [], "ranges.json")
    for kind in (CalibraterBase, *CalibraterBase.__subclasses__()):
        monkeypatch.setattr(kind, "collect_data", None)
    assert mix("second.onnx", ["head"], "ranges.json") == alone


def test_ranges_belong_to_a_model_a_method_and_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path))
    arm = Arm(target=Target(backend="onnxruntime"), model="")

    def path_of(scheme: str, key: str = "a", threads: int = 1) -> Path:
        exported: Any = SimpleNamespace(key=key, variant="", batch=1)
        return quantize._ranges_path(exported, replace(arm, threads=threads), parse(scheme))

    path_of("").write_text('{"torn')
    assert path_of("float-1") == path_of("float-0.2") == path_of("") == path_of("symmetric")
    assert not path_of("").exists()
    others = [path_of("", key="b"), path_of("", threads=2), path_of("entropy"), path_of("samples-3"), path_of("")]
    assert len({*others}) == len(others)
