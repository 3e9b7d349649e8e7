"""Sizes that vary, as a study: one group of all sizes, what each target is exported for, and what makes no sense."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from study.planning import group, study

from shootout.core.errors import UsageError
from shootout.core.study.group import own_fp32

MIX = "tokens=40:50,64:30,100:20"


def varying(*targets: str, mix: str = MIX, model: str = "bert", **fields: Any) -> Any:
    return group(*targets, model=model, mix=mix, **fields)


def test_all_sizes_are_one_group_in_a_drawn_order():
    found = varying("onnxruntime")
    assert found.arrivals
    assert Counter(found.arrivals.sizes) == {40: 25, 64: 15, 100: 10}
    assert found.record.name == "bert (tokens=40 to 100), batch 1, varying"
    assert found.request.parameters["tokens"] == 100
    assert found.request.state == {}, "none is handed from one size to the next"
    assert found.request.sweep == {"tokens": (40, 100)}
    asked = found.requests_of(found.record.arms[0])
    assert {size: one.parameters["tokens"] for size, one in asked.items()} == {40: 40, 64: 64, 100: 100}
    again = varying("onnxruntime")
    assert again.arrivals == found.arrivals
    assert varying("onnxruntime", seed=1).arrivals != found.arrivals


def test_what_pads_is_exported_for_its_buckets_too():
    found = varying("onnxruntime", "onnxruntime:cpu:fp32/bucket-32", "onnxruntime:cpu:fp32/dynamic")
    arms = static, padded, opened = tuple(arm for arm in found.record.arms if not arm.control)
    assert [own_fp32(arms, arm) for arm in arms] == [None] * 3, "each is the model in full precision"
    assert [*found.requests_of(padded)] == [40, 64, 100, 128]
    assert [*found.requests_of(static)] == [*found.requests_of(opened)] == [40, 64, 100]
    assert found.request.sweep == {"tokens": (40, 128)}
    assert not found.skips


def test_a_bucket_that_the_model_cannot_have_is_skipped_with_what_divides():
    found = varying("onnxruntime", "onnxruntime:cpu:fp32/bucket-48", model="bert", mix="tokens=40:50,500:20")
    (why,) = found.skips.values()
    assert why.reason == "bucket-48 pads tokens=500 to 528, and tokens must be a whole number from 1 to 512, got 528"
    assert why.fix == "a bucket that divides 500"


@pytest.mark.parametrize(
    ("target", "reason", "fix"),
    [
        ("numpy:cpu:fp32/dynamic", "numpy takes no open shapes here in fp32", "use numpy:cpu:fp32, a session for each"),
        (
            "onnxruntime:cpu:int8-dynamic/dynamic",
            "onnxruntime takes no open shapes here in int8-dynamic",
            "use onnxruntime:cpu:int8-dynamic",
        ),
    ],
)
def test_what_takes_no_open_shapes_is_skipped_with_what_does(target: str, reason: str, fix: str):
    found = varying("onnxruntime", target)
    (why,) = found.skips.values()
    assert why.reason == reason
    assert why.fix.startswith(fix)


@pytest.mark.parametrize("word", ["dynamic", "bucket-32"])
def test_one_size_leaves_nothing_open(word: str):
    found = group("onnxruntime", f"onnxruntime:cpu:fp32/{word}", model="bert")
    (why,) = found.skips.values()
    assert why.reason == f"{word} is for inputs of several sizes, and this race has one"
    assert why.fix == "add a mix, such as --mix sequence=16:50,64:30"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, r"scenario varying calls with many sizes: say which, with a mix \(--mix sequence=16:50,64:30,256:20\)"),
        ({"mix": MIX, "stream": 10}, r"stream \(--stream\) is for one size at a time"),
        ({"mix": MIX, "state": {"h": "hn"}}, r"state \(--state\) is for one size at a time"),
        ({"mix": MIX, "inputs": "x.npz"}, r"inputs \(--inputs\) is for one size .* one size with --set tokens=100"),
    ],
)
def test_what_cannot_vary_is_refused(fields: dict[str, Any], told: str):
    with pytest.raises(UsageError, match=told):
        study("onnxruntime", model="bert", scenario="varying", **fields)


def test_an_axis_that_the_model_does_not_have_is_refused():
    with pytest.raises(UsageError, match="unknown axis in --mix 'token': did you mean 'tokens'"):
        varying("onnxruntime", mix="token=40:50,64:30")
