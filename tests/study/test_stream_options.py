"""--state and --stream: how they are read, what they are refused with, and what a run gives again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.words import chosen

from shootout.core.errors import UsageError
from shootout.core.study import points
from shootout.core.study.plan import identity
from shootout.core.study.schema import Study, checked
from shootout.tell import option_values, reproduce


def made(**fields: Any) -> Study:
    return checked({"name": "s", "model": "m.onnx", "targets": ("numpy",), **fields}, "a test")


@pytest.mark.parametrize("texts", [["h=hn", "c=cn"], ["h=hn, c=cn"]])
def test_states_are_read(texts: list[str]):
    assert option_values.read_state("--state", texts) == {"h": "hn", "c": "cn"}


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["h"], "'h' is not of the form input=output, such as h=hn"),
        (["h="], "not of the form"),
        (["h=hn", "none"], "not of the form"),
        (["h=hn", "h=cn"], "h is given twice"),
    ],
)
def test_what_is_no_state_is_refused(texts: list[str], says: str):
    with pytest.raises(UsageError, match=says):
        option_values.read_state("--state", texts)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"stream": "0"}, "--stream 0: a clip has one call at least"),
        ({"stream": "-3"}, "--stream -3: a clip has"),
        ({"stream": "ten"}, "--stream takes whole numbers, got 'ten'"),
    ],
)
def test_what_makes_no_clip_is_refused(words: dict[str, str], says: str):
    with pytest.raises(UsageError, match=says):
        chosen("shootout", model="digits", **words)


def test_a_study_file_says_the_same():
    assert made(state={"h": "hn"}, stream=50).stream == 50
    with pytest.raises(UsageError, match="stream is 0"):
        made(stream=0)


def test_what_was_asked_for_is_exported_and_given_again(tmp_path: Path):
    study = made(state={"h": "hn", "c": "cn"}, stream=50)
    (point,) = points.points(study)
    asked = points.request(study, point)
    assert (asked.state, asked.steps) == ({"h": "hn", "c": "cn"}, 50)
    assert study.given == {"state": {"h": "hn", "c": "cn"}, "stream": 50}
    assert reproduce.write_given(study.given) == [("--state", "h=hn,c=cn"), ("--stream", "50")]
    assert made().given == {}


def test_a_stream_is_another_run_and_none_is_the_one_before():
    assert len({identity(made(**fields), [], []) for fields in ({}, {"stream": 50}, {"state": {}})}) == 3
