"""Read and write a shipped folder, an arm of a run in the form that is deployed, and run it.

docs/shipping.md describes it. `shootout ship` writes one, and every reader opens it with `open_shipped`. Its runner's
session is what the folder's own `load.py` gives, so what is mounted is raced. What it answers is judged as every arm's
answers are. What its runtime ran node by node was told when it was measured, and is read from the evidence in the
folder: `load.py` has no word for that. This module imports NumPy at most, for workers.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import numpy as np

from shootout.backends.common import widen
from shootout.core import backends
from shootout.core.adapter import Built, check_inputs
from shootout.core.contract import Arm, Arrays, Device, Executed, NotRun, NotRunKind, Precision, Target, TensorSpec
from shootout.core.errors import SkippedArm, UsageError, tell_refusal
from shootout.core.exported.model import ExportedModel, sha256
from shootout.core.host.untrusted import open_inside, read_inside, resolve_inside
from shootout.core.units import size
from shootout.models.data import tables
from shootout.models.data.tables import Table

SCHEMA = "shootout.shipped/1"
ONNX = ".onnx"
FILE = f"model{ONNX}"
"""The exported model's file, and that beside which a table's columns lie."""
MANIFEST, RUNTIME = "manifest.json", "runtime.json"
LOAD, CHECK, REQUIREMENTS = "load.py", "check.py", "requirements.txt"
LANDING, CONTENDERS = "landing.json", "contenders"
"""Name the manifest of a folder of several contenders (`ship --choose-on-landing`), and the folder that holds them."""
CODE = (".py", ".pyc", ".pyw", ".so", ".pyd", ".dll", ".dylib", ".pth", ".egg", ".whl", ".zip")
"""The endings of names of files that Python, or a library, could run."""
MODEL, EVIDENCE = "model", "evidence"
INPUTS, EXPECTED = f"{EVIDENCE}/inputs.npz", f"{EVIDENCE}/expected.npz"
"""The files with `check.py`'s inputs and the right answers, as the exported model stores them."""
MOST_BYTES = 1 << 36
"""The most of all files of a shipped folder, which every reader hashes."""
DOCUMENT = f"{EVIDENCE}/document.json"
"""The document of the whole run that the arm was shipped from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedArm:
    """Describe the arm that was shipped, in the words of `Arm` and `Target`.

    Attributes:
        instances: how many worked at once; the folder is one of them.
    """

    label: str
    target: str
    backend: str
    device: str
    precision: str
    mode: str
    scheme: str
    threads: int
    batch: int
    scenario: str = "latency"
    instances: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedRuntime:
    """Describe how the arm was measured, and how it is loaded.

    Attributes:
        affinity: how many CPUs an instance had.
        environment: variables that were set before any library was imported.
        options: the adapter's own settings, as its part of `load.py` reads them.
    """

    backend: str
    threads: int
    affinity: int
    environment: Mapping[str, str]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedFolder:
    """Describe a shipped folder whose files were all found as they were written.

    Attributes:
        made_with: `shootout` and its version.
        files: by path in the folder, the hash of every file but the manifest.
        model: its `name`, and its weights' `sha256`.
        versions: of what the arm ran on, by distribution: all that requirements.txt holds.
        isa: instruction sets that it needs, by Linux's names: of several with `|` in between one, with `!` before it
            none.
        gpu: the name of the GPU that it needs; None: none.
        machine: `key` and `name` of the machine that measured it.
        median_ns: of a call there, end to end; None if calls weren't timed one after the other.
        run: the run that measured it, by name; `group`: its group there.
        error_limit: the largest relative L2 error against the FP64 reference outputs that `check.py` accepts.
        mismatches: so many elements of integer outputs may differ from the reference's.
    """

    folder: Path
    made_with: str
    files: Mapping[str, str] = field(default_factory=dict)
    arm: ShippedArm
    model: Mapping[str, str]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    versions: Mapping[str, str]
    isa: tuple[str, ...] = ()
    gpu: str | None = None
    machine: Mapping[str, str]
    median_ns: float | None
    run: str
    group: str = ""
    error_limit: float
    mismatches: int = 0
    runtime: ShippedRuntime

    @property
    def target(self) -> Target:
        """Return the target that runs it, without the name of another interpreter: this one is as good."""
        arm = self.arm
        return Target(
            backend=arm.backend,
            device=Device(arm.device),
            precision=Precision(arm.precision),
            mode=arm.mode,
            scheme=arm.scheme,
        )

    @property
    def manifest(self) -> Path:
        """Return the file that holds the hashes of all others."""
        return self.folder / MANIFEST

    def find_obstacle(self, arm: Arm) -> NotRun | None:
        """Return why the arm that races it can't run here: it sets its threads itself. None if it can."""
        own = self.arm.threads
        if own == arm.threads:
            return None
        reason = f"{arm.target} was measured on {own} threads, and sets them itself; this race is on {arm.threads}"
        return NotRun(NotRunKind.UNFIT, reason, f"--threads {own}")

    def find_other_shapes(self, arm: Arm, exported: ExportedModel) -> NotRun | None:
        """Return why it doesn't take the inputs of an exported model; None if it does."""
        if self.inputs == exported.inputs:
            if not self.runtime.options.get("columns") or tables.read_beside(exported.folder / FILE):
                return None
            reason = f"{arm.target} takes a table's columns by their names, and the model of this race has none"
            return NotRun(NotRunKind.UNFIT, reason, "race the library's own file, with --data and a table")
        theirs, ours = (
            ", ".join(f"{spec.name} {spec.dtype}{[*spec.shape]}" for spec in specs)
            for specs in (self.inputs, exported.inputs)
        )
        batch = self.arm.batch
        fix = f"--batch {batch}" if batch != arm.batch else "give the model the sizes that it was shipped with"
        return NotRun(NotRunKind.UNFIT, f"{arm.target} takes {theirs}; this race is of {ours}", fix)

    def misfit(self, exported: ExportedModel) -> str:
        """Return why this isn't a folder of the model in an exported model; "" if it is.

        Another export of a file may be the same function; then its outputs fit this one's reference outputs.
        """
        named, digest = self.model["name"], self.model["sha256"]
        is_export = named.endswith(ONNX) and exported.model.endswith(ONNX)
        if digest == exported.weights_sha256 or (
            is_export and (self.inputs, self.outputs) == (exported.inputs, exported.outputs)
        ):
            return ""
        return (
            f"{str(self.folder)!r} was made of {named}, model.sha256 {digest[:12]}…; this race is of {exported.model}, "
            f"{exported.weights_sha256[:12]}…: name that model, with the sizes it has in {self.run}, or ship this one"
        )


def seal_shipped(shipped: ShippedFolder) -> ShippedFolder:
    """Write the manifest over all other files of its folder, runtime.json among them, which it writes first."""
    folder = shipped.folder
    _write_json(folder / RUNTIME, dataclasses.asdict(shipped.runtime))
    whole = dataclasses.replace(shipped, files=_hash_files(folder))
    facts = dataclasses.asdict(whole)
    del facts["folder"], facts["runtime"]
    needs = {"isa": facts.pop("isa"), "gpu": facts.pop("gpu")}
    _write_json(folder / MANIFEST, {"schema": SCHEMA, **facts, "needs": needs})
    return whole


def _hash_files(folder: Path) -> dict[str, str]:
    """Return the hash of each file by its path in the folder, but for the folder's own manifest."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / MANIFEST]
    return {path.relative_to(folder).as_posix(): sha256(path) for path in found}


def open_once(folder: str) -> ShippedFolder:
    """Open a shipped folder. Its files are hashed once per manifest, since planning opens it for each cell.

    Raises:
        UsageError: as `open_shipped`.
    """
    path = Path(folder) / MANIFEST
    return _open_again(folder, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=64)
def _open_again(folder: str, _changed_ns: int) -> ShippedFolder:
    return open_shipped(Path(folder))


def open_shipped(folder: Path) -> ShippedFolder:
    """Open a shipped folder after checking every file's hash. Files that it doesn't name may lie beside, but no code.

    Raises:
        UsageError: it is none, of another version, or a file is missing or changed, or is code that the manifest
            doesn't name; names the file.
    """
    path = folder / MANIFEST
    if (folder / LANDING).exists() and not path.exists():
        named = next(iter(sorted((folder / CONTENDERS).glob("*"))), folder / CONTENDERS)
        raise UsageError(f"{str(folder)!r} holds several contenders: name one of them, such as {str(named)!r}")
    stored = _read_json(folder, MANIFEST)
    if stored.get("schema") != SCHEMA:
        made = stored.get("made_with", "another program")
        raise UsageError(
            f"{str(path)!r} has the schema {stored.get('schema')!r}, made with {made}; this version reads {SCHEMA!r}: "
            "ship it again"
        )
    try:
        _check_files(folder, stored["files"])
        return _from_facts(folder, stored, _read_json(folder, RUNTIME))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"{type(error).__name__} {error}"
        raise UsageError(f"{str(path)!r} is not the manifest of a shipped folder ({why}): ship it again") from None


def read_row(shipped: ShippedFolder) -> Mapping[str, Any]:
    """Return the arm's row in the document of the run, which may hold it at several sizes.

    Raises:
        UsageError: it isn't there.
    """
    arm = shipped.arm
    wanted = {"arm": arm.label, "batch": arm.batch, "threads": arm.threads}
    wanted |= {"group": shipped.group} if shipped.group else {}
    try:
        rows: list[dict[str, Any]] = _read_json(shipped.folder, DOCUMENT)["rows"]
        return next(row for row in rows if row["executed"] and all(row[name] == one for name, one in wanted.items()))
    except (UsageError, KeyError, TypeError, StopIteration):
        path = shipped.folder / DOCUMENT
        raise UsageError(f"{str(path)!r} doesn't say what {arm.label} was measured on: ship it again") from None


def _check_files(folder: Path, files: Mapping[str, str]) -> None:
    if absent := [name for name in (RUNTIME, LOAD, CHECK, REQUIREMENTS) if name not in files]:
        raise UsageError(f"{str(folder / MANIFEST)!r} doesn't name {absent[0]}: ship it again")
    _refuse_huge(folder, files)
    for name, digest in files.items():
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts:
            raise UsageError(
                f"{str(folder / MANIFEST)!r} names {name!r}, which lies outside of the folder: ship it again"
            )
        try:
            with open_inside(folder, name) as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise UsageError(f"{str(folder / name)!r} can't be read: {tell_refusal(error, 'ship it again')}") from None
        if found != digest:
            raise UsageError(f"{str(folder / name)!r} was changed after it was shipped: ship it again")
    others = (path for path in sorted(folder.rglob("*")) if path.relative_to(folder).as_posix() not in files)
    if strange := next(filter(_may_be_run, others), None):
        raise UsageError(f"{str(strange)!r} is code that was not shipped, and Python could run it: remove it")


def _refuse_huge(folder: Path, names: Iterable[str]) -> None:
    """Refuse more than could be hashed in a minute or two, such as a file with a hole, before any is read."""
    total = 0
    for name in names:
        with suppress(OSError):  # what can't be read is named by the reader
            total += resolve_inside(folder, name).stat().st_size
    if total > MOST_BYTES:
        raise UsageError(
            f"{str(folder)!r} holds {size(total)}, and a shipped folder at most {size(MOST_BYTES)}: ship it again"
        )


def _may_be_run(path: Path) -> bool:
    """Tell whether Python could run a file, or look for code behind a link to a folder."""
    return path.name.lower().endswith(CODE) or (path.is_symlink() and path.is_dir())


def _from_facts(folder: Path, stored: Mapping[str, Any], runtime: Mapping[str, Any]) -> ShippedFolder:
    facts = {name: value for name, value in stored.items() if name not in ("schema", "needs")}
    facts |= {name: tuple(map(_read_spec, facts[name])) for name in ("inputs", "outputs")}
    needs = stored["needs"]
    found = ShippedFolder(
        **{**facts, "arm": ShippedArm(**facts["arm"])},
        folder=folder,
        isa=tuple(needs["isa"]),
        gpu=needs["gpu"],
        runtime=ShippedRuntime(**runtime),
    )
    str(found.target)  # an unknown device or precision is a ValueError here, and not later
    for name, limit in (("error_limit", found.error_limit), ("mismatches", found.mismatches)):
        if not 0 <= limit < math.inf:  # as NaN, it would let anything pass
            raise ValueError(f"{name} is {limit}, no finite number from 0 on")
    return found


def _read_spec(stored: Mapping[str, Any]) -> TensorSpec:
    return TensorSpec(name=stored["name"], dtype=stored["dtype"], shape=tuple(map(int, stored["shape"])))


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    path, text = folder / name, _read_bytes(folder, name)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"{str(path)!r} is not JSON: ship it again") from None
    if not isinstance(found, dict):
        raise UsageError(f"{str(path)!r} holds {type(found).__name__}, not a JSON object: ship it again")
    return found


def _read_bytes(folder: Path, name: str) -> bytes:
    try:
        return read_inside(folder, name)
    except OSError as error:
        why = tell_refusal(error, "name a shipped folder")
        raise UsageError(f"{str(folder / name)!r} can't be read: {why}") from None


def _write_json(path: Path, facts: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


_NUMBERS = count()
"""Each session has a module of its own: `load.py` keeps what it loaded in its globals."""


class ShippedRunner:
    """The runner of shipped folders, which builds nothing: all lies in the folder."""

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Check the folder, and tell what was recorded of it and which packages are others here.

        Raises:
            UsageError: one of its files was changed.
        """
        shipped = open_shipped(Path(arm.target.folder))
        return Built(arm=arm, exported=exported, folder=folder, facts=_recorded_facts(shipped))

    def load(self, built: Built) -> ShippedSession:
        """Load what `load.py` loads.

        Raises:
            SkippedArm: `load.py` refuses this machine; in its own words.
        """
        folder = Path(built.arm.target.folder)
        path = folder / LOAD
        module = ModuleType(f"shootout_shipped_{next(_NUMBERS)}")
        module.__file__ = str(path)
        exec(compile(path.read_bytes(), path, "exec"), module.__dict__)  # noqa: S102 - bytecode kept of it has no hash
        try:
            module.load()
        except RuntimeError as error:
            raise SkippedArm(f"{folder.name}/{LOAD}: {error}", "", NotRunKind.UNAVAILABLE) from error
        by_name = hasattr(module, "COLUMNS")  # as an application calls it
        table = tables.read_beside(built.exported.folder / FILE) if by_name else None
        return ShippedSession(built, module.predict, table)


class ShippedSession:
    """A loaded folder: a call is `predict`, from the caller's arrays to arrays that are the caller's own.

    Args:
        table: whose columns `predict` takes by name; None if it takes the inputs.
    """

    def __init__(self, built: Built, predict: Callable[[Arrays], Arrays], table: Table | None = None) -> None:
        self.gpu = None  # none that runs on one can be shipped
        self._facts, self._inputs, self._target = built.facts, built.exported.inputs, built.arm.target
        self._wanted = [(spec.name, spec.shape, np.dtype(spec.dtype)) for spec in self._inputs]
        self.execute = predict  # a method of ours would be timed too
        self._narrow, self._table = any(spec.dtype == "float16" for spec in built.exported.outputs), table

    @cached_property
    def executed(self) -> Executed:
        """Return the account from when the folder was made, with the version that is installed here."""
        known = {field.name for field in fields(Executed)}
        recorded = {name: value for name, value in self._facts["executed"].items() if name in known}
        here = filter(None, map(_installed_version, backends.entry(self._target.backend).distributions(self._target)))
        recorded |= {"version": next(here, recorded.get("version", "")), "threads": None}
        return Executed(**recorded)

    def stage(self, inputs: Arrays, slot: int) -> Arrays:  # noqa: ARG002 - host memory needs no slot
        """Check the inputs and hand them on; no more than a small model's own adapter spends on that."""
        for name, shape, dtype in self._wanted:
            array = inputs.get(name)
            if array is None or array.shape != shape or array.dtype != dtype:
                check_inputs(self._inputs, inputs)
        if len(inputs) != len(self._wanted):
            check_inputs(self._inputs, inputs)
        return self._table.arrays(inputs) if self._table else inputs

    def synchronize(self) -> None:
        """Do nothing: `predict` is done when it returns."""

    def fetch(self, raw: Arrays) -> Arrays:
        """Return the arrays of the call."""
        return {name: widen(array) for name, array in raw.items()} if self._narrow else raw

    def close(self) -> None:
        """Drop what was loaded."""
        self.__dict__.pop("execute", None)


def _recorded_facts(shipped: ShippedFolder) -> dict[str, Any]:
    """Return the account of a folder's row, its size, and which packages are other versions here."""
    sizes = [(shipped.folder / name).stat().st_size for name in shipped.files if name.startswith("model/")]
    notes = [f"proof of what it runs: of {shipped.run}, when it was shipped", *_other_versions(shipped.versions)]
    return {"executed": {**read_row(shipped)["executed"], "artifact_bytes": sum(sizes)}, "notes": notes}


def _other_versions(versions: Mapping[str, str]) -> Iterator[str]:
    """Yield packages that are of another version here than when the arm was measured."""
    for name, measured in versions.items():
        if (here := _installed_version(name)) != measured:
            yield f"{name} {here or 'is not installed'} here, {measured} when it was shipped"


def _installed_version(package: str) -> str:
    try:
        return version(package)
    except (PackageNotFoundError, ValueError):
        return ""
