"""Drawn inputs: what an input is, told by who reads it first and by its name, and that what is drawn looks like it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support.onnx_made import F32, I64, value, write

from shootout.core.contract import Array
from shootout.core.errors import UsageError
from shootout.core.exported.request import Request
from shootout.models import drawing
from shootout.models.base import draw
from shootout.models.onnx.onnx_axes import axis_sizes, input_specs
from shootout.models.onnx.onnx_files import header
from shootout.models.sources import onnx_inputs

BOOL, U8 = TensorProto.BOOL, TensorProto.UINT8
KERNEL = {"k": np.zeros((4, 3, 3, 3), np.float32)}
GRAY = {"k": np.zeros((4, 1, 3, 3), np.float32)}
FILTER = {"k": np.zeros((8, 1, 16), np.float32)}


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


def conv(x: str = "x") -> Any:
    return node("Conv", x, "k")


@pytest.mark.parametrize(
    ("shape", "dtype", "nodes", "weights", "told"),
    [
        (("n", 3, 32, 40), F32, [conv()], KERNEL, "a picture in [0, 1]"),
        (("n", 1, 32, 40), F32, [conv()], GRAY, "a picture in [0, 1]"),
        (("n", 32, 40, 3), F32, [node("Transpose", "x", out="t"), conv("t")], KERNEL, "a picture in [0, 1]"),
        (("n", 3, 32, 40), F32, [node("Div", "x", "s", out="t"), conv("t")], KERNEL | {"s": 255.0}, "in [0, 255]"),
        (("n", 3, 32, 40), F32, [node("Mul", "x", "s", out="t"), conv("t")], KERNEL | {"s": 1 / 255}, "in [0, 255]"),
        (("n", 3, 32, 40), F32, [node("Sub", "x", "s", out="t"), conv("t")], KERNEL | {"s": 123.7}, "in [0, 255]"),
        (("n", 3, 32, 40), F32, [node("Sub", "x", "s", out="t"), conv("t")], KERNEL | {"s": 0.485}, "in [0, 1]"),
        (("n", 3, 1, 32, 40), F32, [node("Conv", "x", "k")], {"k": np.zeros((4, 3, 1, 3, 3))}, "a picture in [0, 1]"),
        (("n", 32, 40, 3), U8, [node("Cast", "x", to=F32)], None, "a picture in [0, 255]"),
        (("n", 3, 32, 40), F32, [node("Relu", "x")], None, "standard normal"),
        (("n", 16, 32, 40), F32, [conv()], KERNEL, "standard normal"),
    ],
)
def test_pictures_are_known_by_their_channels_and_who_reads_them(
    tmp_path: Path, shape: Any, dtype: int, nodes: list[Any], weights: Any, told: str
):
    arrays = {name: np.asarray(array, np.float32) for name, array in (weights or {}).items()}
    said, found = drawn(tmp_path, [value("x", shape, dtype)], nodes, arrays)["x"]
    assert told in said
    if "picture" not in told and not told.startswith("in"):
        return
    top = 255 if "255" in told else 1
    assert 0 <= found.min() < 0.2 * top < 0.8 * top < found.max() <= top
    assert len({one.tobytes() for one in found}) == 8
    smooth = np.moveaxis(found.astype(float), 2 if shape[1] in (1, 3) else 4, 2)
    step = np.abs(np.diff(smooth, axis=-1))
    assert np.median(step) < 0.05 * top, "neighbors are alike, as in no noise"


def test_pixel_values_are_normalized_as_processors_have_them(tmp_path: Path):
    said, found = drawn(tmp_path, [value("pixel_values", ("n", 3, 32, 32))], [conv("pixel_values")], KERNEL)[
        "pixel_values"
    ]
    assert said == "a picture in [-2, 2]"
    assert found.min() < -1 < 1 < found.max()


def test_texts_are_tokens_types_and_masks_that_fit_their_embeddings(tmp_path: Path):
    tables = {"words": np.zeros((900, 4), np.float32), "types": np.zeros((2, 4), np.float32)}
    tables["places"] = np.zeros((16, 4), np.float32)
    names = {"input_ids": "words", "token_type_ids": "types", "position_ids": "places"}
    nodes = [node("Gather", table, name, out=f"e_{name}") for name, table in names.items()]
    nodes += [node("Cast", "attention_mask", to=F32)]
    found = drawn(
        tmp_path, [value(name, ("batch", "seq"), I64) for name in (*names, "attention_mask")], nodes, tables, seq=16
    )
    assert {name: said for name, (said, _) in found.items()} == {
        "input_ids": "tokens below 900",
        "token_type_ids": "token types: 0, then 1",
        "position_ids": "positions 0, 1, 2 …",
        "attention_mask": "a mask, mostly ones",
    }
    ids, types, places, mask = (array for _, array in found.values())
    assert 500 < ids.max() < 900
    assert {*np.unique(types)} <= {0, 1}
    assert (np.diff(types, axis=-1) >= 0).all()
    assert (places == np.arange(16)).all()
    assert mask.mean() > 0.75
    assert (np.diff(mask, axis=-1) <= 0).all(), "zeros only at the end"
    assert mask[..., 0].all()


def test_an_index_behind_a_cast_and_of_a_quantized_table_is_found(tmp_path: Path):
    nodes = [
        node("Cast", "x", out="c", to=I64),
        node("DequantizeLinear", "q", "s", out="table"),
        node("Gather", "table", "c"),
    ]
    weights = {"q": np.zeros((70, 4), np.int8), "s": np.float32(1)}
    said, _ = drawn(tmp_path, [value("x", (1, 8), TensorProto.INT32)], nodes, weights)["x"]
    assert said == "tokens below 70"
    nodes[1:2] = [node("Cast", "q", out="f", to=F32), node("Mul", "f", "s", out="table")]
    assert drawn(tmp_path, [value("x", (1, 8), TensorProto.INT32)], nodes, weights)["x"][0] == "tokens below 70"


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ([("Add", "ids", "two")], "tokens below 8"),
        ([("Add", "two", "ids")], "tokens below 8"),
        ([("Sub", "ids", "two")], "tokens from 2 to 11"),
        ([("Sub", "nine", "ids")], "tokens below 10"),
        ([("Mul", "ids", "two")], "tokens below 5"),
        ([("Div", "ids", "two")], "tokens below 20"),
        ([("Mod", "ids", "two")], "tokens below 2"),
        ([("Neg", "ids"), ("Add", "h0", "nine")], "tokens below 10"),
        ([("Mul", "ids", "two"), ("Add", "h0", "two")], "tokens below 4"),
        ([("Clip", "ids", "zero", "nine")], "tokens below 10"),
        ([("Max", "ids", "zero")], "tokens below 10"),
        ([("Equal", "ids", "pad"), ("Where", "h0", "zero", "ids")], "tokens below 10"),
        ([("Add", "ids", "fields")], "tokens below 7"),
        ([("Less", "ids", "zero"), ("Add", "ids", "ten"), ("Where", "h0", "h1", "ids")], "tokens below 10"),
    ],
)
def test_ids_that_pass_arithmetic_fit_their_table(tmp_path: Path, nodes: list[tuple[str, ...]], told: str):
    one = {"zero": 0, "two": 2, "nine": 9, "ten": 10, "pad": -100}
    weights: dict[str, Any] = {name: np.int64(number) for name, number in one.items()}
    weights |= {"fields": np.array([0, 3, 1], np.int64), "table": np.ones((10, 4), np.float32)}
    made = [node(op, *names, out=f"h{at}") for at, (op, *names) in enumerate(nodes)]
    lookup = node("Gather", "table", f"h{len(nodes) - 1}")
    said, found = drawn(tmp_path, [value("ids", ("n", 3), I64)], [*made, lookup], weights, n=64)["ids"]
    assert said == told
    session = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    for ids in found:
        session.run(None, {"ids": ids})


def test_ids_are_below_the_smallest_table_behind_any_arithmetic_and_may_be_floats(tmp_path: Path):
    weights = {"six": np.int64(6), "table": np.ones((10, 4), np.float32)}
    both = [node("Gather", "table", "ids", out="a"), node("Add", "ids", "six", out="h"), node("Gather", "table", "h")]
    assert drawn(tmp_path, [value("ids", (1, 3), I64)], both, weights)["ids"][0] == "tokens below 4"
    cast = [node("Cast", "ids", out="h", to=I64), node("Gather", "table", "h")]
    assert drawn(tmp_path, [value("ids", (1, 3))], cast, weights)["ids"][0] == "tokens below 10"
    tied = [node("Transpose", "table", out="turned", perm=[1, 0]), node("Gather", "turned", "ids")]
    assert drawn(tmp_path, [value("ids", (1, 3), I64)], tied, weights)["ids"][0] == "tokens below 4"
    offset = [node("Add", "position_ids", "two", out="h"), node("Gather", "table", "h")]
    two = {"two": np.int64(2), "table": np.ones((10, 4), np.float32)}
    inputs = [value("position_ids", (1, 20), I64), value("unread", (1, 3))]
    assert drawn(tmp_path, inputs, offset, two)["position_ids"][1].max() == 7


def test_what_a_branch_gives_back_is_followed(tmp_path: Path):
    branch = helper.make_graph([node("Unsqueeze", "x", "one", out="b")], "b", [], [value("b", None)])
    nodes = [
        node("Shape", "x", out="n"),
        node("Equal", "n", "n", out="is"),
        node("If", "is", out="i", then_branch=branch, else_branch=branch),
        conv("i"),
    ]
    found = drawn(tmp_path, [value("x", (1, 512))], nodes, FILTER | {"one": np.array([1])})
    assert found["x"][0] == "sound in [-0.3, 0.3]"


def test_an_integer_is_what_the_graph_compares_it_with(tmp_path: Path):
    branch = helper.make_graph([node("Identity", "x", out="b")], "b", [], [value("b", None)])
    nodes = [
        node("Constant", out="rate", value_int=8000),
        node("Reshape", "sr", "one", out="r"),
        node("Equal", "r", "rate", out="is"),
        node("If", "is", then_branch=branch, else_branch=branch),
    ]
    found = drawn(tmp_path, [value("x", (1, 4)), value("sr", (), I64)], nodes, {"one": np.array([1])})
    assert found["sr"][0] == "8000"
    assert (found["sr"][1] == 8000).all()
    bytes_ = drawn(tmp_path, [value("x", (1, 9), I64)], [node("Equal", "x", "all")], {"all": np.arange(257)})["x"]
    assert bytes_[0] == "from 0 to 256"
    assert bytes_[1].max() > 100


@pytest.mark.parametrize("shape", [(1, 512), (1, 1, 512), (1, 512, 1)])
def test_sound_is_known_by_a_filter_that_goes_over_one_long_row(tmp_path: Path, shape: tuple[int, ...]):
    nodes = [node("Reshape", "x", "s", out="r"), conv("r")]
    said, found = drawn(tmp_path, [value("x", shape)], nodes, FILTER | {"s": np.array([1, 1, 512])})["x"]
    assert said == "sound in [-0.3, 0.3]"
    assert 0.05 < np.abs(found).max() <= 0.3
    axis = int(np.argmax(shape)) + 1
    assert np.abs(np.diff(found, axis=axis)).mean() < 0.1, "samples follow each other"
    features = drawn(tmp_path, [value("x", (1, 80, 512))], [conv()], {"k": np.zeros((8, 80, 3), np.float32)})["x"]
    assert features[0] == "standard normal"


def test_states_start_at_zero_whoever_tells_of_them(tmp_path: Path):
    weights = {name: np.zeros((1, 16, 4), np.float32) for name in ("w", "r")}
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r", "", "", "first", "second"], ["y", "z", "v"], hidden_size=4),
        helper.make_node("Identity", ["cache_in0"], ["cache_out0"]),
    ]
    inputs = [value("x", (5, 1, 4)), *(value(name, (1, 1, 4)) for name in ("first", "second", "cache_in0", "other"))]
    outputs = [value("y", None), value("cache_out0", (1, 1, 4))]
    found = drawn(tmp_path, inputs, nodes, weights, outputs=outputs)
    zeros = {name for name, (said, _) in found.items() if said == "zeros, a state at its start"}
    assert zeros == {"first", "second", "cache_in0"}
    assert not found["first"][1].any()
    assert found["x"][0] == found["other"][0] == "standard normal"


def test_an_output_of_the_same_shape_makes_no_state_of_what_is_read(tmp_path: Path):
    found = drawn(tmp_path, [value("noisy", (1, 512, 1))], [node("Relu", "noisy")], outputs=[value("y", (1, 512, 1))])
    assert found["noisy"][0] == "standard normal"


def test_lone_numbers_are_what_their_names_say(tmp_path: Path):
    names = {"iou_threshold": F32, "score_threshold": F32, "fmin": F32, "alpha": F32, "flag": BOOL, "top": I64}
    inputs = [value("x", ("n", "t", 4)), value("x_lengths", ("n",), I64)]
    inputs += [value(name, (), dtype) for name, dtype in names.items()]
    found = drawn(tmp_path, inputs, [node("Relu", "x")], t=30)
    assert {name: said for name, (said, _) in found.items() if name != "x"} == {
        "x_lengths": "30, the whole length",
        "iou_threshold": "0.45",
        "score_threshold": "0.25",
        "fmin": "50",
        "alpha": "a number in [0, 1]",
        "flag": "false",
        "top": "1",
    }


def test_something_differs_from_call_to_call(tmp_path: Path):
    found = drawn(tmp_path, [value("state", (1, 4)), value("h", (1, 4))], [node("Add", "state", "h")])
    assert found["state"][0] == "standard normal", "or every call would be the same"
    assert len({one.tobytes() for one in found["state"][1]}) == 8


def test_what_is_drawn_follows_the_seed_alone():
    ways = {(2, 3, 9, 50): drawing.picture(0, 1, 1), (2, 300): drawing.sound(1), (4, 9): drawing.mask()}
    for shape, way in ways.items():

        def again(seed: int, way: drawing.InputWay = way, shape: tuple[int, ...] = shape) -> Array:
            return np.asarray(way.draw(np.random.default_rng(seed), shape))

        assert np.array_equal(again(1), again(1))
        assert not np.array_equal(again(1), again(2))


def test_notes_name_every_input():
    ways = {"x": drawing.below(9), "sr": drawing.constant(16_000)}
    assert onnx_inputs.notes(ways) == ("inputs are drawn: x: tokens below 9; sr: 16000",)


LEAST = float(np.finfo(np.float32).min)
NUMBERS = {"zero": np.float32(0), "one": np.float32(1), "off": np.float32(-np.inf), "least": np.float32(LEAST)}
NUMBERS |= {"half": np.float32(-65504), "large": np.float32(1e9)}


@pytest.mark.parametrize(
    ("dtype", "nodes", "hides"),
    [
        (BOOL, [node("Where", "mask", "off", "zero", out="bias")], True),
        (BOOL, [node("Where", "mask", "least", "scores", out="bias")], True),
        (BOOL, [node("Where", "mask", "scores", "off", out="bias")], False),
        (BOOL, [node("Not", "mask", out="n"), node("Where", "n", "half", "scores", out="bias")], False),
        (
            BOOL,
            [node("And", "mask", "other", out="m"), node("Not", "m", out="n"), node("Where", "n", "off", "zero")],
            False,
        ),
        (
            I64,
            [node("Cast", "mask", to=F32, out="m"), node("Sub", "one", "m", out="n"), node("Mul", "n", "least")],
            False,
        ),
        (
            I64,
            [node("Cast", "mask", to=F32, out="m"), node("Sub", "m", "one", out="n"), node("Mul", "n", "large")],
            False,
        ),
        (F32, [node("Equal", "mask", "zero", out="m"), node("Where", "m", "least", "scores")], False),
        (F32, [node("Mul", "mask", "least", out="bias")], True),
        (F32, [node("Mul", "mask", "scores", out="bias")], None),
    ],
)
def test_a_mask_is_drawn_the_way_round_that_its_graph_shows(tmp_path: Path, dtype: int, nodes: Any, hides: bool | None):
    inputs = [value("mask", ("batch", 16), dtype), value("scores", ("batch", 16)), value("other", ("batch", 16), BOOL)]
    found = drawn(tmp_path, inputs, nodes, NUMBERS, outputs=[value(nodes[-1].output[0], None)])
    told, masks = found["mask"]
    assert told == ("a mask whose ones hide, mostly zeros" if hides else "a mask, mostly ones")
    shown = masks == (not hides)
    assert shown[..., 0].all(), "never all hidden"
    assert 0.75 <= shown.mean() < 1
    model = header(tmp_path / "m.onnx")
    (spec, *_) = input_specs(model, {"batch": 1})
    assert (onnx_inputs.ways(model, [spec])["mask"].turned is not None) == (hides is None)


def test_a_boolean_of_another_name_that_hides_scores_is_a_mask_too(tmp_path: Path):
    nodes = [node("Where", "pad", "off", "scores")]
    found = drawn(tmp_path, [value("pad", (1, 16), BOOL), value("scores", (1, 16))], nodes, NUMBERS)
    assert found["pad"][0] == "a mask whose ones hide, mostly zeros"


@pytest.mark.parametrize(
    ("before", "numbers"),
    [
        ([], range(-9, 9)),  # those below zero count from the end
        ([node("Sub", "ids", "two", out="i")], range(2, 11)),
        ([node("Mod", "ids", "two", out="i")], None),  # any number goes
        ([node("Clip", "ids", "none", "two", out="i")], None),
    ],
)
def test_given_row_numbers_beyond_a_table_are_refused_with_the_row_the_value_and_the_range(
    tmp_path: Path, before: list[Any], numbers: range | None
):
    nodes = [*before, node("Gather", "t", "i" if before else "ids")]
    weights = {"t": np.zeros((9, 4), np.float32), "two": np.array(2), "none": np.array(0)}
    path = write(tmp_path / "m.onnx", nodes, [value("ids", ("b", "n"), I64)], [value("y", None)], weights)
    assert onnx_inputs.row_numbers(header(path)) == ({"ids": numbers} if numbers else {})
    ids = np.full((40, 5), 3)
    ids[7, 1] = 5_000
    np.savez(tmp_path / "d.npz", ids=ids)
    asked = Request(model=str(path), parameters={"n": 5}, inputs_npz=tmp_path / "d.npz")
    if numbers is None:
        asked.source.check_data(asked)
        return
    takes = f"input 'ids': row 7 holds 5000, and the model's table takes {max(numbers.start, 0)} to {numbers.stop - 1}"
    with pytest.raises(UsageError, match=takes):
        asked.source.check_data(asked)
    ids[7, 1] = numbers.stop - 1
    np.savez(tmp_path / "d.npz", ids=ids)
    asked.source.check_data(asked)
