"""Say what to export, and find the source of models that exports it; nothing of it is made here.

A request that was checked also holds what identifies its content, and goes to the export process as it is.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from shootout.core import plugins, schemes
from shootout.core.clock import Deadline
from shootout.core.constants import BATCH, CONVERTED
from shootout.core.contract import Artifact, Device, NotRun, NotRunKind, Precision, TensorSpec, Value
from shootout.core.errors import ModelError, ShootoutError, SkippedArm, UsageError, unknown
from shootout.core.exported.model import GRAPH_SUFFIX, ExportedModel, Origin
from shootout.core.host import environment
from shootout.core.host.environment import version_of

CORE = (*(f"{name}.py" for name in ("constants", "contract", "schemes")), "exported/*.py")
"""The code of core that decides what an exported model holds, as patterns below its folder."""
JOBS = "jobs.pickle"
"""The file in an export process's folder with what is asked of it."""
LARGEST = 1 << 20
"""The limit of a batch or a free axis."""
DATA = ("inputs_npz", "labels_npz", "calibration_npz", "rows_by", "weights")
"""The fields of a request that name a user's own files."""


EXPORT_SHARE = 0.4
EXPORT_PLANS = 0.6
"""An export plans with this part of its share: a torch module of a user's file takes some 7 s that are not foreseen,
and the race tells more with the rest than six more sets of inputs do.
"""
LONGEST_EXPORT_S = 60.0
LITTLE = 0.2
"""An export that takes less than this part of the time left is made whole."""


class Model(Protocol):
    """Hold what is known of a model without running any of its code."""

    @property
    def name(self) -> str:
        """Return what it is called wherever it is run."""

    @property
    def title(self) -> str:
        """Return what people call it, "" if that is the name."""

    @property
    def parameters(self) -> Mapping[str, object]:
        """Return its parameters; none of a file, whose free axes have any size."""

    @property
    def takes_batch(self) -> bool:
        """Return whether a call may have any number of rows."""

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """Return the forms that it may come to."""

    @property
    def defaults(self) -> dict[str, Value]:
        """Return the parameters' defaults."""

    @property
    def source(self) -> Callable[[], str] | None:
        """Return what hashes a user's own source; None for other models."""

    def check(self, parameters: Mapping[str, Value]) -> dict[str, Value]:
        """Return the parameters, complete; a UsageError says what is wrong with one."""

    @property
    def forward(self) -> Callable[..., Any] | None:
        """Return what makes the model in NumPy or jax.numpy; None where there is no such code."""

    @property
    def module(self) -> Callable[[Mapping[str, Value]], Any]:
        """Return what makes its torch module, of these parameters; the code of a user's own runs then."""

    def inputs(self, parameters: Mapping[str, Value], batch: int, /) -> tuple[TensorSpec, ...]:
        """Return the inputs of a call, () if they aren't known yet; a UsageError refuses sizes."""

    def count_weights(self, parameters: Mapping[str, Value]) -> int:
        """Return the number of weights, 0 if it isn't known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Identify what an exported model is made of, as a check of its request found it.

    Attributes:
        file: the path of a model that is a file, "" for others; like the next five, which planning goes by.
        bytes: of the file and of those beside it that hold its weights.
        holds: the precisions other than FP32 that it holds itself.
        classical: what in it only backends for classical models read, in words; "" for nothing.
        layers: how many layers its main graph has; 0: that isn't known before export.
        native: the library whose own file it was converted from here, if it was.
        files: hashes of the files that hold the model, by name.
        data: hashes of the user's data by field (see DATA); "" for calibration data that can't be read, which the
            exported model says then.
        source_sha256: of the source of a user's own model, whose code runs in the export; "" for other models.
        runs_with: what else decides what that code does: the versions of installed packages, and `folder`, where it may
            read data.
    """

    file: str = ""
    bytes: int = 0
    holds: tuple[Precision, ...] = ()
    classical: str = ""
    layers: int = 0
    native: Artifact | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    source_sha256: str = ""
    runs_with: Mapping[str, str] = field(default_factory=dict)

    @property
    def hashes(self) -> tuple[str, ...]:
        """Return the hashes of all the user's files, data included."""
        return (*self.files.values(), *filter(None, (*self.data.values(), self.source_sha256)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Describe what to export; once checked, also what identifies it: from `content` on.

    Attributes:
        model: the word that a source claims; once checked, the name under which it is exported.
        parameters: the model's, where those that are missing get their defaults; of a user's file the sizes of its free
            axes.
        batch: rows per call; the source finds the axis of a user's file.
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
        needs: of a user's own model, the precisions whose errors are needed besides FP32's; none: those of all.
        scored: what a metric scores the rows of a user's inputs against: `truth` of theirs, or the model's own FP32
            `outputs`; "" if there is no metric.
        rows_by: a file with what each row belongs to; the rows of one stay together.
        scores_all: whether all rows are scored: nothing is calibrated on any, or chosen by any (see `split_rows`).
        saturates: whether the CPU that it is for overflows in INT8 products (see `environment.saturates`), so that
            quantized weights get 7 bits; None: as this machine's does.
        sweep: the least and the largest of each size that varies in the study, by parameter or `batch`: one export with
            these axes open is shared by all sizes, if there can be one (see `models.sources.open_axes`).
        is_open: it is that export, of no size by itself.
        state: by input of a user's model, the output that is its value in the next call; None: calls
            hand nothing on.
        steps: calls of a clip, after which states begin anew; 0: the usual ones, or the data are no clips.
        content: what it is made of.
        base: what this is made from: of a variant with quantized weights the plain model, of a file that races its
            original that one, of another file's torch module the file.
        opened: the export with open axes that this size shares with others; None: it has its own.
        key: hash of all above but for places, and of the code that exports a model.
        folder: where the exported model goes, or is.
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
    content: Content = Content()
    base: Request | None = None
    opened: Request | None = None
    key: str = ""
    folder: Path = Path()

    @property
    def source(self) -> Source:
        """Return the source that exports it."""
        return find_source(self.model)

    @property
    def short(self) -> str:
        """Return the model's name for people; a user's own goes without its folder."""
        return Path(self.model).name

    def keyed(self) -> Request:
        """Return the request with its key: of the user's files the contents and the names count, and no folder."""
        asked = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        asked |= {name: bool(asked[name]) for name in DATA}
        asked |= {name: Path(asked[name] or "").name for name in ("model", "original")}
        content = dataclasses.asdict(replace(self.content, file=""))
        asked |= {"weights": Path(self.weights or "").name, "content": content}
        asked |= {name: one.key if (one := asked[name]) else "" for name in ("base", "opened")}
        asked |= {"key": "", "folder": "", "versions": versions(self.source.packages)}
        return replace(self, key=hash_made(asked, self.source.code()))


class Source:
    """A kind of models that people bring, as it is where nothing else is said.

    Attributes:
        names: of its models, if they have fixed ones.
        is_hidden: whether only the harness itself names its models.
        origin: what its models come from. A file may have precisions of its own, and race other files.
        runs_code: whether the user's code makes a model: its export has a process of its own, and may bring labels.
        packages: those whose versions decide what an export makes.
    """

    names: ClassVar[tuple[str, ...]] = ()
    is_hidden: ClassVar[bool] = False
    origin: ClassVar[Origin] = "code"
    runs_code: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ()

    def code(self) -> Iterable[Path]:
        """Return the files of code that decide what an export makes, beside those of core."""
        return [Path(str(sys.modules[type(self).__module__].__file__))]

    def claims(self, word: str) -> bool:
        """Return whether a word is meant as a model of this kind, which need not exist."""
        return word in self.names

    def model(self, word: str) -> Model:
        """Return what is known of a model without running any of its code.

        Raises:
            UsageError: it isn't there, or can't be read.
        """
        raise NotImplementedError

    def spread(self, word: str) -> tuple[str, ...]:
        """Return the words that this one stands for, the reference of the others first: a folder's files.

        Raises:
            UsageError, ModelError: there is no such reference.
        """
        return (word,)

    def resolve(self, word: str) -> str:
        """Return the word that takes the place of this one from the study on: that of a file's conversion.

        Raises:
            UsageError, ModelError: it can't be converted.
        """
        return word

    def check(self, request: Request, known: dict[str, Any]) -> Request:
        """Return a request with its parameters complete, its places absolute, nothing in it that doesn't apply to the
        model, and the hashes of its content.

        Args:
            known: what was found out of models in requests that are checked together; filled in here.

        Raises:
            UsageError: it doesn't fit the model.
            ModelError: the model's file is broken.
        """
        raise NotImplementedError

    def export(self, request: Request, effort: Any) -> ExportedModel:
        """Make an exported model in the request's folder, which is empty; runs in the export process only.

        Args:
            effort: decides how much there is time for, an `Effort` of `shootout.models.onnx.effort`.

        Raises:
            SkippedArm: there is no time for it.
            UsageError: the request doesn't fit the model.
            ModelError: the model can't be exported, or its reference outputs are degenerate.
        """
        raise NotImplementedError

    def fit(self, request: Request, shapes: Mapping[str, Sequence[int]], *, to_rows: bool) -> Request:
        """Return a request with the sizes and the batch that whole shapes tell, and the sizes of its data's rows.

        Args:
            shapes: by input, "" for the only one.
            to_rows: whether the data tell sizes that nothing else does.

        Raises:
            UsageError: it takes no shapes, or they don't fit the model or each other.
        """
        del to_rows
        if shapes:
            theirs = f"the sizes of {request.model} are parameters, for --set"
            raise UsageError(f"--shape is for an ONNX file; {theirs}")
        return request

    def check_sizes(self, request: Request) -> int | None:
        """Refuse sizes and data that don't fit, as far as is known before the model is exported.

        Returns:
            The rows of the user's inputs, if they are known.

        Raises:
            UsageError: they don't fit.
            ModelError: the model's file is broken.
        """
        model = self.model(request.model)
        model.inputs(model.check(request.parameters), request.batch)
        return None

    def check_data(self, request: Request) -> None:
        """Refuse a user's data that no model could use.

        Raises:
            UsageError: there are such data.
        """

    def labels(self, request: Request) -> Path | None:
        """Return where the labels of the user's rows are: in a file of their own, or among the inputs.

        Raises:
            UsageError: in both, or the inputs can't be read.
        """
        return request.labels_npz

    def may_be_scored(self, request: Request) -> bool:
        """Return whether a metric may score rows, by truth or labels of the user's, the model's own or its code's."""
        return bool(request.scored or self.labels(request)) if request.inputs_npz else self.runs_code

    def outputs(self, word: str) -> tuple[str, ...]:
        """Return the names of the outputs, () if only the export tells."""
        del word
        return ()

    def output_specs(self, request: Request) -> tuple[TensorSpec, ...]:
        """Return the outputs of a call whose first axis is the rows, () if only the export tells."""
        del request
        return ()

    def open_axes(self, word: str) -> list[str]:
        """Return the axes that a model leaves open beside the batch, without names of parameters."""
        del word
        return []


@cache
def list_sources() -> tuple[Source, ...]:
    """Return all sources: those that ship, in the order in which a word is offered, then third parties' that load."""
    return tuple(plugins.usable(plugins.SOURCES, Source).values())


def find_claim(word: str) -> Source | None:
    """Return the first source that claims a word; None if none does.

    Raises:
        UsageError: none does, and it is the name of a third party's source that can't be loaded.
    """
    found = next((source for source in list_sources() if source.claims(word)), None)
    if not found and word in plugins.names(plugins.SOURCES):
        plugins.find(plugins.SOURCES, word, Source)
    return found


def find_source(word: str) -> Source:
    """Return the source of a model.

    Raises:
        UsageError: none claims the word; says the nearest name.
    """
    if found := find_claim(word):
        return found
    raise unknown("model", word, model_names())


def find_model(word: str) -> Model:
    """Return what is known of a model.

    Raises:
        UsageError: there is none.
    """
    return find_source(word).model(word)


@cache
def source_now(word: str) -> str:
    """Hash of a user's own source when this process first looked, which a worker does before any clock runs."""
    found = find_model(word).source
    assert found, "a user's own model has a source"
    return found()


def model_names() -> tuple[str, ...]:
    """Return the names that a user may ask for; the harness's own probes are not among them."""
    return tuple(name for source in list_sources() if not source.is_hidden for name in source.names)


def is_file(word: str) -> bool:
    """Return whether a model is a file that backends read as it is."""
    return any(source.origin == "file" and source.claims(word) for source in list_sources())


def is_own(word: str) -> bool:
    """Return whether the user's code makes a model."""
    found = find_claim(word)
    return found is not None and found.runs_code


def check_size(name: str, size: Value) -> None:
    """Refuse a batch or the size of an axis that is no whole number from 1 to LARGEST.

    Raises:
        UsageError: it is none.
    """
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST:
        raise UsageError(f"{name} must be a whole number from 1 to {LARGEST}, got {size!r}")


def checked(request: Request, known: dict[str, Any] | None = None) -> Request | ShootoutError:
    """Return the request with all that identifies its content, or why there is none.

    A variant with quantized weights is made from the plain exported model, which is its `base` then.

    Args:
        known: see `Source.check`.
    """
    try:
        check_size(BATCH, request.batch)
        scheme = schemes.parse(request.variant)
        if scheme.made != request.variant:
            raise UsageError(f"variant {request.variant!r}: expected shared, or shared+float-…")
        plain = replace(request, variant="", device=Device.CPU, saturates=None)
        found = request.source.check(plain, {} if known is None else known)
    except ShootoutError as error:
        return error
    if scheme.is_quantized:
        saturates = environment.saturates() if request.saturates is None else request.saturates
        found = replace(found, base=found.keyed(), saturates=request.device is Device.CPU and saturates)
    elif found.module and found.base is None:
        found = replace(found, base=replace(found, module=False).keyed())
    opened = None if request.variant else found.opened
    return replace(found, variant=request.variant, opened=opened).keyed()


def brief_key(key: str, needs: Iterable[str]) -> str:
    """Return the key of the exported model that takes the place of this one if there is no time for all of it.

    Args:
        needs: the precisions whose errors it is to tell.
    """
    return hashlib.sha256(f"{key} brief {' '.join(sorted(needs))}".encode()).hexdigest()


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


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of packages, "" of one that is missing; nothing is imported."""
    return {package: version_of(package) for package in packages}


def hash_made(ingredients: Mapping[str, Any], code: Iterable[Path]) -> str:
    """Hash of what an exported model is made of.

    Args:
        ingredients: JSON values, versions of packages among them.
        code: the files that export it, beside those of core.
    """
    core = Path(__file__).parents[1]
    files = (*(file for pattern in CORE for file in core.glob(pattern)), *code)
    whole = {**ingredients, "code": _hash_files(tuple(sorted(files)))}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


@cache
def _hash_files(files: tuple[Path, ...]) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def name_model(model: str) -> str:
    """Name a model as people do: a file, a factory or a folder by its own name, a config.json by its folder's.

    A converted file goes, on any machine, by the name of the library's own.
    """
    path = Path(model)
    if path.name == "config.json" and path.parent.name:
        return path.parent.name
    return path.stem if path.parent.name.startswith(CONVERTED) and path.suffix == GRAPH_SUFFIX else path.name


def planned_exports(run: Deadline) -> Deadline:
    """Return when a run's exports should end: what doesn't fit before is left out."""
    return run.part(EXPORT_SHARE * EXPORT_PLANS)


def is_export_whole(whole_s: float, run: Deadline, plan: Deadline) -> bool:
    """Return whether an export is made whole: it ends by `plan`, or takes little of what is left of the run.

    In a run without a limit that is an export of a minute: what a longer one adds is never waited for.

    Args:
        whole_s: seconds that the whole export takes.
    """
    if run.seconds is None:
        return whole_s <= LONGEST_EXPORT_S
    return takes_little(whole_s, run) or plan.allows(whole_s)


def takes_little(whole_s: float, run: Deadline) -> bool:
    """Return whether an export takes so little of what is left of the run that nothing is gained by less of it."""
    return whole_s < LITTLE * run.left_s
