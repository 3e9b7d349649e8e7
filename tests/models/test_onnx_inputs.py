"""Drawn inputs: what an input is, by shape, type, name and the tables that it reads; what is drawn looks like it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.onnx_made import F32, I64, value, write

from shootout.models import drawing
from shootout.models.base import draw
from shootout.models.onnx.onnx_axes import axis_sizes, input_specs
from shootout.models.onnx.onnx_files import header
from shootout.models.sources import onnx_inputs

BOOL, U8 = TensorProto.BOOL, TensorProto.UINT8


def node(op: str, *names: str, out: str = "y", **attributes: Any) -> Any:
    return helper.make_node(op, names, [out], **attributes)


def drawn(folder: Path, inputs: list[Any], nodes: list[Any], weights: Any = None, **how: Any) -> dict[str, Any]:
    """By input, what is told of it and eight of its draws."""
    outputs = how.pop("outputs", [value("y", None)])
    model = header(write(folder / "m.onnx", nodes, inputs, outputs, weights))
    specs = input_specs(model, axis_sizes(model, 1, how).sizes)
    ways = onnx_inputs.ways(model, specs)
    sets = draw(specs, 8, 1, ways)
    for spec in specs:
        assert all(spec.matches(one[spec.name]) for one in sets)
    return {name: (way.told, np.stack([one[name] for one in sets])) for name, way in ways.items()}


@pytest.mark.parametrize(
    ("shape", "dtype", "told"),
    [
        (("n", 3, 32, 40), F32, "a picture in [0, 1]"),
        (("n", 1, 32, 40), F32, "a picture in [0, 1]"),
        (("n", 32, 40, 3), F32, "a picture in [0, 1]"),
        (("n", 3, 9, 32, 40), F32, "a picture in [0, 1]"),
        (("n", 32, 40, 3), U8, "a picture in [0, 255]"),
        (("n", 16, 32, 40), F32, "standard normal"),
    ],
)
def test_pictures_are_known_by_their_channels(tmp_path: Path, shape: Any, dtype: int, told: str):
    said, found = drawn(tmp_path, [value("x", shape, dtype)], [node("Cast", "x", to=F32)])["x"]
    assert said == told
    if "picture" in told:
        top = 255 if dtype == U8 else 1
        assert 0 <= found.min() < 0.2 * top < 0.8 * top < found.max() <= top
        assert len({one.tobytes() for one in found}) == 8
        smooth = np.moveaxis(found.astype(float), 2 if shape[1] == 3 or shape[1] == 1 else 4, 2)
        assert np.median(np.abs(np.diff(smooth, axis=-1))) < 0.1 * top, "neighbors are alike, as in no noise"


def test_texts_are_tokens_and_masks_that_fit_their_embeddings(tmp_path: Path):
    tables = {"words": np.zeros((900, 4), np.float32), "q": np.zeros((70, 4), np.int8), "s": np.float32(1)}
    tables["turned"] = np.zeros((4, 16), np.float32)
    nodes = [
        node("Gather", "words", "input_ids", out="a"),
        node("DequantizeLinear", "q", "s", out="table"),
        node("Cast", "typed", to=I64, out="t"),
        node("Gather", "table", "t", out="b"),
        node("Gather", "turned", "columns", axis=1, out="c"),
        node("Cast", "attention_mask", to=F32),
    ]
    types = {"input_ids": I64, "typed": TensorProto.INT32, "columns": I64, "attention_mask": I64, "pad": BOOL}
    inputs = [value(name, ("batch", "seq"), kind) for name, kind in types.items()]
    found = drawn(tmp_path, inputs, nodes, tables, seq=16)
    assert {name: said for name, (said, _) in found.items()} == {
        "input_ids": "tokens below 900",
        "typed": "tokens below 70",
        "columns": "tokens below 16",
        "attention_mask": "a mask, mostly ones",
        "pad": "a mask, mostly ones",
    }
    assert 500 < found["input_ids"][1].max() < 900
    mask = found["attention_mask"][1]
    assert mask.mean() > 0.75
    assert (np.diff(mask, axis=-1) <= 0).all(), "zeros only at the end"
    assert mask[..., 0].all()


def test_lone_numbers_are_one_or_false_and_states_are_zeros(tmp_path: Path):
    names = {
        "alpha": (F32, ()),
        "flag": (BOOL, (1,)),
        "top": (I64, ()),
        "x_lengths": (I64, ("n",)),
        "kinds": (I64, (1, 4)),
    }
    inputs = [value("x", ("n", "t", 4)), *(value(name, shape, dtype) for name, (dtype, shape) in names.items())]
    found = drawn(tmp_path, inputs, [node("Relu", "x")], t=30)
    assert {name: said for name, (said, _) in found.items()} == {
        "x": "standard normal",
        "alpha": "standard normal",
        "flag": "false",
        "top": "1",
        "x_lengths": "1",
        "kinds": "0 or 1",
    }
    model = header(tmp_path / "m.onnx")
    specs = input_specs(model, axis_sizes(model, 1, {"t": 30}).sizes)
    ways = onnx_inputs.ways(model, specs, ["x"])
    assert ways["x"].told == "zeros, a state at its start"
    assert onnx_inputs.notes(ways)[0].startswith("inputs are drawn: x: zeros, a state at its start; alpha: standard")


def test_something_differs_from_call_to_call(tmp_path: Path):
    found = drawn(tmp_path, [value("top", (), I64), value("rate", (), I64)], [node("Add", "top", "rate")])
    assert found["top"][0] == "0 or 1", "or every call would be the same"
    assert len({one.tobytes() for one in found["top"][1]}) == 2


def test_what_is_drawn_follows_the_seed_alone():
    ways = {(2, 3, 9, 50): drawing.picture(1, 1), (4, 9): drawing.mask()}
    for shape, way in ways.items():
        first, again, other = (way.draw(np.random.default_rng(seed), shape) for seed in (1, 1, 2))
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)
