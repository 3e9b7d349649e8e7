"""Files whose writer is unknown: places of weights that are none, names that steer a terminal, pipes and devices."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.onnx_made import WEIGHT, linear

from shootout import studies
from shootout.core.errors import ModelError, UsageError
from shootout.models.data import data_files
from shootout.models.onnx import onnx_files
from shootout.models.sources import packing


@pytest.mark.parametrize(
    "place",
    [
        {"location": "w.bin", "offset": "x"},
        {"location": "w.bin", "length": "1e3"},
        {"location": "w.bin", "offset": "-4"},
        {"location": "w.bin", "length": "-1"},
        {"location": "w.bin", "offset": "9" * 5_000},
        {"location": "a\0b"},
        {"location": "x" * 5_000},
        {"offset": "0"},
        {"location": ""},
    ],
)
def test_a_place_that_is_none_is_a_message(tmp_path: Path, place: dict[str, str]):
    (tmp_path / "w.bin").write_bytes(bytes(16))
    tensor = TensorProto(name="w", dims=[4], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, text in place.items():
        tensor.external_data.add(key=key, value=text)
    result = helper.make_tensor_value_info("w", TensorProto.FLOAT, [4])
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(helper.make_graph([], "g", [], [result], [tensor])).SerializeToString())
    with pytest.raises(ModelError, match=r"export it again|missing|outside|shorter"):
        onnx_files.external_files(path)


@pytest.mark.parametrize("device", ["", "/dev/zero"])
def test_a_pipe_or_a_device_is_no_model_and_no_data(tmp_path: Path, device: str):
    for name, read in (
        ("m.onnx", onnx_files.header),
        ("d.npz", data_files.digest),
        ("d2.npz", data_files.read_arrays),
    ):
        path = tmp_path / name
        path.symlink_to(device) if device else os.mkfifo(path)
        with pytest.raises(UsageError, match="is not a regular file"):
            read(path)
    study = tmp_path / "s.toml"
    study.symlink_to(device) if device else os.mkfifo(study)
    with pytest.raises(UsageError, match="is not a regular file"):
        studies.load(str(study))


@pytest.mark.parametrize("evil", ["\x1b]52;c;aGk=\x07", "a\nShip numpy", "\u202e"])
@pytest.mark.parametrize("where", ["input", "output", "axis", "operator", "domain"])
def test_a_name_that_would_steer_the_terminal_is_none(tmp_path: Path, evil: str, where: str):
    model = onnx.load(linear(tmp_path / "m.onnx"))
    if where == "input":
        model.graph.input[0].name += evil
    elif where == "output":
        model.graph.output[0].name += evil
    elif where == "domain":
        model.graph.node[0].domain = evil
    elif where == "axis":
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = evil
    else:
        model.graph.node[0].op_type += evil
    onnx.save(model, tmp_path / "evil.onnx")
    with pytest.raises(ModelError, match="its names aren't valid text"):
        onnx_files.header(tmp_path / "evil.onnx")


def stored_beside(folder: Path) -> Path:
    """`linear`, with its weight in the file `m.data` beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    model = onnx.load(linear(folder / "m.onnx"))
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    return folder / "m.onnx"


def linked(at: Path, to: Path) -> Path:
    """`to` under the name `at`, by a relative link as programs make them."""
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(os.path.relpath(to, at.parent))
    return at


def hub_cache(root: Path) -> Path:
    """Both files in `blobs`, without their endings, and links to them in `snapshots`."""
    model = stored_beside(root / "made")
    (root / "blobs").mkdir()
    for name, blob in (("m.onnx", "a1"), ("m.data", "b2")):
        linked(root / "snapshots/rev/onnx" / name, model.with_name(name).rename(root / "blobs" / blob))
    return root / "snapshots/rev/onnx/m.onnx"


def link_alone(root: Path) -> Path:
    """A link to the model, without one to its data."""
    return linked(root / "here/m.onnx", stored_beside(root / "there"))


def hard_links(root: Path) -> Path:
    model = stored_beside(root / "there")
    (root / "here").mkdir()
    for name in ("m.onnx", "m.data"):
        (root / "here" / name).hardlink_to(model.with_name(name))
    return root / "here/m.onnx"


@pytest.mark.parametrize(
    "place",
    [
        hub_cache,
        link_alone,
        hard_links,
        lambda root: linked(root / "folder", stored_beside(root / "there").parent) / "m.onnx",
    ],
    ids=["hub", "model alone", "hard", "folder"],
)
def test_weights_behind_links_are_read_and_what_is_made_of_them_has_none(
    tmp_path: Path, place: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
):
    path = place(tmp_path)
    (weight,) = onnx_files.load(path).graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(weight), WEIGHT)
    monkeypatch.setattr(onnx_files, "INLINE_BYTES", 10)  # as if the weights were many
    monkeypatch.setattr(onnx_files, "KEPT_BYTES", 10)
    (tmp_path / "out").mkdir()
    made = tmp_path / "out/model.onnx"
    onnx_files.save(onnx_files.load_graph(path), made, path)
    (again,) = onnx.load(made).graph.initializer  # which follows no link
    np.testing.assert_array_equal(numpy_helper.to_array(again), WEIGHT)
    monkeypatch.chdir(tmp_path)
    packed: dict[str, Path | bytes] = {}
    sent = Path(packing._add_model(str(path), packed, weights=True))
    assert {str(sent), str(sent.parent / "m.data")} == packed.keys()


def test_a_blob_that_was_not_fetched_is_named(tmp_path: Path):
    model = hub_cache(tmp_path)
    (tmp_path / "blobs/b2").unlink()
    with pytest.raises(ModelError, match=r"needs 'm\.data' beside it, which is a link to a file that is missing; copy"):
        onnx_files.external_files(model)


@pytest.mark.parametrize("trick", ["link", "folder", "hub"])
def test_a_link_out_of_the_models_folders_is_refused_with_the_command_that_copies(tmp_path: Path, trick: str):
    model = stored_beside(tmp_path / "a model")
    os.mkfifo(tmp_path / "trap")  # opening it would hang
    data = model.with_name("m.data")
    data.unlink()
    if trick == "link":
        linked(data, tmp_path / "trap")
    elif trick == "folder":
        linked(model.with_name("sub"), tmp_path)
        whole = onnx.load(model, load_external_data=False)
        whole.graph.initializer[0].external_data[0].value = "sub/trap"
        model.write_bytes(whole.SerializeToString())
    else:
        linked(data, tmp_path / "trap")
        model = linked(tmp_path / "hub/m.onnx", model)
        linked(tmp_path / "hub/m.data", data)
    with pytest.raises(ModelError) as refused:
        onnx_files.external_files(model)
    command = f"cp -rL '{model.parent}' '{model.parent.name}-copied'" if trick != "hub" else f"cp -rL {model.parent} "
    assert "a link out of its own folder, which is refused" in str(refused.value)
    assert command in str(refused.value)
