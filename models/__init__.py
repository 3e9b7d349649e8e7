"""Models by name, and what apps may know of them: sizes, layers, files; each module is imported when it is needed.

Those that ship, the harness's own probes, and users' own are found alike.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.core.exported.request import Request, model_names
from shootout.models.base import LabeledTask, Model, get
from shootout.models.onnx.layers import Layer, find_owner, names_in_notes

if TYPE_CHECKING:
    from shootout.core.clock import Deadline
    from shootout.core.study.schema import Study
    from shootout.models.onnx.effort import ModelSize
    from shootout.models.sources.preview import InputPreview, Preview

__all__ = [
    "InputPreview",
    "LabeledTask",
    "Layer",
    "Model",
    "ModelSize",
    "Preview",
    "describe_data",
    "find_owner",
    "find_typed",
    "foresee_export",
    "foresee_size",
    "get",
    "names",
    "names_in_notes",
    "pack_files",
    "preview",
    "spared_s",
]
SHARED_IMPORT = 0.7
"""The part of a first module's seconds that later ones spare."""
names = model_names


def preview(request: Request) -> Preview:
    """Return what is known of a request's model, as `sources.preview.preview`."""
    from shootout.models.sources.preview import preview as look

    return look(request)


def foresee_size(request: Request, weight_bytes: int) -> ModelSize:
    """Return what the times of a request's model follow from, as `sources.preview.size_of`."""
    from shootout.models.sources.preview import size_of

    return size_of(request, weight_bytes)


def foresee_export(
    request: Request,
    size: ModelSize,
    needs: Collection[str],
    leading: Collection[str],
    limit: Deadline,
    *,
    takes_module: bool,
) -> tuple[float, int]:
    """Return what an export takes, as `sources.preview.foresee_export`."""
    from shootout.models.sources.preview import foresee_export as foresee

    return foresee(request, size, needs, leading, limit, takes_module=takes_module)


def spared_s(export_s: float) -> float:
    """Return the seconds of an export that it spares where another one came first: one process makes all."""
    from shootout.models.onnx.effort import MODULE_S

    return SHARED_IMPORT * min(export_s, MODULE_S)


def describe_data(rows: Path | None, truth: Path | None) -> tuple[str, str]:
    """Describe a user's rows and the truth of them for people, "" for what isn't there."""
    from shootout.models.data import data_files, truth_files

    return data_files.describe(rows) if rows else "", truth_files.describe(truth) if truth else ""


def pack_files(study: Study, *, weights: bool) -> tuple[dict[str, Path | bytes], dict[str, Any]]:
    """Return the user's own files that a study names, and its fields with them, as `sources.packing.pack_files`."""
    from shootout.models.sources.packing import pack_files as pack

    return pack(study, weights=weights)


def find_typed(model: str) -> str:
    """Return the file that a user typed for a model, as `sources.trees.find_typed`."""
    from shootout.models.sources.trees import find_typed as find

    return find(model)
