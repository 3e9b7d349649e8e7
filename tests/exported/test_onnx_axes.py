"""Whole shapes of an ONNX file's inputs, and its header: read without its weights, whatever lies in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from support.onnx_made import F32, I64, linear, value, write

from shootout.errors import ModelError, UsageError
from shootout.exported.onnx_axes import axis_sizes, input_specs, sizes_asked, sizes_of_shapes
from shootout.exported.onnx_files import KEPT_BYTES, header


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


def test_the_only_input_needs_no_name(tmp_path: Path):
    assert sizes_of_shapes(header(linear(tmp_path / "m.onnx", ("n", 4))), {"": (5, 4)}) == {"n": 5}


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


def test_another_batch_than_the_shapes_is_refused(tmp_path: Path):
    model = two(tmp_path / "m.onnx")
    sizes, batch = sizes_asked(model, {"x": (2, 3, 8, 8)}, {}, 8)
    with pytest.raises(UsageError, match="batch 8 and b=2 are the same axis"):
        axis_sizes(model, batch, sizes)


def test_a_command_that_an_error_shows_works(tmp_path: Path):
    model = two(tmp_path / "m.onnx")
    with pytest.raises(UsageError, match=r"--shape x=1x3x224x224 --shape ids=1x224$"):
        axis_sizes(model, 1, {}, "m.onnx")
    sizes, batch = sizes_asked(model, {"x": (1, 3, 224, 224), "ids": (1, 224)}, {}, 1)
    assert axis_sizes(model, batch, sizes).sizes == {"b": 1, "h": 224, "w": 224, "ids.0": 1}


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
