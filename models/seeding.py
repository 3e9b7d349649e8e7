"""Make weights that are the same in every process: one order of summation, seeded generators, torch left as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shootout.core.contract import Array
from shootout.models.base import Parameters

if TYPE_CHECKING:
    from torch import nn

TRAIN_BATCH, LEARNING_RATE = 32, 2e-3


@contextmanager
def seeded(parameters: Parameters) -> Iterator[None]:
    """Use one thread and set torch's generator to the model's seed; restore both on exit."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one order of summation, so the weights are the same on any machine like this one
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(parameters["seed"]))
            yield
    finally:
        torch.set_num_threads(threads)


def variance_kept(module: Callable[[Parameters], nn.Module], parameters: Parameters) -> nn.Module:
    """Build the module, frozen, with seeded normal weights of variance 1 / inputs in its Linear layers.

    So outputs are as large as inputs. All else keeps torch's own init, seeded too.
    """
    import torch

    with seeded(parameters):
        model = module(parameters)
        for layer in model.modules():
            if isinstance(layer, torch.nn.Linear):
                torch.nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
    return model.requires_grad_(False)


def fit(model: nn.Module, images: Array, labels: Array, epochs: int) -> nn.Module:
    """Return the model after so many epochs of Adam, frozen and in eval mode. Call it inside `seeded`."""
    import torch

    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    optimizer = torch.optim.Adam(model.train().parameters(), lr=LEARNING_RATE)
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(TRAIN_BATCH):  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model.eval().requires_grad_(False)
