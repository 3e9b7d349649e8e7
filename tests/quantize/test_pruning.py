from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from support.exports import obtain
from torch import nn

from shootout.contract import Array, Artifact, Precision
from shootout.errors import ModelError, UsageError
from shootout.export.client import Request, obtain_all
from shootout.exported import onnx_files
from shootout.exported.fidelity import compare, gate
from shootout.exported.model import ExportedModel
from shootout.quantize import pruning
from shootout.testing.cases import exported_models

rng = np.random.default_rng(0)


def twos(weight: Array, axis: int) -> bool:
    """Whether every whole group of four along the axis keeps exactly its two largest."""
    last = np.moveaxis(weight, axis, -1)
    groups = last[..., : last.shape[-1] // 4 * 4].reshape(*last.shape[:-1], -1, 4)
    return bool((np.count_nonzero(groups, axis=-1) == 2).all())


@pytest.mark.parametrize(("share", "left"), [(10, 90), (50, 50), (99, 1)])
def test_the_smallest_magnitudes_go(share: int, left: int):
    weight = rng.permutation(np.arange(1, 101)).reshape(4, 25) * rng.choice([-1.0, 1.0], (4, 25))
    before = weight.copy()
    assert pruning.prune(weight, 1, f"pruned-{share}") == share
    kept = weight != 0
    assert (weight[kept] == before[kept]).all()
    assert sorted(np.abs(weight[kept])) == list(range(101 - left, 101))


@pytest.mark.parametrize(("shape", "axis"), [((6, 8), 1), ((8, 6), 0), ((3, 8, 3, 3), 1), ((5, 10), 1)])
def test_two_of_four_neighbors_along_the_inputs_stay(shape: tuple[int, ...], axis: int):
    weight = rng.standard_normal(shape)
    before = weight.copy()
    pruning.prune(weight, axis, "pruned-2of4")
    assert twos(weight, axis)
    kept = weight != 0
    assert (weight[kept] == before[kept]).all()
    assert np.abs(before[~kept]).sum() < np.abs(before[kept]).sum() / 2
    rest = np.moveaxis(weight, axis, -1)[..., shape[axis] // 4 * 4 :]
    assert np.count_nonzero(rest) == rest.size


def test_only_linear_and_convolution_weights_are_touched():
    module = nn.Sequential(
        nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ConvTranspose2d(8, 4, 2), nn.Flatten(), nn.Linear(36, 5)
    )
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    pruning.prune_module(module, "pruned-2of4")
    after = module.state_dict()
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed == {"0.weight", "2.weight", "4.weight"}
    assert twos(after["0.weight"].numpy(), 1)
    assert twos(after["2.weight"].numpy(), 0)


@pytest.mark.parametrize("variant", ["pruned-50", "pruned-2of4"])
def test_a_model_that_nothing_thins_is_refused(variant: str):
    with pytest.raises(ModelError, match=f"{variant}: the model has no weight"):
        pruning.prune_module(nn.Sequential(nn.LayerNorm(4)), variant)


def test_two_of_four_needs_four_inputs():
    with pytest.raises(ModelError, match="pruned-2of4"):
        pruning.prune_module(nn.Conv2d(3, 8, 3), "pruned-2of4")


def test_every_artifact_is_the_pruned_models():
    plain, half, pattern = exported_models(
        *(Request(model="digits", batch=4, variant=one) for one in ("", "pruned-50", "pruned-2of4"))
    )
    assert (half.variant, half.artifacts) == ("pruned-50", plain.artifacts)
    assert (
        len({plain.key, half.key, pattern.key})
        == len({plain.weights_sha256, half.weights_sha256, pattern.weights_sha256})
        == 3
    )
    for weight in half.weights().values():
        share = np.mean(weight == 0)
        assert share == pytest.approx(0.5, abs=1 / weight.size) if weight.ndim > 1 else share < 0.1
    assert all(twos(weight, 1) for weight in pattern.weights().values() if weight.ndim > 1)
    for exported in (half, pattern):
        found = compare(
            onnx_files.run(exported.path(Artifact.ONNX), exported.input_buffers(), "m"), exported.reference_outputs()
        )
        assert gate(found, exported.error_bounds[Precision.FP32]) is None
        assert (exported.folder / "inputs.npz").read_bytes() == (plain.folder / "inputs.npz").read_bytes()
    assert (compare(half.reference_outputs(), plain.reference_outputs()).relative_l2 or 0) > 0.01


def test_a_users_file_is_pruned_along_its_own_axes(tmp_path: Path):
    nodes = [
        helper.make_node("MatMul", ["x", "m"], ["a"]),
        helper.make_node("Gemm", ["a", "t", "b"], ["c"], transB=1),
        helper.make_node("Gemm", ["c", "g"], ["y"]),
    ]
    shapes = {"m": (8, 6), "t": (4, 6), "g": (4, 3), "b": (4,)}
    weights = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in shapes.items()]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (2, 8)), ("y", (2, 3)))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "mine.onnx"
    )
    exported = obtain(str(tmp_path / "mine.onnx"), {}, 1, variant="pruned-2of4")
    assert exported.model == "mine.onnx"
    stored = {t.name: numpy_helper.to_array(t) for t in onnx.load(exported.path(Artifact.ONNX)).graph.initializer}
    assert [twos(stored[name], axis) for name, axis in (("m", 0), ("t", 1), ("g", 0))] == [True] * 3
    assert np.count_nonzero(stored["t"][:, 4:]) == 8
    assert stored["b"].all()
    found = compare(
        onnx_files.run(exported.path(Artifact.ONNX), exported.input_buffers(), "m"), exported.reference_outputs()
    )
    assert found.max_abs == 0


def test_a_probe_is_not_pruned():
    error, plain = obtain_all([Request(model="identity", variant="pruned-50"), Request(model="identity")])
    assert isinstance(error, UsageError)
    assert "identity is a probe of the harness" in str(error)
    assert isinstance(plain, ExportedModel)
