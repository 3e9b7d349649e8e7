"""Other layouts of a shipped folder: what servers are told of its settings, and what is said to be lost."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.adapters.shipped import make_shipped
from support.exports import bare_exported

from shootout.contract import Target, TensorSpec
from shootout.errors import UsageError
from shootout.exported.shipped_folder import ShippedFolder, open_shipped
from shootout.ship import formats

X = TensorSpec(name="x", shape=(1, 128), dtype="float32")
Y = TensorSpec(name="y", shape=(), dtype="int64")
ORT = {
    "session": {
        "graph_optimization_level": "ORT_DISABLE_ALL",
        "execution_mode": "ORT_SEQUENTIAL",
        "intra_op_num_threads": 3,
        "inter_op_num_threads": 1,
        "entries": {"session.set_denormal_as_zero": "1", "session.use_device_allocator_for_initializers": "1"},
    },
}
OPENVINO = {
    "device": "CPU",
    "properties": {"NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": "3", "INFERENCE_PRECISION_HINT": "f32"},
}


def shipped(folder: Path, backend: str, options: dict[str, Any], **facts: Any) -> ShippedFolder:
    made = bare_exported({}, model="dir/my net.onnx", inputs=(X,), outputs=(Y,))
    return make_shipped(folder / "own", made, target=Target(backend=backend), options=options, threads=3, **facts)


def written(form: str, found: ShippedFolder, folder: Path) -> list[str]:
    folder.mkdir()
    return formats.write_format(form, found, folder)


def test_triton_is_told_that_the_graph_is_optimized_already(tmp_path: Path):
    found = shipped(tmp_path, "onnxruntime", ORT, versions={"onnxruntime": "9.9"}, isa=("avx512f",))
    lost = written("triton", found, tmp_path / "out")
    config = (tmp_path / "out" / "my_net" / "config.pbtxt").read_text()
    assert 'name: "my_net"\nbackend: "onnxruntime"\nmax_batch_size: 0' in config
    assert 'input [ { name: "x" data_type: TYPE_FP32 dims: [ 1, 128 ] } ]' in config
    assert 'output [ { name: "y" data_type: TYPE_INT64 dims: [ 1 ] reshape { shape: [ ] } } ]' in config
    assert "optimization { graph { level: 2 } }" in config
    assert 'key: "intra_op_thread_count" value: { string_value: "3" }' in config
    assert 'key: "session.use_device_allocator_for_initializers"' in config
    assert (tmp_path / "out" / "my_net" / "1" / "weights").read_bytes() == b"1234"
    assert lost[:3] == [
        "session.set_denormal_as_zero=1",
        "onnxruntime 9.9: the server brings its own version",
        "3 CPUs: pin the container (--cpuset-cpus)",
    ]
    assert lost[-1] == "the refusal of a CPU without avx512f"


def test_triton_has_no_word_for_float32_in_openvino(tmp_path: Path):
    lost = written("triton", shipped(tmp_path, "openvino", OPENVINO), tmp_path / "out")
    config = (tmp_path / "out" / "my_net" / "config.pbtxt").read_text()
    assert 'key: "INFERENCE_NUM_THREADS" value: { string_value: "3" }' in config
    assert "PRECISION" not in config
    assert "level" not in config
    assert lost[0].startswith("INFERENCE_PRECISION_HINT=f32: a CPU with AMX or AVX512_BF16 then computes in BF16")


def test_ovms_is_told_every_property(tmp_path: Path):
    found = shipped(tmp_path, "openvino", OPENVINO)
    lost = written("ovms", found, tmp_path / "out")
    (model,) = json.loads((tmp_path / "out" / "config.json").read_text())["model_config_list"]
    assert model["config"] == {
        "name": "my_net",
        "base_path": "/models/my_net",
        "target_device": "CPU",
        "nireq": 1,
        "plugin_config": OPENVINO["properties"],
    }
    assert not [line for line in lost if "HINT" in line]
    assert not [line for line in lost if "instances" in line]
    several = replace(found, arm=replace(found.arm, instances=4))
    assert "4 instances, which were raced at once" in written("ovms", several, tmp_path / "several")


def test_mlflow_loads_the_whole_folder_by_its_own_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    written("mlflow", shipped(tmp_path, "numpy", {}), tmp_path / "out")
    told = json.loads((tmp_path / "out" / "MLmodel").read_text())
    flavor = told["flavors"]["python_function"]
    tensor = {"dtype": "float32", "shape": [1, 128]}
    assert json.loads(told["signature"]["inputs"]) == [{"name": "x", "type": "tensor", "tensor-spec": tensor}]
    spec = spec_from_file_location("loader", tmp_path / "out" / flavor["code"] / f"{flavor['loader_module']}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module._load_pyfunc(str(tmp_path / "out" / flavor["data"]))
    assert model.predict({"x": np.ones(3)})["y"].tolist() == [1, 1, 1]
    assert open_shipped(tmp_path / "out" / flavor["data"]), "no bytecode lies there now, which it would refuse"


@pytest.mark.parametrize(
    ("form", "backend", "says"),
    [
        ("tritn", "onnxruntime", "unknown format 'tritn': did you mean 'triton'"),
        ("ovms", "onnxruntime", "no runtime for an arm of onnxruntime: ship one of openvino, or --format folder"),
        ("triton", "numpy", "ship one of onnxruntime or openvino"),
    ],
)
def test_a_layout_that_would_run_something_else_is_refused(form: str, backend: str, says: str):
    with pytest.raises(UsageError, match=says):
        formats.require_format(form, backend)
    formats.require_format("mlflow", backend)


def test_a_dtype_that_triton_lacks_is_refused(tmp_path: Path):
    found = shipped(tmp_path, "onnxruntime", ORT, inputs=(TensorSpec(name="x", shape=(1,), dtype="complex64"),))
    with pytest.raises(UsageError, match="no dtype complex64"):
        written("triton", found, tmp_path / "out")
