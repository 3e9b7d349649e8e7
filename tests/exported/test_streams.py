"""Streams: which inputs are states, what a call hands on, and which rows are whose clip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shootout.core.contract import Arrays, TensorSpec
from shootout.core.errors import UsageError
from shootout.core.exported.calls import Stream
from shootout.core.exported.request import Request
from shootout.models.data import data_files
from shootout.models.sources import user_data


def spec(name: str, shape: tuple[int, ...] = (1, 4), dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name=name, shape=shape, dtype=dtype)


def forms(*names: str, shape: tuple[int, ...] | None = (1, 4), dtype: str = "float32") -> dict[str, Any]:
    return dict.fromkeys(names, (dtype, shape))


def test_a_stream_is_what_is_asked_for():
    inputs, outputs = [spec("x"), spec("h")], forms("y", "hn")

    def asked(state: dict[str, str] | None, steps: int = 0, **more: Any) -> Any:
        return user_data.stream_of(Request(model="m.onnx", state=state, steps=steps, **more), inputs, outputs)

    assert asked(None) is None, "names tell nothing"
    assert asked({"h": "hn"}) == Stream(steps=100, state={"h": "hn"})
    assert asked({"h": "hn"}, 7) == Stream(steps=7, state={"h": "hn"})
    assert asked(None, 7) == Stream(steps=7), "clips alone"
    with pytest.raises(UsageError, match="--state needs --stream N"):
        asked({"h": "hn"}, inputs_npz=Path("x.npz"))


def count(inputs: Arrays) -> dict[str, Any]:
    return {"y": inputs["x"] + inputs["h"], "hn": np.asarray(inputs["h"] + inputs["x"], np.float32)}


CLIPS = [{"x": np.float16([one]), "h": np.float16([10])} for one in (1, 2, 3, 4, 5)]


def test_states_are_handed_on_and_begin_anew_with_each_clip():
    stream = Stream(steps=3, state={"h": "hn"})
    outputs = list(map(stream.carry(count), CLIPS))
    assert [float(one["hn"][0]) for one in outputs] == [11, 13, 16, 14, 19]
    assert {one["y"].dtype.name for one in outputs} == {"float16"}, "an input's own type, whatever a session returns"
    filled = data_files.fill_states(stream, CLIPS, outputs)
    assert [float(one["h"][0]) for one in filled] == [10, 11, 13, 10, 14]
    assert [float(count(one)["hn"][0]) for one in filled] == [11, 13, 16, 14, 19], "each set is right by itself"
    assert float(CLIPS[1]["h"][0]) == 10


@pytest.mark.parametrize(
    ("steps", "marks"), [(1, (1,)), (2, (1, 2)), (10, (1, 10)), (11, (1, 10, 11)), (100, (1, 10, 100))]
)
def test_errors_are_told_at_the_first_calls_and_at_all(steps: int, marks: tuple[int, ...]):
    assert Stream(steps=steps).marks == marks


def test_a_call_takes_the_next_row_of_each_of_its_clips():
    rows = np.arange(13)
    assert data_files.order_clips(Stream(steps=3), rows, 1).tolist() == list(range(12))
    assert data_files.order_clips(Stream(steps=3), rows, 2).tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
