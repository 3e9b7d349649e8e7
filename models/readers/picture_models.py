"""Find which input of a model takes images, its classes, and the folders in which files tell of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.core.errors import UsageError
from shootout.core.exported.request import find_claim
from shootout.models.data.json_files import find_object
from shootout.models.onnx import ONNX_SUFFIX
from shootout.models.readers.classes import name_classes
from shootout.models.readers.preparation import CONFIG, ImageInput

if TYPE_CHECKING:
    from onnx import ModelProto

CHANNELS = (1, 3)
TYPES = ("float32", "float16", "float64", "uint8")
SIZE = "image_size"
"""The parameter of a Hugging Face config that names no size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureModel:
    """Hold what is known of a model before its export.

    Attributes:
        classes: how many it tells apart; 0: not known.
        names: the classes' numbers by name.
        places: folders in which files tell of it, the nearest first.
        graph: the header of its file; None without one.
        takes_size: whether its size is a parameter of it.
    """

    input: ImageInput
    classes: int
    names: Mapping[str, int]
    places: list[Path]
    graph: ModelProto | None = None
    takes_size: bool = False

    def sizes_for(self, size: tuple[int, int]) -> dict[str, Any]:
        """Return the model's parameters for images of a size."""
        return {SIZE: (size[0],)} if self.takes_size else {}


def open_picture_model(model: str, given: Mapping[str, Any]) -> PictureModel:
    """Find out what a model takes, of its file or its config.

    Args:
        model: its word, or that of a folder of files.
        given: the keywords of `run`, some of which set sizes.

    Raises:
        UsageError: it takes no images, or that is known once it is exported.
    """
    source = find_claim(model)
    word = (source.resolve(model) if source else model).split(",")[0]
    path = Path(word).expanduser().absolute()
    if word.endswith(ONNX_SUFFIX):
        return _open_file(path, word, given)
    config = find_object(path / CONFIG if path.is_dir() else path) if path.suffix in ("", ".json") else {}
    if "model_type" in config:
        return _open_config(path if path.is_dir() else path.parent, word, config)
    raise UsageError(
        f"--images: what {model} takes is known only once it is exported: export it to ONNX, or give its rows with "
        "--inputs X.npz --labels Y.npz"
    )


def _open_file(path: Path, word: str, given: Mapping[str, Any]) -> PictureModel:
    from shootout.models.onnx import onnx_axes, onnx_files

    graph = onnx_files.header(path)
    inputs = onnx_axes.true_inputs(graph)
    sizes = {
        name: one[0] if isinstance(one, list | tuple) else one for name, one in (given.get("parameters") or {}).items()
    }
    asked = onnx_axes.sizes_asked(graph, given.get("shapes") or {}, sizes, 1)[0]
    open_sizes = {axis: asked.get(axis, 0) for axis in onnx_axes.open_axes(graph)}
    spec = onnx_axes.input_specs(graph, open_sizes)[0]
    dims = spec.shape
    place = 3 if len(dims) == 4 and dims[3] in CHANNELS and dims[1] not in CHANNELS else 1
    if len(inputs) > 1 or len(dims) != 4 or spec.dtype not in TYPES or dims[place] not in (0, *CHANNELS):
        told = ", ".join(onnx_axes.input_texts(graph).values())
        raise UsageError(
            f"--images: {word} takes {told}, and no images alone, such as float32[batch, 3, 224, 224]: give its rows "
            "with --inputs"
        )
    channels, sides = dims[place] or 3, dims[2:] if place == 1 else dims[1:3]
    scores = [
        shape
        for name, (dtype, shape) in onnx_axes.output_forms(graph, open_sizes).items()
        if shape and len(shape) == 2 and "float" in dtype and given.get("scores") in (None, name)
    ]
    count = max(scores[0][1], 0) if scores else 0
    places = [path.parent, *([path.parent.parent] if path.parent.name == "onnx" else [])]
    config = next(filter(None, (find_object(one / CONFIG) for one in places)), {})
    metadata = {one.key: one.value for one in graph.metadata_props}
    return PictureModel(
        input=ImageInput(
            name=spec.name,
            size=(sides[0], sides[1]),
            channels=channels,
            is_channels_first=place == 1,
            dtype=spec.dtype,
        ),
        classes=2 if count == 1 else count,  # one score tells two classes apart
        names=name_classes(config, metadata),
        places=places,
        graph=graph,
    )


def _open_config(folder: Path, word: str, config: Mapping[str, Any]) -> PictureModel:
    channels, size = config.get("num_channels", 3), config.get("image_size")
    if "vocab_size" in config or channels not in CHANNELS:
        kind = "texts" if "vocab_size" in config else f"{channels} channels"
        raise UsageError(f"--images: {word} is a {config['model_type']} of {kind}: give its rows with --inputs")
    sides = tuple(size) if isinstance(size, list) else (size or 0, size or 0)
    labels = config.get("id2label") or {}
    return PictureModel(
        input=ImageInput(name="pixel_values", size=sides, channels=channels, is_channels_first=True, dtype="float32"),
        classes=len(labels) or int(config.get("num_labels", 2)),
        names=name_classes(config, {}),
        places=[folder],
        takes_size=size is None,
    )
