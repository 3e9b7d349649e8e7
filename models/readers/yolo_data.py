"""Read a detector's data set as YOLO's tools write it: data.yaml, images, and beside them a text file of labels each.

A label is a line: its class, then cx cy w h as shares of the image, or the corners of a polygon, whose box is taken.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shootout.core.contract import Array
from shootout.core.errors import UsageError, tell_refusal
from shootout.core.units import counted
from shootout.models.data.columns import read_lines
from shootout.models.data.pictures import SUFFIXES, list_pictures
from shootout.models.source import read

SPLIT = "val"
"""The part of the data that a detector is scored by."""
POINTS = "kpt_shape"
"""The key of a data set for poses, whose labels would be taken for polygons."""
SLACK = 0.01
"""A label may reach beyond the image by so much of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """Hold what data.yaml says.

    Attributes:
        names: of the classes, by their number.
        images: the files of `SPLIT`, sorted.
    """

    file: Path
    names: tuple[str, ...]
    images: tuple[Path, ...]

    def read_labels(self, images: Sequence[Path]) -> list[Array]:
        """Return the labels of each image, (labels, 5) of class cx cy w h; an image without a file has none.

        Raises:
            UsageError: none of these images has a label, or a line is no label; says the file and the line.
        """
        found = [self._read_label_file(label_file(image)) for image in images]
        if any(map(len, found)):
            return found
        raise UsageError(
            f"{self.file}: no labels for any of {counted(len(images), 'image')}: looked for {label_file(images[0])} "
            "and so on; expected a line `class cx cy w h` for each box there"
        )

    def _read_label_file(self, path: Path) -> Array:
        try:
            text = path.read_text(encoding="utf-8-sig") if path.exists() else ""
        except (OSError, ValueError) as error:
            raise UsageError(
                f"can't read {path}: {tell_refusal(error) if isinstance(error, OSError) else error}"
            ) from error
        lines = ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip())
        rows = [self._read_line(path, number, line) for number, line in lines]
        return np.unique(rows, axis=0) if rows else np.zeros((0, 5))

    def _read_line(self, path: Path, number: int, line: str) -> list[float]:
        try:
            class_, *values = map(float, line.split())
            points = np.array(values).reshape(-1, 2)
        except ValueError:
            values, points, class_ = [], np.zeros((0, 2)), 0.5
        is_label = len(points) >= 2 and class_ % 1 == 0 and points.min() >= -SLACK and points.max() <= 1 + SLACK
        if not is_label:
            raise UsageError(
                f"{path} line {number}: expected `class cx cy w h`, or a polygon, as shares of the image from 0 to 1; "
                f"got {line.strip()[:60]!r}"
            )
        if not 0 <= class_ < len(self.names):
            raise UsageError(
                f"{path} line {number}: class {class_:g}, and {self.file.name} names the classes 0 to "
                f"{len(self.names) - 1}: correct `names`, or the label"
            )
        if len(points) == 2:
            return [class_, *values]
        low, high = points.min(axis=0), points.max(axis=0)
        return [class_, *(low + high) / 2, *(high - low)]


def open_data_set(path: Path) -> DataSet:
    """Read data.yaml, and find the images that it names.

    Raises:
        UsageError: it can't be read, or has no names or no images; says what it has.
    """
    import yaml

    path = path.expanduser().absolute()
    try:
        told = yaml.safe_load(read(path).decode())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    keys = ", ".join(map(str, told)) if isinstance(told, Mapping) else type(told).__name__
    if not isinstance(told, Mapping) or not told.get(SPLIT):
        raise UsageError(
            f"{path}: expected `{SPLIT}`, the images to score by, got {keys}: add a line such as {SPLIT}: images/val"
        )
    if POINTS in told:
        raise UsageError(
            f"{path} has `{POINTS}`, so its labels hold key points: give a data set whose labels are boxes"
        )
    names = told.get("names")
    if isinstance(names, Mapping) and {*names} == {*range(len(names))}:
        names = [names[number] for number in range(len(names))]
    if not isinstance(names, list) or not names:
        raise UsageError(f"{path}: expected `names`, the classes with their numbers from 0 up, got {names or keys}")
    return DataSet(file=path, names=tuple(map(str, names)), images=tuple(_find_images(path, told)))


def label_file(image: Path) -> Path:
    """Return where the labels of an image are: in `labels` in place of the last folder `images`, else beside it."""
    head, images, tail = str(image).rpartition(f"{os.sep}images{os.sep}")
    folder = f"{head}{os.sep}labels{os.sep}" if images else ""
    return Path(f"{folder}{tail}").with_suffix(".txt")


def _find_images(file: Path, told: Mapping[str, Any]) -> list[Path]:
    given = told[SPLIT] if isinstance(told[SPLIT], list) else [told[SPLIT]]
    if "\0" in f"{told.get('path')}{given}":
        raise UsageError(f"{file}: `path` or `{SPLIT}` holds a zero byte: write it again")
    top = Path(str(told.get("path") or "")).expanduser()
    tops = [file.parent / top, Path.cwd() / top, file.parent]
    found = list[Path]()
    for word in map(str, given):
        # some tools write ../valid/images for a folder that lies beside data.yaml
        tried = [one / each for one in tops for each in (word, word.removeprefix("../"))]
        place = next((one for one in tried if one.exists()), None)
        if place is None:
            raise UsageError(
                f"{file}: {SPLIT} is {word!r}, and there is no {tried[0].resolve()}: correct `{SPLIT}`, or `path`, the "
                f"folder that it starts from (now {str(told.get('path', 'none'))!r})"
            )
        found += _list_images(place)
    if not found:
        raise UsageError(
            f"{file}: {SPLIT} is {', '.join(map(str, given))!r}, which holds no images: expected .jpg, .png …"
        )
    if gone := [one for one in found if not one.is_file()]:
        raise UsageError(
            f"{file}: {len(gone)} of {counted(len(found), 'image')} of {SPLIT} aren't there, such as {gone[0]}"
        )
    return found


def _list_images(place: Path) -> list[Path]:
    """Return the images of a folder, of a list of paths in a text file, or the image itself."""
    if place.is_dir():
        return list_pictures(place)
    if place.suffix.lower() in SUFFIXES:
        return [place]
    return [place.parent / line for line in read_lines(place)]
