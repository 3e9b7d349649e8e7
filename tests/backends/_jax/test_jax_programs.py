"""A torch module given in Python reaches JAX as an exported program: its layers give the float64 module's outputs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import nn

from shootout.backends._jax import program as jax_program
from shootout.core.contract import Artifact, Target, TensorSpec
from shootout.core.exported.model import FILES, WEIGHTS
from shootout.models.sources import own
from shootout.testing.checks import warm_of
from shootout.testing.fresh import run_fresh

LAYERS = ("convolution", "batch", "group", "layer", "attention", "recurrent", "one hot", "mask")


class Layers(nn.Module):
    """One output for each kind of layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.up = nn.Conv2d(3, 4, 3, padding=1), nn.ConvTranspose2d(4, 4, 2, 2)
        self.batch, self.group, self.layer = nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.LayerNorm(8)
        self.table, self.attention = nn.Embedding(9, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.memory, self.gates = nn.LSTM(8, 4, batch_first=True), nn.GRU(4, 4, batch_first=True)

    def forward(self, image: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        seen = self.up(self.conv(image))
        words = self.layer(self.table(ids))
        attended = self.attention(words, words, words, need_weights=False)[0]
        causal = nn.functional.scaled_dot_product_attention(attended, words, words, is_causal=True)
        recurrent = self.gates(self.memory(words)[0])[0]
        hot = nn.functional.one_hot(ids, 9)
        mask = ids.to(device=ids.device, dtype=torch.bool) & (torch.arange(3, device=ids.device) < 2)  # as BERT's
        masked = words.masked_fill(~mask[..., None], 1)
        return seen, self.batch(seen), self.group(seen), words, causal, recurrent, hot, masked


def run_in_jax(name: str, folder: Path) -> list[Any]:
    """Return what JAX makes of a module that was kept under this name."""
    import jax
    from safetensors.numpy import load_file

    from shootout import models
    from shootout.models.sources import torch_files

    called = models.get(name).called
    assert called
    found = called({})
    torch_files.write_weights(found.module, folder)
    torch_files.write_program(found.module, found.inputs, folder)
    weights = load_file(folder / WEIGHTS)
    exported: Any = SimpleNamespace(
        is_file=False,
        is_program=True,
        model=name,
        parameters={},
        path=lambda one: folder / FILES[one],
        weights=lambda: weights,
        source_sha256="",
    )
    assert exported.path(Artifact.PT2).exists()
    made = jax_program.from_module(exported)
    stored = {**weights, **made.buffers}
    outputs = jax.jit(made.run)([stored[name] for name in made.names], list(found.inputs.values()))
    return [np.asarray(one) for one in outputs]


class Constants(nn.Module):
    """Makes tensors in forward, in three ways."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(x.shape[0], 3)
        y[:, 0] = x[:, 0]
        return self.line(x)[:, torch.tensor([2, 0, 1])] * torch.from_numpy(np.arange(3, dtype=np.float32)) + y


def run_constants_in_jax(folder: Path) -> float:
    """Return how far JAX is from torch on a module of a user's that makes constants in forward."""
    import jax

    from shootout.models.sources import torch_files

    torch.manual_seed(0)
    net, x = Constants().eval(), torch.randn(2, 4)
    torch_files.write_weights(net, folder)
    torch_files.write_program(net, {"x": x.numpy()}, folder)
    exported: Any = SimpleNamespace(
        is_file=False,
        is_program=False,
        artifacts=(Artifact.MODULE, Artifact.PT2),
        inputs=(TensorSpec(name="x", shape=(2, 4), dtype="float32"),),
        input_buffers=lambda: [{"x": x.numpy()}],
        path=lambda one: folder / FILES[one],
        weights=lambda: {name: tensor.numpy() for name, tensor in net.state_dict().items()},
        source_sha256="of a user's",
    )
    with mock.patch("shootout.backends.common_torch.float32_module", return_value=net):
        made = jax_program.from_module(exported)
    stored = {**exported.weights(), **made.buffers}
    (found,) = jax.jit(made.run)([stored[name] for name in made.names], [x.numpy()])
    return float(np.abs(np.asarray(found) - net(x).detach().numpy()).max())


def test_a_constant_that_a_module_makes_in_forward_is_taken_from_its_program(tmp_path: Path):
    assert run_fresh(run_constants_in_jax, tmp_path, warm=warm_of(Target(backend="jax-jit", mode="torchax"))) < 1e-5


@pytest.mark.long
def test_the_layers_of_a_kept_module_give_what_they_give_in_float64(tmp_path: Path):
    torch.manual_seed(0)
    net = Layers().eval()
    net.batch.running_mean = torch.linspace(-1, 1, 4)
    image, ids = torch.randn(2, 3, 5, 5), torch.tensor([[1, 0, 8], [3, 3, 2]])
    name = own.store(net, (image, ids))
    got = run_fresh(run_in_jax, name, tmp_path, warm=warm_of(Target(backend="jax-jit", mode="torchax")))
    with torch.no_grad():
        wanted = net.double()(image.double(), ids)
    for layer, one, right in zip(LAYERS, got, wanted, strict=True):
        scale = float(right.abs().max())
        np.testing.assert_allclose(one, right.numpy(), rtol=0, atol=1e-5 * scale, err_msg=layer)
