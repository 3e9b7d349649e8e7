"""Streams: which inputs are states, what a call hands on, and which rows are whose clip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shootout.core.contract import Arrays, TensorSpec
from shootout.core.errors import UsageError
from shootout.core.exported.calls import Stream
from shootout.models.data import clips
from shootout.models.sources import user_data


def spec(name: str, shape: tuple[int, ...] = (1, 4), dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name=name, shape=shape, dtype=dtype)


def forms(*names: str, shape: tuple[int, ...] | None = (1, 4), dtype: str = "float32") -> dict[str, Any]:
    return dict.fromkeys(names, (dtype, shape))


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("h", "hn"),
        ("h0", "hn"),
        ("h0", "h_n"),
        ("state", "stateN"),
        ("state", "new_state"),
        ("in_cache1", "cache_out1"),
        ("past_x", "present_x"),
        ("X", "X_out"),
        ("r2i", "r2o"),
        ("hiddenIn", "hiddenOut"),
    ],
)
def test_names_tell_states(given: str, made: str):
    assert user_data.guess_state([spec("audio"), spec(given)], forms("y", made)) == {given: made}


@pytest.mark.parametrize(
    ("given", "made"),
    [("h", "cn"), ("in_cache1", "cache_out2"), ("input_1", "output_1"), ("past", "present"), ("state", "score")],
)
def test_other_names_tell_none(given: str, made: str):
    assert user_data.guess_state([spec("x"), spec(given)], forms("y", made)) == {}


def test_a_state_has_the_shape_and_type_of_its_next_value():
    inputs = [spec("x"), spec("h", (1, 64))]
    assert user_data.guess_state(inputs, forms("hn", shape=(-1, 64))) == {"h": "hn"}
    assert user_data.guess_state(inputs, forms("hn", shape=None)) == {"h": "hn"}, "the export will see"
    assert user_data.guess_state(inputs, forms("hn", shape=(1, 65))) == {}, "a cache that grows"
    assert user_data.guess_state(inputs, forms("hn", shape=(1, 64), dtype="int64")) == {}


def test_a_call_has_something_to_work_on():
    assert user_data.guess_state([spec("x")], forms("x_out")) == {}


def test_an_output_that_is_an_input_is_no_next_value():
    assert user_data.guess_state([spec("x"), spec("h")], forms("y", "h")) == {}
    assert user_data.guess_state([spec("x"), spec("h"), spec("hn")], forms("h", "hn")) == {}


def test_an_output_is_one_inputs_next_value():
    assert user_data.guess_state([spec("x"), spec("past_x")], forms("present_x")) == {"past_x": "present_x"}
    assert user_data.guess_state([spec("x"), spec("h"), spec("h0")], forms("y", "hn")) == {"h": "hn"}


def test_what_is_asked_for_goes_before_names():
    inputs, outputs = [spec("x"), spec("h"), spec("c")], forms("y", "hn", "cn")

    def asked(state: dict[str, str] | None, steps: int = 0, *, data: bool = False, flops: float = 0.0) -> Any:
        return user_data.choose(inputs, outputs, state, steps, has_data=data, flops=flops)

    assert asked(None) == Stream(steps=100, state={"h": "hn", "c": "cn"})
    assert asked(None, 7) == Stream(steps=7, state={"h": "hn", "c": "cn"})
    assert asked({"h": "y"}) == Stream(steps=100, state={"h": "y"})
    assert asked({}) is None
    assert asked({}, 7) == Stream(steps=7), "clips alone"
    assert asked(None, data=True) is None, "rows are clips only if the user says so"
    assert asked(None, 7, data=True) == Stream(steps=7, state={"h": "hn", "c": "cn"})
    assert asked(None, flops=5e8) == Stream(steps=20, state={"h": "hn", "c": "cn"}), "a guess takes no hour"
    with pytest.raises(UsageError, match="--state needs --stream N"):
        asked({"h": "hn"}, data=True)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({"g": "hn"}, "input in --state"),
        ({"h": "hm"}, "did you mean"),
        ({"h": "y"}, r"input h is float32\[1, 4\] and output y is int64\[1, 4\].*--state none"),
    ],
)
def test_a_state_that_cannot_be_handed_on_is_refused(state: dict[str, str], says: str):
    outputs = {**forms("hn"), **forms("y", dtype="int64")}
    with pytest.raises(UsageError, match=says):
        user_data.check_state([spec("x"), spec("h")], outputs, state)


def count(inputs: Arrays) -> dict[str, Any]:
    return {"y": inputs["x"] + inputs["h"], "hn": np.asarray(inputs["h"] + inputs["x"], np.float32)}


CLIPS = [{"x": np.float16([one]), "h": np.float16([10])} for one in (1, 2, 3, 4, 5)]


def test_states_are_handed_on_and_begin_anew_with_each_clip():
    stream = Stream(steps=3, state={"h": "hn"})
    outputs = list(map(stream.carry(count), CLIPS))
    assert [float(one["hn"][0]) for one in outputs] == [11, 13, 16, 14, 19]
    assert {one["y"].dtype.name for one in outputs} == {"float16"}, "an input's own type, whatever a session returns"
    filled = clips.fill(stream, CLIPS, outputs)
    assert [float(one["h"][0]) for one in filled] == [10, 11, 13, 10, 14]
    assert [float(count(one)["hn"][0]) for one in filled] == [11, 13, 16, 14, 19], "each set is right by itself"
    assert float(CLIPS[1]["h"][0]) == 10


def test_a_reference_in_float64_hands_on_all_digits():
    third = np.array([1 / 3])
    sets = [{"x": np.float32([0]), "h": np.float32([0])}] * 2
    call = Stream(steps=2, state={"h": "hn"}).carry(lambda inputs: {"hn": inputs["h"] + third})
    assert [one["hn"][0] for one in map(call, sets)] == [1 / 3, 2 / 3]


@pytest.mark.parametrize(
    ("steps", "marks"), [(1, (1,)), (2, (1, 2)), (10, (1, 10)), (11, (1, 10, 11)), (100, (1, 10, 100))]
)
def test_errors_are_told_at_the_first_calls_and_at_all(steps: int, marks: tuple[int, ...]):
    assert Stream(steps=steps).marks == marks


def test_a_call_takes_the_next_row_of_each_of_its_clips():
    rows = np.arange(13)
    assert clips.in_order(Stream(steps=3), rows, 1).tolist() == list(range(12))
    assert clips.in_order(Stream(steps=3), rows, 2).tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]


def test_too_few_rows_and_too_large_clips_are_refused():
    with pytest.raises(UsageError, match=r"--stream 5 takes .* 10 in all; the data hold 9 rows"):
        clips.require_rows(Stream(steps=5), 9, 2)
    assert clips.count_clips(Stream(steps=5), 1) == 2
    assert clips.count_clips(Stream(steps=5), 200 << 20) == 1
    with pytest.raises(UsageError, match="give --stream 5 or less"):
        clips.count_clips(Stream(steps=6), 200 << 20)
