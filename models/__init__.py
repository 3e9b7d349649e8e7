"""The models by name, as data: a model's module is imported when it is asked for."""

from __future__ import annotations

import importlib

from shootout.errors import unknown
from shootout.models import factory
from shootout.models.base import Model, Task

__all__ = ["Model", "Task", "get", "names"]

_MODELS = {
    "residual_mlp": "shootout.models.residual_mlp:MODEL",
    "digits": "shootout.models.digits:MODEL",
    "digits_cnn": "shootout.models.digits_cnn:MODEL",
    "efficientnet": "shootout.models.efficientnet:MODEL",
    "resnet": "shootout.models.resnet:MODEL",
    "bert": "shootout.models.bert:MODEL",
    "linear": "shootout.models.linear:MODEL",
    "matmul": "shootout.models.matmul:MODEL",
    "mlp": "shootout.models.mlp:MODEL",
    "nested_sin": "shootout.models.nested_sin:MODEL",
    "recurrent": "shootout.models.recurrent:MODEL",
}
_HIDDEN = {
    "permutation_probe": "shootout.models.permutation_probe:MODEL",
    "grid_probe": "shootout.models.grid_probe:MODEL",
    "identity": "shootout.models.identity:MODEL",
}


def names() -> tuple[str, ...]:
    """Names a user may ask for; the harness's own probes are not among them."""
    return tuple(_MODELS)


def get(name: str) -> Model:
    """Return the model called `name`, or the user's own (see `factory`), of whose code nothing is run here.

    Raises:
        UsageError: no such model; says the nearest name.
    """
    if name not in _MODELS and factory.is_meant(name):
        return factory.model(name)
    where = {**_MODELS, **_HIDDEN}.get(name)
    if where is None:
        raise unknown("model", name, _MODELS)
    module, _, attribute = where.partition(":")
    model = getattr(importlib.import_module(module), attribute)
    assert isinstance(model, Model)
    return model
