"""Whole shapes of an ONNX file's inputs, and its header: read without its weights, whatever lies in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from support.onnx_made import F32, I64, linear, value, write

from shootout.core.errors import ModelError, UsageError
from shootout.core.study.points import points
from shootout.core.study.schema import Study
from shootout.models.onnx.onnx_axes import (
    axis_sizes,
    input_specs,
    open_beside_batch,
    sizes_asked,
    sizes_of_rows,
)
from shootout.models.onnx.onnx_files import KEPT_BYTES, header


def two(path: Path, x: Any = ("b", 3, "h", "w"), ids: Any = (None, "h")) -> onnx.ModelProto:
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Identity", ["ids"], ["z"])]
    outputs = [value("y", None), value("z", None, I64)]
    return header(write(path, nodes, [value("x", x, F32), value("ids", ids, I64)], outputs))


def test_whole_shapes_give_every_axis_and_the_batch(tmp_path: Path):
    model = two(tmp_path / "m.onnx")
    assert sizes_asked(model, {"x": (2, 3, 8, 9)}, {}, 1) == ({"h": 8, "w": 9}, 2)
    assert sizes_asked(model, {"x": (0, 3, 8, 9)}, {}, 4) == ({"h": 8, "w": 9}, 4)
    assert sizes_asked(model, {"x": (2, 3, 8, 9)}, {"h": 8}, 2) == ({"h": 8, "w": 9}, 2)
    found = axis_sizes(model, 2, {"h": 8, "w": 9})
    assert (found.sizes, found.batch) == ({"b": 2, "h": 8, "w": 9, "ids.0": 2}, 2)
    assert found.notes == ("b, ids.0 taken for the batch",)
    assert [spec.shape for spec in input_specs(model, found.sizes)] == [(2, 3, 8, 9), (2, 8)]
    assert axis_sizes(two(tmp_path / "n.onnx", ("batch", 3, "h", "w"), (1, "h")), 2, {"h": 8, "w": 9}).notes == ()


@pytest.mark.parametrize(
    ("shapes", "sets", "batch", "says"),
    [
        ({"x": (1, 3, 8)}, {}, 1, "--shape x=1x3x8: expected 4 sizes, got 3; the input is x float32[b, 3, h, w]"),
        ({"x": (1, 4, 8, 8)}, {}, 1, "an axis of size 3 can't be 4"),
        ({"X": (1, 3, 8, 8)}, {}, 1, "unknown input 'X'"),
        ({"": (1, 3, 8, 8)}, {}, 1, "unknown input ''"),
        (
            {"x": (1, 3, 8, 8), "ids": (1, 9)},
            {},
            1,
            "h is 8 already; one axis has one size: x float32[b, 3, h, w], ids int64[",
        ),
        ({"x": (1, 3, 8, 8)}, {"h": 9}, 1, "h is 8 by --shape and 9 by --set"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(tmp_path: Path, shapes: Any, sets: Any, batch: int, says: str):
    with pytest.raises(UsageError) as error:
        sizes_asked(two(tmp_path / "m.onnx"), shapes, sets, batch)
    assert says in str(error.value)


def test_a_header_holds_all_but_the_weights(tmp_path: Path):
    big = np.ones((64, KEPT_BYTES), np.float32)
    constant = helper.make_node("Constant", [], ["k"], value=onnx.numpy_helper.from_array(big))
    loose = helper.make_node("Constant", [], ["l"], value_floats=[1.0, 2.0])
    nodes = [constant, loose, helper.make_node("MatMul", ["x", "w"], ["y"])]
    path = write(tmp_path / "m.onnx", nodes, [value("x", (1, 64))], [value("y", None)], {"w": big, "s": big[:1, :3]})
    whole, head = onnx.load(path), header(path)
    assert head.ByteSize() < 1_000 < KEPT_BYTES < path.stat().st_size
    assert [tuple(tensor.dims) for tensor in head.graph.initializer] == [big.shape, (1, 3)]
    assert head.graph.initializer[1] == whole.graph.initializer[1], "small ones stay"
    assert list(head.graph.node)[1:] == list(whole.graph.node)[1:]
    assert not head.graph.node[0].attribute[0].t.raw_data
    assert header(path) is head, "read once"


@pytest.mark.parametrize("end", [-1, -20, 6_000, 1])
def test_a_header_of_a_file_cut_short_is_refused(tmp_path: Path, end: int):
    path = linear(tmp_path / "m.onnx")
    model = onnx.load(path)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w"))
    path.write_bytes(model.SerializeToString()[:end])
    with pytest.raises(ModelError, match="is not an ONNX model"):
        header(path)


def test_names_that_are_no_text_are_refused(tmp_path: Path):
    path = linear(tmp_path / "m.onnx", ("rows", 4), ("rows", 3))
    path.write_bytes(path.read_bytes().replace(b"rows", b"r\xffws"))
    with pytest.raises(ModelError, match="its names aren't valid text"):
        header(path)


def decoder(path: Path, mask: str = "past + 1", past: Any = ("batch", "past", 8)) -> onnx.ModelProto:
    nodes = [helper.make_node("Identity", ["mask"], ["y"]), helper.make_node("Identity", ["kv"], ["z"])]
    inputs = [value("mask", ("batch", mask), I64), value("kv", past, F32)]
    return header(write(path, nodes, inputs, [value("y", None, I64), value("z", None)]))


@pytest.mark.parametrize("given", [{"past": 32}, {"past": 32, "past + 1": 33}])
def test_an_axis_that_is_arithmetic_is_worked_out(tmp_path: Path, given: dict[str, int]):
    found = axis_sizes(decoder(tmp_path / "m.onnx"), 1, given)
    assert found.sizes == {"batch": 1, "past + 1": 33, "past": 32}


@pytest.mark.parametrize(
    ("axis", "size"),
    [
        ("past+1", 33),
        ("2*past", 64),
        ("batch*past", 32),
        ("past + batch", 33),
        ("floor(past/3)", 10),
        ("(past//2) - 1", 15),
        ("((past - 1)//2) + 1", 16),
        ("Max(1, Mod(past, 5))", 2),
        ("ceiling(past/3)", 11),
        ("past/4", 8),
    ],
)
def test_the_arithmetic_of_exporters(tmp_path: Path, axis: str, size: int):
    model = decoder(tmp_path / "m.onnx", axis)
    assert axis_sizes(model, 1, {"past": 32}).sizes[axis] == size
    assert sizes_asked(model, {"kv": (1, 32, 8)}, {}, 1) == ({"past": 32}, 1)
    assert open_beside_batch(model) == ["past"]


@pytest.mark.parametrize(
    ("axis", "given", "says"),
    [
        (
            "past + 1",
            {"past": 32, "past + 1": 40},
            "'past + 1' is 33 by past=32, and 40 as given: leave one of them out",
        ),
        ("past - 4", {"past": 4}, "'past - 4' is 0 by past=4: a size of 0 can't be measured"),
        ("past - 4", {"past": 2}, "'past - 4' is -2 by past=2"),
        ("past/4", {"past": 2}, "'past/4' is 1/2 by past=2: only a whole size"),
        ("past//(batch - 1)", {"past": 2}, "has no value by batch=1, past=2"),
        ("past + 1", {"past + 1": 33}, "axes without a size: past."),
    ],
)
def test_arithmetic_without_a_size(tmp_path: Path, axis: str, given: dict[str, int], says: str):
    with pytest.raises(UsageError) as error:
        axis_sizes(decoder(tmp_path / "m.onnx", axis), 1, given)
    assert says in str(error.value)


@pytest.mark.parametrize(
    "axis",
    [
        "past.1",
        "pa-st",
        "past +",
        "().x",
        "f(past)",
        "past if past else 1",
        "1" * 300,
        "past & 1",
        "past**2",
        "x.__class__",
    ],
)
def test_a_name_that_is_no_arithmetic_on_other_axes_is_a_name(tmp_path: Path, axis: str):
    model = decoder(tmp_path / "m.onnx", axis)
    assert axis_sizes(model, 1, {"past": 32, axis: 7}).sizes[axis] == 7
    with pytest.raises(UsageError, match="axes without a size"):
        axis_sizes(model, 1, {"past": 32})


@pytest.mark.parametrize(
    ("x", "ids", "shapes", "sizes"),
    [
        (("b", 3, "h", "w"), ("b", "n"), {"x": (40, 3, 8, 9), "ids": (40, 5)}, {"h": 8, "w": 9, "n": 5}),  # rows
        (("b", 3, "h", "w"), ("b", "n"), {"x": (7, 2, 3, 8, 9), "ids": (7, 2, 5)}, {"h": 8, "w": 9, "n": 5}),  # sets
        (("steps", "batch", 4), (1,), {"x": (30, 1, 4), "ids": (1,)}, {"steps": 30}),  # one set, its batch second
        (("b", 3, "h", "w"), ("b", "n"), {"x": (40, 8), "ids": (40, 5)}, {"n": 5}),  # which the check of data refuses
    ],
)
def test_the_users_own_rows_give_open_axes_their_sizes(tmp_path: Path, x: Any, ids: Any, shapes: Any, sizes: Any):
    assert sizes_of_rows(two(tmp_path / "m.onnx", x, ids), shapes) == sizes


def test_a_study_takes_the_sizes_of_its_rows_unless_it_has_some(tmp_path: Path):
    model, rows = linear(tmp_path / "m.onnx", ("batch", "seq", 4)), tmp_path / "rows.npz"
    np.savez(rows, x=np.zeros((40, 32, 4), np.float32), labels=np.zeros(40, np.int64))
    study = Study(name="own", model=(str(model),), inputs=str(rows))
    assert [point.parameters for point in points(study)] == [{"seq": 32}]
    assert points(study.model_copy(update={"parameters": {"seq": (8,)}}))[0].parameters == {"seq": 8}
    of_calibration = study.model_copy(update={"inputs": None, "calibration": str(rows)})
    assert points(of_calibration)[0].parameters == {"seq": 32}
