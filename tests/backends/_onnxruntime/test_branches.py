"""Files that branch: one network for each size that they take, as voice detectors do."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from shootout.backends._onnxruntime.account import open_session, optimize
from shootout.backends._onnxruntime.quantize import quantize
from shootout.core.contract import Arm, Precision, Target
from shootout.core.schemes import parse
from tests.support.onnx_made import I64, branching, value, write

ORT = Arm(target=Target(backend="onnxruntime"), model="file")
DYNAMIC = Arm(target=Target(backend="onnxruntime", precision=Precision.INT8_DYNAMIC), model="file")
NODE = helper.make_node
IF = NODE(
    "If",
    ["use"],
    ["o"],
    then_branch=helper.make_graph([NODE("Relu", ["t"], ["a"])], "then", [], [value("a", None)]),
    else_branch=helper.make_graph([NODE("Neg", ["t"], ["b"])], "else", [], [value("b", None)]),
)
STEP = helper.make_graph(
    [NODE("Identity", ["go"], ["on"]), NODE("Add", ["s", "t"], ["s2"])],
    "step",
    [value("i", (), I64), value("go", (), TensorProto.BOOL), value("s", None)],
    [value("on", (), TensorProto.BOOL), value("s2", None)],
)
LOOP = NODE("Loop", ["three", "use", "zeros"], ["o"], body=STEP)


def test_a_branch_that_fixed_sizes_never_take_breaks_no_optimization(tmp_path: Path):
    source = branching(tmp_path / "source.onnx")
    with pytest.raises(Exception, match="InferenceError"):
        onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    session = open_session(optimize(source, ORT, tmp_path), ORT)
    x = np.linspace(-1, 1, 8, dtype=np.float32)[None]
    (y,) = session.run(None, {"x": x, "is_large": np.array(True)})
    assert np.array_equal(y, np.maximum(x, 0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "source.onnx"]


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("inside", [IF, LOOP], ids=["If", "Loop"])
def test_dynamic_int8_keeps_in_float_what_branches_and_loops_read(inside: Any, moved: bool, tmp_path: Path):
    nodes = [NODE("Gather", ["table", "ids"], ["rows" if moved else "t"])]
    nodes += [NODE("Transpose", ["rows"], ["t"], perm=[0, 2, 1])] * moved
    width = 4 if moved else 32
    rng = np.random.default_rng(0)
    weights = {
        "table": rng.standard_normal((50, 32)).astype(np.float32),
        "w": rng.standard_normal((width, 16)).astype(np.float32),
        "three": np.int64(3),
        "zeros": np.zeros((1, 32, 4) if moved else (1, 4, 32), np.float32),
    }
    inputs = [value("ids", (1, 4), I64), value("use", (), TensorProto.BOOL)]
    last = NODE("MatMul", ["o", "w"], ["y"])
    source = write(tmp_path / "m.onnx", [*nodes, inside, last], inputs, [value("y", None)], weights)
    made = quantize(source, cast("Any", None), DYNAMIC, parse(""), tmp_path)
    assert "MatMulInteger" in [node.op_type for node in onnx.load(made).graph.node]
    given = {"ids": np.array([[1, 2, 3, 4]]), "use": np.array(True)}
    right, found = (
        onnxruntime.InferenceSession(one, providers=["CPUExecutionProvider"]).run(None, given)[0]
        for one in (source, made)
    )
    assert np.linalg.norm(found - right) < 0.05 * np.linalg.norm(right)
