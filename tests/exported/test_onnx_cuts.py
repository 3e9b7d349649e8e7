"""Files whose outputs have as many rows as values make: where they are cut, and that the told command does it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support.console import here
from support.onnx_made import F32, I64, value, write

from shootout.core.errors import ModelError
from shootout.core.exported.request import Content, Request
from shootout.models.onnx.effort import Effort
from shootout.models.onnx.onnx_cuts import find_cut, tell_cut, tell_doubt
from shootout.models.onnx.onnx_files import header
from shootout.models.sources import user_onnx

RNG = np.random.default_rng(0)
BOOL = TensorProto.BOOL
WEIGHTS: dict[str, Any] = {
    "k": RNG.standard_normal((9, 3, 3, 3)).astype(np.float32) / 3,
    "raw": np.array([0, 9, -1]),
    "parts": np.array([4, 5]),
    "most": np.array([9]),
    "iou": np.array([0.5], np.float32),
    "least": np.array([0.6], np.float32),
    "never": np.array([2], np.float32),
    "two": np.array([2]),
    "zero": np.array([0]),
    "one": np.int64(1),
}


def node(op: str, names: str, out: str, **attributes: Any) -> Any:
    return helper.make_node(op, names.split(","), out.split(","), **attributes)


HEADS = [
    node("Conv", "images,k", "c", pads=[1, 1, 1, 1]),
    node("Reshape", "c,raw", "r"),
    node("Split", "r,parts", "b,s", axis=1),
    node("Transpose", "b", "boxes", perm=[0, 2, 1]),
    node("Sigmoid", "s", "scores"),
]
MASK = [*HEADS, node("ReduceMax", "scores", "best", axes=[0, 1], keepdims=0), node("Greater", "best,least", "m")]
NMS = [
    *HEADS,
    node("NonMaxSuppression", "boxes,scores,most,iou,least", "sel"),
    node("Gather", "sel,two", "at", axis=1),
    node("Gather", "boxes,at", "y", axis=1),
]
BODY = helper.make_graph(
    [node("Identity", "go", "goes"), node("Add", "v,v", "v2"), node("Identity", "v2", "each")],
    "body",
    [value("i", (), I64), value("go", (), BOOL), value("v", None)],
    [value("goes", (), BOOL), value("v2", None), value("each", None)],
)
COUNT = [*MASK, node("Cast", "m", "mi", to=I64), node("ReduceSum", "mi", "n", keepdims=0)]
SHARED = [*HEADS, node("Unique", "ids", "y"), node("ReduceMax", "scores", "z", axes=[1])]
CASES = {
    "NonMaxSuppression": (NMS, ("boxes", "scores")),
    "NonZero": ([*MASK, node("NonZero", "m", "y")], ("best",)),
    "Compress": (
        [*MASK, node("Cast", "m", "mb", to=BOOL), node("Compress", "boxes,mb", "y", axis=1)],
        ("boxes", "best"),
    ),
    "Range": ([*COUNT, node("Range", "one,n,one", "y")], ("n",)),
    "Loop": ([*COUNT, node("Loop", "n,,scores", "last,y", body=BODY)], ("n", "scores")),
    "Unique": (SHARED, ("z",)),
}


def detector(path: Path, nodes: list[Any]) -> Path:
    outputs = [value("y", None), *([value("z", None)] if nodes is SHARED else [])]
    inputs = [value("images", ("batch", 3, 8, 8)), *([value("ids", (1, 8), I64)] if nodes is SHARED else [])]
    write(path, nodes, inputs, outputs, WEIGHTS)
    model = onnx.load(path)
    for info in model.graph.output:  # types as exporters write them
        made = {"Range": I64, "NonZero": I64, "Unique": I64}
        info.type.tensor_type.elem_type = made.get(nodes[-1 if nodes is not SHARED else -2].op_type, F32)
    if nodes is SHARED:
        model.graph.output[1].type.tensor_type.elem_type = F32
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("operator", CASES)
def test_the_told_command_cuts_before_what_values_decide(
    operator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    nodes, outputs = CASES[operator]
    path = detector(tmp_path / "it's.onnx", nodes)
    cut = find_cut(header(path))
    assert cut is not None
    assert (cut.inputs, cut.outputs, cut.operators) == (("images",), outputs, (operator,))
    told = tell_cut(path)
    assert f"how much {operator} keeps. Cut the file before that, and measure it's-cut.onnx: python -c " in told
    exec(shlex.split(told.partition("python -c ")[2])[0])
    session = ort.InferenceSession("it's-cut.onnx", providers=["CPUExecutionProvider"])
    images = RNG.standard_normal((2, 1, 3, 8, 8)).astype(np.float32)
    both = [session.run(None, {"images": one}) for one in images]
    assert [one.shape for one in both[0]] == [one.shape for one in both[1]]


SLICES = [
    *[node("Conv", "images,k", "c", pads=[1, 1, 1, 1]), node("Sigmoid", "c", "g"), node("Reshape", "g,raw", "head")],
    *[node("Slice", "head,from0,to4,axis", "b"), node("Slice", "head,from4,to9,axis", "scores")],
]
PARTS = {"from0": [0], "to4": [4], "from4": [4], "to9": [9], "axis": [1], "half": 0.5}
TURNED = [*SLICES, node("Transpose", "b", "boxes", perm=[0, 2, 1]), node("Transpose", "head", "o", perm=[0, 2, 1])]
SELECTED = [node("NonMaxSuppression", "boxes,scores,most,iou,least", "sel"), node("Gather", "sel,two", "at", axis=1)]
CORNERS = [
    *SLICES,
    *[node("Transpose", "b", "turned", perm=[0, 2, 1]), node("Split", "turned", "xy,wh", axis=2)],
    *[node("Mul", "wh,half", "h"), node("Sub", "xy,h", "low"), node("Add", "xy,h", "high")],
    node("Concat", "low,high", "boxes", axis=2),
]
BEST = [*SLICES, node("ReduceMax", "scores", "best", axes=[1], keepdims=0), node("Greater", "best,least", "m")]


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([*TURNED, *SELECTED, node("Gather", "o,at", "y", axis=1)], ("head",)),
        ([*CORNERS, *SELECTED, node("Gather", "boxes,at", "y", axis=1)], ("head",)),
        ([*BEST, node("Compress", "head,m", "y", axis=2)], ("head",)),
        ([*CORNERS, node("Sigmoid", "scores", "s"), node("Compress", "boxes,s", "y", axis=1)], ("boxes", "s")),
    ],
    ids=["the same three times", "corners of boxes", "a mask", "scores made of a part"],
)
def test_a_raw_head_is_cut_off_whole(tmp_path: Path, nodes: list[Any], outputs: tuple[str, ...]):
    """All that is read behind it are parts of it, so it is one output, as a metric of raw heads takes it."""
    dtypes = {"half": np.float32}
    weights = WEIGHTS | {name: np.array(one, dtypes.get(name, np.int64)) for name, one in PARTS.items()}
    path = write(tmp_path / "m.onnx", nodes, [value("images", ("batch", 3, 8, 8))], [value("y", None)], weights)
    cut = find_cut(header(path))
    assert cut is not None
    assert cut.outputs == outputs


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        (NMS, "may depend on the input values, and then nothing can be measured. The values decide how much NonMaxSup"),
        (CASES["NonZero"][0], "how much NonZero keeps. Cut the file before that, and measure m-cut.onnx: python -c "),
        (HEADS[:3], ""),
        ([*HEADS[:3], node("NonZero", "r", "z"), node("ScatterND", "r,z,c", "y")], ""),
    ],
    ids=["NMS", "NonZero", "none", "in a place of its own"],
)
def test_a_dry_run_tells_of_a_shape_that_values_decide(tmp_path: Path, nodes: list[Any], told: str):
    path = detector(tmp_path / "m.onnx", nodes)
    assert told in (doubt := tell_doubt(path))
    assert bool(told) is bool(doubt)


def test_a_dry_run_refuses_what_the_run_would_and_leads_on(tmp_path: Path):
    detector(tmp_path / "m.onnx", NMS)
    options = ["--inputs", "x.npz", "--dry-run", "--backends", "onnxruntime"]
    images = np.random.default_rng(1).random((9, 3, 8, 8), np.float32)
    np.savez(tmp_path / "x.npz", images=images)
    done = here("run", "m.onnx", *options, cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "m.onnx: the shape of output 'y' depends on the input values" in done.err
    cut, _, then = done.err.strip().partition("python -c ")[2].partition("; then: ")
    assert then == f"shootout run m-cut.onnx {' '.join(options)}"
    cwd, _ = Path.cwd(), os.chdir(tmp_path)
    exec(shlex.split(cut)[0])
    os.chdir(cwd)
    assert here(*shlex.split(then)[1:], cwd=tmp_path).code == 0
    np.savez(tmp_path / "x.npz", images=np.repeat(images[:1], 9, axis=0))
    same = here("run", "m.onnx", *options, cwd=tmp_path)
    assert same.code == 0, "three calls show nothing, so it stays a note"
    assert "may depend on the input values" in same.out


def test_a_selector_inside_a_function_is_found(tmp_path: Path):
    nodes = [node("Compress", "a,m", "b", axis=0)]
    pick = helper.make_function("own", "Pick", ["a", "m"], ["b"], nodes, [helper.make_opsetid("", 17)])
    made = [node("Greater", "x,least", "m"), helper.make_node("Pick", ["x", "m"], ["y"], domain="own")]
    path = write(tmp_path / "m.onnx", [node("Relu", "i", "x"), *made], [value("i", (8,))], [value("y", None)], WEIGHTS)
    model = onnx.load(path)
    model.functions.append(pick)
    model.opset_import.append(helper.make_opsetid("own", 1))
    cut = find_cut(model)
    assert cut is not None
    assert (cut.outputs, cut.operators) == (("x",), ("Compress",))


def prepare(path: Path, folder: Path) -> None:
    asked = Request(model=str(path), content=Content(file=str(path)), folder=folder)
    user_onnx.FileExport(asked, Effort()).prepare()


def test_an_export_names_the_output_and_the_cut(tmp_path: Path):
    (tmp_path / "out").mkdir()
    path = detector(tmp_path / "m.onnx", NMS)
    says = r"m\.onnx: the shape of output 'y' depends on the input values: .* to .*\. .* NonMaxSuppression .*python -c"
    with pytest.raises(ModelError, match=says):
        prepare(path, tmp_path / "out")
    never = detector(tmp_path / "n.onnx", [*HEADS, node("NonMaxSuppression", "boxes,scores,most,iou,never", "y")])
    model = onnx.load(never)
    model.graph.output[0].type.tensor_type.elem_type = I64
    onnx.save(model, never)
    with pytest.raises(ModelError, match=r"n\.onnx: output 'y' has no rows.* --inputs data\.npz\. .* python -c"):
        prepare(never, tmp_path / "out")


def test_a_file_with_fixed_shapes_has_no_cut(tmp_path: Path):
    path = write(tmp_path / "m.onnx", HEADS, [value("images", (1, 3, 8, 8))], [value("scores", None)], WEIGHTS)
    assert find_cut(header(path)) is None
    selector = [node("NonZero", "images", "y")]
    alone = write(tmp_path / "n.onnx", selector, [value("images", (1, 3, 8, 8))], [value("y", None, I64)])
    assert tell_cut(alone) == "", "nothing stands before it"
