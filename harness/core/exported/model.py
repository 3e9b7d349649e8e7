"""Hold a model in every form that backends load, in one folder whose content is hashed.

Workers load this module, so it needs only NumPy and the standard library, and safetensors when weights are read. The
hashes also guard `model.pt2`: `torch.export.load` may unpickle, so it only gets bytes that we wrote.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import numpy as np

from shootout.core import schemes
from shootout.core.constants import FIDELITY_MARGIN, USEFUL_BOUND, WIDE_BOUND
from shootout.core.contract import SCALED, Array, Arrays, Artifact, Device, Precision, Rests, Target, TensorSpec, Value
from shootout.core.errors import ModelError
from shootout.core.exported.calls import Stream, Work
from shootout.core.host.store import open_sealed, sealed

T = TypeVar("T")
ALIGNMENT = 64
"""Every array begins at a multiple of so many bytes: a cache line and the widest vector. NumPy aligns to 16 bytes, to
more only by luck, and that changes times: XLA reads an aligned array in place and copies another one in the call.
"""
SCHEMA = 4
MANIFEST = "manifest.json"
Origin = Literal["code", "program", "file"]
"""Say where a model comes from: code makes its torch module, or libraries that take one find a program of it in
`model.pt2`: of a module that was handed over, or of a user's file, which backends also read as it is.
"""
WEIGHTS = "params.safetensors"
FILES = {
    Artifact.FORWARD: WEIGHTS,
    Artifact.MODULE: WEIGHTS,
    Artifact.ONNX: "model.onnx",
    Artifact.OPEN: "open.onnx",
    Artifact.PT2: "model.pt2",
    Artifact.SKLEARN: "model.joblib",
    Artifact.LIGHTGBM: "model.txt",
    Artifact.XGBOOST: "model.ubj",
    Artifact.NONE: MANIFEST,
}
GRAPH_SUFFIX = Path(FILES[Artifact.ONNX]).suffix
"""The ending of a graph's file, also of one size's beside the open export that it shares."""
ALONE = "exported for each size by itself"
"""The beginning of a note on why sizes share no export."""
GRADIENTS = "gradients.npz"
INPUTS, REFERENCE, CALIBRATION, SHARED_OUTPUTS = "inputs.npz", "reference.npz", "calibration.npz", "shared.npz"
BUFFER_ROWS = "buffer-rows.npy"
UNSEEN, UNSEEN_REFERENCE = "unseen.npz", "unseen-reference.npz"
REPORT, SELECTION, REPORT_OUTPUTS = "report.npz", "selection.npz", "report-outputs.npz"
QUANTIZING = (CALIBRATION, SELECTION)
"""The files that only a build that quantizes reads."""
SOME_READ = frozenset((*FILES.values(), *QUANTIZING)) - {MANIFEST}
"""The files that some targets read, and others don't."""
SETS = (INPUTS, BUFFER_ROWS, REFERENCE, CALIBRATION, REPORT, SELECTION, REPORT_OUTPUTS, UNSEEN, UNSEEN_REFERENCE)
"""The files of input sets and what is known of them, which a variant has from its plain model."""
LABELS, ROWS, OTHER_ROWS, SPANS = "labels", "rows", "other_rows", "spans"
"""Arrays beside rows' inputs; spans, (rows, 2), are where each row begins and ends on its axis: the rest is padding."""
TOO_FEW = "too few to share out"
"""The end of a note on rows that are both splits."""
ERROR = "error.json"
"""The file that an export leaves in place of a manifest: why there is no exported model."""
TELLING = 10.0
"""If a quantizer's error bound is so many times a float precision's, an error like that precision's shows that nothing
was quantized.
"""
CHOOSES_LAYERS = "ratio-|accuracy-control|float-"
"""Words of schemes that leave out the layers whose rounding would cost most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRows:
    """Hold the rows of a data set that accuracy and metrics are measured on, or those that a search may look at.

    Attributes:
        inputs: by input name, rows along axis 0.
        rows: (rows,), the number of each in the user's own data, from 0.
        other_rows: likewise, of the other part's rows.
        labels: (rows,), the right class of each; None if they have none.
        shared: inputs that are no rows: all calls of a stream share them.
    """

    inputs: Arrays
    rows: Array
    other_rows: Array
    labels: Array | None
    shared: frozenset[str] = frozenset()

    def take(self, rows: Array) -> dict[str, Array]:
        """Return the inputs of some of these rows; past the end it starts again from the first."""
        return {
            name: array if name in self.shared else np.take(array, rows, axis=0, mode="wrap")
            for name, array in self.inputs.items()
        }

    def calls(self, batch: int) -> Iterator[dict[str, Array]]:
        """Yield the inputs of each call; the last one is filled up with rows that don't count."""
        return (self.take(np.arange(first, first + batch)) for first in range(0, len(self.rows), batch))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedModel:
    """Describe one model at one batch size, as files. Only paths and facts are in memory, so it can be pickled.

    Attributes:
        key: hash of all that the exported model was made from; the folder's name in the cache.
        model: the registry's name, or the user's file name.
        parameters: complete; for a user's file its symbolic axes.
        error_bounds: the fidelity gate, relative L2 by precision (or `precision/word`), margin included; None: the
            model overflows in it; no key: nothing could be predicted.
        parameter_count: number of weights.
        versions: of the packages that made it.
        export_s: seconds it took to make, imports included.
        variant: what was done to the model first (a `variant` of `shootout.core.schemes`), "" for nothing.
        original: of a file that races its original, that one's name: the reference outputs are the original's then, and
            the gate goes by the reference, what the file itself gives as it is written; "" for other models.
        calibration_fault: why the calibration data can't be used, "" when it can.
        notes: what a row should say of it, one line each: what a search chose, fewer input buffers than usual.
        source_sha256: of the source of the user's factory, "" for other models.
        unmade: why there are no more artifacts, "" where all are there that a model of its kind can have.
        unmade_fix: the command that installs what they take; "" if nothing is missing.
        trained: the weights that a training step trains (`scenarios.train_step`), in the module's order; none where
            calls are inference.
        whole_s: of an exported model that leaves things out for want of time, seconds that all of it would take; else
            None.
        unpredicted: keys of `error_bounds` that such an exported model left out, though the model may have them.
        origin: what kind of model it is.
        drawn: whether the inputs are drawn numbers, which may be unlike anything that the model was made for.
        spread: of the reference outputs (see `models.sources.assembly.spread`).
        work: what one call takes; a variant has its plain model's. None: there is no graph that it could be counted in.
        graph: of a size of a sweep, its ONNX file beside its own folder, in that of the open export where its weights
            lie too; "" if all is in its own.
        varying: if sizes vary, what the scenario knows of all of them, the largest of which this is; never on disk.
        stream: how calls make clips, which the input buffers and `unseen`'s outputs then are; None for single calls.
        flips: by precision as `error_bounds`, the share of each whole-number output's elements that it may flip, margin
            included: where two scores are as good as equal, rounding decides which index comes out.
        bounds_by_step: of a stream, `error_bounds` for a clip's first calls, by how many: of all `marks` but the last.
        on_selection: whether accuracy and metrics are measured on the selection split, since a search that chooses by
            them must not see the report split; never on disk.
    """

    folder: Path
    key: str
    model: str
    parameters: Mapping[str, Value]
    batch: int
    versions: Mapping[str, str]
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    error_bounds: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    parameter_count: int = 0
    weights_sha256: str = ""
    export_s: float = 0.0
    variant: str = ""
    original: str = ""
    calibration_fault: str = ""
    notes: tuple[str, ...] = ()
    unmade: str = ""
    unmade_fix: str = ""
    drawn: bool = False
    spread: float = 1.0
    source_sha256: str = ""
    work: Work | None = None
    trained: tuple[str, ...] = ()
    whole_s: float | None = None
    unpredicted: tuple[str, ...] = ()
    origin: Origin = "code"
    graph: str = ""
    varying: object | None = None
    stream: Stream | None = None
    bounds_by_step: Mapping[int, Mapping[str, float | None]] = dataclasses.field(default_factory=dict)
    flips: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    on_selection: bool = False

    @property
    def is_file(self) -> bool:
        """Return whether it is a user's ONNX file; the torch module, if the file has one, is the program in
        `model.pt2`.
        """
        return self.origin == "file"

    @property
    def is_program(self) -> bool:
        """Return whether libraries that take a torch module find a program of it in `model.pt2`."""
        return self.origin != "code"

    @property
    def shared(self) -> str:
        """Return the key of the open export in whose folder its graph and weights lie; "" if all is in its own."""
        return self.graph.partition("/")[0]

    def error_bound(
        self, target: Target, rests: Rests = MappingProxyType({}), *, is_whole: bool = True
    ) -> tuple[float | None, float]:
        """Return the largest error that a target's precision explains (None: nothing is known), and the least.

        What a quantizer made, or rounds to TF32, can't be as exact as FP32, unless the model gives it nothing to round,
        or FP32's own error bound is so wide that it says nothing. Where the rest of the model computes in half
        precision, it errs by as much as that whole model would, at most, and can't be as exact as that either (twice
        the predicted error), unless many layers were left as they are, or the two error bounds lie near each other.

        Args:
            rests: what the backend's quantized models compute in elsewhere (`Capabilities.rest`).
            is_whole: whether most of the model is said to be quantized.
        """
        own, exact = self.error_bounds.get(self.bound_key(target)), self.error_bounds.get(Precision.FP32) or 0.0
        rest = _rest_of(target, rests)
        rounds_weights = target.precision is Precision.FP16 and "weights-only" in target.scheme.split("+")
        rounds = rounds_weights or target.precision in (*SCALED, Precision.TF32)
        if own is None or not rounds:
            return own, 0.0
        least = exact if own > TELLING * exact and exact <= WIDE_BOUND else 0.0
        if rest is Precision.FP32 or rounds_weights or target.precision is Precision.TF32:
            return own, least
        beside = self.error_bounds.get(rest)
        if beside is None:
            return None, least
        if own > TELLING * beside and is_whole and not re.search(CHOOSES_LAYERS, target.scheme):
            least = max(least, 2 * beside / FIDELITY_MARGIN)
        return own + beside, least

    def up_to(self, step: int) -> ExportedModel:
        """Return the model with the error bounds of a clip's first calls, so many, one of the stream's `marks`."""
        return dataclasses.replace(self, error_bounds=self.bounds_by_step.get(step, self.error_bounds))

    def is_telling(self, error_bound: float) -> bool:
        """Return whether an error bound separates a right answer from one that ignores its inputs."""
        return error_bound <= USEFUL_BOUND * self.spread

    def is_judged(self, target: Target, rests: Rests = MappingProxyType({})) -> bool:
        """Return whether a target's error is held against its error bound: on drawn inputs only if that is useful.

        If nothing could be predicted at all, real inputs would prove no more, so the gate closes on either. If there
        was no time to predict the target's error, or that of the library that computes the rest, nothing is held
        against it. A file's own precisions are there whether they can be predicted or not.
        """
        key = self.bound_key(target)
        if key in self.unpredicted or (target.precision in SCALED and _rest_of(target, rests) in self.unpredicted):
            return False
        if key not in self.error_bounds:
            return target.precision is not Precision.NATIVE
        error_bound = self.error_bound(target, rests)[0]
        return not self.drawn or (error_bound is not None and error_bound <= USEFUL_BOUND)

    def flips_of(self, target: Target, rests: Rests = MappingProxyType({})) -> dict[str, float]:
        """Return the share of each whole-number output's elements that a target's precision explains.

        Args:
            rests: as in `error_bound`; the larger share counts.
        """
        beside = {} if target.precision not in SCALED else self.flips.get(_rest_of(target, rests), {})
        own = self.flips.get(self.bound_key(target), {})
        return {name: max(own.get(name, 0.0), beside.get(name, 0.0)) for name in (*own, *beside)}

    def bound_key(self, target: Target) -> str:
        """Return the key of `error_bounds` that a target goes by: that of a word of its scheme, else its precision."""
        worded = (f"{target.precision}/{word}" for word in target.scheme.split("+"))
        known = (one for one in worded if one in self.error_bounds or one in self.unpredicted)
        return next(known, str(target.precision))

    def path(self, artifact: Artifact) -> Path:
        """Return the file that holds `artifact`.

        Raises:
            ModelError: this exported model has no such artifact.
        """
        if artifact not in self.artifacts:
            raise ModelError(f"{self.model} has no {artifact} artifact; it has {', '.join(self.artifacts)}")
        if artifact is Artifact.ONNX and self.graph:
            return self.folder.parent / self.graph
        own = self.folder / FILES[artifact]
        return own if own.exists() or not self.shared else self.folder.parent / self.shared / FILES[artifact]

    def weights(self, names: Collection[str] | None = None) -> dict[str, Array]:
        """Return the float32 weights by their names in the torch module; empty if the model has none.

        Args:
            names: read only these; None: all.

        Raises:
            ModelError: the weights are inside a user's ONNX file only.
        """
        if not (self.parameter_count or self.source_sha256):  # a user's module may have buffers and no parameter
            return {}
        from safetensors import safe_open
        from safetensors.numpy import load_file

        path = self.path(Artifact.FORWARD if Artifact.FORWARD in self.artifacts else Artifact.MODULE)
        if names is None:
            return dict(load_file(path))
        with safe_open(path, framework="numpy") as stored:
            return {name: stored.get_tensor(name) for name in names}

    def input_buffers(self) -> list[dict[str, Array]]:
        """Return the input sets that calls rotate through; of a stream all of its clips, call by call."""
        return load_sets(self.folder / INPUTS, [spec.name for spec in self.inputs])

    def reference_outputs(self) -> list[dict[str, Array]]:
        """Return the right outputs for each input buffer; float ones in float64."""
        return load_sets(self.folder / REFERENCE, [spec.name for spec in self.outputs])

    def pick(self, sets: Sequence[T]) -> list[T]:
        """Return those of what belongs to each input buffer that calls outside of a stream rotate through."""
        return self.stream.pick(sets) if self.stream else list(sets)

    def gradients(self) -> list[dict[str, Array]]:
        """Return a training step's right gradients for each input buffer, sketched (see `scenarios.train_step`)."""
        return load_sets(self.folder / GRADIENTS, self.trained)

    def shared_outputs(self) -> list[dict[str, Array]] | None:
        """Return each input buffer's outputs as a quantized variant, or a file that races its original, is written.

        None for other exported models.
        """
        path = self.folder / SHARED_OUTPUTS
        return load_sets(path, [spec.name for spec in self.outputs]) if path.exists() else None

    def own_outputs(self) -> list[dict[str, Array]]:
        """Return the outputs of a runtime that is true to this model: the reference's, or those of a file beside it."""
        return (self.shared_outputs() if self.original else None) or self.reference_outputs()

    def unseen(self) -> list[tuple[dict[str, Array], dict[str, Array]]]:
        """Return inputs that an arm first meets while it is timed, each with its `own_outputs`; empty if none are
        valid.
        """
        if not (self.folder / UNSEEN).exists():
            return []
        inputs = load_sets(self.folder / UNSEEN, [spec.name for spec in self.inputs])
        outputs = load_sets(self.folder / UNSEEN_REFERENCE, [spec.name for spec in self.outputs])
        return list(zip(inputs, outputs, strict=True))

    def calibration(self) -> list[dict[str, Array]]:
        """Return input sets for quantization; none of them is in the report split.

        Raises:
            ValueError: the user's calibration data can't be used; says why.
        """
        if self.calibration_fault:
            raise ValueError(self.calibration_fault)
        return load_sets(self.folder / CALIBRATION, [spec.name for spec in self.inputs])

    def report(self) -> ReportRows | None:
        """Return the rows that accuracy and metrics are measured on, None for a model without a data set."""
        return self._read_rows(SELECTION if self.on_selection else REPORT)

    def for_selection(self) -> ExportedModel:
        """Return the model with its selection split in place of its report split, and a note that says so."""
        rows = self.selection()
        if rows is None:
            return self
        note = f"this search goes by the {len(rows.rows)} rows that calibration sees, in place of the report rows"
        return dataclasses.replace(self, on_selection=True, notes=(*self.notes, note))

    def number_row(self, row: int) -> int:
        """Return the number that a row of the input buffers has in the user's data; of drawn inputs, the same."""
        if not (self.folder / BUFFER_ROWS).exists():
            return row
        numbers = np.load(self.folder / BUFFER_ROWS, allow_pickle=False)
        return int(numbers[row % len(numbers)])  # a stream's first rows fill up its last buffer

    @property
    def has_report(self) -> bool:
        """Return whether there is a report split, without reading it."""
        return (self.folder / REPORT).exists()

    @property
    def is_scored(self) -> bool:
        """Return whether a metric scores the rows of the report split, which take no training step."""
        return self.has_report and not self.trained

    @property
    def report_calls(self) -> int:
        """Count the calls that the report split takes, 0 without one; its inputs are not read."""
        if not self.has_report:
            return 0
        with np.load(self.folder / (SELECTION if self.on_selection else REPORT), allow_pickle=False) as stored:
            return -(-len(stored[ROWS]) // self.batch)

    def selection(self) -> ReportRows | None:
        """Return the rows for calibration, which a search may look at; None for a model without a data
        set.
        """
        return self._read_rows(SELECTION)

    def _read_rows(self, name: str) -> ReportRows | None:
        if not (self.folder / name).exists():
            return None
        with np.load(self.folder / name, allow_pickle=False) as stored:
            return ReportRows(
                inputs={spec.name: stored[str(index)] for index, spec in enumerate(self.inputs)},
                labels=stored[LABELS] if LABELS in stored.files else None,
                rows=stored[ROWS],
                other_rows=stored[OTHER_ROWS],
                shared=self.stream.shared(self.inputs) if self.stream else frozenset(),
            )

    def seal(self) -> None:
        """Write the manifest, with the hash of every file in the folder and of the manifest itself."""
        facts = dataclasses.asdict(self)
        del facts["folder"], facts["varying"], facts["on_selection"]
        files = {path.name: sha256(path) for path in sorted(self.folder.iterdir())}
        if self.graph:
            files[self.graph] = sha256(self.path(Artifact.ONNX))
        temporary = self.folder / f"{MANIFEST}.part"  # a folder with a manifest is taken for a whole exported model
        temporary.write_text(sealed({"schema": SCHEMA, **facts, "files": files}), encoding="utf-8")
        temporary.replace(self.folder / MANIFEST)


def _rest_of(target: Target, rests: Rests) -> Precision:
    if target.precision is Precision.INT8:
        return schemes.rest_of(target)
    usual = Precision.BF16 if target.device is Device.CUDA else Precision.FP32
    return rests.get((target.device, target.precision), usual)


def is_of(name: str, files: Collection[str]) -> bool:
    """Return whether a file is one of these, or holds weights of one of them, such as `model.onnx.data`."""
    return any(name == one or name.startswith(f"{one}.") for one in files)


def open_exported(folder: Path, *, is_whole: bool = True) -> ExportedModel:
    """Open an exported model after checking every file's hash.

    Args:
        is_whole: whether all its files must be there. One that was sent to be measured lacks what no target there
            reads.

    Raises:
        ModelError: a file is missing, foreign or changed, the manifest among them.
    """
    try:
        stored = open_sealed(folder / MANIFEST)
        if stored.pop("schema") != SCHEMA:
            raise ModelError(f"{folder} was made by another version")
        is_open = stored["artifacts"] == [Artifact.OPEN]
        _check_files(folder, stored.pop("files"), is_whole=is_whole, is_open=is_open)
        exported = _from_facts(folder, stored)
        if exported.shared:
            open_exported(folder.parent / exported.shared)
        return exported
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = error if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ModelError(f"{folder} is not a whole exported model: {reason}") from error


def _check_files(folder: Path, expected: Mapping[str, str], *, is_whole: bool, is_open: bool) -> None:
    """Refuse missing, foreign and changed files; beside an open export lie its sizes' graphs, which these hold."""
    found = {path.name for path in folder.iterdir()} - {MANIFEST}
    own = {name for name in expected if "/" not in name}
    needed = own if is_whole else {name for name in own if not is_of(name, SOME_READ)}
    graphs = {name for name in found - own if is_open and name.endswith(GRAPH_SUFFIX)}
    if not needed <= found - graphs <= own:
        raise ModelError(f"{folder} should hold {sorted(own)}, holds {sorted(found)}")
    for name, digest in expected.items():
        path = folder.parent / name if "/" in name else folder / name
        if (name in found or "/" in name) and sha256(path) != digest:
            raise ModelError(f"{path} was changed after it was written")


def _from_facts(folder: Path, facts: dict[str, Any]) -> ExportedModel:
    facts["inputs"], facts["outputs"] = _read_specs(facts["inputs"]), _read_specs(facts["outputs"])
    facts["artifacts"] = tuple(Artifact(name) for name in facts["artifacts"])
    facts |= {name: tuple(facts[name]) for name in ("notes", "trained", "unpredicted")}
    facts["bounds_by_step"] = {int(step): bounds for step, bounds in facts["bounds_by_step"].items()}
    if stream := facts["stream"]:
        facts["stream"] = Stream(**stream)
    if work := facts["work"]:
        facts["work"] = Work(**{**work, "uncounted": tuple(work["uncounted"])})
    return ExportedModel(folder=folder, **facts)


def _read_specs(stored: Iterable[Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=one["name"], shape=tuple(one["shape"]), dtype=one["dtype"]) for one in stored)


def key_in(folder: Path) -> str:
    """Return the key of the exported model that was just made in a folder, without checking its files.

    Raises:
        OSError, ValueError: it has no whole manifest.
    """
    return str(open_sealed(folder / MANIFEST)["key"])


def sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_sets(path: Path, sets: Sequence[Arrays], **extra: Array) -> None:
    """Store input or output sets, each tensor by its index and its set's; a tensor's name may be anything."""
    members = {
        _member_name(index, number): one[name] for number, one in enumerate(sets) for index, name in enumerate(sets[0])
    }
    np.savez(path, **members, **extra)  # type: ignore[arg-type] # the stub takes the arrays for allow_pickle


def load_sets(path: Path, names: Sequence[str]) -> list[dict[str, Array]]:
    """Read what `save_sets` stored, each array in memory of its own that begins on a multiple of ALIGNMENT."""
    with np.load(path, allow_pickle=False) as stored:
        count = sum(name.startswith(_member_name(0, "")) for name in stored.files)
        return [
            {name: aligned(stored[_member_name(index, number)]) for index, name in enumerate(names)}
            for number in range(count)
        ]


def aligned(array: Array) -> Array:
    """Copy an array in C order to a multiple of ALIGNMENT."""
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    first = -memory.__array_interface__["data"][0] % ALIGNMENT
    copy: Array = memory[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _member_name(tensor: int, number: int | str) -> str:
    return f"{tensor}.{number}"
