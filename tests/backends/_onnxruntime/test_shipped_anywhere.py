"""A graph with convolutions is fitted to a CPU's vectors as it is built; what is to run elsewhere is the one before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper
from support.exports import obtain
from support.onnx_made import value, write

from shootout.apps.ship.folder import shipping
from shootout.backends._onnxruntime.backend import BLOCKED, OnnxRuntimeAdapter
from shootout.core.contract import Arm, Target

WEIGHT = np.random.default_rng(0).standard_normal((32, 3, 3, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("product", "x", "w", "y"),
    [("Conv", (1, 3, 8, 8), WEIGHT, (1, 32, 6, 6)), ("MatMul", (1, 27), WEIGHT.reshape(27, 32), (1, 32))],
)
def test_a_net_with_convolutions_goes_elsewhere_as_it_was_and_is_fitted_there(
    product: str, x: Any, w: Any, y: Any, tmp_path: Path
):
    nodes = [helper.make_node(product, ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    exported = obtain(str(write(tmp_path / "net.onnx", nodes, [value("x", x)], [value("y", y)], {"w": w})), {}, 1)
    arm = Arm(target=Target(backend="onnxruntime"), model=exported.model, options={"session.set_denormal_as_zero": "1"})
    folders = [tmp_path / name for name in ("built", "bound", "free")]
    for folder in folders:
        folder.mkdir()
    built = OnnxRuntimeAdapter().build(exported, arm, folders[0])
    bound, free = (shipping(arm.target, anywhere=bool(place))[0](built, folders[1 + place]) for place in range(2))
    graphs = [(folder / "model.onnx").read_bytes() for folder in folders[1:]]
    assert free.isa == ()
    if product == "MatMul":
        assert bound == free, "any CPU runs it as it was built, and it opens sooner"
        assert graphs[0] == graphs[1]
        return
    assert bound.isa
    assert [BLOCKED in graph for graph in graphs] == [True, False]
    levels = [one.options["session"].pop("graph_optimization_level") for one in (bound, free)]
    assert levels == ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"]
    assert free.options == bound.options, "the arm's own settings among them"
    answers = []
    for graph, level in zip(graphs, levels, strict=True):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        answers.append(session.run(None, exported.input_buffers()[0])[0])
    assert np.array_equal(*answers), "here it becomes the same program"
