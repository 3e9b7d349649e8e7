"""Files whose writer is unknown: places of weights that are none, names that steer a terminal, pipes and devices."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from support.onnx_made import linear

from shootout.errors import ModelError, UsageError
from shootout.exported import data_files, onnx_files
from shootout.study import schema


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
        schema.load(str(study))


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


def test_words_that_nobody_is_shown_may_be_any_and_names_may_have_any_letters(tmp_path: Path):
    model = onnx.load(linear(tmp_path / "m.onnx"))
    model.producer_name, model.producer_version, model.domain = "a\nb", "1.0\n", "\x1b[0m"
    model.graph.name = model.graph.node[0].name = "a\tb"
    model.graph.input[0].name += "\u00a0\u3000\u200d\U0001f468"
    onnx.save(model, tmp_path / "odd.onnx")
    assert onnx_files.header(tmp_path / "odd.onnx").graph.input[0].name == model.graph.input[0].name
