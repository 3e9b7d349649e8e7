"""Outputs that compare badly: whole numbers behind floats, NaN and infinity by design, an input that is an output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from onnx import TensorProto, helper
from support.exports import obtain
from support.onnx_made import value, write

from shootout.core.contract import Precision, Target
from shootout.core.exported.fidelity import compare, gate, useful_flips
from shootout.core.exported.model import ExportedModel
from shootout.quantize import torch_error_bounds

ROWS, WIDTH = 64, 32
W0, W1 = (np.random.default_rng(seed).standard_normal((WIDTH, WIDTH)).astype("f4") / 5 for seed in (0, 1))
FP32, INT8 = Target(backend="any"), Target(backend="any", precision=Precision.INT8)
LAYERS = [
    helper.make_node("MatMul", ["x", "w0"], ["h"]),
    helper.make_node("Tanh", ["h"], ["t"]),
    helper.make_node("MatMul", ["t", "w1"], ["scores"]),
]


def exported(path: Path, nodes: list[object], outputs: list[object], **weights: object) -> ExportedModel:
    inputs = [value("x", [ROWS, WIDTH])]
    return obtain(str(write(path, [*LAYERS, *nodes], inputs, outputs, {"w0": W0, "w1": W1, **weights})), {}, 1)


def test_as_many_whole_numbers_may_differ_as_rounding_flips(tmp_path: Path):
    """A picture in bytes, the best class of each row, and a count that no rounding moves."""
    nodes = [
        helper.make_node("Mul", ["scores", "large"], ["scaled"]),
        helper.make_node("Cast", ["scaled"], ["picture"], to=TensorProto.INT32),
        helper.make_node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0),
        helper.make_node("ReduceMax", ["count"], ["most"], keepdims=0),
    ]
    nodes.insert(3, helper.make_node("ArgMax", ["x"], ["count"], axis=1, keepdims=0))
    kinds = [("picture", [ROWS, WIDTH], TensorProto.INT32), ("best", [ROWS], 7), ("most", [], 7)]
    made = exported(tmp_path / "m.onnx", nodes, [value(*one) for one in kinds], large=np.float32(1e4))
    exact, coarse = made.flips_of(FP32), made.flips_of(INT8)
    assert 1e-4 < exact["picture"] < 0.1 < coarse["picture"]
    assert "best" not in exact
    assert 0.001 < coarse["best"] < 0.5
    right = made.reference_outputs()
    coarse = useful_flips(coarse, right)
    assert 0.4 < coarse["picture"] <= 0.5
    off = [{**one, "picture": one["picture"].copy()} for one in right]
    off[1]["picture"][3, :2] += 1
    assert gate(compare(off, right), 1e-5, flips=exact) is None
    assert "elements of output 'picture' differ" in str(
        gate(compare([right[0]] * len(right), right), 1e-5, flips=coarse)
    )
    off[1]["most"] = right[1]["most"] + 1
    assert "1 of 8 integer or boolean elements of output 'most'" in str(gate(compare(off, right), 1e-5, flips=coarse))


def test_a_module_s_whole_numbers_are_predicted_too():
    torch.manual_seed(0)
    module = torch.nn.Linear(WIDTH, WIDTH)

    class Picture(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (1e5 * self.layer(x)).to(torch.int32)

    sets = [{"x": np.random.default_rng(seed).standard_normal((ROWS, WIDTH)).astype("f4")} for seed in range(3)]
    picture = Picture().double()
    right = list(torch_error_bounds.outputs(picture, sets, by_rows=True))
    _, flips = torch_error_bounds.error_bounds(picture, sets, right, by_rows=True)
    assert 0 < flips[Precision.FP32]["y"] < 0.1 < flips[Precision.BF16]["y"]
    assert flips[Precision.INT8]["y"] > flips[Precision.FP32]["y"]


def test_masked_scores_are_the_reference_as_they_are(tmp_path: Path):
    """-inf where a score is hidden, and NaN in a row without any that is shown."""
    nodes = [
        helper.make_node("Where", ["shown", "scores", "never"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["shares"], axis=1),
    ]
    outputs = [value("masked", [ROWS, WIDTH]), value("shares", [ROWS, WIDTH])]
    shown = np.random.default_rng(2).random((ROWS, WIDTH)) < 0.6
    shown[5] = False
    made = exported(tmp_path / "m.onnx", nodes, outputs, shown=shown, never=np.float32(-np.inf))
    right = made.reference_outputs()
    assert np.isneginf(right[0]["masked"]).any()
    assert np.isnan(right[0]["shares"]).any()
    told = [note for note in made.notes if "has NaN or infinity" in note]
    assert len(told) == 2
    assert told[0].endswith(f" of {8 * ROWS * WIDTH:,} elements; each target must have them at the same places")
    assert made.error_bounds[Precision.FP32] == 1e-5
    assert 1e-4 < (made.error_bounds[Precision.BF16] or 0.0) < 0.5, "no overflow"
    assert len(made.unseen()) == 2
    assert gate(compare(right, right), 1e-5) is None
    wrong = [{**one, "masked": np.maximum(one["masked"], -1e9)} for one in right]
    assert "output 'masked' has NaN or infinity where the reference has none" in str(gate(compare(wrong, right), 1e-5))
