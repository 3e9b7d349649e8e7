"""Axes: ranges, words beside parameters, targets as a product, and grids that nobody could ever measure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.words import chosen

from shootout import studies
from shootout.core.errors import UsageError
from shootout.core.exported.request import find_model
from shootout.core.study import points
from shootout.core.study.schema import Study, checked
from shootout.tell import option_values
from shootout.tell.study_changes import change


def made(**fields: Any) -> Study:
    return checked(
        option_values.read_axes({"name": "s", "model": "residual_mlp", "targets": ("numpy",), **fields}), "a test"
    )


def asked(*sets: str, **words: Any) -> Study:
    return chosen("digits", model="residual_mlp", parameters=list(sets), **words)


def targets(chosen: Study) -> list[str]:
    return [str(target) for target in points.targets_of(chosen)]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1..16 x2", (1, 2, 4, 8, 16)),
        ("16..64 x1.5", (16, 24, 36, 54)),
        ("1..4 x1.2", (1, 2, 3, 4)),
        ("128..512 +128", (128, 256, 384, 512)),
        ("1..10 +4", (1, 5, 9)),
        (" 3 .. 3 +1 ", (3,)),
        ("0.1..0.5 +0.1", (0.1, 0.2, 0.3, 0.4, 0.5)),
        ("0.5..4 x2", (0.5, 1.0, 2.0, 4.0)),
        ("-4..4 +4", (-4, 0, 4)),
        ("../models/mine.onnx", ("../models/mine.onnx",)),
    ],
)
def test_a_range_is_written_out(text: str, values: tuple[object, ...]):
    found = option_values.expand_range(text)
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("5..1 x2", "range '5..1 x2' leads nowhere: up by x above 1, from above 0, or by + above 0"),
        ("0..9 x2", "leads nowhere"),
        ("1..9 +0", "leads nowhere"),
        ("1..9", "range '1..9' is not of the form 1..2048 x2 or 128..3840 +128"),
        ("1..x x2", "is not of the form"),
        ("1..1000000000 +1", "has 1,000,000,000 values; a grid has 100,000 cells at most"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(text: str, says: str):
    with pytest.raises(UsageError, match=re.escape(says)):
        option_values.expand_range(text)
    with pytest.raises(UsageError, match=re.escape(says)):
        asked(f"d_model={text}")


def test_ranges_stand_wherever_an_axis_does(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'model = "residual_mlp"\ntargets = ["numpy"]\nbatch = "1..8 x2"\nthreads = [1, "2..4 +1"]\n'
        '[parameters]\nd_model = [16, "64..256 x2"]\nn_layers = 2\n'
    )
    found = studies.load(str(path))
    assert (found.batch, found.threads) == ((1, 2, 4, 8), (1, 2, 3, 4))
    assert found.parameters == {"d_model": (16, 64, 128, 256), "n_layers": (2,)}
    assert asked("d_model=8,16..64 x2", batch="1,4..6 +1", threads="all").parameters == {"d_model": (8, 16, 32, 64)}
    assert asked(batch="1,4..6 +1", threads="1..2 +1,all").batch == (1, 4, 5, 6)
    assert asked(threads="1..2 +1,all").threads == (1, 2, "all")
    assert asked(threads="default,2").threads == ("default", 2)


def test_words_that_are_no_parameters_are_axes_too():
    found = asked("batch=1,8", "threads=1,all", "scenario=latency,train-step", "d_model=64", "n_layers=2,3")
    assert (found.batch, found.threads, found.scenario) == ((1, 8), (1, "all"), ("latency", "train-step"))
    assert found.parameters == {"d_model": (64,), "n_layers": (2, 3)}
    made_points = points.points(found)
    assert len(made_points) == len({points.group_name(point) for point in made_points}) == 2 * 2 * 2 * 2
    assert points.group_name(made_points[0]) == "residual_mlp (d_model=64, n_layers=2), batch 1, threads 1"
    assert (
        points.group_name(made_points[-1]) == "residual_mlp (d_model=64, n_layers=3), batch 8, threads all, train-step"
    )


def test_backends_devices_and_precisions_make_targets():
    assert targets(asked("backend=numpy,openvino", "precision=fp32,bf16")) == [
        "numpy:cpu:fp32",
        "numpy:cpu:bf16",
        "openvino:cpu:fp32",
        "openvino:cpu:bf16",
    ]
    assert targets(asked("backend=torch-compile+aoti,tensorrt")) == [
        "torch-compile+aoti:cpu:fp32",
        "tensorrt:cuda:fp16",
    ]
    assert targets(asked("backend=onnxruntime", "device=cpu,cuda")) == ["onnxruntime:cpu:fp32", "onnxruntime:cuda:fp32"]


def test_without_backends_they_replace_that_part_of_each_target():
    assert targets(asked("precision=bf16", backends="numpy,openvino,openvino:cpu:int8")) == [
        "numpy:cpu:bf16",
        "openvino:cpu:bf16",
    ]
    assert targets(asked("device=cuda", backends="openvino:cpu:int8,numpy")) == [
        "openvino:cuda:int8",
        "numpy:cuda:fp32",
    ]
    assert targets(asked("precision=fp32,int8", backends="openvino:cpu:int8/minmax")) == [
        "openvino:cpu:fp32",
        "openvino:cpu:int8/minmax",
    ]
    assert targets(made(targets=("numpy", "numpy"))) == ["numpy:cpu:fp32"] * 2, "A/A stays where nothing is replaced"


def test_named_targets_take_the_place_of_axes_and_axes_of_targets():
    first = checked({"name": "s", "model": "digits", "backend": ["numpy"], "precision": ["bf16"]}, "a test")
    assert targets(change(first, {}, {}, targets=("openvino",))) == ["openvino:cpu:fp32"]
    assert targets(change(first, {"backend": ("openvino",)}, {})) == ["openvino:cpu:bf16"]
    assert targets(change(made(), {"backend": ("openvino",)}, {})) == ["openvino:cpu:fp32"]


@pytest.mark.parametrize(
    ("sets", "words", "says"),
    [
        (("bacth=1",), {}, "unknown parameter 'bacth': did you mean 'batch'?"),
        (("device=tpu",), {}, "unknown device 'tpu'"),
        (("scenario=latncy",), {}, "unknown scenario 'latncy': did you mean 'latency'?"),
        (("backend=numpy:cpu",), {}, "backend 'numpy:cpu' must be a name alone"),
        (("batch=1.5",), {}, "batch.0 is 1.5"),
        (("threads=some",), {}, "threads.0"),
        (("batch=1,8,1",), {}, "batch 1 is asked for 2 times: name each value once"),
        (("d_model=64,1..64 x8",), {}, "d_model 64 is asked for 2 times"),
        (("d_model=1", "d_model=2"), {}, "--set d_model is given twice"),
        (("batch=1",), {"batch": "2"}, "batch is given twice, by --set and by an option of its own"),
        (("backend=numpy",), {"backends": "numpy"}, "backend is given twice"),
        ((), {"batch": "0.5..2 x2"}, "--batch takes whole numbers, got 0.5"),
    ],
)
def test_axes_that_make_no_sense_are_refused(sets: tuple[str, ...], words: dict[str, Any], says: str):
    with pytest.raises(UsageError, match=re.escape(says)):
        points.points(asked(*sets, **words))


def test_a_grid_that_nobody_could_measure_is_refused_at_once():
    vast = asked("d_model=1..1000 +1", "n_layers=1..1000 +1", "batch=1..1000 +1", backends="numpy")
    with pytest.raises(UsageError) as caught:  # a list of its cells would take hours, and all memory
        points.points(vast)
    assert str(caught.value).startswith("the grid has 1,000,000,000 cells, 100,000 at most: ")
    for name in ("d_model", "n_layers", "batch"):
        assert f"{name} has 1,000 values" in str(caught.value)


def test_cells_are_counted_with_each_model_s_own_parameters_and_all_targets():
    two = made(model=("residual_mlp", "digits"), parameters={"d_model": tuple(range(1, 301)), "hidden": (8, 16)})
    assert len(points.points(two)) == 302
    many = made(parameters={"d_model": tuple(range(1, 301))}, targets=("numpy",) * 334)
    says = "the grid has 100,200 cells, 100,000 at most: target has 334 values, d_model has 300 values; give fewer"
    with pytest.raises(UsageError, match=says):
        points.points(many)


def test_two_axes_may_stand_in_one_word():
    assert (
        option_values.read_sets("--set", ["a=1,b=2"])
        == option_values.read_sets("--set", ["a=1", "b=2"])
        == {"a": (1,), "b": (2,)}
    )
    assert option_values.read_sets("--set", ["a=1,2,b=x,c=1..4 x2"]) == {"a": (1, 2), "b": ("x",), "c": (1, 2, 4)}
    with pytest.raises(UsageError, match="a is given twice"):
        option_values.read_sets("--set", ["a=1,a=2"])


def test_shapes_are_read_as_other_tools_write_them():
    both = {"x": (1, 3, 320, 320), "in:0": (8,)}
    assert option_values.read_shapes("--shape", ["x=1x3x320x320", "in:0=8"]) == both
    assert option_values.read_shapes("--shape", ["x:1x3x320x320,in:0:8"]) == both, "as trtexec has them"
    assert option_values.read_shapes("--shape", ["1x3"]) == {"": (1, 3)}
    assert option_values.read_shapes("--shape", ["x=Nx3"]) == {"x": (0, 3)}


def test_a_size_of_0_is_refused_as_one():
    with pytest.raises(UsageError, match=r"a size of 0 can't be measured.* give 1 or more"):
        option_values.read_shapes("--shape", ["past=1x0x32"])
    with pytest.raises(UsageError, match=r"past=0: a size of 0 can't be measured.* give 1 or more"):
        find_model("m.onnx").check({"past": 0})


def test_an_axis_that_is_arithmetic_may_be_set():
    given = option_values.read_sets("--set", ["past + 1=33", "batch=1,Max(1, s0 + (s1, 2))=4,2*s=6,8"])
    assert given == {"past + 1": (33,), "batch": (1,), "Max(1, s0 + (s1, 2))": (4,), "2*s": (6, 8)}


@pytest.mark.parametrize("text", ["x=", "=1x3", "x=1,3,320,320", "x=1x-3", "x=03x3", "x=1x3x", "x=axb", "", "x"])
def test_what_is_no_shape_is_refused(text: str):
    with pytest.raises(UsageError, match=r"--shape .* is not of the form x=1x3x320x320"):
        option_values.read_shapes("--shape", [text])


def test_a_studys_shapes_are_text_or_lists_and_go_with_their_model():
    study = made(model="a.onnx", shapes={"x": "1x3x8x8", "y": [1, 4]})
    assert study.shapes == {"x": (1, 3, 8, 8), "y": (1, 4)}
    assert change(study, model="b.onnx").shapes == {}
    assert change(study, batch=2).shapes == study.shapes
    with pytest.raises(UsageError, match=r"shapes\.x is '1by3'"):
        made(model="a.onnx", shapes={"x": "1by3"})
    with pytest.raises(UsageError, match=r"--shape is for an ONNX file; the sizes of residual_mlp are parameters"):
        points.points(made(shapes={"x": "1x3"}))
