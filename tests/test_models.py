from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from shootout import models
from shootout.bundle import Report
from shootout.contract import Artifact
from shootout.errors import UsageError
from shootout.fidelity import accuracy
from shootout.models import digits, permutation_probe

ALL = [*models.names(), "permutation_probe", "identity"]
SMALL: dict[str, dict[str, Any]] = {"residual_mlp": {"d_model": 16, "n_layers": 3}}


def weights_of(module: Any) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def test_hidden_models_are_not_listed_but_can_be_had():
    assert models.names() == ("residual_mlp", "digits")
    assert models.get("identity").name == "identity"


def test_an_unknown_model_names_the_nearest():
    with pytest.raises(UsageError, match="unknown model 'residual_mpl': did you mean 'residual_mlp'"):
        models.get("residual_mpl")


def test_models_import_no_framework():
    code = f"""if True:
        import sys
        from shootout import models
        for name in {ALL}:
            models.get(name).check({{}})
        loaded = [name for name in ("torch", "sklearn", "scipy", "onnx", "onnxruntime", "jax") if name in sys.modules]
        assert not loaded, loaded
        """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_check_fills_in_the_defaults():
    assert models.get("residual_mlp").check({"d_model": 7}) == {
        "d_model": 7,
        "n_layers": 128,
        "activation": "relu",
        "seed": 0,
    }


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        ("residual_mlp", {"d_modl": 8}, "unknown parameter 'd_modl': did you mean 'd_model'"),
        ("residual_mlp", {"d_model": 0}, "d_model must be a whole number from 1 to 65536, got 0"),
        ("residual_mlp", {"n_layers": -1}, "got -1"),
        ("residual_mlp", {"n_layers": 10**9}, "n_layers must be a whole number from 1 to 4096, got 1000000000"),
        ("residual_mlp", {"d_model": 1.5}, "got 1.5"),
        ("residual_mlp", {"d_model": True}, "got True"),
        ("residual_mlp", {"d_model": "128"}, "got '128'"),
        ("residual_mlp", {"activation": "rleu"}, "unknown activation 'rleu': did you mean 'relu'"),
        ("digits", {"hidden": 0}, "hidden must be"),
        ("identity", {"seed": 1}, "unknown parameter 'seed'"),
    ],
)
def test_a_bad_parameter_is_refused(name: str, parameters: dict[str, Any], says: str):
    with pytest.raises(UsageError) as error:
        models.get(name).check(parameters)
    assert says in str(error.value)


@pytest.mark.parametrize("name", [name for name in ALL if name != "identity"])
def test_the_parameter_count_is_the_modules(name: str):
    model = models.get(name)
    parameters = model.check(SMALL.get(name, {}))
    assert model.parameter_count(parameters) == sum(p.numel() for p in model.module(parameters).parameters())


@pytest.mark.parametrize("activation", ["relu", "gelu", "tanh", "silu"])
def test_residual_mlp_is_the_same_in_numpy_and_torch(activation: str):
    agrees("residual_mlp", {"d_model": 16, "n_layers": 3, "activation": activation})


@pytest.mark.parametrize("name", ["digits", "permutation_probe"])
def test_forward_is_the_torch_module(name: str):
    agrees(name, {})


def agrees(name: str, chosen: dict[str, Any]) -> None:
    import torch

    model = models.get(name)
    parameters = model.check(chosen)
    module = model.trained(parameters)
    x = np.random.default_rng(0).standard_normal((5, *model.inputs(parameters, 6)[0].shape[1:])).astype(np.float32)
    assert model.forward
    ours = model.forward(np, weights_of(module), {"x": x}, parameters)["y"]
    with torch.no_grad():
        np.testing.assert_allclose(ours, module(torch.from_numpy(x)).numpy(), rtol=1e-5, atol=1e-5)


def test_the_toy_models_output_is_finite_in_fp16():
    import torch

    model = models.get("residual_mlp")
    module = model.trained(model.check({})).half()
    with torch.no_grad():
        y = module(torch.randn(4, 128, generator=torch.Generator().manual_seed(0)).half())
    assert torch.isfinite(y).all()
    assert 1 < y.abs().max() < 1_000


def test_weights_follow_the_seed():
    model = models.get("residual_mlp")
    one, same, other = (weights_of(model.trained(model.check({**SMALL["residual_mlp"], "seed": s}))) for s in (1, 1, 2))
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not any(np.array_equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def parameters() -> dict[str, Any]:
    return models.get("digits").check({})


def test_digits_training_is_deterministic_and_leaves_torch_alone(parameters: dict[str, Any]):
    import torch

    before, threads = torch.get_rng_state(), torch.get_num_threads()
    first = weights_of(digits.trained(parameters))
    torch.rand(3)
    second = weights_of(digits.trained(parameters))
    other = weights_of(digits.trained({**parameters, "seed": 1}))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(first["layers.0.weight"], other["layers.0.weight"])
    torch.set_rng_state(before)
    digits.trained(parameters)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("seed", [0, 1])
def test_digits_is_right_on_95_percent_of_what_it_never_saw(parameters: dict[str, Any], seed: int):
    seeded = {**parameters, "seed": seed}
    weights, task = weights_of(digits.trained(seeded)), digits.task(seeded)
    report = Report(inputs=task.report, labels=task.labels)
    assert accuracy(lambda x: digits.forward(np, weights, x, seeded), report, batch=32) >= 0.95


def test_digits_splits_are_disjoint_complete_and_stratified(parameters: dict[str, Any]):
    splits = digits._splits(parameters)
    rows = [image.tobytes() for images, _ in splits.values() for image in images]
    assert len(rows) == 1_797
    from sklearn.datasets import load_digits

    whole = (load_digits().data / 16).astype(np.float32)
    assert sorted(rows) == sorted(image.tobytes() for image in whole)
    shares = {name: np.bincount(labels, minlength=10) / len(labels) for name, (_, labels) in splits.items()}
    assert all(np.abs(share - 0.1).max() < 0.01 for share in shares.values())
    assert [round(len(labels) / 1_797, 2) for _, labels in splits.values()] == [0.6, 0.15, 0.25]


@pytest.mark.parametrize("batch", [1, 32, 512])
def test_digits_buffers_are_different_calibration_images(parameters: dict[str, Any], batch: int):
    buffers = digits.draw(parameters, batch)
    known = {image.tobytes() for image in digits.task(parameters).calibration["x"]}
    assert [one["x"].shape for one in buffers] == [(batch, 64)] * 8
    assert {image.tobytes() for one in buffers for image in one["x"]} <= known
    assert len({one["x"].tobytes() for one in buffers}) == 8


def test_the_probes_rows_hold_what_each_precision_loses():
    (buffer,) = permutation_probe.draw({}, 6)
    x = buffer["x"]
    assert x.shape == (6, 256)
    assert [float(row.max()) for row in x] == [1 + 2**-5, 1 + 2**-7, 1 + 2**-8, 1 + 2**-10, 1 + 2**-12, 2.0**17]
    assert (x[:, 1::2] == 1).all()
    assert sorted(permutation_probe.ORDER) == list(range(256))


def test_the_probe_has_one_batch_size():
    with pytest.raises(UsageError, match="batch 6, one row for each question; got 1"):
        permutation_probe.inputs({}, 1)


def test_identity_needs_no_torch():
    model = models.get("identity")
    assert Artifact.MODULE not in model.artifacts
    x = np.ones((2, 64), np.float32)
    assert model.forward
    y = model.forward(np, {}, {"x": x}, {})["y"]
    assert np.array_equal(x, y)
    assert not np.shares_memory(x, y)
