"""What is measured: the shipped models, the harness's own probes, and users' models, each as a `Model`.

In: a name. Out: `Model`. The registry is data: a model's module is imported when it is asked for.
May use `bundle` and the root.
"""

from __future__ import annotations

import importlib

from shootout.errors import unknown
from shootout.models.base import Model, Task
from shootout.models.user import factory

__all__ = ["Model", "Task", "get", "names"]

_SHIPPED = (
    *("residual_mlp", "digits", "digits_cnn", "efficientnet", "resnet", "bert"),
    *("linear", "matmul", "mlp", "nested_sin", "recurrent"),
)
"""Each is MODEL in the module of its name in `zoo`."""
_ZOO = "shootout.models.zoo"
_HIDDEN = {
    "permutation_probe": "shootout.models.probes:PERMUTATION",
    "grid_probe": "shootout.models.probes:GRID",
    "identity": "shootout.models.identity:MODEL",
}


def names() -> tuple[str, ...]:
    """Names a user may ask for; the harness's own probes are not among them."""
    return _SHIPPED


def get(name: str) -> Model:
    """Return the model called `name`, or the user's own (see `factory`), of whose code nothing is run here.

    Raises:
        UsageError: no such model; says the nearest name.
    """
    if name in _SHIPPED:
        where = f"{_ZOO}.{name}:MODEL"
    elif factory.is_meant(name):
        return factory.model(name)
    elif not (where := _HIDDEN.get(name, "")):
        raise unknown("model", name, _SHIPPED)
    module, _, attribute = where.partition(":")
    model = getattr(importlib.import_module(module), attribute)
    assert isinstance(model, Model)
    return model
