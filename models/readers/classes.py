"""Find which class of a model each folder of images is."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shootout.core.errors import UsageError
from shootout.core.units import counted

FIX = "name each folder by its class's number, put a config.json with id2label beside the model, or give --labels"
SHOWN = 3


def index_folders(folder: Path, names: Sequence[str], classes: int, known: Mapping[str, int]) -> tuple[list[int], str]:
    """Return the class of each folder, and what decided it.

    Args:
        folder: holds them.
        names: of the folders, sorted.
        classes: outputs of the model; 0: not known.
        known: the classes' numbers by name, as `name_classes` returns them.

    Raises:
        UsageError: nothing tells the class of a folder.
    """
    matched = [known.get(_simplify(name)) for name in names]
    _refuse_twice(folder, names, matched)
    whole = [index for index in matched if index is not None]
    if len(whole) == len(names):
        return whole, "the folders' classes are those of the names beside the model"
    if all(name.isdecimal() for name in names):
        found = [int(name) for name in names]
        _refuse_twice(folder, names, found)
        if classes and max(found) >= classes:
            raise UsageError(
                f"{folder} has a folder {names[found.index(max(found))]}, and the model's {classes} "
                f"classes are 0 to {classes - 1}: {FIX}"
            )
        return found, "each folder's name is the number of its class"
    if classes not in (0, len(names)):
        raise UsageError(f"{folder} has {counted(len(names), 'folder')}, and the model {classes} classes: {FIX}")
    if whole:
        odd = names[matched.index(None)]
        raise UsageError(f"{folder}/{odd} is none of the classes named beside the model, though others are: {FIX}")
    order = ", ".join(f"{index} is {name}" for index, name in enumerate(names[:SHOWN]))
    return list(range(len(names))), f"classes are the folders in sorted order: {order}{' …' * (len(names) > SHOWN)}"


def name_classes(config: Mapping[str, Any], metadata: Mapping[str, str]) -> dict[str, int]:
    """Return the numbers of a model's classes by their names, and by each of several names of one.

    Args:
        config: what a config.json beside the model says: Hugging Face's `id2label`, timm's `label_names`.
        metadata: of an ONNX file, in which ultralytics writes `names`, and PaddlePaddle's exporters `character`.

    Raises:
        UsageError: a class has no number.
    """
    given: Any = config.get("id2label") or config.get("label_names") or metadata.get("character", "").splitlines()
    if not given and (text := metadata.get("names")):
        try:
            given = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            given = None
    if isinstance(given, Sequence) and not isinstance(given, str):
        given = dict(enumerate(given))
    if not isinstance(given, Mapping):
        return {}
    if odd := [index for index in given if not str(index).isdecimal()]:
        raise UsageError(f"the names of classes beside the model: expected each class's number, got {odd[0]!r}")
    found = {_simplify(str(text)): int(index) for index, text in reversed([*given.items()])}
    for index, text in given.items():
        for part in str(text).split(","):
            found.setdefault(_simplify(part), int(index))
    return found


def _refuse_twice(folder: Path, names: Sequence[str], indices: Sequence[int | None]) -> None:
    """Refuse two folders of one class."""
    first = dict[int, str]()
    for name, index in zip(names, indices, strict=True):
        if index is not None and first.setdefault(index, name) != name:
            raise UsageError(f"{folder}: {first[index]} and {name} are both class {index}: put their images together")


def _simplify(name: str) -> str:
    return re.sub(r"[\W_]+", " ", name).strip().casefold()
