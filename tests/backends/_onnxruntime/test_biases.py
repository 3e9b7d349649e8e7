"""A bias with two axes, as a Gemm has it that ONNX Runtime made of MatMul and Add."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from shootout.backends._onnxruntime.quantize import quantize
from shootout.core.contract import Arm, Precision, Target
from shootout.core.schemes import parse
from tests.support.onnx_made import WEIGHT, value, write

INT8 = Arm(target=Target(backend="onnxruntime", precision=Precision.INT8), model="file")


def test_a_bias_of_two_axes_is_quantized_beside(tmp_path: Path):
    source = write(
        tmp_path / "model.onnx",
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"])],
        [value("x", (2, 4))],
        [value("y", (2, 3))],
        {"w": WEIGHT, "b": np.array([[0.5, -1, 2]], np.float32)},
    )
    rng = np.random.default_rng(0)
    sets = [{"x": rng.standard_normal((2, 4)).astype(np.float32)} for _ in range(4)]
    exported: Any = SimpleNamespace(key="biases", variant="", batch=2, calibration=lambda: sets)
    made = quantize(source, exported, INT8, parse(""), tmp_path)
    assert "QuantizeLinear" in {node.op_type for node in onnx.load(made).graph.node}
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, sets[0])
    assert np.allclose(y, sets[0]["x"] @ WEIGHT + [0.5, -1, 2], atol=0.1)
