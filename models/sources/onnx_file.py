"""A user's ONNX file: what its header tells of sizes, data and outputs; `user_onnx` exports it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

from shootout.core.contract import Artifact, TensorSpec, Value
from shootout.core.errors import ShootoutError, UsageError
from shootout.core.exported.model import LABELS, ExportedModel, sha256
from shootout.core.exported.request import Content, Request, checked
from shootout.models.data import data_files, sized_rows
from shootout.models.onnx import ONNX_SUFFIX
from shootout.models.onnx.effort import Effort
from shootout.models.sources import input_sets, trees
from shootout.models.sources.user_data import (
    DataSource,
    axis_sizes,
    data_of,
    explaining_errors,
    find_row_sizes,
    path_of,
    refuse_unreadable,
    settle,
    stream_of,
)

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True, slots=True, kw_only=True)
class FileModel:
    """Hold what is known of a file by its name: its free axes are its parameters, and have any size."""

    name: str
    title: str = ""
    takes_batch: bool = True
    artifacts: tuple[Artifact, ...] = (Artifact.ONNX, Artifact.MODULE)
    source: None = None
    forward: None = None

    def module(self, _: Mapping[str, Value]) -> Never:
        """Refuse: no code makes it."""
        raise UsageError(f"{self.name} is a file, which no code makes")

    @property
    def parameters(self) -> dict[str, Any]:
        """Return none."""
        return {}

    @property
    def defaults(self) -> dict[str, Value]:
        """Return none."""
        return {}

    def check(self, parameters: Mapping[str, Value]) -> dict[str, Value]:
        """Return the sizes of free axes, which are whole numbers of 1 or more."""
        return {**axis_sizes(parameters)}

    def inputs(self, _: Mapping[str, Value], __: int, /) -> tuple[TensorSpec, ...]:
        """Return none: the export tells them."""
        return ()

    def count_weights(self, _: Mapping[str, Value]) -> int:
        """Return 0: the file's bytes stand for them."""
        return 0


class OnnxFile(DataSource):
    """A user's ONNX file."""

    origin = "file"

    def claims(self, word: str) -> bool:
        """Return whether a word is meant as such a file."""
        return word.endswith(ONNX_SUFFIX)

    def model(self, word: str) -> FileModel:
        """Return what is known of a file by its name."""
        return FileModel(name=word)

    def check(self, request: Request, known: dict[str, Any]) -> Request:
        """Return a request with the hashes of the file and of those beside it; see `Source.check`."""
        if request.original:
            return self._check_beside(request, known)
        found = settle(self._check_file(request))
        if not found.sweep or found.training:
            return found
        opened = Request(
            model=found.model,
            is_open=True,
            content=replace(found.content, data={}),
        )
        return replace(found, opened=opened.keyed())

    def _check_file(self, request: Request) -> Request:
        if request.weights:
            raise UsageError(f"--weights is for a transformers config: {request.model} holds its own")
        self.check_sizes(request)
        path, graph = open_header(request.model)
        from shootout.models.onnx.layers import layers_of
        from shootout.models.onnx.onnx_files import external_files, name_classical, own_precisions, whole_bytes

        with explaining_errors(path):
            converted = trees.open_converted(path)
            files = {path.name: path, **external_files(path)}
            files |= {converted.file.name: converted.file} if converted else {}
            contents = {name: sha256(file) for name, file in files.items()}
        content = Content(
            file=str(path),
            files=contents,
            bytes=whole_bytes(path) or sum(file.stat().st_size for file in files.values()),
            holds=own_precisions(graph),
            classical=name_classical(graph),
            layers=0 if graph.functions else len(layers_of(graph)),  # functions are put into the main graph later
            native=converted.artifact if converted else None,
        )
        asked = replace(request, model=path.name, **self.labeling(request))
        return replace(asked, content=content)

    def _check_beside(self, request: Request, known: dict[str, Any]) -> Request:
        """Check a request for a file that races its original: it is made from that one's exported model.

        Its free axes get the sizes with which it takes the same inputs.
        """
        original = checked(replace(request, model=request.original, original=""), known)
        if isinstance(original, ShootoutError):
            raise original
        (path, graph), (_, first) = open_header(request.model), open_header(request.original)
        from shootout.models.onnx import onnx_axes

        axes = onnx_axes.axis_sizes(first, request.batch, axis_sizes(request.parameters), request.original)
        specs = onnx_axes.input_specs(first, axes.sizes)
        sizes = onnx_axes.sizes_beside(graph, specs, path.name, original.model)
        found = self._check_file(replace(request, parameters=sizes, batch=1, sweep={}))
        return settle(replace(found, original=original.model, batch=request.batch, base=original))

    def export(self, request: Request, effort: Effort) -> ExportedModel:
        """Make the exported model of a file, or of its torch module from that; see `Source.export`."""
        from shootout.models.sources import open_axes, user_onnx

        if request.is_open:
            return open_axes.take(request)
        if request.module and not request.original and request.base:
            return user_onnx.take_module(request, effort)
        return user_onnx.take(request, effort)

    def has_labels(self, request: Request) -> bool:
        """Return whether the user's inputs hold labels, which isn't an input of the file called so."""
        if not super().has_labels(request):
            return False
        return LABELS not in {info.name for info in open_header(request.model)[1].graph.input}

    def fit(self, request: Request, shapes: Mapping[str, Sequence[int]], *, to_rows: bool) -> Request:
        """Return a request with the sizes and the batch that whole shapes tell, and the sizes of its data's rows.

        Data that can't be read, or that have other inputs, give none: `check_sizes` says what doesn't fit.
        """
        if not shapes and not (to_rows and data_of(request)):
            return request
        _, graph = open_header(request.model)
        from shootout.models.onnx import onnx_axes

        if shapes:
            own = axis_sizes(request.parameters)
            sizes, batch = onnx_axes.sizes_asked(graph, shapes, own, request.batch)
            request = replace(request, parameters=sizes, batch=batch)
        if to_rows and data_of(request):
            request = replace(request, parameters={**find_row_sizes(request, graph), **request.parameters})
        return request

    def check_sizes(self, request: Request) -> int | None:
        """Refuse sizes, data and labels that don't fit the file; see `Source.check_sizes`."""
        if request.original:
            return None
        sizes = axis_sizes(request.parameters)
        _, graph = open_header(request.model)
        from shootout.models.onnx import onnx_axes

        onnx_axes.require_tensor_outputs(graph)
        try:
            axes = onnx_axes.axis_sizes(graph, request.batch, sizes, request.model)
        except UsageError:
            refuse_unreadable(request, graph)  # data that can be read would have told the sizes
            raise
        specs = onnx_axes.input_specs(graph, axes.sizes)
        stream = stream_of(request, specs, onnx_axes.output_forms(graph, axes.sizes))
        if request.inputs_npz is None:
            return None
        if found := sized_rows.find_size(request.inputs_npz, sizes):
            specs = found[0].widen(specs, found[1])
        count = data_files.check(request.inputs_npz, specs, stream, takes_nan=takes_nan(request.model))
        if place := self.labels(request):
            input_sets.common_batch(specs, stream)
            input_sets.check_labels(place, [count] if count else [])
        return count

    def check_data(self, request: Request) -> None:
        """Refuse inputs that hold NaN that the file doesn't take."""
        if request.inputs_npz and not request.original and not takes_nan(request.model):
            data_files.refuse_nan(request.inputs_npz)

    def outputs(self, word: str) -> tuple[str, ...]:
        """Return the names of the outputs, by the file's header alone."""
        return tuple(output.name for output in open_header(word)[1].graph.output)

    def output_specs(self, request: Request) -> tuple[TensorSpec, ...]:
        """Return the outputs of a call; none if the header doesn't tell all shapes, or rows aren't their first axis."""
        if request.original:
            return ()
        _, graph = open_header(request.model)
        from shootout.models.onnx import onnx_axes

        axes = onnx_axes.axis_sizes(graph, request.batch, axis_sizes(request.parameters), request.model)
        forms = onnx_axes.output_forms(graph, axes.sizes)
        if any(not shape or -1 in shape or shape[0] != axes.batch for _, shape in forms.values()):
            return ()
        return tuple(TensorSpec(name=name, shape=shape or (), dtype=dtype) for name, (dtype, shape) in forms.items())

    def open_axes(self, word: str) -> list[str]:
        """Return the axes that the file leaves open beside the batch."""
        _, graph = open_header(word)
        from shootout.models.onnx import onnx_axes

        return onnx_axes.open_beside_batch(graph)


def takes_nan(word: str) -> bool:
    """Return whether NaN is a missing value to a file.

    Raises:
        UsageError: the file or `onnx` isn't there.
        ModelError: it is not an ONNX model.
    """
    path, graph = open_header(word)
    from shootout.models.onnx import onnx_files

    return trees.open_converted(path) is not None or onnx_files.takes_nan(graph)


def open_header(word: str) -> tuple[Path, ModelProto]:
    """Return where a file is, and its header; what goes wrong with it is said in words of ours."""
    with explaining_errors(path := path_of(word)):
        from shootout.models.onnx.onnx_files import header

        return path, header(path)
