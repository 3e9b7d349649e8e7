"""What may be exported: a request is checked, and its content hashed, before any process is started for it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shootout import errors, models, schemes
from shootout.contract import Device, NotRun, NotRunKind, Precision, Value
from shootout.errors import ModelError, ShootoutError, SkippedArm, UsageError, install
from shootout.export import cache, input_sets
from shootout.exported import data_files
from shootout.exported.model import LABELS, ONNX_SUFFIX, sha256
from shootout.host import environment
from shootout.host.environment import providing
from shootout.models.base import IntRange
from shootout.models.user import hfconfig

JOBS = "jobs.json"
"""In the folder of an export process: the jobs, and its seconds."""


def brief_key(key: str, needs: Iterable[str]) -> str:
    """The key of the exported model that takes the place of this one where there is no time for all of it.

    Args:
        needs: the precisions whose errors it is to tell.
    """
    return hashlib.sha256(f"{key} brief {' '.join(sorted(needs))}".encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A user's own file: its absolute path and its hash, "" where it can't be read (which the exported model then
    says).
    """

    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportJob:
    """One exported model to make.

    Attributes:
        model: the registry's name, a user's file's name, or the place of a user's own model.
        batch: as in `Request`, like `variant` and `training`.
        parameters: complete; none for a user's file.
        file: path of a user's ONNX file, "" for other models.
        sets: sizes of the file's symbolic axes.
        module: as in `Request`, like `needs`.
        contents: hashes of the file and of those beside it that hold its weights, by name.
        holds: the precisions other than FP32 that the file holds itself.
        source_sha256: of the source of a user's own model, "" for other models.
        libraries: versions of what that source imports, by package.
        inputs: the user's own inputs, for a file or an own model.
        labels: the right class of each of their rows.
        calibration: the user's own calibration sets.
        weights: a user's own weights, a file or a folder, hashed as one.
        base: of a variant with quantized weights, the plain exported model's job; of a file that races its original,
            that's.
        original: of such a file, the original's name; "" for other models.
        versions: of the packages that an exported model depends on.
        key: hash of all above, and of the code that exports a model.
        folder: where the exported model goes; "" until there is a place.
        base_folder: where the base's exported model is, likewise.
    """

    model: str
    batch: int = 1
    variant: str = ""
    reduced: bool = False
    training: bool = False
    parameters: Mapping[str, Value] = field(default_factory=dict)
    file: str = ""
    sets: Mapping[str, int] = field(default_factory=dict)
    module: bool = False
    needs: tuple[str, ...] = ()
    contents: Mapping[str, str] = field(default_factory=dict)
    holds: tuple[Precision, ...] = ()
    source_sha256: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)
    inputs: Given | None = None
    labels: Given | None = None
    calibration: Given | None = None
    weights: Given | None = None
    base: ExportJob | None = None
    original: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    folder: str = ""
    base_folder: str = ""

    @property
    def is_probe(self) -> bool:
        """Whether the model is one of the harness's own."""
        return self.model in models.HIDDEN

    @property
    def is_own(self) -> bool:
        """Whether the model is a user's own factory or config, whose code runs in the export."""
        return bool(self.source_sha256)

    @property
    def short(self) -> str:
        """The model's name for people: of a user's own without its folder."""
        return Path(self.model).name

    @property
    def weights_sha256(self) -> str:
        """Of a user's file, the hash of its own and its weights' contents."""
        return hashlib.sha256(json.dumps(dict(self.contents)).encode()).hexdigest()

    def keyed(self) -> ExportJob:
        """The same with its versions and its key."""
        known = dataclasses.replace(self, versions=cache.versions())
        return dataclasses.replace(known, key=cache.key(dataclasses.asdict(known)))


def to_json(job: ExportJob) -> dict[str, Any]:
    """A job as JSON values."""
    return dataclasses.asdict(job)


def from_json(stored: Mapping[str, Any]) -> ExportJob:
    """The job that `to_json` wrote."""
    given = {name: Given(**stored[name]) for name in ("inputs", "labels", "calibration", "weights") if stored[name]}
    base = from_json(stored["base"]) if stored["base"] else None
    holds = tuple(map(Precision, stored["holds"]))
    return ExportJob(**{**stored, **given, "base": base, "holds": holds, "needs": tuple(stored["needs"])})


def error_to_json(error: ShootoutError) -> dict[str, Any]:
    """What an export ended with, as JSON values: a skip with its reason, or the message and whose fault it is."""
    if isinstance(error, SkippedArm):
        return {"why": dataclasses.asdict(error.why)}
    return {"message": str(error), "is_usage": isinstance(error, UsageError)}


def error_from_json(stored: Mapping[str, Any]) -> ShootoutError:
    """The error that `error_to_json` wrote."""
    if "why" in stored:
        why = NotRun(**{**stored["why"], "kind": NotRunKind(stored["why"]["kind"])})
        return SkippedArm(why.reason, why.fix, why.kind)
    return (UsageError if stored["is_usage"] else ModelError)(stored["message"])


Sources = dict[str, dict[str, Any]]
"""What makes each of the users' own models what it is, as far as requests that are checked together asked for it."""
SIZE = IntRange(default=1, low=1, high=1 << 20)
"""What a batch or a free axis may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to export.

    Attributes:
        model: a name in the registry, the path of an `.onnx` file, or a user's own model (see `models.user.factory`).
        parameters: of any other model than a file's; what is missing gets its default.
        batch: rows per call; which axis of a user's file that is, `exported.onnx_axes` tells.
        original: the file that a user's file races, whose inputs and outputs it is held to, and to which the rest of
            the request applies; "" for no other.
        sets: sizes of the free axes of a user's file.
        inputs_npz: real inputs for a user's own model, see `data_files`, as for the next and `calibration_npz`.
        labels_npz: the right class of each of their rows, where they don't lie among them.
        device: where a variant with quantized weights will run: only this CPU may ask for a bit less.
        variant: what is done to the model first (a `variant` of `shootout.schemes`), "" for nothing.
        calibration_npz: the user's own calibration sets.
        weights: a user's own, for a transformers config: a file or a folder.
        module: of a user's file, the torch module too, for backends that run nothing else.
        training: an exported model for training steps: its reference outputs holds the loss and the gradients.
        needs: of a user's file, the precisions whose errors are to be told beside FP32's; none: those of all.
    """

    model: str
    original: str = ""
    parameters: Mapping[str, Value] = field(default_factory=dict)
    batch: int = 1
    sets: Mapping[str, int] = field(default_factory=dict)
    inputs_npz: Path | None = None
    variant: str = ""
    calibration_npz: Path | None = None
    module: bool = False
    training: bool = False
    labels_npz: Path | None = None
    weights: Path | None = None
    device: Device = Device.CPU
    needs: tuple[str, ...] = ()


def is_file(model: str) -> bool:
    """Whether `model` is meant as a user's ONNX file rather than a registered name."""
    return model.endswith(ONNX_SUFFIX)


def checked(request: Request, sources: Sources | None = None) -> ExportJob | ShootoutError:
    """The export job that answers the request, or why there is none.

    A variant with quantized weights is made from the plain exported model, whose job is then its `base`.

    Args:
        sources: filled in here, for other requests for the same model.
    """
    try:
        SIZE.check("batch", request.batch)
        scheme = _variant(request)
        if is_file(request.model):
            job = _beside_job(request) if request.original else _file_job(request)
        else:
            own = models.is_own(request.model)
            job = _own_job(request, {} if sources is None else sources) if own else _model_job(request)
        job = replace(job, batch=request.batch, labels=_labels(request), training=request.training)
    except ShootoutError as error:
        return error
    job = replace(job, calibration=_calibration(request.calibration_npz))
    if scheme.is_quantized:
        job = replace(job, base=job.keyed(), reduced=request.device is Device.CPU and environment.saturates())
    return replace(job, variant=request.variant).keyed()


def check_sizes(request: Request) -> None:
    """Refuse sizes, data and labels that don't fit a user's file; of other models nothing is known so soon.

    Raises:
        UsageError: an axis has no size, isn't in the file, or gets two; the data have other shapes, or the labels are
            not one for each row; a file isn't there.
        ModelError: it is not an ONNX model.
    """
    if not is_file(request.model) or request.original:
        return
    for axis, size in request.sets.items():
        SIZE.check(f"the size of axis {axis!r}", size)
    with _reading(path := path_of(request.model)):
        from shootout.exported import onnx_axes
        from shootout.exported.onnx_files import header

        onnx_axes.require_tensor_outputs(header(path))
        axes = onnx_axes.axis_sizes(header(path), request.batch, request.sets, request.model)
        specs = onnx_axes.input_specs(header(path), axes.sizes)
    if request.inputs_npz:
        count, place = data_files.check(request.inputs_npz, specs), labels_of(request)
        if place:
            input_sets.common_batch(specs)
            input_sets.check_labels(place, [count] if count else [])


def check_data(request: Request) -> None:
    """Refuse a user's data that no model could use, before anything is exported.

    Raises:
        UsageError: the inputs hold NaN, or the labels aren't one whole number for each row.
    """
    if request.inputs_npz is None or request.original:
        return
    data_files.refuse_nan(request.inputs_npz)
    if not is_file(request.model) and (place := labels_of(request)):  # of a file `check_sizes` knows more
        input_sets.check_labels(place, data_files.possible_rows(request.inputs_npz))


def sizes_asked(
    model: str, shapes: Mapping[str, Sequence[int]], sets: Mapping[str, int], batch: int
) -> tuple[dict[str, int], int]:
    """The sizes and the batch that whole shapes ask of a user's file, beside those given by axis.

    Raises:
        UsageError: it is no file, or they don't fit it or each other.
    """
    if not is_file(model):
        raise UsageError(f"--shape is for an {ONNX_SUFFIX} file; the sizes of {model} are parameters, for --set")
    with _reading(path := path_of(model)):
        from shootout.exported import onnx_axes
        from shootout.exported.onnx_files import header

        return onnx_axes.sizes_asked(header(path), shapes, sets, batch)


def input_texts(model: str) -> dict[str, str]:
    """The inputs of a user's file as people read them, by its header alone.

    Raises:
        UsageError: the file or `onnx` isn't there.
        ModelError: it is not an ONNX model.
    """
    with _reading(path := path_of(model)):
        from shootout.exported import onnx_axes
        from shootout.exported.onnx_files import header

        return onnx_axes.input_texts(header(path))


def path_of(model: str) -> Path:
    """Where a user's file is."""
    return Path(model).expanduser().absolute()


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What goes wrong with a user's file, in words of ours."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(f"{path.name} needs {error.name}: {install('onnxruntime')}") from error
    except OSError as error:
        raise UsageError(f"can't read {error.filename}: {error.strerror}") from error


def _variant(request: Request) -> schemes.Scheme:
    scheme = schemes.parse(request.variant)
    if scheme.variant != request.variant:
        raise UsageError(f"variant {request.variant!r}: expected one of shared, mixed-…, pruned-…")
    return scheme


def _labels(request: Request) -> Given | None:
    if request.labels_npz and request.inputs_npz is None:
        raise UsageError("--labels are the classes of your own inputs' rows: give those too, with --inputs data.npz")
    return _given(labels_of(request))


def labels_of(request: Request) -> Path | None:
    """Where the labels of the user's rows are: in a file of their own, or among the inputs.

    Raises:
        UsageError: in both, or the inputs can't be read.
    """
    among = request.inputs_npz if request.inputs_npz and data_files.holds_labels(request.inputs_npz) else None
    if among and is_file(request.model):
        from shootout.exported import onnx_axes
        from shootout.exported.onnx_files import header

        among = None if LABELS in onnx_axes.input_texts(header(path_of(request.model))) else among
    if among and request.labels_npz:
        raise UsageError(f"{among} holds labels, and --labels gives some too: give one of them")
    return request.labels_npz or among


def _given(path: Path | None) -> Given | None:
    try:
        return Given(path=str(path.absolute()), sha256=data_files.digest(path)) if path else None
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from error


def _calibration(path: Path | None) -> Given | None:
    """As `_given`, but what can't be read is for the exported model to say: float arms don't need it."""
    try:
        return _given(path)
    except UsageError:
        return Given(path=str(path.absolute()), sha256="") if path else None


def _model_job(request: Request) -> ExportJob:
    if request.weights:
        raise UsageError(f"--weights is for a transformers config: {request.model} has its own")
    if request.sets or request.inputs_npz or request.labels_npz:
        raise UsageError(
            f"{request.model} draws its own inputs: axis sizes are for a {ONNX_SUFFIX} file, --inputs and --labels "
            "for a model of your own"
        )
    model = models.get(request.model)
    parameters = model.check(request.parameters)
    model.inputs(parameters, request.batch)  # a batch that this model can't have
    return ExportJob(model=request.model, parameters=parameters)


def _own_job(request: Request, sources: Sources) -> ExportJob:
    """A user's factory or transformers config: none of its code is run here."""
    model = models.get(request.model)
    place = request.weights or model.weights
    if request.weights and not hfconfig.is_meant(request.model):
        raise UsageError(f"--weights is for a transformers config: {model.name} loads its own")
    if model.name not in sources:
        assert model.source, "a user's own model has a source"
        assert model.imports, "and imports something"
        libraries = providing(model.imports())
        sources[model.name] = {"source_sha256": model.source(), "libraries": libraries}
    parameters, inputs = model.check(request.parameters), _given(request.inputs_npz)
    given = (
        Given(path=str(place.expanduser().absolute()), sha256=hfconfig.weights_digest(place.expanduser()))
        if place
        else None
    )
    return ExportJob(model=model.name, parameters=parameters, inputs=inputs, weights=given, **sources[model.name])


def _beside_job(request: Request) -> ExportJob:
    """A file that races its original: made from that one's exported model, with sizes by which it takes the same
    inputs.
    """
    original = checked(replace(request, model=request.original, original="", variant=""))
    if isinstance(original, ShootoutError):
        raise original
    with _reading(path := path_of(request.model)):
        from shootout.exported import onnx_axes
        from shootout.exported.onnx_files import header

        first = header(path_of(request.original))
        axes = onnx_axes.axis_sizes(first, request.batch, request.sets, request.original)
        specs = onnx_axes.input_specs(first, axes.sizes)
        sets = onnx_axes.sizes_beside(header(path), specs, path.name, original.model)
    return replace(_file_job(replace(request, sets=sets, batch=1)), original=original.model, base=original)


def _file_job(request: Request) -> ExportJob:
    if request.parameters:
        raise errors.unknown("parameter", next(iter(request.parameters)), ())
    if request.weights:
        raise UsageError(f"--weights is for a transformers config: {request.model} holds its own")
    check_sizes(request)
    with _reading(path := path_of(request.model)):
        from shootout.exported.onnx_files import external_files, header, own_precisions

        files = {path.name: path, **external_files(path)}
        contents = {name: sha256(file) for name, file in files.items()}
    inputs = _given(request.inputs_npz)
    return ExportJob(
        model=path.name,
        file=str(path),
        contents=contents,
        holds=own_precisions(header(path)),
        sets=dict(request.sets),
        inputs=inputs,
        module=request.module,
        needs=request.needs,
    )
