"""Places of external weights that are none, in a file whose writer is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import TensorProto, helper

from shootout.bundle import onnx_files
from shootout.errors import ModelError


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
    with pytest.raises(ModelError, match=r"export it again|no file's name|missing|outside|shorter"):
        onnx_files.external_files(path)
