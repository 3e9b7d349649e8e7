"""Images by class as a model's rows: the same numbers as a plain loop, or one sentence why not."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from shootout.commands import selection
from shootout.core.errors import UsageError
from shootout.models.data.data_files import read_facts
from shootout.models.data.pictures import open_picture
from shootout.models.readers import images
from shootout.models.readers.preparation import ImageInput, find_preparation

COLORS = {"red": (200, 30, 40), "green": (40, 190, 30), "blue": (20, 60, 210)}
MEAN, STD = (np.array(one, np.float32) for one in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def save_net(
    path: Path, shape: list[Any], classes: int = 3, kind: int = TensorProto.FLOAT, first: Any = (), **told: str
) -> Path:
    """A net that adds each channel up, after `first`: (operator, constant) for each node in front of it."""
    nodes, constants, name = [], [], "image"
    if kind != TensorProto.FLOAT:
        nodes.append(helper.make_node("Cast", [name], [name := "cast"], to=TensorProto.FLOAT))
    for at, (operator, value) in enumerate(first):
        constants.append(numpy_helper.from_array(np.array(value, np.float32), f"c{at}"))
        nodes.append(helper.make_node(operator, [name, f"c{at}"], [name := f"v{at}"]))
    axes = [2, 3] if shape[1] in (1, 3) else [1, 2]
    channels = shape[1] if shape[1] in (1, 3) else shape[3]
    weights = np.resize(np.eye(classes, dtype=np.float32), (classes, channels)).T
    constants += [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.array(axes), "axes")]
    nodes.append(helper.make_node("ReduceMean", [name, "axes"], ["mean"], keepdims=0))
    nodes.append(helper.make_node("MatMul", ["mean", "w"], ["scores"]))
    given = helper.make_tensor_value_info("image", kind, shape)
    made = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [shape[0], classes])
    graph = helper.make_graph(nodes, "net", [given], [made], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, told)
    onnx.save(model, path)
    return path


def draw(folder: Path, names: tuple[str, ...] = ("blue", "green", "red"), count: int = 4) -> Path:
    """Pictures of several sizes, in each class's color with some of another's."""
    rng = np.random.default_rng(0)
    for name in names:
        (folder / name).mkdir(parents=True)
        for at in range(count):
            height, width = rng.integers(20, 60, 2)
            pixels = rng.integers(0, 90, (height, width, 3)) + np.array(COLORS.get(name, (9, 9, 9))) * rng.random()
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / name / f"{at}.png")
    return folder


def read(net: Path, folder: Path, **given: Any) -> tuple[np.ndarray, list[int], tuple[str, ...]]:
    found = images.Images().read(str(net), {"images": str(folder), **given})
    facts = read_facts(Path(found["inputs"]))
    assert facts
    labels = np.load(found["labels"]).tolist() if "labels" in found and "labels" not in given else []
    return np.load(found["inputs"]), labels, facts.notes


def test_rows_and_accuracy_are_those_of_a_plain_loop(tmp_path: Path):
    net, folder = save_net(tmp_path / "net.onnx", ["batch", 3, 24, 24]), draw(tmp_path / "val")
    study = selection.choose(str(net), {"images": str(folder)})
    rows, labels = np.load(str(study.inputs)), np.load(str(study.labels))
    session, plain, right = onnxruntime.InferenceSession(net), [], []
    for path in sorted(folder.rglob("*.png")):
        picture = Image.open(path).convert("RGB")
        short = min(picture.size)
        picture = picture.resize([27 * side // short for side in picture.size], Image.Resampling.BILINEAR)
        left, top = (picture.width - 24) // 2, (picture.height - 24) // 2
        pixels = np.asarray(picture.crop((left, top, left + 24, top + 24)), np.float32) / 255
        plain.append(((pixels - MEAN) / STD).transpose(2, 0, 1))
        right.append(["blue", "green", "red"].index(path.parent.name))
    assert np.array_equal(rows, np.stack(plain))
    assert labels.tolist() == right
    assert Path(str(study.inputs)).name == "val.npy", "as the answer calls them"
    assert session.run(None, {"image": rows})[0].shape == (12, 3)
    assert study.max_drop is None
    assert study.metric is None, "labels mean accuracy"
    assert selection.choose(str(net), {"images": str(folder)}).inputs == study.inputs, "read once"


@pytest.mark.parametrize(
    ("shape", "kind", "first", "told", "row"),
    [
        (["n", 12, 10, 1], TensorProto.FLOAT, (), "divided by 255", lambda gray, _: gray[..., None] / np.float32(255)),
        (["n", 3, 12, 10], TensorProto.UINT8, (), "pixels from 0 to 255", lambda _, rgb: rgb.transpose(2, 0, 1)),
        (
            [1, 12, 10, 3],
            TensorProto.FLOAT,
            [("Div", 255), ("Sub", MEAN)],
            "itself.*pixels from 0 to",
            lambda _, rgb: rgb,
        ),
        ([1, 12, 10, 3], TensorProto.FLOAT, [("Sub", MEAN)], "itself.*by 255$", lambda _, rgb: rgb / np.float32(255)),
        ([1, 12, 10, 3], TensorProto.FLOAT, [("Mul", 1 / 127.5)], "itself.*0 to 255$", lambda _, rgb: rgb),
    ],
)
def test_the_graph_tells_layout_and_range(tmp_path: Path, shape: list[Any], kind: int, first: Any, told: str, row: Any):
    net, folder = save_net(tmp_path / "net.onnx", shape, kind=kind, first=first), draw(tmp_path / "val", count=2)
    for path in folder.rglob("*.png"):
        Image.open(path).resize((10, 12)).save(path)
    rows, _, notes = read(net, folder)
    picture = Image.open(folder / "blue" / "0.png")
    expected = row(np.asarray(picture.convert("L")), np.asarray(picture))
    assert rows.dtype == (np.uint8 if kind == TensorProto.UINT8 else np.float32)
    assert np.array_equal(rows[0], expected)
    assert re.search(told, notes[0])


def test_every_kind_of_picture_is_opened_upright_in_8_bits(tmp_path: Path):
    ramp = np.arange(0, 240, 10, dtype=np.uint8).reshape(4, 6)
    color = Image.fromarray(np.stack([ramp, ramp // 2, ramp // 3], -1))
    saved = {
        "deep.png": Image.fromarray(ramp.astype(np.uint16) * 257),
        "palette.png": color.quantize(256),
        "clear.png": Image.fromarray(np.dstack([np.asarray(color), ramp])),
        "print.tif": color.convert("CMYK"),
        "gray.bmp": Image.fromarray(ramp),
    }
    for name, picture in saved.items():
        picture.save(tmp_path / name)
        opened = np.asarray(open_picture(tmp_path / name)).astype(int)
        expected = np.stack([ramp] * 3, -1) if name in ("deep.png", "gray.bmp") else np.asarray(color)
        assert opened.shape == (4, 6, 3)
        assert np.abs(opened - expected).max() <= 2, name
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    color.save(tmp_path / "turned.png", exif=exif)
    assert np.array_equal(np.asarray(open_picture(tmp_path / "turned.png")), np.rot90(np.asarray(color), -1))
    assert np.asarray(open_picture(tmp_path / "deep.png", is_gray=True)).tolist() == ramp.tolist()


VIT = {"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2}
RESNET = {
    "size": {"shortest_edge": 32},
    "crop_pct": 0.8,
    "image_mean": [0.4] * 3,
    "image_std": [0.2] * 3,
    "resample": 3,
}
CLIP = {"size": 40, "do_center_crop": True, "crop_size": 32, "do_normalize": False, "resample": 3}
TIMM = {"pretrained_cfg": {"input_size": [3, 32, 32], "crop_pct": 0.8, "mean": [0.5] * 3, "std": [0.5] * 3}}


@pytest.mark.parametrize(
    ("file", "settings", "told"),
    [
        ("preprocessor_config.json", VIT, "resized to 32x32, pixels divided by 255, mean 0.5, std 0.5"),
        (
            "preprocessor_config.json",
            RESNET,
            "shorter side to 40, center 32x32, pixels divided by 255, mean 0.4, std 0.2",
        ),
        ("preprocessor_config.json", CLIP, "shorter side to 40, center 32x32, pixels divided by 255"),
        ("config.json", TIMM, "as config.json of timm says: shorter side to 40, center 32x32, .*mean 0.5, std 0.5"),
    ],
)
def test_files_beside_the_model_decide(tmp_path: Path, file: str, settings: dict[str, Any], told: str):
    (tmp_path / file).write_text(json.dumps(settings))
    (tmp_path / "onnx").mkdir()
    net = save_net(tmp_path / "onnx" / "model.onnx", ["batch", 3, "height", "width"])
    rows, _, notes = read(net, draw(tmp_path / "val", count=1))
    assert rows.shape == (3, 3, 32, 32), "the size of an open input, too"
    assert re.search(f"{told}$", notes[0])
    rows, _, notes = read(save_net(tmp_path / "onnx" / "model.onnx", ["batch", 3, 64, 64]), tmp_path / "val")
    assert rows.shape == (3, 3, 64, 64)
    assert "shorter side to 80" in notes[0] or "resized to 64x64" in notes[0], "in proportion"


@pytest.mark.long
@pytest.mark.parametrize("kind", ["ViT", "ConvNext", "CLIP", "EfficientNet", "Levit", "MobileViT", "DeiT"])
def test_rows_are_those_of_transformers_image_processors(tmp_path: Path, kind: str):
    transformers = pytest.importorskip("transformers")
    processor = getattr(transformers, f"{kind}ImageProcessorPil")()
    processor.save_pretrained(tmp_path)
    path = next(draw(tmp_path / "val", count=1).rglob("*.png"))
    expected = processor(Image.open(path), return_tensors="np")["pixel_values"][0]
    sides = (expected.shape[1], expected.shape[2])
    taken = ImageInput(name="x", size=sides, channels=3, is_channels_first=True, dtype="float32")
    how = find_preparation([tmp_path], taken, None).to_size(sides)
    assert np.array_equal(how.prepare(path, taken), expected)


@pytest.mark.parametrize(
    ("names", "config", "labels"),
    [
        (("00", "2", "11"), {}, {"00": 0, "2": 2, "11": 11}),
        (
            ("Great_White-shark", "tench", "goldfish"),
            {"id2label": {"0": "tench, Tinca tinca", "1": "goldfish", "2": "great white shark"}},
            {"Great_White-shark": 2, "goldfish": 1, "tench": 0},
        ),
        (("b", "a", "c"), {"label_names": ["c", "b", "a"]}, {"a": 2, "b": 1, "c": 0}),
        (
            ("cardigan", "corgi", "c"),
            {"id2label": {"0": "Cardigan, Cardigan corgi, corgi", "1": "cardigan", "2": "c"}},
            {"c": 2, "cardigan": 1, "corgi": 0},
        ),
        (("n02", "n01", "n03"), {"id2label": {"0": "x", "1": "y", "2": "z"}}, {"n01": 0, "n02": 1, "n03": 2}),
    ],
)
def test_folders_are_classes(tmp_path: Path, names: tuple[str, ...], config: dict[str, Any], labels: dict[str, int]):
    (tmp_path / "config.json").write_text(json.dumps(config))
    net = save_net(tmp_path / "net.onnx", ["n", 3, 8, 8], classes=12 if "11" in names else 3)
    folder = draw(tmp_path / "val", names, count=1)
    (folder / ".cache").mkdir()
    assert dict(zip(sorted(names), read(net, folder)[1], strict=True)) == labels


@pytest.mark.parametrize(
    "told", [{"task": "classify", "names": "{0: 'red', 1: 'blue', 2: 'green'}"}, {"character": "red\nblue\ngreen"}]
)
def test_an_onnx_file_may_tell_its_classes_and_that_ultralytics_wrote_it(tmp_path: Path, told: dict[str, str]):
    _, labels, notes = read(save_net(tmp_path / "net.onnx", ["n", 3, 8, 8], **told), draw(tmp_path / "val", count=1))
    assert labels == [1, 2, 0]
    assert ("as ultralytics does: shorter side to 8, center 8x8, pixels divided by 255" in notes[0]) is ("task" in told)


def test_images_without_classes_and_labels_of_their_own(tmp_path: Path):
    net, folder = save_net(tmp_path / "net.onnx", ["n", 3, 8, 8]), draw(tmp_path / "val") / "red"
    found = images.Images().read(str(net), {"images": str(folder)})
    assert found["metric"] == "accuracy", "the class that FP32 picks"
    assert "labels" not in found
    np.save(tmp_path / "y.npy", [2, 1, 2, 0])
    found = images.Images().read(str(net), {"images": str(folder), "labels": str(tmp_path / "y.npy")})
    assert np.load(found["labels"]).tolist() == [2, 1, 2, 0]


def test_many_images_are_taken_evenly_over_the_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    net, folder = save_net(tmp_path / "net.onnx", ["n", 3, 8, 8]), draw(tmp_path / "val", count=9)
    for path in [*(folder / "red").iterdir()][1:]:
        path.unlink()
    monkeypatch.setattr(images, "MOST_BYTES", 9 * 3 * 8 * 8 * 4 + 1)
    monkeypatch.setattr(images, "ENOUGH_ROWS", 9)
    rows, labels, notes = read(net, folder)
    assert len(rows) == 9
    assert sorted(labels) == [0] * 4 + [1] * 4 + [2]
    assert "9 of the 19 images are taken, evenly over 3 classes, since all would take 14.6 kB of memory" in notes


def test_a_config_of_transformers_tells_its_input(tmp_path: Path):
    config = {"model_type": "resnet", "num_channels": 3, "id2label": {"0": "red", "1": "blue", "2": "green"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(RESNET))
    found = images.Images().read(str(tmp_path), {"images": str(draw(tmp_path / "val", count=1))})
    assert np.load(found["inputs"]).shape == (3, 3, 32, 32)
    assert np.load(found["labels"]).tolist() == [1, 2, 0]
    assert found["parameters"] == {"image_size": (32,)}, "which the config leaves open"


def write(**given: Any) -> Any:
    """What writes JSON files beside the model."""
    return lambda place: [(place / f"{name}.json").write_text(json.dumps(value)) for name, value in given.items()]


def number(place: Path) -> None:
    for at, name in enumerate(("blue", "green", "red"), 1):
        (place / "val" / name).rename(place / "val" / str(at))


def two_of_a_class(place: Path) -> None:
    write(config={"label_names": ["blue", "green", "red"]})(place)
    (place / "val" / "red").rename(place / "val" / "Blue")


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda place: shutil.rmtree(place / "val"), "val: there is no such folder"),
        (lambda place: [path.unlink() for path in place.rglob("*.png")], "it holds no images such as .jpg"),
        (lambda place: (place / "val/blue/0.png").write_text("text"), "blue.0.png can't be read as a picture"),
        (lambda place: shutil.rmtree(place / "val/red"), "2 folders, and the model 3 classes: name each folder by its"),
        (number, "a folder 3, and the model's 3 classes are 0 to 2"),
        (lambda place: (place / "val/red/0.png").rename(place / "val/x.png"), "x.png lies beside the folders"),
        (
            lambda place: np.save(place / "y.npy", [0, 1]),
            r"whole number for each of the 3 images of .*; got int64\[2\]",
        ),
        (lambda place: np.save(place / "y.npy", [0, -1, 1]), "numbers from 0 to 2, the model's classes; got -1 to 1"),
        (two_of_a_class, "Blue and blue are both class 0: put their images together"),
        (write(config={"id2label": {"x": "red"}}), "expected each class's number, got 'x'"),
        (
            lambda place: save_net(place / "net.onnx", ["n", 4, 8, 8]),
            r"takes image float32\[n, 4, 8, 8\], and no images",
        ),
        (lambda place: (place / "net.onnx").unlink(), "can't read .*net.onnx"),
        (write(config={"label_names": ["blue", "green", "crimson"]}), "val.red is none of the classes named beside"),
        (write(preprocessor_config={"do_resize": True}), "size None isn't known here"),
        (
            write(preprocessor_config={**VIT, "rescale_factor": "large"}),
            "says nothing that can be followed.*ValueError",
        ),
        (write(preprocessor_config={**VIT, "resample": 9}), "says nothing that can be followed.*resample 9"),
        (
            write(preprocessor_config={**VIT, "image_mean": [1, 2]}),
            r"a mean and a std for 3 channels; got mean \[1.0, 2.0\]",
        ),
        (write(preprocessor_config={"do_resize": False}), r"0.png has \d+x\d+ pixels, and the model takes 8x8"),
    ],
)
def test_what_doesnt_fit_is_said_in_a_sentence(tmp_path: Path, harm: Any, says: str):
    draw(tmp_path / "val", count=1)
    save_net(tmp_path / "net.onnx", ["n", 3, 8, 8])
    harm(tmp_path)
    labels = {"labels": str(tmp_path / "y.npy")} if (tmp_path / "y.npy").exists() else {}
    with pytest.raises(UsageError, match=says):
        images.Images().read(str(tmp_path / "net.onnx"), {"images": str(tmp_path / "val"), **labels})


def test_a_model_whose_input_isnt_known_takes_no_images(tmp_path: Path):
    folder = str(draw(tmp_path / "val", count=1))
    with pytest.raises(UsageError, match=r"what net.py:make takes is known only once it is exported"):
        images.Images().read("net.py:make", {"images": folder})
    save_net(tmp_path / "net.onnx", ["n", 3, "height", "width"])
    (tmp_path / "preprocessor_config.json").write_text('{"do_resize": false}')
    with pytest.raises(UsageError, match=r"leaves its size open, as preprocessor_config.json says: set it, as --shape"):
        images.Images().read(str(tmp_path / "net.onnx"), {"images": folder})
    with pytest.raises(UsageError, match=r"has .* pixels, and the model takes 12x16"):
        images.Images().read(str(tmp_path / "net.onnx"), {"images": folder, "shapes": {"": (1, 3, 16, 12)}})
