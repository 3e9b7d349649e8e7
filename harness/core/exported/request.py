"""Check an export's request, and hash its content, before any process is started for it.

A request that was checked becomes an `ExportJob`, which goes to the export process as JSON.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from shootout import models
from shootout.core import schemes
from shootout.core.contract import Artifact, Device, NotRun, NotRunKind, Precision, TensorSpec, Value
from shootout.core.errors import ModelError, ShootoutError, SkippedArm, UsageError, install, tell_refusal
from shootout.core.exported import cache
from shootout.core.exported.model import LABELS, ONNX_SUFFIX, sha256
from shootout.core.exported.stream import Stream
from shootout.core.host import environment
from shootout.core.host.environment import installed
from shootout.core.study.axes import BATCH, EMPTY
from shootout.models.base import IntRange, Model, set_bytes
from shootout.models.data import data_files
from shootout.models.sources import hfconfig, input_sets, states, trees
from shootout.models.sources.hfconfig import WEIGHTS_PARAMETER

if TYPE_CHECKING:
    from onnx import ModelProto

JOBS = "jobs.json"
"""The files of jobs and of seconds in an export process's folder."""
Sources = dict[str, dict[str, Any]]
"""The source and libraries of each of the users' own models, shared by requests that are checked together."""
SIZE = IntRange(default=1, low=1, high=1 << 20)
"""The limits of a batch or a free axis."""
DATA = ("inputs_npz", "labels_npz", "calibration_npz", "rows_by", "weights")
"""The fields of a request that name a user's own files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Describe what to export.

    Attributes:
        model: a name in the registry, the path of an `.onnx` file, or a user's own model (see `models.user.factory`).
        parameters: the model's, where those that are missing get their defaults; of a user's file the sizes of its free
            axes.
        batch: rows per call; `exported.onnx_axes` finds the axis of a user's file.
        original: the file that a user's file races, whose inputs and outputs it is held to, and to which the rest of
            the request applies; "" for no other.
        inputs_npz: real inputs for a user's own model, see `data_files`, like the next and `calibration_npz`.
        labels_npz: the right class of each of their rows, if they don't lie among them.
        calibration_npz: the user's own calibration sets.
        weights: a user's own, for a transformers config: a file or a folder.
        variant: what is done to the model first (a `variant` of `shootout.core.schemes`), "" for nothing.
        device: where a variant with quantized weights will run: only this CPU may ask for a bit less.
        module: of a user's file, the torch module alone, for backends that run nothing else.
        training: an exported model for training steps: its reference outputs hold the loss and the gradients.
        needs: of a user's file, the precisions whose errors are needed besides FP32's; none: those of all.
        scored: what a metric scores the rows of a user's inputs against: `truth` of theirs, or the model's own FP32
            `outputs`; "" if there is no metric.
        rows_by: a file with what each row belongs to; the rows of one stay together.
        scores_all: whether all rows are scored: nothing is calibrated on any, or chosen by any (see `split_rows`).
        saturates: whether the CPU that it is for overflows in INT8 products (see `environment.saturates`); None: asks
            this machine's.
        sweep: the least and the largest of each size that varies in the study, by parameter or `batch`: one export with
            these axes open is shared by all sizes, if there can be one (see `export.open_axes`).
        is_open: it is that export, of no size by itself.
        state: by input of a user's model, the output that is its value in the next call; None: goes by their names.
        steps: calls of a clip, after which states begin anew; 0: the usual ones, or the data are no clips.
    """

    model: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    batch: int = 1
    original: str = ""
    inputs_npz: Path | None = None
    labels_npz: Path | None = None
    calibration_npz: Path | None = None
    weights: Path | None = None
    variant: str = ""
    device: Device = Device.CPU
    module: bool = False
    training: bool = False
    needs: tuple[str, ...] = ()
    scored: Literal["", "truth", "outputs"] = ""
    rows_by: Path | None = None
    scores_all: bool = False
    saturates: bool | None = None
    sweep: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    is_open: bool = False
    state: Mapping[str, str] | None = None
    steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportJob:
    """Hold a request that was checked, and what identifies its content.

    Attributes:
        request: its parameters complete, its files' paths absolute, nothing in it that doesn't apply to the model. The
            model and the original of a user's file are the files' names.
        file: path of a user's ONNX file, "" for other models.
        contents: hashes of the file and of those beside it that hold its weights, by name.
        file_bytes: their bytes; 0 for other models.
        holds: the precisions other than FP32 that the file holds itself.
        classical: the file's operators of `ai.onnx.ml`.
        layers: how many layers the file's main graph has (see `exported.layers`); 0: that isn't known before export.
        native: the library whose own file it was converted from here, if it was (see `export.trees`).
        source_sha256: of the source of a user's own model, "" for other models.
        source_folder: where that source may read data, "" if it can read none.
        libraries: versions of all installed packages, which that source may import; none for other models.
        data: hashes of the request's files by field (see DATA); "" for calibration data that can't be read, which the
            exported model says then.
        reduced: whether quantized weights get 7 bits.
        base: of a variant with quantized weights, the plain exported model's job; of a file that races its original,
            the original's; of another file's torch module, the file's.
        versions: of the packages that an exported model depends on.
        key: hash of all above but for places (see `_contents_of`), and of the code that exports a model.
        folder: where the exported model goes; "" until there is a place.
        base_folder: where the base's exported model is, "" until it is known.
        opened: the job of the export with open axes that this size shares with others; None: it has its own.
        opened_folder: where that export is, "" until it is known.
    """

    request: Request
    file: str = ""
    contents: Mapping[str, str] = field(default_factory=dict)
    file_bytes: int = 0
    holds: tuple[Precision, ...] = ()
    classical: tuple[str, ...] = ()
    layers: int = 0
    native: Artifact | None = None
    source_sha256: str = ""
    source_folder: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    reduced: bool = False
    base: ExportJob | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    folder: str = ""
    base_folder: str = ""
    opened: ExportJob | None = None
    opened_folder: str = ""

    @property
    def is_probe(self) -> bool:
        """Return whether the model is one of the harness's own."""
        return self.request.model in models.HIDDEN

    @property
    def is_own(self) -> bool:
        """Return whether the model is a user's own factory or config, whose code runs in the export."""
        return bool(self.source_sha256)

    @property
    def short(self) -> str:
        """Return the model's name for people; a user's own goes without its folder."""
        return Path(self.request.model).name

    @property
    def weights_sha256(self) -> str:
        """Hash a user's file and its weights' contents."""
        return hashlib.sha256(json.dumps(dict(self.contents)).encode()).hexdigest()

    @property
    def hashes(self) -> tuple[str, ...]:
        """Return the hashes of all the user's files, data included."""
        return (*self.contents.values(), *filter(None, (*self.data.values(), self.source_sha256)))

    def keyed(self) -> ExportJob:
        """Return the job with its versions and its key."""
        known = replace(self, versions=cache.versions())
        return replace(known, key=cache.key(_contents_of(known)))


def is_file(model: str) -> bool:
    """Return whether `model` is meant as a user's ONNX file rather than a registered name."""
    return model.endswith(ONNX_SUFFIX)


def path_of(model: str) -> Path:
    """Return where a user's file is."""
    return Path(model).expanduser().absolute()


def checked(request: Request, sources: Sources | None = None) -> ExportJob | ShootoutError:
    """Return the export job that answers the request, or why there is none.

    A variant with quantized weights is made from the plain exported model, whose job is then its `base`.

    Args:
        sources: filled in here, for other requests for the same model.
    """
    try:
        SIZE.check("batch", request.batch)
        scheme = schemes.parse(request.variant)
        if scheme.made != request.variant:
            raise UsageError(f"variant {request.variant!r}: expected shared, or shared+float-…")
        plain = replace(request, variant="", device=Device.CPU, saturates=None)
        if is_file(request.model):
            job = _beside_job(plain) if request.original else _file_job(plain)
        elif models.is_own(request.model):
            job = _own_job(plain, {} if sources is None else sources)
        else:
            job = _model_job(plain)
        job = replace(job, data={**job.data, **_data_hashes(job.request)})
        job = replace(job, opened=_open_job(job))
    except ShootoutError as error:
        return error
    if scheme.is_quantized:
        saturates = environment.saturates() if request.saturates is None else request.saturates
        job = replace(job, base=job.keyed(), reduced=request.device is Device.CPU and saturates)
    elif job.request.module and job.base is None:
        of_file = replace(job.request, module=False)
        job = replace(job, base=replace(job, request=of_file).keyed())
    opened = None if request.variant else job.opened
    return replace(job, request=replace(job.request, variant=request.variant), opened=opened).keyed()


def _model_job(request: Request) -> ExportJob:
    """Check a request for a model in the registry."""
    if request.state or request.steps:
        raise UsageError(f"{request.model} has no state: --state and --stream are for a model of your own")
    if request.weights:
        raise UsageError(f"--weights is for a transformers config: {request.model} has its own")
    if request.inputs_npz or request.labels_npz:
        raise UsageError(f"{request.model} draws its own inputs: --inputs and --labels are for a model of your own")
    model = models.get(request.model)
    parameters = model.check(request.parameters)
    model.inputs(parameters, request.batch)  # a batch that this model can't have
    sweep = {} if model.write else _sweep_of_shapes(model, replace(request, parameters=parameters))
    asked = replace(request, parameters=parameters, module=False, needs=(), scored="", state=None, sweep=sweep)
    return ExportJob(request=_with_absolute_paths(asked))


def _sweep_of_shapes(model: Model, request: Request) -> dict[str, tuple[int, int]]:
    """Return the part of the sweep that changes the shapes of inputs alone, as far as is known without torch."""

    def facts(name: str, size: int) -> tuple[tuple[TensorSpec, ...], int]:
        rows = size if name == BATCH else request.batch
        parameters = request.parameters if name == BATCH else {**request.parameters, name: size}
        return model.inputs(parameters, rows), model.parameter_count(parameters)

    found = dict[str, tuple[int, int]]()
    for name, (least, most) in request.sweep.items():
        try:
            (small, few), (large, many) = facts(name, least), facts(name, most)
        except UsageError:  # of sizes that only go together with others
            continue
        if small != large and few == many:
            found[name] = (least, most)
    return found


def _own_job(request: Request, sources: Sources) -> ExportJob:
    """Check a request for a user's factory or transformers config: none of its code is run here."""
    model = models.get(request.model)
    if request.weights and not hfconfig.is_meant(request.model):
        raise UsageError(f"--weights is for a transformers config: {model.name} loads its own")
    if model.name not in sources:
        assert model.source, "a user's own model has a source"
        sources[model.name] = {
            "source_sha256": model.source(),
            "source_folder": str(model.folder or ""),
            "libraries": installed(),
        }
    weights = request.weights or model.weights
    own = replace(
        request,
        model=model.name,
        parameters=model.check(request.parameters),
        weights=weights.expanduser() if weights else None,
        **_labeling(request),
        module=False,
        needs=(),
    )
    data = {"weights": hfconfig.weights_digest(own.weights)} if own.weights else {}
    return ExportJob(request=_with_absolute_paths(own), data=data, **sources[model.name])


def _file_job(request: Request) -> ExportJob:
    """Check a request for a user's ONNX file."""
    if request.weights:
        raise UsageError(f"--weights is for a transformers config: {request.model} holds its own")
    check_sizes(request)
    with _explaining_errors(path := path_of(request.model)):
        from shootout.models.onnx.layers import layers_of
        from shootout.models.onnx.onnx_files import (
            classical_operators,
            external_files,
            header,
            own_precisions,
            whole_bytes,
        )

        converted = trees.open_converted(path)
        graph = header(path)
        files = {
            path.name: path,
            **external_files(path),
            **({converted.file.name: converted.file} if converted else {}),
        }
        contents = {name: sha256(file) for name, file in files.items()}
        file_bytes = whole_bytes(path) or sum(file.stat().st_size for file in files.values())
    return ExportJob(
        request=_with_absolute_paths(replace(request, model=path.name, **_labeling(request))),
        file=str(path),
        contents=contents,
        file_bytes=file_bytes,
        holds=own_precisions(graph),
        classical=classical_operators(graph),
        layers=0 if graph.functions else len(layers_of(graph)),  # functions are put into the main graph later
        native=converted.artifact if converted else None,
    )


def _beside_job(request: Request) -> ExportJob:
    """Check a request for a file that races its original: it is made from that one's exported model.

    Its free axes get the sizes with which it takes the same inputs.
    """
    original = checked(replace(request, model=request.original, original=""))
    if isinstance(original, ShootoutError):
        raise original
    with _explaining_errors(path := path_of(request.model)):
        from shootout.models.onnx import onnx_axes
        from shootout.models.onnx.onnx_files import header

        first = header(path_of(request.original))
        axes = onnx_axes.axis_sizes(first, request.batch, axis_sizes_of(request), request.original)
        specs = onnx_axes.input_specs(first, axes.sizes)
        sizes = onnx_axes.sizes_beside(header(path), specs, path.name, original.request.model)
    job = _file_job(replace(request, parameters=sizes, batch=1, sweep={}))
    same = replace(job.request, original=original.request.model, batch=request.batch)
    return replace(job, request=same, base=original)


def _open_job(job: ExportJob) -> ExportJob | None:
    """Return the job of the export with open axes that a size of a sweep shares with the others; None for no sweep.

    Of a user's file it is the file itself, whatever its sizes; else the model at the largest size of each axis. The
    user's data are no part of it.
    """
    asked = job.request
    if not asked.sweep or asked.training:
        return None
    if job.file:
        request = Request(model=asked.model, is_open=True)
    else:
        sizes = {name: most for name, (_, most) in asked.sweep.items()}
        request = Request(
            model=asked.model,
            batch=sizes.pop(BATCH, asked.batch),
            parameters={**asked.parameters, **sizes},
            weights=asked.weights,
            sweep=asked.sweep,
            is_open=True,
        )
    data = {name: digest for name, digest in job.data.items() if name == WEIGHTS_PARAMETER}
    return replace(job, request=request, data=data, base=None).keyed()


def _with_absolute_paths(request: Request) -> Request:
    """Return the request with absolute paths, for a process in another folder."""
    paths = {name: path.absolute() for name in DATA if (path := getattr(request, name))}
    return replace(request, **paths)


def _data_hashes(request: Request) -> dict[str, str]:
    """Hash the user's data by field; those for calibration may be unreadable, since float arms don't need them.

    Raises:
        UsageError: other data can't be read.
    """
    if request.labels_npz and request.inputs_npz is None:
        raise UsageError("--labels are the classes of your own inputs' rows: give those too, with --inputs data.npz")
    found = {}
    for name in ("inputs_npz", "labels_npz", "calibration_npz", "rows_by"):
        if path := getattr(request, name):
            try:
                found[name] = data_files.digest(path)
            except (OSError, UsageError) as error:
                if name == "calibration_npz":
                    found[name] = ""
                elif isinstance(error, OSError):
                    raise UsageError(f"can't read {path}: {tell_refusal(error)}") from error
                else:
                    raise
    return found


def _labeling(request: Request) -> dict[str, Any]:
    """Return where the labels are, and what a metric goes by: labels are the truth of a metric, by default accuracy."""
    labels = labels_of(request)
    return {"labels_npz": labels, "scored": "truth" if labels else request.scored}


def labels_of(request: Request) -> Path | None:
    """Return where the labels of the user's rows are: in a file of their own, or among the inputs.

    Raises:
        UsageError: in both, or the inputs can't be read.
    """
    among = request.inputs_npz if request.inputs_npz and data_files.holds_labels(request.inputs_npz) else None
    if among and is_file(request.model):
        from shootout.models.onnx import onnx_axes
        from shootout.models.onnx.onnx_files import header

        among = None if LABELS in onnx_axes.input_texts(header(path_of(request.model))) else among
    if among and request.labels_npz:
        raise UsageError(f"{among} holds labels, and --labels gives some too: pass only one of them")
    return request.labels_npz or among


def may_be_scored(request: Request) -> bool:
    """Return whether a metric may score rows: with truth or labels, of a zoo model's own, or that code may bring."""
    if request.inputs_npz:
        return bool(request.scored or labels_of(request))
    if is_file(request.model):
        return False
    return models.is_own(request.model) or models.get(request.model).task is not None


def axis_sizes_of(request: Request) -> dict[str, int]:
    """Return the sizes that a request gives a file's free axes.

    Raises:
        UsageError: one isn't a whole number of 1 or more.
    """
    for axis, size in request.parameters.items():
        if size == 0:
            raise UsageError(f"{axis}={size}: {EMPTY}")
        SIZE.check(f"the size of axis {axis!r}", size)
    return {axis: int(size) for axis, size in request.parameters.items()}


def with_shapes(request: Request, shapes: Mapping[str, Sequence[int]]) -> Request:
    """Return a request for a user's file with the sizes and the batch that whole shapes tell, beside its own sizes.

    Args:
        shapes: by input, "" for the only one (see `onnx_axes.sizes_of_shapes`).

    Raises:
        UsageError: it is no file, or they don't fit it or each other.
    """
    if not is_file(request.model):
        theirs = f"the sizes of {request.model} are parameters, for --set"
        raise UsageError(f"--shape is for an {ONNX_SUFFIX} file; {theirs}")
    own = axis_sizes_of(request)
    with _explaining_errors(path := path_of(request.model)):
        from shootout.models.onnx import onnx_axes
        from shootout.models.onnx.onnx_files import header

        sizes, batch = onnx_axes.sizes_asked(header(path), shapes, own, request.batch)
    return replace(request, parameters=sizes, batch=batch)


def with_row_sizes(request: Request) -> Request:
    """Return a request for a user's file with the sizes of its data for open axes that have none.

    Data that can't be read, or that have other inputs, give none: `check_sizes` says what doesn't fit.
    """
    if not _data_of(request) or not is_file(request.model):
        return request
    with _explaining_errors(path := path_of(request.model)):
        from shootout.models.onnx.onnx_files import header

        sizes = _find_row_sizes(request, header(path))
    return replace(request, parameters={**sizes, **request.parameters})


def tell_row_sizes(request: Request, model: ModelProto, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return a note on the open axes whose sizes a user's own rows have; none without such axes or rows.

    Args:
        model: the parsed file, weights or not, its axes open.
        sizes: of its axes.
    """
    found = _find_row_sizes(request, model)
    told = [f"{axis}={size}" for axis, size in found.items() if sizes.get(axis) == size]
    if not told:
        return ()
    data = _data_of(request)[0]
    hints = [_tell_padding(request.model, axis, size, data) for axis, size in found.items() if len(found) == 1]
    return f"{', '.join(told)}: the size of the rows of {data_files.title(data)}", *filter(None, hints)


FULL_ROWS = 0.9
"""From this part of their size on, rows count as full."""
MIX_PARTS = 4
"""Sizes of a proposed mix: each stands for as many rows."""


def _tell_padding(model: str, axis: str, size: int, data: Path) -> str:
    """Tell how much of a user's rows is padding, and the command that times their lengths; "" if there is little."""
    with suppress(UsageError, OSError, ValueError):
        name, lengths = data_files.find_padding(data, size) or ("", [size])
        if (mean := sum(lengths) / len(lengths)) < FULL_ROWS * size:
            ends = [sorted(lengths)[-(-len(lengths) * part // MIX_PARTS) - 1] for part in range(1, MIX_PARTS + 1)]
            counts = Counter(max(end, 1) for end in ends)
            mix = ",".join(f"{end}:{count * 100 // MIX_PARTS}" for end, count in sorted(counts.items()))
            command = f"shootout run {shlex.quote(model)} --mix {axis}={mix}"
            return f"{name} has {mean:.3g} ones in {size} on average; to time such lengths, by drawn inputs: {command}"
    return ""


def _find_row_sizes(request: Request, model: ModelProto) -> dict[str, int]:
    from shootout.models.onnx import onnx_axes

    names = [*onnx_axes.input_texts(model)] if onnx_axes.open_beside_batch(model) else []
    sizes: dict[str, int] = {}
    for data in _data_of(request) if names else ():
        with suppress(UsageError):
            sizes = {**onnx_axes.sizes_of_rows(model, data_files.row_shapes(data, names)), **sizes}
    return sizes


def _refuse_unreadable(request: Request, model: ModelProto) -> None:
    """Refuse data that tell no sizes of a file's open axes, since they can't be read or have other inputs.

    Raises:
        UsageError: there are such data.
    """
    from shootout.models.onnx import onnx_axes

    for data in _data_of(request):
        onnx_axes.sizes_of_rows(model, data_files.row_shapes(data, [*onnx_axes.input_texts(model)]))


def _data_of(request: Request) -> list[Path]:
    return [path for path in (request.inputs_npz, request.calibration_npz) if path]


def check_sizes(request: Request) -> int | None:
    """Refuse sizes, data and labels that don't fit a user's file; of other models nothing is known so soon.

    Returns:
        The rows of the user's inputs, if they are known.

    Raises:
        UsageError: an axis has no size, isn't in the file, or gets two; the data have other shapes, or the labels are
            not one for each row; a file isn't there.
        ModelError: it is not an ONNX model.
    """
    if not is_file(request.model) or request.original:
        return None
    sizes = axis_sizes_of(request)
    with _explaining_errors(path := path_of(request.model)):
        from shootout.models.onnx import onnx_axes
        from shootout.models.onnx.onnx_files import header

        onnx_axes.require_tensor_outputs(header(path))
        try:
            axes = onnx_axes.axis_sizes(header(path), request.batch, sizes, request.model)
        except UsageError:
            _refuse_unreadable(request, header(path))  # data that can be read would have told the sizes
            raise
        specs = onnx_axes.input_specs(header(path), axes.sizes)
        outputs = onnx_axes.output_forms(header(path), axes.sizes)
        stream = stream_of(request, specs, outputs)
    if request.inputs_npz is None:
        return None
    try:
        count, place = (
            data_files.check(request.inputs_npz, specs, stream, takes_nan=takes_nan(request)),
            labels_of(request),
        )
    except UsageError as error:
        handed = () if stream or request.state is not None else states.guess_state(specs, outputs)
        if not handed:
            raise
        told = f"a call gives the next one its {' and '.join(handed)}"
        hint = f"if {told}, add --stream N: rows are clips of N calls"
        raise UsageError(f"{error}; {hint}") from None
    if place:
        input_sets.common_batch(specs, stream)
        input_sets.check_labels(place, [count] if count else [])
    return count


def stream_of(
    request: Request, inputs: Sequence[TensorSpec], outputs: states.Forms, flops: float | None = None
) -> Stream | None:
    """Return the stream that a request asks for, or that the names of a model's inputs suggest.

    Args:
        flops: operations of a call, by which a guessed stream is shorter; None if they aren't known.

    Raises:
        UsageError: as `states.choose`; or the clips of such inputs take too much memory.
    """
    if request.training:
        return None
    has_data = bool(request.inputs_npz or request.calibration_npz)
    found = states.choose(inputs, outputs, request.state, request.steps, has_data=has_data, flops=flops)
    if found and request.state is None and not request.steps and not found.fits(set_bytes(inputs)):
        return None  # a guess is no reason to refuse a model
    if found:
        found.count_clips(set_bytes(inputs))
    return found


def takes_nan(request: Request) -> bool:
    """Return whether NaN is a missing value to the model; of what is no file it isn't known before the export.

    Raises:
        UsageError: the file or `onnx` isn't there.
        ModelError: it is not an ONNX model.
    """
    if not is_file(request.model):
        return False
    with _explaining_errors(path := path_of(request.model)):
        from shootout.models.onnx import onnx_files

        return trees.is_converted(path) or onnx_files.takes_nan(onnx_files.header(path))


def check_data(request: Request) -> None:
    """Refuse a user's data that no model could use, before anything is exported.

    Raises:
        UsageError: the inputs hold NaN, or row numbers that a table doesn't have; or the labels aren't one whole number
            for each row.
    """
    if request.inputs_npz is None or request.original:
        return
    if not takes_nan(request):
        data_files.refuse_nan(request.inputs_npz)
    if is_file(request.model):
        with _explaining_errors(path := path_of(request.model)):
            from shootout.models.onnx.onnx_files import header
            from shootout.models.sources import onnx_inputs

            data_files.refuse_numbers(request.inputs_npz, onnx_inputs.row_numbers(header(path)))
    if not is_file(request.model) and (place := labels_of(request)):  # of a file `check_sizes` knows more
        input_sets.check_labels(place, data_files.possible_rows(request.inputs_npz))


def open_axes(model: str) -> list[str]:
    """Return the axes that a model's file leaves open beside the batch; none of what is no ONNX file.

    Raises:
        UsageError: the file or `onnx` isn't there.
        ModelError: it is not an ONNX model.
    """
    if not is_file(model):
        return []
    with _explaining_errors(path := path_of(model)):
        from shootout.models.onnx import onnx_axes
        from shootout.models.onnx.onnx_files import header

        return onnx_axes.open_beside_batch(header(path))


def output_specs(request: Request) -> tuple[TensorSpec, ...]:
    """Return the outputs of a call of a user's file, by its header alone; none if that doesn't tell all shapes, or
    rows aren't their first axis.

    Raises:
        UsageError, ModelError: as `output_names`; or an axis has no size.
    """
    if not is_file(request.model) or request.original:
        return ()
    with _explaining_errors(path := path_of(request.model)):
        from shootout.models.onnx import onnx_axes
        from shootout.models.onnx.onnx_files import header

        axes = onnx_axes.axis_sizes(header(path), request.batch, axis_sizes_of(request), request.model)
        forms = onnx_axes.output_forms(header(path), axes.sizes)
    if any(not shape or -1 in shape or shape[0] != axes.batch for _, shape in forms.values()):
        return ()
    return tuple(TensorSpec(name=name, shape=shape or (), dtype=dtype) for name, (dtype, shape) in forms.items())


def output_names(model: str) -> tuple[str, ...]:
    """Return the names of the outputs of a user's file, by its header alone.

    Raises:
        UsageError: the file or `onnx` isn't there.
        ModelError: it is not an ONNX model.
    """
    with _explaining_errors(path := path_of(model)):
        from shootout.models.onnx.onnx_files import header

        return tuple(output.name for output in header(path).graph.output)


@contextmanager
def _explaining_errors(path: Path) -> Iterator[None]:
    """Say in words of ours what goes wrong with a user's file."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(f"{path.name} needs {error.name}: {install('onnxruntime')}") from error
    except OSError as error:
        raise UsageError(f"can't read {error.filename}: {tell_refusal(error)}") from error


def brief_key(key: str, needs: Iterable[str]) -> str:
    """Return the key of the exported model that takes the place of this one if there is no time for all of it.

    Args:
        needs: the precisions whose errors it is to tell.
    """
    return hashlib.sha256(f"{key} brief {' '.join(sorted(needs))}".encode()).hexdigest()


def to_json(job: ExportJob) -> dict[str, Any]:
    """Return a job as JSON values."""
    request = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in dataclasses.asdict(job.request).items()
    }
    others = {name: to_json(one) if (one := getattr(job, name)) else None for name in ("base", "opened")}
    return {**dataclasses.asdict(replace(job, base=None, opened=None)), "request": request, **others}


def _contents_of(job: ExportJob) -> dict[str, Any]:
    """Return what a job's key is made of: contents and parameters, and of a user's files the names without folders."""
    request = {name: bool(value) if name in DATA else value for name, value in to_json(job)["request"].items()}
    named = {"model": job.request.model, "original": job.request.original, "weights": job.request.weights or ""}
    request |= {name: Path(place).name for name, place in named.items()}
    others = {name: one.key if (one := getattr(job, name)) else "" for name in ("base", "opened")}
    places = dict.fromkeys(("file", "key", "folder", "base_folder", "opened_folder"), "")
    return {**to_json(job), "request": request, **others, **places}


def from_json(stored: Mapping[str, Any]) -> ExportJob:
    """Return the job that `to_json` wrote."""
    asked = stored["request"]
    paths = {name: Path(asked[name]) for name in DATA if asked[name]}
    sweep = {name: (least, most) for name, (least, most) in asked["sweep"].items()}
    told = {"device": Device(asked["device"]), "needs": tuple(asked["needs"]), "sweep": sweep}
    request = Request(**{**asked, **paths, **told})
    others = {name: from_json(stored[name]) if stored[name] else None for name in ("base", "opened")}
    native = Artifact(stored["native"]) if stored["native"] else None
    kinds = {"holds": tuple(map(Precision, stored["holds"])), "classical": tuple(stored["classical"])}
    return ExportJob(**{**stored, **kinds, "native": native, "request": request, **others})


def error_to_json(error: ShootoutError) -> dict[str, Any]:
    """Return what an export ended with as JSON values: a skip with its reason, or the message and whose fault it is."""
    if isinstance(error, SkippedArm):
        return {"why": dataclasses.asdict(error.why)}
    return {"message": str(error), "is_usage": isinstance(error, UsageError)}


def error_from_json(stored: Mapping[str, Any]) -> ShootoutError:
    """Return the error that `error_to_json` wrote."""
    if "why" in stored:
        why = NotRun(**{**stored["why"], "kind": NotRunKind(stored["why"]["kind"])})
        return SkippedArm(why.reason, why.fix, why.kind)
    return (UsageError if stored["is_usage"] else ModelError)(stored["message"])
