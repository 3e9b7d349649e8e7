"""numpy beyond the suite: how its weights lie in memory, and what a call no longer does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from shootout.backends._numpy import session
from shootout.core.contract import Artifact


def test_matrices_are_stored_in_out_and_seen_as_torch_names_them(tmp_path: Path):
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    weights = {"weight": matrix, "bias": np.ones(2, np.float32)}
    session.write_weights(weights, tmp_path)
    found = session._read_weights(tmp_path)
    assert all(np.array_equal(found[name], array) for name, array in weights.items())
    assert found["weight"].T.flags.c_contiguous, "what the model multiplies by"


def test_a_model_without_weights_has_no_file(tmp_path: Path):
    assert session._read_weights(tmp_path) == {}


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_transposed_convolution_of_a_file_has_its_groups(groups: int, tmp_path: Path):
    rng = np.random.default_rng(0)
    shapes = ((2, 4, 3, 3), (4, 3, 2, 2), (3 * groups,))
    x, weight, bias = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], strides=[2, 2], group=groups)
    graph = helper.make_graph(
        [node],
        "made",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(weight, "w"), onnx.numpy_helper.from_array(bias, "b")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "m.onnx")
    facts = {"outputs": [SimpleNamespace(name="y")], "artifacts": {Artifact.ONNX}, "input_buffers": lambda: [{"x": x}]}
    exported: Any = SimpleNamespace(path=lambda _: tmp_path / "m.onnx", **facts)
    run, *facts_of_call = session.open_onnx(exported)
    wanted = torch.nn.functional.conv_transpose2d(
        *(torch.from_numpy(one).double() for one in (x, weight, bias)), stride=2, groups=groups
    )
    np.testing.assert_allclose(run({"x": x})["y"], wanted.numpy(), rtol=1e-4, atol=1e-6)
    told = session.NumpySession(exported, run, *facts_of_call).executed.fallbacks
    assert told == (session.INTERPRETED,), "a reader takes its time for that of NumPy code"
