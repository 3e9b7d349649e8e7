from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shootout import models
from shootout.core.contract import Precision
from shootout.core.errors import UsageError
from shootout.models.base import draw, seeded
from shootout.models.sources import torch_files
from shootout.quantize import torch_error_bounds

CASES: list[tuple[str, dict[str, Any], int]] = [
    ("matmul", {"n": 24}, 1),
    ("nested_sin", {"elements": 100, "depth": 3}, 2),
    ("linear", {"inputs": 12, "outputs": 7}, 3),
    ("linear", {"inputs": 12, "outputs": 7, "bias": "yes"}, 3),
    ("mlp", {"inputs": 5, "hidden": 9, "outputs": 4}, 3),
    ("recurrent", {"kind": "rnn", "inputs": 6, "hidden": 5, "steps": 4}, 3),
    ("recurrent", {"kind": "gru", "inputs": 6, "hidden": 5, "steps": 4}, 3),
    ("recurrent", {"kind": "lstm", "inputs": 6, "hidden": 5, "steps": 4}, 3),
]
NAMED = pytest.mark.parametrize(("name", "chosen", "batch"), CASES)


def made(name: str, chosen: dict[str, Any], batch: int) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
    model = models.get(name)
    parameters = model.check(chosen)
    return model, parameters, model.trained(parameters), draw(model.inputs(parameters, batch), 2, seed=3)


@NAMED
def test_forward_in_numpy_and_in_jax_is_the_torch_module(name: str, chosen: dict[str, Any], batch: int):
    import jax.numpy as jnp

    model, parameters, module, sets = made(name, chosen, batch)
    weights = {key: tensor.numpy().astype(np.float64) for key, tensor in module.state_dict().items()}
    narrow = {key: array.astype(np.float32) for key, array in weights.items()}
    wide = module.double()
    for one in sets:
        right = torch_error_bounds.run(wide, one)["y"]
        ours = model.forward(np, weights, parameters)({key: array.astype(np.float64) for key, array in one.items()})
        np.testing.assert_allclose(ours["y"], right, rtol=1e-12, atol=1e-14)
        single = model.forward(np, narrow, parameters)(one)["y"]
        assert single.dtype == np.float32
        jaxed = model.forward(jnp, narrow, parameters)({key: jnp.asarray(array) for key, array in one.items()})["y"]
        for y in (single, np.asarray(jaxed)):
            assert y.shape == right.shape
            assert np.linalg.norm(y - right) < 1e-5 * np.linalg.norm(right)


@NAMED
def test_weights_follow_the_seed(name: str, chosen: dict[str, Any], batch: int):
    model, parameters, module, _ = made(name, chosen, batch)
    state = module.state_dict()
    again = model.trained(parameters).state_dict()
    assert all(bool((state[key] == again[key]).all()) for key in state)
    if state:
        other = model.trained({**parameters, "seed": 1}).state_dict()
        assert not any(bool((state[key] == other[key]).all()) for key in state)


def test_matrices_have_no_batch():
    with pytest.raises(UsageError, match="its batch is 1, got 2"):
        models.get("matmul").inputs({"n": 4}, 2)


@NAMED
def test_error_bounds_grow_from_fp32_to_bf16_for_each(name: str, chosen: dict[str, Any], batch: int):
    """A recurrent layer works in place in C++: what a mode rounds must get there."""
    model, _, module, sets = made(name, chosen, batch)
    reference_outputs, (error_bounds,), *_ = torch_files.reference_and_error_bounds(
        module, sets, sets, by_rows=model.by_rows
    )
    assert [one["y"].dtype for one in reference_outputs] == [np.float64] * 2
    assert error_bounds[Precision.FP32] == 1e-5
    half, brain = error_bounds[Precision.FP16], error_bounds[Precision.BF16]
    assert half is not None
    assert brain is not None
    assert 1e-4 < half < brain < 0.1
    assert (Precision.INT8 in error_bounds) is (name != "nested_sin")


ATTENTION: dict[str, Any] = {"tokens": 24, "heads": 3}


def test_only_the_fused_form_is_one_operation():
    import torch

    model = models.get("attention")
    for form, count in (("fused", 1), ("written", 0)):
        parameters = model.check({**ATTENTION, "form": form})
        (given,) = draw(model.inputs(parameters, 1), 1, seed=0)
        program = torch.export.export(model.module(parameters), tuple(map(torch.from_numpy, given.values())))
        called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
        assert sum("scaled_dot_product_attention" in name for name in called) == count


BOXES = {"yolo": 3 * (8**2 + 4**2 + 2**2), "ssd": 3 * (4**2 + 2**2 + 1 + 1)}
"""Boxes of a picture of 64 pixels a side: three for each place of the feature maps."""


def detected(kind: str, seed: int = 0) -> list[Any]:
    import torch

    model = models.get("detector")
    parameters = model.check({"kind": kind, "image_size": 64, "classes": 7, "seed": seed})
    module = model.trained(parameters)
    assert model.draw
    # One thread: two wait for each other at each of these small layers, for seconds while another process works.
    with seeded(parameters), torch.no_grad():
        return [module(torch.from_numpy(one["x"])).numpy() for one in model.draw(parameters, 2)]


@pytest.mark.parametrize("kind", BOXES)
def test_each_box_has_a_place_a_score_and_its_classes_and_they_follow_image_and_seed(kind: str):
    first, second, *_ = detected(kind)
    assert first.shape == (2, BOXES[kind], 4 + 1 + 7)
    assert 0.05 < first.std() < 20
    assert np.linalg.norm(first - second) > 0.2 * np.linalg.norm(first)
    assert (detected(kind)[0] == first).all()
    assert np.linalg.norm(detected(kind, seed=1)[0] - first) > 0.2 * np.linalg.norm(first)


def test_a_size_at_which_features_can_not_be_joined_is_refused():
    model = models.get("detector")
    with pytest.raises(UsageError, match="image_size must be a multiple of 32 for yolo, got 100"):
        model.inputs(model.check({"image_size": 100}), 1)
    assert model.inputs(model.check({"image_size": 100, "kind": "ssd"}), 1)
