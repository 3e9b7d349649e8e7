"""Targets as people write them: what each short form means, and what a wrong one is answered."""

from __future__ import annotations

import pytest

from shootout.core.contract import Artifact, Capabilities, Device, Precision, Target
from shootout.core.errors import UsageError, unknown
from shootout.core.study.points import describe
from shootout.core.study.target import parse_targets
from shootout.tell.run_folder import find_named

BOTH = Capabilities(
    consumes=(Artifact.ONNX,),
    targets=frozenset(
        {(Device.CPU, Precision.FP32), (Device.CPU, Precision.INT8), (Device.CUDA, Precision.FP16)},
    ),
    modes=frozenset({"", "aoti"}),
    schemes={Precision.INT8: frozenset({"per-tensor", "shared", "nncf"})},
)


def describe_one(backend: str) -> tuple[Capabilities, Target]:
    if backend != "acme":
        raise unknown("backend", backend, ["acme"])
    return BOTH, Target(backend="acme", device=Device.CUDA, precision=Precision.FP16)


def texts(text: str) -> list[str]:
    return [str(target) for target in parse_targets(text, describe_one)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("acme", ["acme:cuda:fp16"]),
        ("acme:cpu:int8", ["acme:cpu:int8"]),
        ("acme+aoti:cpu:fp32", ["acme+aoti:cpu:fp32"]),
        ("acme:cpu:*", ["acme:cpu:fp32", "acme:cpu:int8"]),
        ("acme:*:*", ["acme:cpu:fp32", "acme:cpu:int8", "acme:cuda:fp16"]),
        ("acme:*:fp16", ["acme:cuda:fp16"]),
        ("acme:gpu:fp16", ["acme:cuda:fp16"]),
        ("acme:cpu:int8/per-tensor+entropy+samples-8", ["acme:cpu:int8/per-tensor+entropy+samples-8"]),
        ("acme:cuda:int8", ["acme:cuda:int8"]),  # it has none there: a row that says so
    ],
)
def test_what_a_text_means(text: str, wanted: list[str]):
    assert texts(text) == wanted


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "target '' is not of the form"),
        ("acme:cpu:fp32:more", "is not of the form"),
        ("acm:cpu:fp32", "unknown backend 'acm': did you mean 'acme'"),
        ("acme:cpux:fp32", r"unknown device 'cpux': did you mean 'cpu'\? known: cpu, cuda"),
        ("acme:cpu:fp23", "unknown precision 'fp23': did you mean 'fp32'"),
        ("acme+aotj:cpu:fp32", r"unknown mode 'aotj': did you mean 'aoti'\? .*\(in target 'acme\+aotj:cpu:fp32'\)"),
        ("acme:cpu:int8/nnfc", "unknown scheme 'nnfc': did you mean 'nncf'"),
        ("acme:cpu:int8/minmax+entropy", "'minmax' and 'entropy' exclude each other"),
        ("acme:cpu:int8@old", r"the interpreter follows the backend; write acme@old:cpu:int8$"),
        ("acme@old+aoti:cpu:fp32", r"write acme\+aoti@old:cpu:fp32$"),
        ("int8@old", "lacks a backend; write its name first: NAME@old:cpu:int8$"),
        ("int8", "lacks a backend; write its name first: NAME:cpu:int8$"),
        ("acme:int8/nncf", "lacks a device; write acme:cpu:int8/nncf$"),
        ("acme:*:bf16", r"acme can't run 'acme:\*:bf16': it offers cpu:fp32, cpu:int8, cuda:fp16"),
    ],
)
def test_a_wrong_text_is_answered_with_what_is_known(text: str, says: str):
    with pytest.raises(UsageError, match=says):
        texts(text)


@pytest.mark.parametrize("backend", ["numpy", "torch-eager", "onnxruntime"])
def test_a_bare_shipped_backend_means_fp32_on_the_cpu(backend: str):
    assert [str(target) for target in parse_targets(backend, describe)] == [f"{backend}:cpu:fp32"]


def test_a_whole_group_name_stands_for_its_group_alone_and_its_beginning_for_several():
    names = ["net, batch 1", "net, batch 1, train-step", "net, batch 16"]
    assert find_named(names, "net, batch 1") == {"net, batch 1"}
    assert find_named(names, "net") == {*names}
    assert find_named(names, "other") == set()
