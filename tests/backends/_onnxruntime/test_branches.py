"""Files that branch: one network for each size that they take, as voice detectors do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from shootout.backends._onnxruntime.account import open_session, optimise
from shootout.contract import Arm, Target

ORT = Arm(target=Target(backend="onnxruntime"), model="file")
WIDTH = 8


def save_branching(path: Path) -> Path:
    """`large ? relu(x) : turned(x)` at `x[1, 8]`; the small network turns what it first makes a rank higher at width 4.

    At width 8 that branch, which is never taken then, contradicts itself as soon as sizes are folded.
    """

    def branch(name: str, *nodes: object) -> object:
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)])

    higher = branch("higher", helper.make_node("Unsqueeze", ["x", "zero"], ["higher_y"]))
    same = branch("same", helper.make_node("Identity", ["x"], ["same_y"]))
    small = branch(
        "small",
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["width"]),
        helper.make_node("Equal", ["width", "four"], ["is_four"]),
        helper.make_node("If", ["is_four"], ["raised"], then_branch=higher, else_branch=same),
        helper.make_node("Transpose", ["raised"], ["small_y"], perm=[0, 2, 1]),
    )
    large = branch("large", helper.make_node("Relu", ["x"], ["large_y"]))
    graph = helper.make_graph(
        [helper.make_node("If", ["is_large"], ["y"], then_branch=large, else_branch=small)],
        "branching",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, WIDTH]),
            helper.make_tensor_value_info("is_large", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.array(value, np.int64), name)
            for name, value in (("zero", [0]), ("one", 1), ("four", 4))
        ],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_a_branch_that_fixed_sizes_never_take_breaks_no_optimisation(tmp_path: Path):
    source = save_branching(tmp_path / "source.onnx")
    with pytest.raises(Exception, match="InferenceError"):
        onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    session = open_session(optimise(source, ORT, tmp_path), ORT)
    x = np.linspace(-1, 1, WIDTH, dtype=np.float32)[None]
    (y,) = session.run(None, {"x": x, "is_large": np.array(True)})
    assert np.array_equal(y, np.maximum(x, 0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "source.onnx"]
