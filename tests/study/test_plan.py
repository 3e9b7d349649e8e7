"""From a study to groups of arms: order, labels, baseline, control, skips, counts and identity. Nothing is started."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from planning import ALL, group, groups, labels, study

from shootout.core.build.builder import probe_key
from shootout.core.contract import Arm, Device, Precision, Target
from shootout.core.errors import UsageError
from shootout.core.exported.request import Content
from shootout.core.stats.readings import LEAST_TAILS
from shootout.core.study.group import exact_of
from shootout.core.study.plan import _refuse_lossy_original, identity
from shootout.core.study.schema import Study


def test_the_baseline_comes_first_and_its_hidden_copy_last():
    found = group("numpy", "torch-eager")
    assert labels(found) == ["torch-eager:cpu:fp32", "numpy:cpu:fp32", "torch-eager:cpu:fp32#control"]
    assert found.record.baseline == "torch-eager:cpu:fp32"
    assert [arm.control for arm in found.record.arms] == [False, False, True]
    assert all(arm.threads == 3 for arm in found.record.arms)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"openvino": {"NUM_STREAM": "2"}}, "--option openvino.NUM_STREAM=2: unknown option .*'NUM_STREAMS'"),
        ({"openvino:cpu:fp32": {"NUM_STREAM": "2"}}, "--option openvino:cpu:fp32.NUM_STREAM=2: unknown option"),
    ],
)
def test_an_option_that_no_target_of_its_backend_takes_is_refused(options: dict[str, dict[str, str]], says: str):
    with pytest.raises(UsageError, match=says):
        group("numpy", "openvino", options=options)


def test_an_option_that_some_target_takes_is_left_to_each_arm():
    found = group("onnxruntime", "onnxruntime:cuda:fp32", options={"onnxruntime": {"cuda.prefer_nhwc": "1"}})
    assert all(arm.options for arm in found.record.arms)


@pytest.mark.parametrize(
    ("targets", "missing", "baseline", "wanted"),
    [
        (("numpy", "onnxruntime"), (), None, "onnxruntime:cpu:fp32"),  # which loads quickly, in each restart
        (ALL, (), None, "onnxruntime:cpu:fp32"),
        (ALL, ("onnxruntime",), None, "torch-eager:cpu:fp32"),
        (ALL, ("onnxruntime", "torch-eager"), None, "numpy:cpu:fp32"),
        (ALL, (), "numpy", "numpy:cpu:fp32"),
        (ALL, (), "onnxruntime:cpu:fp32", "onnxruntime:cpu:fp32"),
        (("numpy", "numpy"), (), "numpy:cpu:fp32#2", "numpy:cpu:fp32#2"),
        (ALL, ALL, None, None),
        (("ncnn:vulkan:fp32", "numpy"), (), None, "numpy:cpu:fp32"),
        (("ncnn:vulkan:fp32", "numpy"), ("numpy",), None, "ncnn:vulkan:fp32"),
        (("ncnn:vulkan:fp32", "numpy"), (), "ncnn:vulkan", "ncnn:vulkan:fp32"),
    ],
)
def test_who_the_ratios_refer_to(targets: tuple[str, ...], missing: tuple[str, ...], baseline: str | None, wanted: str):
    found = group(*targets, missing=missing, baseline=baseline)
    assert found.record.baseline == wanted
    hidden = [arm.label for arm in found.record.arms if arm.control]
    assert hidden == ([f"{wanted.split('#')[0]}#control"] if wanted else [])


@pytest.mark.parametrize(
    ("baseline", "says"),
    [
        ("numpi", "unknown backend 'numpi': did you mean 'numpy'"),
        ("spin", "unknown baseline 'spin': .*known: numpy:cpu:fp32, onnxruntime"),
        ("numpy:cpu:fp32#2", "unknown baseline 'numpy:cpu:fp32#2': did you mean 'numpy:cpu:fp32'"),
        ("torch-eager", "the baseline 'torch-eager:cpu:fp32' can't run here: it is not installed; pip install it"),
    ],
)
def test_a_baseline_that_cannot_be_is_refused(baseline: str, says: str):
    with pytest.raises(UsageError, match=says):
        group(*ALL, missing=("torch-eager",), baseline=baseline)


def test_of_a_baselines_settings_one_is_taken_that_can_run():
    found = group("numpy", "onnxruntime", scenario=("serve",), instances=(4, 1), baseline="numpy")
    assert found.record.baseline == "numpy:cpu:fp32{instances=1}", "4 instances don't fit on 3 threads"


def test_only_verdicts_that_are_asked_for_are_counted():
    assert group(*ALL, goal="baseline").record.comparisons == 2
    assert group(*ALL, missing=("numpy",)).record.comparisons == 1
    assert group("numpy").record.comparisons == 0
    assert group(*ALL, missing=ALL).record.comparisons == 0


MIXED = ("torch-eager", "numpy", "onnxruntime", "openvino", "openvino:cpu:bf16", "openvino:cpu:int8")


@pytest.mark.parametrize(
    ("targets", "baseline", "count"),
    [
        (("numpy",), None, 0),
        (("numpy", "onnxruntime"), None, 1),  # one pair, whatever it is for
        (ALL, None, 2 + 1),  # the best's other pair, beside that with the baseline
        (MIXED, None, 5 + 4),  # five beside the baseline, and four of the others beside the best
        (MIXED, "openvino:cpu:int8", 5 + 4),  # likewise if the baseline isn't in full precision
    ],
)
def test_the_best_arms_own_pairs_count_once_whichever_arm_it_is(targets: tuple, baseline: str | None, count: int):
    found = group(*targets, baseline=baseline).record
    assert (found.comparisons, found.goal.aim) == (count, "best")
    told = group(*targets, baseline=baseline, goal="resolve 3%").record
    assert (told.comparisons, told.goal.within) == (len(targets) - 1, 0.03)


def test_every_combination_is_a_group_with_a_name_of_its_own():
    found = groups(study(batch=(1, 8), parameters={"d_model": (64, 128), "n_layers": (2,)}))
    assert [one.record.name for one in found] == [
        "residual_mlp (d_model=64, n_layers=2), batch 1",
        "residual_mlp (d_model=64, n_layers=2), batch 8",
        "residual_mlp (n_layers=2), batch 1",
        "residual_mlp (n_layers=2), batch 8",
    ]
    assert [(one.request.parameters["d_model"], one.request.batch) for one in found] == [
        (64, 1), (64, 8), (128, 1), (128, 8),
    ]  # fmt: skip
    assert all(one.record.arms[-1].control for one in found)
    assert all(arm.parameters["activation"] for one in found for arm in one.record.arms), "defaults are filled in"


def test_each_library_may_take_its_own_number_of_threads():
    own, one = groups(study(threads=("default", 1)))
    assert own.record.name == "residual_mlp, batch 1, threads default"
    assert not own.skips, "it needs no number of CPUs"
    assert [{arm.threads for arm in each.record.arms} for each in (own, one)] == [{0}, {1}]


def test_one_cell_that_is_too_big_does_not_cost_a_grid_its_named_baseline():
    small, big = groups(study(parameters={"d_model": (8, 65536)}, baseline="numpy"), memory=10**9)
    assert (small.record.baseline, big.record.baseline, big.playing) == ("numpy:cpu:fp32", None, [])
    assert 0 < small.needs_bytes < 10**9


@pytest.mark.parametrize("fields", [{"batch": (1, 1)}, {"parameters": {"d_model": (64, 64)}}])
def test_the_same_group_twice_is_refused(fields: dict[str, Any]):
    with pytest.raises(UsageError, match="is asked for 2 times: name each value once"):
        groups(study(**fields))


def test_an_option_can_be_for_one_target_of_a_backend_only():
    options = {"openvino:cpu:int8": {"PERFORMANCE_HINT": "THROUGHPUT"}, "openvino": {"NUM_STREAMS": "1"}}
    arms = group("numpy", "openvino", "openvino:cpu:int8", options=options).record.arms
    assert dict(arms[1].options) == {"NUM_STREAMS": "1"}
    assert dict(arms[2].options) == {"NUM_STREAMS": "1", "PERFORMANCE_HINT": "THROUGHPUT"}


def test_a_row_says_whether_it_was_tuned_and_who_quantized_it():
    arms = group(
        "numpy", "openvino", "openvino:cpu:int8", options={"openvino:cpu:int8": {"PERFORMANCE_HINT": "THROUGHPUT"}}
    ).record.arms
    assert [(arm.settings, arm.quantizer) for arm in arms[:3]] == [
        ("closed", "none"),
        ("closed", "none"),
        ("tuned", "vendor"),
    ]


def named(asked: Study, files: tuple[str, ...] = (), missing: tuple[str, ...] = ()) -> str:
    return identity(asked, groups(asked, missing), list(files))


@pytest.mark.parametrize(
    "changed",
    [
        {"model": "digits"},
        {"batch": (2,)},
        {"threads": 1},
        {"parameters": {"d_model": (64,)}},
        {"targets": ("numpy",)},
        {"targets": ("numpy", "torch-eager", "onnxruntime")},
        {"options": {"onnxruntime": {"session.x": "1"}}},
        {"baseline": "numpy"},
        {"max_restarts": 7},
        {"seed": 1},
    ],
)
def test_what_matters_changes_the_identity(changed: dict[str, Any]):
    assert named(study()) == named(study())
    assert named(study(**changed)) != named(study())


def test_so_do_the_users_files_and_what_can_run_but_not_words():
    assert named(study(), files=("a",)) != named(study(), files=("b",))
    assert named(study(), missing=("numpy",)) != named(study())
    assert named(study(description="other words")) == named(study())


def test_each_arm_can_be_compared_with_its_own_fp32_too():
    targets = (
        "torch-eager",
        "torch-eager:cpu:bf16",
        "onnxruntime",
        "openvino",
        "openvino:cpu:bf16",
        "openvino:cpu:int8",
    )
    found = group(*targets, "numpy", against_own_fp32=True, goal="baseline").record
    assert found.references == {
        "torch-eager:cpu:bf16": "torch-eager:cpu:fp32",
        "openvino:cpu:bf16": "openvino:cpu:fp32",
        "openvino:cpu:int8": "openvino:cpu:fp32",
    }
    assert found.comparisons == 6 + 2, "one against the baseline each; torch's bf16 has the same one twice"
    assert group(*targets).record.references == {}


def test_a_scheme_may_name_another_variant_of_the_model():
    found = group("onnxruntime", "onnxruntime:cpu:int8/shared")
    plain, shared = (arm for arm in found.record.arms if not arm.control)
    assert (found.request_of(plain).variant, found.request_of(shared).variant) == ("", "shared")
    assert replace(found.request_of(shared), variant="") == found.request
    assert (plain.quantizer, shared.quantizer) == ("none", "shared")


def test_a_gpu_s_quantized_variant_is_not_the_cpu_s():
    """A CPU without VNNI takes a bit from its own files alone, the grid probe's too; floats are the same for both."""
    found = group("onnxruntime")
    shared = Target(backend="onnxruntime", precision=Precision.INT8, scheme="shared")
    both = (shared, Target(backend="onnxruntime"))
    targets = [replace(one, device=device) for one in both for device in (Device.CPU, Device.CUDA)]
    arms = [Arm(target=target, model="m") for target in targets]
    assert [found.request_of(arm).device for arm in arms] == ["cpu", "cuda", "cpu", "cpu"]
    assert [(probe_key(arm) or ())[-1] for arm in arms] == ["cpu", "cuda", "cpu", "cpu"]


def test_several_models_race_each_by_itself_with_the_parameters_that_they_have():
    found = groups(study("numpy", model=("residual_mlp", "digits"), parameters={"d_model": (64,), "hidden": (8, 16)}))
    assert [one.record.name for one in found] == [
        "residual_mlp (d_model=64), batch 1",
        "digits (hidden=8), batch 1",
        "digits (hidden=16), batch 1",
    ]
    with pytest.raises(UsageError, match="unknown parameter 'widht'"):
        groups(study("numpy", model=("residual_mlp", "digits"), parameters={"widht": (8,)}))


def test_several_files_race_in_one_group_each_arm_beside_its_backends_own_on_the_first():
    asked = study("numpy", "onnxruntime", model=("a.onnx", "sub/b.onnx"), goal="best")
    (found,) = groups(asked)
    assert found.record.name == "a.onnx and b.onnx, batch 1"
    (many,) = groups(study("onnxruntime", model=("a.onnx", "b.onnx", "c.onnx", "d.onnx")))
    assert many.record.name == "a.onnx and 3 other files, batch 1", "it fits on a line"
    assert labels(found) == [
        "onnxruntime:cpu:fp32",
        "numpy:cpu:fp32",
        "numpy:cpu:fp32(b.onnx)",
        "onnxruntime:cpu:fp32(b.onnx)",
        "onnxruntime:cpu:fp32#control",
    ]
    assert found.record.references == {
        "numpy:cpu:fp32(b.onnx)": "numpy:cpu:fp32",
        "onnxruntime:cpu:fp32(b.onnx)": "onnxruntime:cpu:fp32",
    }
    assert exact_of(found.record.arms) >= {"numpy:cpu:fp32", "onnxruntime:cpu:fp32"}
    assert not any("b.onnx" in label for label in exact_of(found.record.arms)), "whatever it holds, it isn't the first"
    first, second = (found.request_of(found.record.arms[index]) for index in (1, 2))
    assert (first.model, first.original) == ("a.onnx", "")
    assert (second.model, second.original) == ("sub/b.onnx", "a.onnx")
    assert {re.split("[({#]", label)[0] for label in labels(found)} == {"onnxruntime:cpu:fp32", "numpy:cpu:fp32"}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"model": ("a.onnx", "sub/a.onnx")}, "give each model file a name of its own"),
        ({"model": ("a.onnx", "b.onnx"), "pythons": {"old": "/usr/bin/python3"}}, "looks at one file"),
    ],
)
def test_files_that_cannot_race_are_refused(fields: dict[str, object], says: str):
    with pytest.raises(UsageError, match=says):
        groups(study("numpy", **fields))


def test_what_is_made_of_the_first_file_is_not_made_of_the_others():
    (found,) = groups(study("onnxruntime:cpu:int8/shared", model=("a.onnx", "b.onnx")))
    assert found.skips["onnxruntime:cpu:int8/shared(b.onnx)"].reason == "shared is made of the first file alone"


def test_a_race_for_close_ratios_has_the_restarts_that_a_p99_takes():
    for goal, least in (("resolve 2%", LEAST_TAILS), ("best", 0), ("baseline", 0)):
        assert group("numpy", goal=goal).record.least_restarts == least


@pytest.mark.parametrize(
    ("first", "other", "is_refused"), [("INT8", "", True), ("INT8", "FP16", False), ("", "INT8", False)]
)
def test_a_lossy_file_is_no_reference_of_a_plain_one(first: str, other: str, is_refused: bool):
    """By its outputs the plain one would be wrong, and nothing would say what the lossy one loses."""
    point: Any = SimpleNamespace(model="quantized.onnx", others=("b.onnx",))
    files = (("quantized.onnx", first), ("b.onnx", other))
    facts = {name: Content(holds=(Precision[one],) if one else ()) for name, one in files}
    with (
        pytest.raises(UsageError, match=r"put b\.onnx first, as in b\.onnx,quantized\.onnx$")
        if is_refused
        else nullcontext()
    ):
        _refuse_lossy_original(point, facts)
