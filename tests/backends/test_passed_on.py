"""Outputs that no node of their own makes: an input, a constant, one value under two names or listed twice."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import numpy as np
import pytest
from onnx import helper
from support import onnx_made
from support.onnx_made import I64, value

from shootout.apps.ship.folder import shipping
from shootout.backends import cuda_memory
from shootout.backends.common import HANDED_BYTES
from shootout.core import backends
from shootout.core.contract import Arm, Precision, Target, TensorSpec
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel
from shootout.testing.checks import call, exported_models, warm_of
from shootout.testing.fresh import run_fresh

WIDTH = HANDED_BYTES // 8
"""Two rows of so many floats are handed over and out as they lie in memory."""


def passing(path: Path, width: int) -> Path:
    """`y = 2x`, beside it all that a graph can return without computing it."""
    x, y = value("x", [2, width]), value("y", [2, width])
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["y"]),
        helper.make_node("Identity", ["y"], ["copy"]),
        helper.make_node("Identity", ["x"], ["renamed"]),
        helper.make_node("Reshape", ["x", "flat"], ["view"]),
    ]
    made = [value("copy", [2, width]), value("renamed", [2, width]), value("view", [2 * width]), value("three", [1])]
    outputs = [x, y, value("key", [2], I64), *made, y]
    weights = {"two": np.full([2, 1], 2, "f4"), "flat": np.array([-1]), "three": np.array([3], "f4")}
    return onnx_made.write(path, nodes, [x, value("key", [2], I64), value("unread", [2, 3])], outputs, weights)


def run_file(exported: ExportedModel, name: str) -> tuple[list[dict[str, np.ndarray]], ...]:
    """What the session and the shipped folder's program give, after the caller has changed the inputs."""
    target, module = Target(backend=name), ModuleType("shipped")
    ship, templates = shipping(target)
    with TemporaryDirectory() as folder:
        arm = Arm(target=target, model=exported.model, threads=1)
        adapter = backends.get(name)
        built = adapter.build(exported, arm, Path(folder))
        session = adapter.load(built)
        (Path(folder) / "model").mkdir()
        shipment = ship(built, Path(folder) / "model")
        facts = {"MODEL": Path(folder) / "model", "OPTIONS": shipment.options, "THREADS": 1, "np": np, "os": os}
        for key, specs in (("INPUTS", exported.inputs), ("OUTPUTS", exported.outputs)):
            facts[key] = [(one.name, one.shape, np.dtype(one.dtype)) for one in specs]
        module.__dict__.update(facts)
        exec((templates / shipment.template).read_text(), module.__dict__)
        predict = module._open()
        found = list[dict[str, np.ndarray]](), list[dict[str, np.ndarray]]()
        for inputs in exported.input_buffers():
            given = {key: array.copy() for key, array in inputs.items()}
            found[0].append(call(session, given))
            found[1].append(predict(given))
            for array in given.values():
                array[...] = 0
        session.close()
        return found


def run_precisions(exported: ExportedModel, inputs: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    adapter, found = backends.get("onnxruntime"), dict[str, dict[str, np.ndarray]]()
    for precision in (Precision.FP16, Precision.INT8, Precision.INT8_DYNAMIC):
        arm = Arm(target=Target(backend="onnxruntime", precision=precision), model=exported.model, threads=1)
        with TemporaryDirectory() as folder:
            session = adapter.load(adapter.build(exported, arm, Path(folder)))
            found[precision] = call(session, inputs)
            session.close()
    return found


def is_right(exported: ExportedModel, name: str) -> None:
    for found in run_fresh(run_file, exported, name, warm=warm_of(Target(backend=name))):
        for got, right in zip(found, exported.reference_outputs(), strict=True):
            assert got.keys() == right.keys()
            for key, array in right.items():
                np.testing.assert_array_equal(got[key], array)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ExportedModel]:
    folder, widths = tmp_path_factory.mktemp("passing"), {"small": 4, "large": WIDTH}
    paths = [passing(folder / f"{name}.onnx", width) for name, width in widths.items()]
    return dict(zip(widths, exported_models(*(Request(model=str(path)) for path in paths)), strict=True))


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_an_output_that_is_not_computed_is_right(name: str, size: str, files: dict[str, ExportedModel]):
    is_right(files[size], name)


def test_a_converter_leaves_an_input_that_is_an_output_as_it_is(tmp_path: Path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    x, y = value("x", [2, 4]), value("y", [2, 3])
    path = onnx_made.write(tmp_path / "m.onnx", nodes, [x], [x, y], {"w": onnx_made.WEIGHT})
    (exported,) = exported_models(Request(model=str(path)))
    first, right = exported.input_buffers()[0], exported.reference_outputs()[0]
    warm = warm_of(Target(backend="onnxruntime", precision=Precision.INT8))
    for precision, answer in run_fresh(run_precisions, exported, first, warm=warm).items():
        np.testing.assert_array_equal(answer["x"], first["x"], err_msg=precision)
        error = np.linalg.norm(answer["y"] - right["y"]) / np.linalg.norm(right["y"])
        assert 0 < error < 0.2, precision


@pytest.mark.long  # it converts a module
def test_an_output_that_is_not_computed_is_right_in_litert(tmp_path: Path):
    is_right(exported_models(Request(model=str(passing(tmp_path / "small.onnx", 4)), module=True))[0], "litert")


def test_cuda_lends_an_output_that_is_an_input_that_ones_memory(monkeypatch: pytest.MonkeyPatch):
    """No GPU is needed: only which memory is taken is looked at."""
    taken = itertools.count(1)
    cuda = object.__new__(cuda_memory.Cuda)
    monkeypatch.setattr(cuda, "buffer", lambda spec: cuda_memory.Buffer(spec, next(taken)), raising=False)
    x, key, y = (TensorSpec(name=name, shape=(2,), dtype="float32") for name in ("x", "key", "y"))
    inputs, outputs = cuda.buffers([x, key], [key, y])
    assert [one.device_address for one in inputs] == [1, 2]
    assert [(one.name, one.device_address) for one in outputs] == [("key", 2), ("y", 3)]
