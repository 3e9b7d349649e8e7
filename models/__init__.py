"""Models by name: those that ship, the harness's own probes, and users' own; a model's module is imported when it is
looked up.
"""

from __future__ import annotations

from shootout.core.exported.request import find_model, model_names
from shootout.models.base import LabeledTask, Model

__all__ = ["LabeledTask", "Model", "get", "names"]
names = model_names


def get(name: str) -> Model:
    """Return a model that ships, or the user's own, of whose code nothing is run here.

    Raises:
        UsageError: no such model; says the nearest name.
    """
    model = find_model(name)
    assert isinstance(model, Model), f"{name} is a file"
    return model
