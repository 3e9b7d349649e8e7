"""A detector's data set in data.yaml, the heads of YOLO, and the boxes that they mean.

The nets here find squares by construction: each cell of an image is a place, whose score is how red or green it is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from PIL import Image
from support import console
from support.onnx_made import value, write

from shootout.core.contract import Array
from shootout.core.host.store import without_home
from shootout.models.metrics import boxes, find_metric
from shootout.models.readers import boxes as reader
from shootout.models.readers.boxes import Boxes
from shootout.models.readers.yolo_data import label_file, open_data_set
from shootout.models.sources import converted, trees, yolo_pt

SIDE, CELL = 64, 8
PLACES = (SIDE // CELL) ** 2
RED, GREEN, GROUND = (255, 0, 0), (0, 255, 0), (0, 0, 0)
RNG = np.random.default_rng(52)


def detector(path: Path, head: str = "raw", side: int | str = SIDE, **metadata: str) -> Path:
    """A net whose places are the cells of its input: class 0 is red, class 1 is green."""
    filters = np.zeros((2, 3, CELL, CELL), np.float32)
    for class_ in (0, 1):
        filters[class_, class_] = 2 / CELL**2  # 1 if half of a cell has the color
        filters[class_, 1 - class_] = -2 / CELL**2
    at = np.stack(np.meshgrid(*[np.arange(SIDE // CELL)] * 2), axis=0).reshape(2, -1) * CELL + CELL / 2
    places = np.concatenate([at, np.full_like(at, CELL)])[None].astype(np.float32)
    corners = np.concatenate([at - CELL / 2, at + CELL / 2])[None].astype(np.float32)
    weights = {"w": filters, "b": np.array([-0.9, -0.9], np.float32), "to": np.array([1, 2, PLACES])}
    weights |= {"low": np.float32(0), "high": np.float32(1)}
    nodes = [
        helper.make_node("Conv", ["images", "w", "b"], ["maps"], strides=[CELL, CELL]),
        helper.make_node("Reshape", ["maps", "to"], ["flat"]),
        helper.make_node("Clip", ["flat", "low", "high"], ["scores"]),
    ]
    if head == "raw":
        nodes.append(helper.make_node("Concat", ["places", "scores"], ["output0"], axis=1))
        weights["places"], shape = places, (1, 6, PLACES)
    elif head == "objectness":
        nodes.append(helper.make_node("ReduceMax", ["scores"], ["object"], axes=[1], keepdims=1))
        nodes.append(helper.make_node("Concat", ["places", "object", "scores"], ["channels"], axis=1))
        nodes.append(helper.make_node("Transpose", ["channels"], ["output0"], perm=[0, 2, 1]))
        weights["places"], shape = places, (1, PLACES, 7)
    else:
        nodes.append(helper.make_node("ReduceMax", ["scores"], ["best"], axes=[1], keepdims=1))
        nodes.append(helper.make_node("ArgMax", ["scores"], ["number"], axis=1))
        nodes.append(helper.make_node("Cast", ["number"], ["class"], to=onnx.TensorProto.FLOAT))
        nodes.append(helper.make_node("Concat", ["corners", "best", "class"], ["channels"], axis=1))
        nodes.append(helper.make_node("Transpose", ["channels"], ["output0"], perm=[0, 2, 1]))
        weights["corners"], shape = corners, (1, PLACES, 6)
    write(path, nodes, [value("images", (1, 3, side, side))], [value("output0", shape)], weights)
    model = onnx.load(path)
    helper.set_model_props(model, metadata)
    onnx.save(model, path)
    return path


def draw(folder: Path, name: str, cells: dict[tuple[int, int], int], *, told: dict[tuple[int, int], int]) -> None:
    """An image of 128x64, twice what fits the net, with some cells in a class's color, and labels of these cells."""
    image = Image.new("RGB", (128, 64), GROUND)
    for (column, row), class_ in cells.items():
        image.paste((RED, GREEN)[class_], (column * 16, row * 16, column * 16 + 16, row * 16 + 16))
    lines = [f"{class_} {(column + 0.5) / 8} {(row + 0.5) / 4} 0.125 0.25" for (column, row), class_ in told.items()]
    for kind, suffix in (("images", "png"), ("labels", "txt")):
        (folder / kind / "val").mkdir(parents=True, exist_ok=True)
        file = folder / kind / "val" / f"{name}.{suffix}"
        image.save(file) if suffix == "png" else file.write_text("\n".join(lines))


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    """Three images: all found, one of class 1 missed by its label, and none."""
    draw(tmp_path, "a", {(0, 0): 0, (3, 2): 1}, told={(0, 0): 0, (3, 2): 1})
    draw(tmp_path, "b", {(5, 1): 0, (6, 1): 0}, told={(5, 1): 0, (6, 1): 0, (1, 1): 1})
    draw(tmp_path, "c", {}, told={})
    (tmp_path / "data.yaml").write_text("path: .\nval: images/val\nnames: {0: red, 1: green}\n")
    detector(tmp_path / "net.onnx")
    return tmp_path


def score(model: Path, metric: str = "map", data: str = "data.yaml", **given: Any) -> float:
    """What a plain loop over the reader's rows gives."""
    fields = Boxes().read(str(model), {"data": str(model.parent / data), **given})
    rows, truth = np.load(fields["inputs"]), json.loads(Path(fields["truth"]).read_text())
    session = onnxruntime.InferenceSession(model)
    outputs = np.concatenate([session.run(None, {"images": row[None]})[0] for row in rows])
    return of_all(metric, outputs, [np.array(one) for one in truth])


def of_all(metric: str, output: Array, truth: Any) -> float:
    found = find_metric(metric)
    return found.reduce(found.score(output, truth)).value_of(np.ones(len(output), bool))


FOUND_HALF = (1 + 51 / 101) / 2
"""Class 0 is found. Of the two boxes of class 1 one is: COCO's precision is 1 up to a recall of 0.5, and then 0."""


@pytest.mark.parametrize("head", ["raw", "objectness", "end to end"])
def test_a_detector_is_scored_by_the_boxes_that_its_head_means(shapes: Path, head: str):
    assert score(detector(shapes / f"{head}.onnx", head)) == pytest.approx(FOUND_HALF)


def test_an_open_input_gets_the_size_that_the_exporter_wrote(shapes: Path):
    model = detector(shapes / "open.onnx", side="side", imgsz="[64, 64]", task="detect", names="{0: 'red', 1: 'green'}")
    assert score(model) == pytest.approx(FOUND_HALF)
    fields = Boxes().read(str(model), {"data": str(shapes / "data.yaml"), "parameters": {"side": 32}})
    assert np.load(fields["inputs"]).shape == (3, 3, 32, 32), "unless a user sets another"


def test_an_image_is_fitted_and_padded_with_gray_as_it_was_for_training(tmp_path: Path):
    pixels = RNG.integers(0, 256, (4, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    row = np.zeros((3, 4, 4), np.float32)
    true = reader._write_row(row, tmp_path / "x.png", np.array([[1, 0.5, 0.5, 0.5, 1.0]]))
    halved = pixels.reshape(2, 2, 4, 2, 3).mean(axis=(1, 3)).transpose(2, 0, 1) / 255
    assert np.abs(row[:, 1:3] - halved).max() < 1 / 255
    assert (row[:, [0, 3]] == np.float32(114 / 255)).all()
    assert true == [[1, 1, 3, 3, 1, 1]]


def test_labels_are_boxes_or_polygons_each_once(tmp_path: Path):
    draw(tmp_path, "a", {}, told={})
    (tmp_path / "labels" / "val" / "a.txt").write_text("0 .5 .5 .2 .2\n1 .1 .1 .3 .1 .3 .5\n\n0 .5 .5 .2 .2\n")
    (tmp_path / "data.yaml").write_text("val: [list.txt]\nnames: [red, green]")
    (tmp_path / "list.txt").write_text("./images/val/a.png\n")
    data = open_data_set(tmp_path / "data.yaml")
    (labels,) = data.read_labels(data.images)
    np.testing.assert_allclose(labels, [[0, 0.5, 0.5, 0.2, 0.2], [1, 0.2, 0.3, 0.2, 0.4]])
    assert label_file(Path("/images/x/images/1.b.jpg")) == Path("/images/x/labels/1.b.txt")
    assert label_file(Path("/x/1.jpg")) == Path("/x/1.txt")


def test_a_folder_is_found_beside_data_yaml_as_annotation_tools_write_it(shapes: Path):
    (shapes / "data.yaml").write_text("train: ../train/images\nval: ../images/val\nnc: 2\nnames: ['red', 'green']")
    assert len(open_data_set(shapes / "data.yaml").images) == 3


def test_of_too_many_images_some_are_taken_and_a_note_says_it(shapes: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reader, "MOST_BYTES", 2 * 3 * SIDE * SIDE * 4)
    fields = Boxes().read(str(shapes / "net.onnx"), {"data": str(shapes / "data.yaml")})
    assert len(np.load(fields["inputs"])) == 2
    (_, note) = json.loads(Path(fields["inputs"]).with_name("facts.json").read_text())["notes"]
    assert note.startswith("2 of the 3 images of data.yaml are taken")


def suppress_plainly(places: Array, scores: Array) -> set[tuple[float, ...]]:
    """Boxes that stay, by the words of the definition."""
    candidates = sorted(
        ((float(scores[at, c]), at, c) for at, c in np.argwhere(scores > boxes.LEAST_SCORE)), key=lambda one: -one[0]
    )
    kept: list[tuple[float, ...]] = []
    for sure, at, class_ in candidates:
        x, y, w, h = places[at].tolist()
        box = (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
        for a1, b1, a2, b2, _, other in kept:
            common = max(0.0, min(a2, box[2]) - max(a1, box[0])) * max(0.0, min(b2, box[3]) - max(b1, box[1]))
            if other == class_ and common / ((a2 - a1) * (b2 - b1) + w * h - common) > boxes.MOST_OVERLAP:
                break
        else:
            kept.append((*box, sure, float(class_)))
    return set(kept[: boxes.MOST_KEPT])


def test_of_boxes_that_overlap_the_surest_of_a_class_stays(monkeypatch: pytest.MonkeyPatch):
    places = np.column_stack([RNG.uniform(0, 60, (300, 2)), RNG.uniform(20, 30, (300, 2))])
    scores = RNG.uniform(0, 1, (300, 2)) ** 4
    for block, most in ((1000, 300), (50, 300), (50, 20)):
        monkeypatch.setattr(boxes, "BLOCK", block)
        monkeypatch.setattr(boxes, "MOST_KEPT", most)
        found = boxes._suppress(places, scores)
        assert {tuple(one) for one in found.tolist()} == suppress_plainly(places, scores)
        assert (np.diff(found[:, 4]) <= 0).all()


def test_a_head_of_one_class_is_told_from_boxes_by_its_corners():
    rng = np.random.default_rng(0)
    head = np.zeros((2, 40, 6), np.float32)
    head[:, :, :2], head[:, :, 2:4], head[:, 0] = rng.uniform(20, 90, (2, 40, 2)), 10, (50, 50, 20, 20, 0.9, 0.8)
    truth = [np.array([[40, 40, 60, 60, 1, 0.0]])] * 2
    assert of_all("map", head, truth) == pytest.approx(1)
    boxes_there = np.zeros((2, 300, 6), np.float32)
    boxes_there[:, 0] = (40, 40, 60, 60, 0.9, np.nextafter(np.float32(1), np.float32(2)))
    assert of_all("map", boxes_there, [np.array([[40, 40, 60, 60, 1, 1.0]])] * 2) == pytest.approx(1), (
        "class 1, rounded"
    )


def test_without_truth_a_raw_head_is_held_against_the_models_own():
    head = np.zeros((3, 6, 40), np.float32)
    head[:, :4], head[:, 4:, 0] = 10, (0.9, 0.0)
    head[:, :4, 0] = (50, 50, 20, 20)
    assert of_all("map", head + np.float32(0.0005), head) == pytest.approx(1)
    assert of_all("map", np.stack([head[0] * 0, *head[1:]]), head) == pytest.approx(67 / 101, abs=0.01)


def change(text: str, by: str) -> Callable[[Path], object]:
    return lambda at: (at / "data.yaml").write_text((at / "data.yaml").read_text().replace(text, by))


NAMES = "{0: 'red', 1: 'green', 2: 'blue'}"


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda at: (at / "data.yaml").unlink(), "can't read .*data.yaml: No such file"),
        (lambda at: (at / "data.yaml").write_text("a: [1"), "is not YAML"),
        (change("val:", "test:"), "expected `val`, the images to score by, got path, test, names: add a line"),
        (change("names", "classes"), "expected `names`, the classes with their numbers .* got path, val, classes"),
        (change("path", "kpt_shape: [17, 3]\npath"), "has `kpt_shape`, so its labels hold key points"),
        (change("0: red", "2: red"), "numbers from 0 up, got {2: 'red', 1: 'green'}"),
        (lambda at: detector(at / "net.onnx", side="s", imgsz="[99999, 99999]"), "takes images of 99999x99999"),
        (
            change("images/val", "images/v2"),
            "val is 'images/v2', and there is no .*images/v2: correct `val`",
        ),
        (
            lambda at: [one.unlink() for one in at.rglob("*.png")],
            "val is 'images/val', which holds no images",
        ),
        (lambda at: shutil.rmtree(at / "labels"), r"no labels for any of 3 images: looked for .*labels/val/a.txt"),
        (lambda at: (at / "labels/val/a.txt").write_text("0 9 9 30 30"), r"a.txt line 1: expected `class cx cy w h`"),
        (lambda at: (at / "labels/val/a.txt").write_text("x"), r"a.txt line 1: .* got 'x'"),
        (
            lambda at: (at / "labels/val/a.txt").write_text("2 .1 .1 .1 .1"),
            "class 2, and data.yaml names .* 0 to 1",
        ),
        (lambda at: (at / "images/val/b.png").write_text("no"), "b.png can't be read as a picture"),
        (change("green}", "green, 2: blue}"), r"is for 2 classes \(output output0 \[1, 6, 64\]\), and .* names 3"),
        (lambda at: detector(at / "net.onnx", "end to end", names=NAMES), "is for 3 classes .* names 2"),
        (
            lambda at: detector(at / "net.onnx", task="segment"),
            "for the task 'segment': --data data.yaml",
        ),
        (
            lambda at: (detector(at / "net.onnx", "objectness"), change("green}", "green, 2: blue}")(at)),
            r"gives output0 \[1, 64, 7\]: --data data.yaml scores one output, \(1, 4 \+ classes, boxes\)",
        ),
        (lambda at: (at / "net.onnx").write_text("no"), "not an ONNX model"),
        (change("path: ", 'path: "\\0" #'), "`path` or `val` holds a zero byte"),
    ],
)
def test_what_cant_be_scored_is_refused_before_anything_is_exported(
    shapes: Path, spoil: Callable[[Path], object], told: str
):
    spoil(shapes)
    ended = console.here("run", "net.onnx", "--data", "data.yaml", cwd=shapes)
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert re.search(told, ended.err), ended.err


LIBRARY = """
import shutil
class YOLO:
    def __init__(self, path):
        if "broken" in path.name: raise TypeError("no checkpoint\\nof ours")
        self.path = path
    def export(self, format, simplify):
        print("exporting")
        return shutil.copyfile(self.path, self.path.with_suffix("." + format))
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the library, which a user installs: it is under the AGPL. Its `.pt` is an ONNX file."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "ultralytics.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=os.pathsep)


@pytest.mark.usefixtures("library")
def test_a_pt_is_exported_once_and_taken_as_an_onnx_file(shapes: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copyfile(shapes / "net.onnx", shapes / "best.pt")
    ended = console.here("run", "best.pt", "--data", "data.yaml", "--dry-run", cwd=shapes)
    first, images, *_ = ended.out.splitlines()
    assert (ended.code, first) == (0, "best.pt, batch 1"), ended.err
    assert images == "  input images float32[1, 3, 64, 64], from data.yaml at 64x64 (3 files, 3 rows)"
    assert "openvino:cpu:fp32" in ended.out, "its targets are those of an ONNX file, not of trees"
    monkeypatch.setattr(converted, "run", lambda *_: pytest.fail("it is exported again"))
    file = yolo_pt.YoloPt().convert(str(shapes / "best.pt"))
    assert trees.find_typed(file) == without_home(str(shapes / "best.pt"))
    assert trees.open_converted(Path(file)) is None


@pytest.mark.usefixtures("library")
def test_a_pt_that_its_library_cant_export_is_refused(tmp_path: Path):
    (tmp_path / "broken.pt").write_text("weights")
    ended = console.here("run", "broken.pt", cwd=tmp_path)
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert "can't read broken.pt or export it to ONNX: TypeError: no checkpoint | of ours" in ended.err


def test_a_pt_needs_its_library_and_the_refusal_says_what_reading_it_does(tmp_path: Path):
    (tmp_path / "best.pt").write_text("weights")
    ended = console.here("run", "best.pt", cwd=tmp_path)
    assert ended.code == 2
    assert "for a YOLO pip install ultralytics (reading a .pt runs the code in it), else export" in ended.err
