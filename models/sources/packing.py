"""Pack the user's own files that a study names, for another machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shootout.core.exported.request import is_file, is_own
from shootout.core.scoring import MetricSpec
from shootout.core.study.schema import Study
from shootout.models import source
from shootout.models.data import reading
from shootout.models.data.sized_rows import SIZES
from shootout.models.sources import hfconfig

OUTSIDE = "outside"
"""The folder of what doesn't lie below the current one."""


def pack_files(study: Study, *, weights: bool) -> tuple[dict[str, Path | bytes], dict[str, Any]]:
    """Return the user's own files that a study names, by their places in the folder that they are put into, and the
    study's fields with paths as they are there.

    Args:
        weights: whether those of ONNX files are packed; else each file goes without them, which planning goes by.

    Raises:
        UsageError: a file that it names isn't there.
    """
    packed: dict[str, Path | bytes] = {}
    fields = study.model_dump(mode="json", exclude_unset=True)
    fields["model"] = [_add_model(name, packed, weights=weights) for name in study.model]
    for name in ("inputs", "labels", "truth", "rows_by", "calibration"):
        if given := getattr(study, name):
            path = Path(given).expanduser()
            beside = [sizes for sizes in [path.with_name(SIZES)] if sizes.is_file()]  # how long its rows are
            files = reading.list_files(path) if study.read else [path, *beside]
            fields[name] = _add_files(Path(given), files, packed)
    if study.read:
        fields["read"] = _add_source(study.read, packed)
    if study.weights:
        fields["weights"] = _add_files(
            Path(study.weights), hfconfig.weight_files(Path(study.weights).expanduser()), packed
        )
    if study.metric and MetricSpec(metric=study.metric).is_own:
        fields["metric"] = _add_source(study.metric, packed)
    return packed, fields


def _add_model(name: str, packed: dict[str, Path | bytes], *, weights: bool) -> str:
    if is_file(name):
        from shootout.models.onnx.onnx_files import external_files, without_weights

        path = Path(name).expanduser().absolute()
        given = _add_files(Path(name), [path], packed)
        if weights:  # each beside the model, however far the links lead that stand for it here
            packed |= {str(Path(given).parent / place): file for place, file in external_files(path).items()}
        if not weights:
            packed[given] = without_weights(path)
        return given
    if hfconfig.TransformersConfig().claims(name):
        place = Path(name).expanduser().absolute()
        return _add_files(Path(name), hfconfig.list_files(place) if place.is_dir() else [place], packed)
    return _add_source(name, packed) if is_own(name) else name


def _add_source(name: str, packed: dict[str, Path | bytes]) -> str:
    """Add a function's file and its folder's or package's .py files."""
    place = source.find(name)
    return f"{_add_files(place.file, place.files(), packed)}:{place.function}"


def _add_files(path: Path, files: Iterable[Path], packed: dict[str, Path | bytes]) -> str:
    """Add what a path stands for; return the path as it is there."""
    place = path.expanduser().absolute()
    anchor = Path.cwd() if place.is_relative_to(Path.cwd()) else place.parent
    into = "" if anchor == Path.cwd() else f"{OUTSIDE}/{hashlib.sha256(str(anchor).encode()).hexdigest()[:8]}/"
    packed |= {f"{into}{os.path.relpath(file.absolute(), anchor)}": file for file in files}
    return f"{into}{os.path.relpath(place, anchor)}"
