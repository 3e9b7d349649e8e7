"""Models by name: those that ship, the harness's own probes, and users' own; a model's module is imported when it is
looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shootout.core.exported.request import Request, model_names
from shootout.models.base import LabeledTask, Model, get
from shootout.models.onnx.layers import Layer, find_owner, names_in_notes

if TYPE_CHECKING:
    from shootout.models.onnx.effort import ModelSize
    from shootout.models.sources.preview import InputPreview, Preview

__all__ = [
    "InputPreview",
    "LabeledTask",
    "Layer",
    "Model",
    "Preview",
    "find_owner",
    "foresee_size",
    "get",
    "names",
    "names_in_notes",
    "preview",
]
names = model_names


def preview(request: Request) -> Preview:
    """Return what is known of a request's model, as `sources.preview.preview`."""
    from shootout.models.sources.preview import preview as look

    return look(request)


def foresee_size(request: Request, weight_bytes: int) -> ModelSize:
    """Return what the times of a request's model follow from, as `sources.preview.size_of`."""
    from shootout.models.sources.preview import size_of

    return size_of(request, weight_bytes)
