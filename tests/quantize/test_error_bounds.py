"""Predicted error bounds against what real reduced precision does: true rows pass, lies don't."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from ml_dtypes import float8_e4m3fn
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from support.exports import obtain

from shootout.core.constants import USEFUL_BOUND
from shootout.core.contract import Artifact, Precision, Target
from shootout.core.exported.fidelity import compare, gate
from shootout.core.exported.model import ExportedModel
from shootout.core.exported.request import Content, Request
from shootout.core.host.environment import saturates
from shootout.models.onnx.effort import Effort
from shootout.models.sources import input_sets, torch_files, user_onnx
from shootout.quantize import onnx_error_bounds, torch_error_bounds
from shootout.quantize.error_bounds import Errors, to_e4m3, widened
from shootout.quantize.torch_error_bounds import fp32_floor, to_tf32
from shootout.testing.fresh import run_fresh

F32 = TensorProto.FLOAT
Weight = Callable[[Any], Any]
ORDER = ("fp32", "tf32", "fp16", "bf16", "int8")


@pytest.fixture(scope="module")
def toy() -> ExportedModel:
    return obtain("residual_mlp", {"n_layers": 16}, 1)


@pytest.fixture(scope="module")
def digits() -> ExportedModel:
    return obtain("digits", {}, 1)


def grid(levels: int, stretch: float = 1.0) -> Weight:
    """Rounds to a symmetric grid per tensor; `stretch` lies about the scale when the values are read back."""

    def rounded(x: Any) -> Any:
        scale = np.abs(x).max() / levels
        return (np.round(x / scale) * scale * stretch).astype(x.dtype)

    return rounded


def exact(x: Any) -> Any:
    return x


def residual(exported: ExportedModel, weight: Weight, activation: Weight, *, sums: bool = True) -> list[dict[str, Any]]:
    """The toy by hand, `activation` applied to whatever a product reads, and the sum if `sums`."""
    stored = exported.weights()
    layers = [weight(stored[f"layers.{index}.weight"]) for index in range(len(stored))]
    found = []
    for one in exported.input_buffers():
        y = one["x"]
        for layer in layers:
            read = activation(y)
            branch = np.maximum(read @ layer.T, 0)
            y = read + activation(branch) if sums else y + branch
        found.append({"y": y})
    return found


def outputs_of(exported: ExportedModel, change: Weight, folder: Path) -> list[dict[str, Any]]:
    """The exported model's outputs with its weight matrices changed."""
    model = onnx.load(exported.path(Artifact.ONNX))
    for tensor in model.graph.initializer:
        if len(tensor.dims) > 1:
            tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)), tensor.name))
    onnx.save(model, folder / "changed.onnx")
    session = ort.InferenceSession(folder / "changed.onnx", providers=["CPUExecutionProvider"])
    return [{"y": session.run(["y"], dict(one))[0]} for one in exported.input_buffers()]


def test_error_bounds_are_in_the_precisions_order(toy: ExportedModel, digits: ExportedModel):
    for exported in (toy, digits):
        error_bounds = [exported.error_bounds[name] or np.nan for name in ORDER]
        assert error_bounds == sorted(error_bounds)
        assert (exported.error_bounds["bf16"] or 1) < (exported.error_bounds["int8"] or 0) < USEFUL_BOUND


@pytest.mark.parametrize("levels", [127, 100])
def test_int8_by_hand_passes(toy: ExportedModel, levels: int):
    found = compare(residual(toy, grid(levels), grid(levels)), toy.reference_outputs())
    assert gate(found, toy.error_bounds[Precision.INT8]) is None
    assert gate(found, toy.error_bounds[Precision.FP16])


@pytest.mark.parametrize(
    ("weight", "activation"),
    [
        (grid(7), grid(7)),
        (grid(127, stretch=8), exact),
        (grid(127, stretch=1 / 8), exact),
        (np.zeros_like, exact),
        (exact, np.zeros_like),
        (grid(1), exact),
    ],
    ids=["int4", "scale x8", "scale /8", "no weights", "zeros", "one bit"],
)
def test_lies_about_int8_fail_on_the_toy(toy: ExportedModel, weight: Weight, activation: Weight):
    found = compare(residual(toy, weight, activation), toy.reference_outputs())
    assert gate(found, toy.error_bounds[Precision.INT8])


def quantized(exported_models: list[ExportedModel]) -> list[np.ndarray]:
    """What NNCF's INT8 models of these give for their input buffers."""
    import nncf
    import openvino
    from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, OverflowFix

    fix = OverflowFix.ENABLE if saturates() else OverflowFix.FIRST_LAYER  # as the adapter has it
    how = {"subset_size": 300, "advanced_parameters": AdvancedQuantizationParameters(overflow_fix=fix)}
    found = []
    for exported in exported_models:
        sets = [list(one.values()) for one in exported.calibration()]
        model = openvino.Core().read_model(exported.path(Artifact.ONNX))
        hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
        run = openvino.compile_model(nncf.quantize(model, nncf.Dataset(sets), **how), "CPU", hints)
        found.append(np.stack([run(list(one.values()))[0] for one in exported.input_buffers()]))
    return found


@pytest.mark.long
def test_real_int8_passes(toy: ExportedModel, digits: ExportedModel):
    pytest.importorskip("nncf")
    for exported, outputs in zip((toy, digits), run_fresh(quantized, [toy, digits], warm="torch"), strict=True):
        found = compare([{"y": y} for y in outputs], exported.reference_outputs())
        assert gate(found, exported.error_bounds[Precision.INT8]) is None, exported.model
        assert gate(found, exported.error_bounds[Precision.FP16]), exported.model


def e4m3(x: Any, stretch: float = 1.0) -> Any:
    """Rounds to FP8, one scale; `stretch` as in `grid`."""
    scale = np.abs(x).max() / 448
    return ((x / scale).astype(float8_e4m3fn).astype(x.dtype) * scale * stretch).astype(x.dtype)


def test_fp8_by_hand_passes_and_nothing_rounded_or_scaled_wrongly_does(toy: ExportedModel):
    fp8 = Target(backend="any", precision=Precision.FP8)
    most, least = toy.error_bound(fp8)
    reference_outputs = toy.reference_outputs()
    found = compare(residual(toy, e4m3, e4m3, sums=False), reference_outputs)
    assert gate(found, most) is None
    assert least < (found.relative_l2 or 0)
    assert gate(compare(residual(toy, partial(e4m3, stretch=2), exact), reference_outputs), most)
    assert (compare(residual(toy, exact, exact), reference_outputs).relative_l2 or 1) < least


def test_rounding_to_e4m3_is_that_of_the_type_itself():
    drawn = np.random.default_rng(5).standard_normal(4_000) * np.exp2(np.linspace(-12, 9, 4_000))
    x = np.append(drawn.clip(-448, 448), 448.0).astype(np.float32)
    wanted = x.astype(float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(to_e4m3(x, 0), wanted)
    np.testing.assert_array_equal(torch_error_bounds.float8({1: 448.0})(1, torch.from_numpy(x), True).numpy(), wanted)
    chain = onnx_error_bounds.Chain("x")
    onnx_error_bounds.to_e4m3({"x": 448.0})(chain)
    ends = [helper.make_tensor_value_info(name, F32, x.shape) for name in ("x", chain.end)]
    graph = helper.make_graph(chain.nodes, "g", ends[:1], ends[1:], chain.numbers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    [got] = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(got, wanted)


def test_a_file_gets_its_modules_error_bounds(toy: ExportedModel, tmp_path: Path):
    path = tmp_path / "mine.onnx"
    path.write_bytes(toy.path(Artifact.ONNX).read_bytes())
    error_bounds = obtain(str(path), {}, 1).error_bounds
    assert set(error_bounds) == {*toy.error_bounds, "native"}
    for precision in toy.error_bounds:
        assert 0.5 < (error_bounds[precision] or np.nan) / (toy.error_bounds[precision] or np.nan) < 2, precision


def saved(path: Path, nodes: Any, opset: int, shape: Any = (2, 8), out: int = F32, **weights: Any) -> Path:
    ends = [helper.make_tensor_value_info("x", F32, shape)], [helper.make_tensor_value_info("y", out, None)]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", *ends, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def reference_of(path: Path) -> tuple[onnx_error_bounds.ReferenceRun, tuple[float, ...]]:
    """A file's reference outputs, and its FP32 error bounds."""
    folder = path.with_suffix(".made")
    folder.mkdir()
    export = user_onnx.FileExport(Request(model=str(path), content=Content(file=str(path)), folder=folder), Effort())
    export.prepare()
    reference_outputs = onnx_error_bounds.ReferenceRun(
        path=folder / "model.onnx",
        buffers=export.buffers,
        outputs=export.reference_outputs,
        calibration=input_sets.drawn_calibration(export.found.inputs, export.found.batch),
        workshop=path.parent,
    )
    return reference_outputs, export.fp32


def error_bounds_of(path: Path) -> Mapping[str, float | None]:
    (found,), _ = onnx_error_bounds.error_bounds(*reference_of(path))
    return found


FLOOR = Errors(by_mark=(1e-5,))
WEIGHT = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
PRODUCT = helper.make_node("MatMul", ["x", "w"], ["y"])


@pytest.mark.parametrize("opset", [6, 9, 13, 21])
def test_every_opset_is_predicted_alike(tmp_path: Path, opset: int):
    error_bounds = error_bounds_of(saved(tmp_path / "m.onnx", [PRODUCT], opset, w=WEIGHT))
    wanted = [error_bounds[name] or np.nan for name in (*ORDER[:4], "int8-dynamic", "int8")]
    assert all(one < 1.1 * other for one, other in pairwise(wanted)), "TF32 and FP16 keep the same digits"
    assert error_bounds == error_bounds_of(saved(tmp_path / "other.onnx", [PRODUCT], 17, w=WEIGHT))


def test_a_file_that_overflows_fp16_has_no_error_bound_for_it(tmp_path: Path):
    error_bounds = error_bounds_of(saved(tmp_path / "m.onnx", [PRODUCT], 17, w=WEIGHT * 1e6))
    assert error_bounds["fp16"] is None
    assert error_bounds["bf16"]


def hiding(path: Path, least: float) -> Path:
    """Attention of 8 places whose scores get `least` added twice wherever x is above 0, but for the first place."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["s"]),
        helper.make_node("Greater", ["x", "zeros"], ["hidden"]),
        helper.make_node("Where", ["hidden", "least", "zero"], ["mask"]),
        helper.make_node("Add", ["s", "mask"], ["once"]),
        helper.make_node("Add", ["once", "mask"], ["m"]),
        helper.make_node("Softmax", ["m"], ["p"]),
        helper.make_node("MatMul", ["p", "w"], ["y"]),
    ]
    zeros = np.array([1e9, *[0] * 7], np.float32)
    return saved(path, nodes, 17, w=WEIGHT / 3, zeros=zeros, zero=np.float32(0), least=np.float32(least))


def test_a_mask_that_follows_from_the_inputs_is_no_overflow_in_int8_and_widens_no_range(tmp_path: Path):
    wide, least, infinite = (
        error_bounds_of(hiding(tmp_path / f"{at}.onnx", number))
        for at, number in enumerate((-1e4, float(np.finfo(np.float32).min), -np.inf))
    )
    for name in ("int8", "int8/per-tensor", "int8-dynamic", "fp8"):
        assert infinite[name] == least[name]
        assert 0 < (least[name] or np.nan) <= (wide[name] or np.nan)


class Hiding(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = (x > 0) & (torch.arange(8) > 0)
        mask = torch.zeros_like(x).masked_fill(hidden, -torch.inf)
        return self.w((self.w(x) + mask).softmax(-1))


def test_a_mask_inside_a_torch_module_is_no_overflow_in_int8_either():
    torch.manual_seed(0)
    sets = [{"x": np.random.default_rng(seed).standard_normal((2, 8)).astype(np.float32)} for seed in range(4)]
    _, (error_bounds,), _, _ = torch_files.reference_and_error_bounds(Hiding(), sets, sets)
    assert 0 < (error_bounds["int8-dynamic"] or np.nan) <= (error_bounds["int8"] or np.nan) < 0.5


def test_a_file_without_products_has_no_int8_error_bound(tmp_path: Path):
    error_bounds = error_bounds_of(saved(tmp_path / "m.onnx", [helper.make_node("Sin", ["x"], ["y"])], 17))
    assert set(error_bounds) == {"fp32", "fp16", "bf16"}, "nor one of FP8"


def test_what_cannot_be_predicted_costs_no_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: Any) -> Any:
        raise RuntimeError("as an odd file would")

    reference_outputs, _ = reference_of(saved(tmp_path / "m.onnx", [PRODUCT], 17, w=WEIGHT))
    assert onnx_error_bounds.error_bounds(reference_outputs, FLOOR) == onnx_error_bounds.error_bounds(
        reference_outputs, FLOOR
    )
    monkeypatch.setattr(onnx_error_bounds, "rewrite", broken)
    assert onnx_error_bounds.error_bounds(reference_outputs, FLOOR) == (({"fp32": 1e-5},), {"fp32": {}})
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["m.made", "m.onnx"]


def test_values_inside_branches_stay_exact(tmp_path: Path):
    def branch(name: str, op: str) -> Any:
        return helper.make_graph(
            [helper.make_node(op, ["h", "w"], [name])], name, [], [helper.make_tensor_value_info(name, F32, None)]
        )

    nodes = [
        helper.make_node("Identity", ["x"], ["h"]),
        helper.make_node("If", ["yes"], ["y"], then_branch=branch("t", "MatMul"), else_branch=branch("e", "Add")),
    ]
    error_bounds = error_bounds_of(saved(tmp_path / "m.onnx", nodes, 17, (8, 8), w=WEIGHT, yes=np.array(True)))
    assert "int8" not in error_bounds
    assert (error_bounds["bf16"] or 0) > 1e-3


def test_drawn_inputs_judge_no_error_bound_that_nearly_lets_zeros_pass(toy: ExportedModel):
    assert (widened(None), widened(3.0)) == (None, 12.0)
    assert 0 < toy.spread < 1
    assert toy.is_telling(0.9 * USEFUL_BOUND * toy.spread)
    assert not toy.is_telling(1.1 * USEFUL_BOUND * toy.spread)
    int8 = Target(backend="any", precision=Precision.INT8)
    for error_bound, drawn, judged in ((0.9, True, True), (1.1, True, False), (1.1, False, True), (None, True, False)):
        error_bounds = {**toy.error_bounds, "int8": error_bound and error_bound * USEFUL_BOUND}
        assert replace(toy, error_bounds=error_bounds, drawn=drawn).is_judged(int8) is judged
    assert replace(toy, error_bounds={"fp32": 1e-5}).is_judged(int8), (
        "nothing predicted: real inputs would tell no more"
    )


def test_a_long_sum_in_float32_is_no_fault_of_its_precision() -> None:
    """Term by term, as no library rounds worse; the same numbers in TF32 are still distinguished."""
    rng = np.random.default_rng(7)
    terms = 1_000_000
    x, w = (rng.standard_normal((4, terms)).astype(np.float32) for _ in range(2))
    exact = (x.astype(np.float64) * w).sum(axis=1)
    in_turn = np.add.accumulate(x * w, axis=1)[:, -1]
    error = float(np.linalg.norm(in_turn - exact) / np.linalg.norm(exact))
    error_bound = fp32_floor(0.0, terms)
    assert error_bound is not None
    assert 1e-5 < error < error_bound, "the old floor would have failed a true float32 sum"
    narrow = [to_tf32(torch.from_numpy(one)).numpy() for one in (x, w)]
    coarse = (narrow[0] * narrow[1]).sum(axis=1)
    assert float(np.linalg.norm(coarse - exact) / np.linalg.norm(exact)) > error_bound
