"""Make rows of a detector's data set: data.yaml, with images and boxes as YOLO's tools write them.

Images are scaled to fit the model's input and padded with gray, as YOLO's exporters expect. True boxes are in pixels of
that input, as the model's own are. The metric decodes a raw head; see `models.metrics.boxes`.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.core.contract import Array
from shootout.core.errors import UsageError
from shootout.core.exported.request import find_claim
from shootout.core.install import UNINSTALLED, install
from shootout.models.data.data_files import RowFacts, spread
from shootout.models.data.pictures import open_picture
from shootout.models.data.truth_files import KEPT
from shootout.models.onnx import ONNX_SUFFIX
from shootout.models.readers.reader import Reader, keep_rows
from shootout.models.readers.yolo_data import DataSet, open_data_set
from shootout.models.source import hash_file

if TYPE_CHECKING:
    from onnx import ModelProto

VERSION = 1
"""Goes up if the same images would make other rows."""
GRAY = 114
"""The level of the padding, of 255."""
USUAL_SIZE = 640
"""The height and width of an input that leaves them open."""
MOST_BYTES = 2 << 30
"""The images take no more; of a larger set, some that are evenly spread."""
CHANNELS, BOX, WITH_CLASS = 3, 4, 6
"""An image's channels; the numbers of a box's place; those of a box with its score and class."""
DETECT = "detect"
HEADS = "(1, 4 + classes, boxes), (1, boxes, 5 + classes) or (1, boxes, 6)"
"""The outputs that can be scored, for people."""
PACKAGES = {"PIL": "pillow", "yaml": "pyyaml", "pycocotools": "pycocotools"}
ELSE = "or score it by a metric of your own: docs/metrics.md"


FITTED = (
    "images are fitted into {height}x{width} and padded with gray; the metric, mAP50-95, decodes the boxes and drops "
    "those that overlap, so the timed call is the network alone"
)


class Boxes(Reader):
    """A detector's data set in data.yaml."""

    option = "data"
    takes = "a detector's data.yaml"

    def claims(self, given: str) -> bool:
        """Return whether this is a YAML file, which need not exist."""
        return Path(given).suffix.lower() in (".yaml", ".yml")

    def read(self, model: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rows, their truth and the metric; see `Reader.read`."""
        if more := [name for name in ("labels", "truth", "read") if name in given]:
            raise UsageError(f"--data {given['data']} has labels of its own: leave out --{more[0]}")
        for module, package in PACKAGES.items():
            if find_spec(module) is None:
                raise UsageError(f"--data {given['data']} needs {package}, {UNINSTALLED}: {install('boxes')}")
        data = open_data_set(Path(str(given["data"])))  # first: opening a .pt runs its code
        graph = _open_model(model, str(given["data"]))
        height, width, dtype = _find_input(model, graph, given.get("parameters") or {})
        notes = [FITTED.format(height=height, width=width), *_check_head(model, graph, data)]
        images = spread(data.images, MOST_BYTES // (CHANNELS * height * width * dtype.itemsize))
        if len(images) < len(data.images):
            notes.append(
                f"{len(images):,} of the {len(data.images):,} images of {data.file.name} are taken, evenly spread: "
                f"at {height}x{width} more than {MOST_BYTES >> 30} GB otherwise"
            )
        labels, inputs = data.read_labels(images), f"{data.file.name}.npy"

        def make(folder: Path) -> int:
            shape = (len(images), CHANNELS, height, width)
            rows = np.lib.format.open_memmap(folder / inputs, "w+", dtype, shape)
            truth = [_write_row(rows[at], image, labels[at]) for at, image in enumerate(images)]
            rows.flush()
            (folder / KEPT).write_text(json.dumps(truth), encoding="utf-8")
            return len(images)

        hashes, boxes = [*map(hash_file, images)], [one.tolist() for one in labels]
        made_of = [VERSION, inputs, height, width, dtype.name, hashes, boxes]
        told = f"{data.file.name} at {height}x{width}"
        folder = keep_rows(made_of, RowFacts(told=told, files=len(images), notes=tuple(notes)), make)
        fields = {"inputs": folder / inputs, "truth": folder / KEPT}
        return {**{name: str(path) for name, path in fields.items()}, "metric": given.get("metric") or "map"}


def _open_model(model: str, data: str) -> ModelProto:
    """Return the header of the ONNX file that a model is, or is exported to."""
    from shootout.models.onnx.onnx_files import header

    source = find_claim(model)
    file = source.resolve(model) if source else model
    if not file.endswith(ONNX_SUFFIX):
        raise UsageError(
            f"--data {data} is for a detector, whose file is read before it is exported: give an ONNX file in place of "
            f"{model}, {ELSE}"
        )
    return header(Path(file).expanduser())


def _find_input(model: str, graph: ModelProto, chosen: Mapping[str, Any]) -> tuple[int, int, np.dtype[Any]]:
    """Return the height and width of the one input, and its type.

    Args:
        chosen: what the user set, by the name of an open axis.
    """
    import onnx

    from shootout.models.onnx import onnx_axes

    types = [info.type.tensor_type for info in onnx_axes.true_inputs(graph)]
    sizes = [dim.dim_value or _read_size(chosen.get(dim.dim_param)) for one in types for dim in one.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(types[0].elem_type)
    if len(types) != 1 or len(sizes) != 4 or sizes[1] not in (0, CHANNELS) or dtype.kind != "f":
        taken = ", ".join(onnx_axes.input_texts(graph).values())
        raise UsageError(
            f"{model} takes {taken}: --data with a detector's data.yaml fills one input float32[batch, 3, height, "
            f"width]; give its rows by --inputs, {ELSE}"
        )
    told = _read_metadata(graph).get("imgsz")
    usual = [*map(_read_size, told)] if isinstance(told, list) and len(told) == 2 else [0, 0]
    height, width = (size or other or USUAL_SIZE for size, other in zip(sizes[2:], usual, strict=True))
    if CHANNELS * height * width * dtype.itemsize > MOST_BYTES:
        raise UsageError(
            f"{model} takes images of {height}x{width}, and one may take {MOST_BYTES >> 30} GB: {ELSE[3:]}"
        )
    return height, width, dtype


def _read_size(chosen: Any) -> int:
    """Return the size that a user or the exporter set; 0 if that is none."""
    first = chosen[0] if isinstance(chosen, tuple | list) and len(chosen) == 1 else chosen
    return first if isinstance(first, int) and first > 0 else 0


def _read_metadata(graph: ModelProto) -> dict[str, Any]:
    """Return what an exporter wrote beside the graph: `task`, `names`, `imgsz`."""
    found = dict[str, Any]()
    for entry in graph.metadata_props:
        try:
            found[entry.key] = ast.literal_eval(entry.value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            found[entry.key] = entry.value
    return found


def _check_head(model: str, graph: ModelProto, data: DataSet) -> list[str]:
    """Refuse a model whose outputs aren't a detector's for these classes; return what to note about its names.

    Raises:
        UsageError: it is such; says its outputs.
    """
    from shootout.models.onnx import onnx_axes

    told = _read_metadata(graph)
    forms = {name: [*(shape or ())] for name, (_, shape) in onnx_axes.output_forms(graph, {}).items()}
    written = ", ".join(f"{name} {str(shape).replace('-1', '?')}" for name, shape in forms.items())
    if (task := told.get("task", DETECT)) != DETECT:
        raise UsageError(f"{model} is for the task {task!r}: --data data.yaml scores detectors alone, {ELSE}")
    names, count = told.get("names"), len(data.names)
    shape = next(iter(forms.values()))
    is_turned = len(shape) == 3 and BOX + count == shape[2] != WITH_CLASS  # boxes before their numbers
    if len(forms) != 1 or len(shape) != 3 or is_turned or shape[2] in (BOX, BOX + 1):
        raise UsageError(
            f"{model} gives {written}: --data data.yaml scores one output, {HEADS}; export it so, or cut the file "
            f"before its NMS by onnx.utils.extract_model (a classifier takes --images val/), {ELSE}"
        )
    if BOX + count == shape[1] and 0 < shape[2] <= shape[1]:
        raise UsageError(
            f"{model} gives {written}: with no more boxes than numbers for each, a head looks like another one; export "
            "it for larger images"
        )
    if not isinstance(names, dict) or not names:
        names = dict[int, str]()
    classes = _find_classes(shape[1], shape[2], count) or (len(names) if shape[2] == WITH_CLASS else 0)
    if (classes and classes != count) or (names and len(names) != count):
        raise UsageError(
            f"{model} is for {len(names) or classes} classes (output {written}), and {data.file} "
            f"names {count}: give the data.yaml that it was trained with"
        )
    others = [number for number, name in enumerate(data.names) if names and str(names.get(number)) != name]
    if not others:
        return []
    first = others[0]
    return [
        f"the file calls class {first} {names.get(first)!r}, and {data.file.name} {data.names[first]!r}: if the order "
        "of the names differs, the score is wrong"
    ]


def _find_classes(first: int, last: int, count: int) -> int:
    """Return for how many classes a head is, by its two axes; 0 if they don't tell."""
    if last == WITH_CLASS and first != BOX + count:
        return 0
    if first == BOX + count or last == 1 + BOX + count:
        return count
    if first > BOX and (first < last or last < 0):
        return first - BOX
    return max(0, last - BOX - 1)


def _write_row(row: Array, file: Path, labels: Array) -> list[list[float]]:
    """Write an image into a row (3, height, width), and return its true boxes, each x1 y1 x2 y2 score class.

    It is sampled without smoothing, as OpenCV does by default: detectors were trained with such images.
    """
    from PIL.Image import Resampling, Transform

    image = open_picture(file)
    _, height, width = row.shape
    scale = min(height / image.height, width / image.width)
    sides = min(width, math.ceil(image.width * scale)), min(height, math.ceil(image.height * scale))
    step = image.width / sides[0], image.height / sides[1]
    fitted = image.transform(sides, Transform.AFFINE, (step[0], 0, 0, 0, step[1], 0), Resampling.BILINEAR)
    left, top = ((whole - side) // 2 for whole, side in zip((width, height), sides, strict=True))
    row[:] = GRAY / 255
    row[:, top : top + sides[1], left : left + sides[0]] = np.asarray(fitted, np.float32).transpose(2, 0, 1) / 255
    centers = labels[:, 1:3] * sides + (left, top)
    halves = labels[:, 3:] * sides / 2
    ones = np.ones(len(labels))
    return np.column_stack([centers - halves, centers + halves, ones, labels[:, 0]]).tolist()  # type: ignore[no-any-return]
