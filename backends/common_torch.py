"""A bundle's torch module, for PyTorch's own adapters and for those that take one over, as torchax does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shootout.bundle.bundle import ModelBundle

if TYPE_CHECKING:
    import torch


def float32_module(bundle: ModelBundle) -> torch.nn.Module:
    """The module with its weights as they are stored, in eval mode."""
    import torch

    module = architecture(bundle)
    state = {name: torch.from_numpy(array) for name, array in bundle.weights().items()}
    if bundle.source_sha256 and (odd := _odd_weights(module.state_dict(), state)):
        raise ValueError(f"{bundle.model} makes another architecture each time it is called: {odd} differs")
    module.load_state_dict(state)
    return module.eval()


def architecture(bundle: ModelBundle) -> torch.nn.Module:
    """The module without its weights. Of a user's own model, this runs the user's code.

    Raises:
        ValueError: that code isn't the one that the bundle was made from.
    """
    from shootout import models
    from shootout.models.user import factory

    if bundle.source_sha256 and factory.source_now(bundle.model) != bundle.source_sha256:
        raise ValueError(f"{bundle.model} was changed after it was exported; run again")
    return models.get(bundle.model).module(bundle.parameters)


def _odd_weights(made: Mapping[str, torch.Tensor], stored: Mapping[str, torch.Tensor]) -> str:
    """The first weight that only one of two modules has, or in another shape; "" where there is none."""
    shapes = [{name: tensor.shape for name, tensor in one.items()} for one in (made, stored)]
    return next((name for name in {**made, **stored} if shapes[0].get(name) != shapes[1].get(name)), "")
