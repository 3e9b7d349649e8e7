from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shootout import models
from shootout.core.errors import UsageError
from shootout.core.exported.request import Request, checked, is_own
from shootout.models import probes
from shootout.models.zoo import digits

PROBES = ("permutation_probe", "grid_probe")
ALL = [*models.names(), *PROBES, "identity"]
SMALL: dict[str, dict[str, Any]] = {
    "residual_mlp": {"d_model": 16, "n_layers": 3},
    "bert": {"layers": 2, "hidden": 128, "vocabulary": 100},
}


@cache
def trained(name: str, seed: int = 0) -> Any:
    """The module of a model as it is; nobody changes it."""
    model = models.get(name)
    return model.trained(model.check({"seed": seed} if "seed" in model.defaults else {}))


def weights_of(module: Any) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def test_hidden_models_are_not_listed_but_can_be_had():
    assert set(models.names()) >= {"residual_mlp", "digits", "digits_cnn", "efficientnet", "resnet", "bert"}
    assert not {*PROBES, "identity"} & set(models.names())
    assert models.get("identity").name == "identity"


def test_a_folder_of_a_models_name_does_not_take_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("residual_mlp", "identity", "vit"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text('{"model_type": "vit"}')
    monkeypatch.chdir(tmp_path)
    found = {name: is_own(name) for name in ("residual_mlp", "identity", "vit", "./residual_mlp")}
    assert found == {"residual_mlp": False, "identity": False, "vit": True, "./residual_mlp": True}
    assert models.get("identity").name == "identity"
    job = checked(Request(model="residual_mlp"))
    assert isinstance(job, Request)
    assert job.model == "residual_mlp"


def test_models_import_no_framework():
    code = f"""if True:
        import sys
        from shootout import models
        for name in {ALL}:
            models.get(name).check({{}})
        frameworks = ("torch", "transformers", "sklearn", "scipy", "onnx", "onnxruntime", "jax")
        loaded = [name for name in frameworks if name in sys.modules]
        assert not loaded, loaded
        """
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        ("residual_mlp", {"d_modl": 8}, "unknown parameter 'd_modl': did you mean 'd_model'"),
        ("residual_mlp", {"d_model": 0}, "d_model must be a whole number from 1 to 65536, got 0"),
        ("residual_mlp", {"d_model": 1.5}, "got 1.5"),
        ("residual_mlp", {"d_model": True}, "got True"),
        ("residual_mlp", {"d_model": "128"}, "got '128'"),
        ("residual_mlp", {"activation": "rleu"}, "unknown activation 'rleu': did you mean 'relu'"),
        ("efficientnet", {"variant": "b3"}, "unknown variant 'b3'"),
        ("resnet", {"variant": 50}, "unknown variant '50'"),
        ("identity", {"seed": 1}, "unknown parameter 'seed'"),
    ],
)
def test_a_bad_parameter_is_refused(name: str, parameters: dict[str, Any], says: str):
    with pytest.raises(UsageError) as error:
        models.get(name).check(parameters)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        *((name, SMALL.get(name, {})) for name in ALL if name != "identity"),
        ("digits_cnn", {"n_blocks": 1}),
        ("digits_cnn", {"n_blocks": 6, "channels": 4}),
        ("linear", {"bias": "yes"}),
        ("recurrent", {"kind": "gru"}),
        ("detector", {"kind": "ssd"}),
    ],
)
def test_the_parameter_count_is_the_modules(name: str, chosen: dict[str, Any]):
    model = models.get(name)
    parameters = model.check(chosen)
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
    module = model.trained(parameters) if chosen else trained(name)
    x = np.random.default_rng(0).standard_normal((5, *model.inputs(parameters, 6)[0].shape[1:])).astype(np.float32)
    assert model.forward
    ours = model.forward(np, weights_of(module), parameters)({"x": x})["y"]
    with torch.no_grad():
        np.testing.assert_allclose(ours, module(torch.from_numpy(x)).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "chosen", "epochs"),
    [
        (digits.DIGITS, {"hidden": 16, "n_layers": 1}, "EPOCHS"),
        (digits.DIGITS_CNN, {"channels": 4, "n_blocks": 1}, "CNN_EPOCHS"),
    ],
)
def test_training_is_deterministic_and_leaves_torch_alone(
    model: Any, chosen: dict[str, int], epochs: str, monkeypatch: pytest.MonkeyPatch
):
    import torch

    monkeypatch.setattr(digits, epochs, 3)  # more of the same
    parameters = model.check(chosen)
    first = weights_of(model.trained(parameters))
    torch.rand(3)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    second = weights_of(model.trained(parameters))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    other = weights_of(model.trained({**parameters, "seed": 1}))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not all(np.array_equal(first[name], other[name]) for name in first)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "seed", "wanted"), [("digits", 0, 0.95), ("digits", 1, 0.95), ("digits_cnn", 0, 0.97)]
)
def test_it_is_right_on_most_of_what_it_never_saw(name: str, seed: int, wanted: float):
    import torch

    model = models.get(name)
    assert model.task
    task = model.task(model.check({"seed": seed}))
    scores = trained(name, seed)(torch.from_numpy(task.report["x"])).numpy()
    assert (scores.argmax(axis=1) == task.labels).mean() >= wanted


def test_splits_are_disjoint_complete_and_stratified():
    found = digits.splits({"seed": 0}, (64,))
    rows = [image.tobytes() for images, _ in found.values() for image in images]
    assert len(rows) == 1_797
    from sklearn.datasets import load_digits

    whole = (load_digits().data / 16).astype(np.float32)
    assert sorted(rows) == sorted(image.tobytes() for image in whole)
    shares = {name: np.bincount(labels, minlength=10) / len(labels) for name, (_, labels) in found.items()}
    assert all(np.abs(share - 0.1).max() < 0.01 for share in shares.values())
    assert [round(len(labels) / 1_797, 2) for _, labels in found.values()] == [0.6, 0.15, 0.25]


def test_the_probes_rows_hold_what_each_precision_loses():
    (buffer,) = probes.PERMUTATION.draw({}, 6)
    x = buffer["x"]
    assert x.shape == (6, 256)
    assert [float(row.max()) for row in x] == [1 + 2**-5, 1 + 2**-7, 1 + 2**-8, 1 + 2**-10, 1 + 2**-12, 2.0**17]
    assert (x[:, 1::2] == 1).all()
    assert sorted(probes.ORDER) == list(range(256))
