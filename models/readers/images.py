"""Read images for a classifier: a folder with a folder for each class, or one of images alone.

Rows are made as the model's own files say (`preparation`). Labels are the folders' classes (`classes`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap

from shootout.core.errors import UsageError
from shootout.core.exported.model import sha256
from shootout.core.units import counted, size
from shootout.models.data.columns import as_file, names_column
from shootout.models.data.data_files import RowFacts, read_labels
from shootout.models.data.pictures import list_pictures, require_pillow
from shootout.models.readers.classes import index_folders
from shootout.models.readers.picture_models import PictureModel, open_picture_model
from shootout.models.readers.preparation import Preparation, find_preparation
from shootout.models.readers.reader import Reader, keep_rows

LABELS = ".labels.npy"
"""The ending of the file with the labels, beside that with the rows."""
VERSION = 2
"""Goes up if the same images would become other rows."""
MOST_BYTES = 1 << 29
"""All rows take no more memory, which every process that scores them needs: 891 of 224x224x3 floats."""
ENOUGH_ROWS = 800
"""The rows that may take four times as much: a limit of 1 % needs 736."""


class Images(Reader):
    """Images for a classifier, in a folder for each class or without classes."""

    option = "images"

    def read(self, model: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return where the images' rows lie, and their labels or the metric without labels; see `Reader.read`."""
        require_pillow("--images")
        folder = Path(str(given["images"])).expanduser()
        taken = open_picture_model(model, given)
        groups = _group_pictures(folder)
        pictures, labels, notes = _label(folder, groups, taken, given.get("labels"))
        how = find_preparation(taken.places, taken.input, taken.graph)
        height, width = (own or told for own, told in zip(taken.input.size, how.size, strict=True))
        if not (height and width):
            raise UsageError(f"--images: {model} leaves its size open, {how.by}: set it, as --shape 1x3x224x224 does")
        how, taken = how.to_size((height, width)), replace(taken, input=replace(taken.input, size=(height, width)))
        most = MOST_BYTES // _row_bytes(taken)
        kept = _take_evenly(labels or [0] * len(pictures), min(max(most, ENOUGH_ROWS), 4 * most))
        if len(kept) < len(pictures):
            notes.append(_tell_sample(len(kept), len(pictures), taken, labels))
        chosen = [pictures[at] for at in kept]
        inputs = _keep(folder, chosen, [labels[at] for at in kept] if labels else [], how, taken, notes)
        sizes = {"parameters": {**(given.get("parameters") or {}), **taken.sizes_for(how.size)}}
        found = {"inputs": str(inputs), **(sizes if sizes["parameters"] else {})}
        if labels:
            return {**found, "labels": str(inputs.with_suffix(LABELS))}
        return found if "metric" in given else {**found, "metric": "accuracy" if taken.classes else "cosine"}


def _group_pictures(folder: Path) -> dict[str, list[Path]]:
    """Return the pictures by the folder of their class, or all under "" if no folder holds any.

    Raises:
        UsageError: there are none, or some lie beside the folders.
    """
    if not folder.is_dir():
        told = "it is a file" if folder.exists() else "there is no such folder"
        raise UsageError(f"--images {folder}: {told}; give a folder with a folder of images for each class")
    groups: dict[str, list[Path]] = {}
    for path in list_pictures(folder):
        first, *rest = path.relative_to(folder).parts
        groups.setdefault(first if rest else "", []).append(path)
    if not groups:
        raise UsageError(f"--images {folder}: it holds no images such as .jpg or .png; give a folder that does")
    if len(groups) > 1 and "" in groups:
        name = groups[""][0].name
        raise UsageError(f"--images {folder}: {name} lies beside the folders of classes: move it into one, or away")
    if groups.keys() == {""}:
        return groups
    named = [path.name for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith((".", "__"))]
    return {name: groups.get(name, []) for name in sorted({*named, *groups})}  # an empty one is a class, too


def _label(
    folder: Path, groups: Mapping[str, Sequence[Path]], taken: PictureModel, given: Any
) -> tuple[list[Path], list[int], list[str]]:
    """Return the pictures, the class of each (none without classes), and what is to be told of the classes.

    Args:
        given: the option `labels`: a class for each picture in the order of their paths, in place of the folders.

    Raises:
        UsageError: folders or labels don't fit the pictures and the model.
    """
    pictures = [path for group in groups.values() for path in group]
    if given:
        file = Path(as_file(str(given)) if names_column(str(given)) else str(given)).expanduser()
        found = read_labels(file)
        if found.shape != (len(pictures),) or found.dtype.kind not in "iu":
            got = f"{found.dtype}{list(found.shape)}"
            asked = (
                f"a whole number for each of the {counted(len(pictures), 'image')} of {folder}, by their paths' order"
            )
            raise UsageError(f"--labels {given}: expected {asked}; got {got}")
        least, most = int(found.min()), int(found.max())
        if least < 0 or (taken.classes and most >= taken.classes):
            known = f"0 to {taken.classes - 1}, the model's classes" if taken.classes else "0 or more"
            raise UsageError(f"--labels {given}: expected numbers from {known}; got {least} to {most}")
        return sorted(pictures), found.tolist(), []
    if groups.keys() == {""}:
        return pictures, [], []
    indices, note = index_folders(folder, list(groups), taken.classes, taken.names)
    labels = [index for index, group in zip(indices, groups.values(), strict=True) for _ in group]
    return pictures, labels, [note]


def _row_bytes(taken: PictureModel) -> int:
    return math.prod(taken.input.shape()) * np.dtype(taken.input.dtype).itemsize


def _take_evenly(labels: Sequence[int], most: int) -> list[int]:
    """Return the places of at most so many pictures, as many of each class as can be, from all over each."""
    if len(labels) <= most:
        return list(range(len(labels)))
    by_class: dict[int, list[int]] = {}
    for place, label in enumerate(labels):
        by_class.setdefault(label, []).append(place)
    ranks = []
    for places in by_class.values():
        spread = sorted(range(len(places)), key=lambda at: f"{at:032b}"[::-1])  # each first few are from all over
        ranks += [(rank, places[at]) for rank, at in enumerate(spread)]
    return sorted(place for _, place in sorted(ranks)[:most])


def _tell_sample(count: int, whole: int, taken: PictureModel, labels: Sequence[int]) -> str:
    classes = f", evenly over {len({*labels}):,} classes" if labels else ""
    needed = size(whole * _row_bytes(taken))
    return f"{count:,} of the {whole:,} images are taken{classes}, since all would take {needed} of memory"


def _keep(
    folder: Path,
    pictures: Sequence[Path],
    labels: Sequence[int],
    how: Preparation,
    taken: PictureModel,
    notes: Sequence[str],
) -> Path:
    """Return the file in the cache with the rows of these pictures, called like their folder.

    Raises:
        UsageError: one can't be read.
    """
    name = folder.resolve().name or Images.option
    file = f"{name}.npy"

    def make(made: Path) -> int:
        spec = taken.input
        rows = open_memmap(made / file, "w+", np.dtype(spec.dtype), (len(pictures), *spec.shape()))
        with ThreadPoolExecutor() as pool:  # Pillow decodes without Python's lock
            for row, array in enumerate(pool.map(partial(how.prepare, taken=spec), pictures)):
                rows[row] = array
        rows.flush()
        if labels:
            np.save((made / file).with_suffix(LABELS), np.array(labels, np.int64))
        return len(rows)

    with ThreadPoolExecutor() as pool:
        hashes = list(pool.map(sha256, pictures))
    names = [str(path.relative_to(folder)) for path in pictures]
    facts = RowFacts(told=name, files=len(pictures), notes=(how.tell(taken.input), *notes))
    made_of = [VERSION, name, names, hashes, list(labels), asdict(how), asdict(taken.input)]
    return keep_rows(made_of, facts, make) / file
