"""What FP32 explains in a user's file: true float32 runtimes pass, narrower ones don't."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from shootout.core.exported.fidelity import worst_error
from shootout.models.onnx import onnx_files
from shootout.quantize import onnx_error_bounds
from shootout.quantize.onnx_error_bounds import coarsened, nudged, sum_bits

F32 = TensorProto.FLOAT
SHAPE = (2, 16)


def model(nodes: Any, **weights: Any) -> onnx.ModelProto:
    ends = [[helper.make_tensor_value_info(name, F32, SHAPE)] for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", *ends, [numpy_helper.from_array(one, name) for name, one in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def outputs(made: onnx.ModelProto, buffers: Any, folder: Path) -> list[dict[str, Any]]:
    onnx_files.save(made, folder / "m.onnx")
    return [{"y": one["y"].astype(float)} for one in onnx_files.run(folder / "m.onnx", buffers, "m.onnx")]


def drawn(offset: float = 0.0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [{"x": (rng.standard_normal(SHAPE) + offset).astype(np.float32)} for _ in range(4)]


def test_a_sigmoid_near_zero_has_few_digits_and_is_float32(tmp_path: Path):
    """By the exponential it has seven; as MLAS and Eigen write it, a quotient plus a half, it has three at 1e-4."""
    buffers, made = drawn(-9.0), model([helper.make_node("Sigmoid", ["x"], ["y"])])
    right = outputs(made, buffers, tmp_path)
    exact = [{"y": 1 / (1 + np.exp(-one["x"].astype(float)))} for one in buffers]
    error = worst_error(right, exact)
    found = onnx_error_bounds.float32_error_bounds(
        made, buffers, exact, name="m", place=tmp_path / "m.onnx", workshop=tmp_path
    )
    error_bound = found.by_mark[0] or 0.0
    assert error
    assert 1e-6 < error < error_bound < 1e-2
    half = [{"y": 1 / (1 + np.exp(-one["x"].astype(np.float16).astype(float)))} for one in buffers]
    assert (worst_error(half, exact) or 0) > error_bound


@pytest.mark.parametrize("inside", [False, True])
def test_functions_and_sums_are_coarsened_inside_branches_too(inside: bool, tmp_path: Path):
    weight = np.random.default_rng(1).standard_normal((16, 16)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node("Tanh", ["s"], ["y"])]
    weights: dict[str, Any] = {"w": weight}
    if inside:
        end = helper.make_tensor_value_info("y", F32, SHAPE)
        branch = helper.make_graph(nodes, "b", [], [end])
        nodes = [helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch)]
        weights["yes"] = np.array(True)
    made, buffers = model(nodes, **weights), drawn()
    changed = coarsened(made)
    graph = changed.graph.node[0].attribute[0].g if inside else changed.graph
    assert [node.op_type for node in graph.node if node.op_type in {"MatMul", "Tanh"}] == ["MatMul", "Tanh"]
    assert len(graph.node) > 10
    error = worst_error(outputs(changed, buffers, tmp_path), outputs(made, buffers, tmp_path))
    assert error
    assert 2.0**-25 < error < 2.0**-20


def test_a_longer_sum_errs_more_and_its_bits_say_how_much():
    """Of float32 terms of random sign, added in eight chains: the rounding of one operand covers it."""
    rng = np.random.default_rng(2)
    for terms in (64, 4096):
        x, w = (rng.standard_normal((256, terms)).astype(np.float32) for _ in range(2))
        chains = np.add.accumulate((x * w).reshape(256, -1, 8), axis=1)[:, -1].sum(axis=1)
        exact = (x.astype(float) * w).sum(axis=1)
        large = x * np.float32(2 ** (24 - sum_bits(terms)) + 1)
        rounded = ((large + (x - large)).astype(float) * w).sum(axis=1)
        ratio = np.linalg.norm(rounded - exact) / np.linalg.norm(chains - exact)
        assert 0.5 < ratio < 8, terms
    assert sum_bits(1) == sum_bits(8) == 23 > sum_bits(64) > sum_bits(4096)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_nudge_moves_everything_a_little(dtype: Any):
    x = np.random.default_rng(0).standard_normal(1_000).astype(dtype)
    moved = nudged(x, np.random.default_rng(1))
    relative = np.abs(moved.astype(float) - x) / np.abs(x.astype(float))
    limit = max(float(np.finfo(dtype).eps), 2.0**-23)
    assert moved.dtype == x.dtype
    assert (relative > 0).mean() > 0.99  # float16's denormals may stay
    assert relative.max() <= 2 * limit or dtype is np.float16
    assert 0.4 < (moved > x).mean() < 0.6
