"""A file that races its original: the same inputs, held to itself, its error and accuracy against the original."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.onnx_made import F32, WEIGHT, half, linear, quantized, value, write

from shootout.core.errors import ModelError
from shootout.core.exported.client import Request, check
from shootout.core.exported.fidelity import compare
from shootout.core.exported.model import INPUTS, ExportedModel
from shootout.models.metrics import scoring
from shootout.testing.checks import exported_models


def pair(original: Path, other: Path, **how: Any) -> list[ExportedModel]:
    """The exported models of both."""
    return exported_models(
        Request(model=str(original), **how), Request(model=str(other), original=str(original), **how)
    )


def test_it_gets_the_originals_inputs_and_reference_and_keeps_its_own_outputs(tmp_path: Path):
    first, second = pair(linear(tmp_path / "a.onnx"), quantized(tmp_path / "q.onnx"), batch=2)
    assert (second.original, second.batch, second.parameters) == ("a.onnx", 2, {"batch": 2})
    assert (first.folder / INPUTS).read_bytes() == (second.folder / INPUTS).read_bytes()
    reference_outputs, own = second.reference_outputs(), second.own_outputs()
    assert all(
        np.array_equal(one["y"], other["y"])
        for one, other in zip(reference_outputs, first.reference_outputs(), strict=True)
    )
    assert first.own_outputs()[0]["y"].tolist() == reference_outputs[0]["y"].tolist()
    assert 1e-4 < (compare(own, reference_outputs).relative_l2 or 0) < 0.1, "what quantization cost"
    assert second.error_bounds["native"]
    assert any("against a.onnx" in note for note in second.notes)


def test_a_file_of_half_floats_gets_the_same_values_in_its_own_type_and_the_same_labeled_rows(tmp_path: Path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "x.npz", x=rng.standard_normal((64, 4)).astype(np.float32))
    np.savez(tmp_path / "l.npz", labels=rng.integers(0, 3, 64))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    halves = (value("x", ("N", 4), TensorProto.FLOAT16), value("y", ("N", 3), TensorProto.FLOAT16))
    other = write(tmp_path / "h.onnx", nodes, halves[:1], halves[1:], {"w": WEIGHT.astype(np.float16)})
    how = {"inputs_npz": tmp_path / "x.npz", "labels_npz": tmp_path / "l.npz", "batch": 4}
    first, second = pair(linear(tmp_path / "a.onnx"), other, **how)
    for one, own in zip(first.input_buffers(), second.input_buffers(), strict=True):
        np.testing.assert_array_equal(one["x"].astype(np.float16), own["x"])
        assert own["x"].dtype == np.float16
    rows, own_rows = first.report(), second.report()
    assert rows is not None
    assert own_rows is not None
    assert own_rows.inputs["x"].dtype == np.float16
    assert (own_rows.labels == rows.labels).all()
    assert second.calibration()[0]["x"].dtype == np.float16


def test_without_labels_its_rows_are_scored_against_the_originals_outputs(tmp_path: Path):
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32))
    how = {"inputs_npz": tmp_path / "x.npz", "scored": "outputs"}
    first, second = pair(linear(tmp_path / "a.onnx"), quantized(tmp_path / "q.onnx"), **how)
    own, right = scoring.report_outputs(second), scoring.report_outputs(first)
    assert own
    assert right
    np.testing.assert_array_equal(own["y"], right["y"])


def test_other_inputs_are_refused_before_anything_is_made_with_both_files_told(tmp_path: Path):
    original = str(linear(tmp_path / "a.onnx"))
    nodes = [helper.make_node("MatMul", ["z", "w"], ["y"])]
    named = write(tmp_path / "z.onnx", nodes, [value("z", (1, 4))], [value("y", (1, 3))], {"w": WEIGHT})
    wide = linear(tmp_path / "wide.onnx", (1, 8))
    whole = write(
        tmp_path / "i.onnx",
        [helper.make_node("Cast", ["x"], ["y"], to=F32)],
        [value("x", (1, 4), TensorProto.INT64)],
        [value("y", (1, 4))],
    )
    for other in (named, wide, whole):
        with pytest.raises(
            ModelError, match=rf"{other.name} can't race a\.onnx, it has other inputs: .*beside x float32"
        ):
            check(Request(model=str(other), original=original))
    assert check(Request(model=str(half(tmp_path / "h.onnx")), original=original)).content.holds == ("fp16",)


def test_other_outputs_are_refused(tmp_path: Path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["score"])]
    other = write(tmp_path / "b.onnx", nodes, [value("x", (1, 4))], [value("score", (1, 3))], {"w": WEIGHT})
    with pytest.raises(ModelError, match=r"it has other outputs: score float32\[1, 3\] beside y float32\[1, 3\]"):
        pair(linear(tmp_path / "a.onnx"), other)
