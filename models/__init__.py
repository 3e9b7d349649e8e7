"""Register all models as `Model`s: the shipped ones, the harness's own probes, and users' models.

In: a name. Out: `Model`. The registry is data: a model's module is imported when it is asked for.
May use `exported` and the root.
"""

from __future__ import annotations

import importlib

from shootout.core.errors import unknown
from shootout.models.base import LabeledTask, Model
from shootout.models.sources import factory

__all__ = ["LabeledTask", "Model", "get", "is_own", "names"]

_ZOO = "shootout.models.zoo"
_SHIPPED = {
    name: f"{_ZOO}.{name}:MODEL"
    for name in (
        *("residual_mlp", "digits", "digits_cnn", "efficientnet", "resnet", "bert"),
        *("linear", "matmul", "attention", "mlp", "nested_sin", "recurrent", "detector"),
    )
}
HIDDEN = {
    "permutation_probe": "shootout.models.probes:PERMUTATION",
    "grid_probe": "shootout.models.probes:GRID",
    "identity": "shootout.models.probes:IDENTITY",
}
"""The harness's own probes."""


def names() -> tuple[str, ...]:
    """Return the names that a user may ask for; the harness's own probes are not among them."""
    return tuple(_SHIPPED)


def is_own(name: str) -> bool:
    """Return whether `name` is meant as a user's own model (see `factory`); a folder of a registered one's name
    is not.
    """
    return name not in _SHIPPED and name not in HIDDEN and factory.is_meant(name)


def get(name: str) -> Model:
    """Return the model called `name`, or the user's own (see `factory`), of whose code nothing is run here.

    Raises:
        UsageError: no such model; says the nearest name.
    """
    if is_own(name):
        return factory.model(name)
    if not (where := {**_SHIPPED, **HIDDEN}.get(name, "")):
        raise unknown("model", name, _SHIPPED)
    module, _, attribute = where.partition(":")
    model = getattr(importlib.import_module(module), attribute)
    assert isinstance(model, Model)
    return model
