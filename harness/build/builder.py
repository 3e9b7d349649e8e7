"""Export and build, once per arm and cached by content: after this, a restart only has to load.

Each build runs in a process of its own, placed and limited as the arm itself will be, since some runtimes choose code
by the threads and CPUs they see. There a probe also settles what the arm really computes in.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Lock
from typing import Any

from shootout import backends, quantize
from shootout.backends import code, reported
from shootout.backends.adapter import Built
from shootout.backends.installed import install_bytes
from shootout.build.exports import ProbeKey, probe_key
from shootout.clock import Deadline
from shootout.constants import BUILD_TIMEOUT_S, LOAD_TIMEOUT_S
from shootout.contract import Arm, Artifact, Device, Target
from shootout.errors import ArmFailed, Hung, NotRun, NotRunKind
from shootout.exported.model import ExportedModel, sha256
from shootout.exported.shipped_folder import MANIFEST
from shootout.host import cuda_driver
from shootout.host.environment import version_of
from shootout.host.placement import Placement, child_environment
from shootout.host.scratch import scratch
from shootout.host.store import mark_used, open_sealed, sealed
from shootout.messages import Progress
from shootout.study.plan import scheme_of
from shootout.worker import precision_checks, process
from shootout.worker.interpreters import Interpreter
from shootout.worker.precision_checks import probe_fault

_RECORD = "built.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltArm:
    """An arm ready to be loaded, and what making it ready took.

    Attributes:
        probe: what the permutation probe, or for integers the grid probe, found; None where neither applies (spin).
        install_bytes: of its runtime; None where that can't be told.
    """

    built: Built
    build_s: float
    cached: bool
    probe: str | None
    install_bytes: int | None = None

    @property
    def elsewhere(self) -> NotRun | None:
        """Why it can't run on this machine, where its own options make it so."""
        told = self.built.facts.get("elsewhere")
        return NotRun(NotRunKind.BUILT_ONLY, told) if told else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """Where builds happen: cache, machine, other interpreters, the probes' own models; `progress` hears of damage."""

    cache: Path
    placement: Placement
    probes: Mapping[ProbeKey, ExportedModel]
    machine: str
    logs: Path
    interpreters: Mapping[str, Interpreter] = field(default_factory=dict)
    progress: Progress | None = None
    _working: set[process.WorkerProcess] = field(default_factory=set, init=False)
    _stopped: Event = field(default_factory=Event, init=False)
    _locks: dict[str, Lock] = field(default_factory=dict, init=False)

    def stop(self) -> None:
        """End every build, running or about to; each raises `ArmFailed` in the thread that waits for it."""
        self._stopped.set()
        for worker in list(self._working):
            worker.end()

    def prepare(
        self,
        arm: Arm,
        model: ExportedModel,
        version: str,
        *,
        runs: bool = True,
        cpus: frozenset[int] | None = None,
        worker: process.WorkerProcess | None = None,
        limit: Deadline | None = None,
    ) -> BuiltArm:
        """Build `arm` on `model`, or take it from the cache; a corrupted cache entry is rebuilt.

        Args:
            version: of the backend's library, part of the cache key.
            runs: whether the arm can run here, so that a probe can be asked.
            cpus: where the build may run; the arms' own CPUs when None.
            worker: one for this arm on these CPUs that has built nothing yet; one of its own when None.
            limit: when its part of the run's time is over; None: no limit but that of every build.

        Raises:
            Hung: it gave no answer in its time.
            ArmFailed: the build broke, or was killed twice, or the probe found another precision than the label's.
            SkippedArm: the backend can't build this here.
        """
        limit = limit or Deadline(None)
        key = self._key(arm, model, version, runs)
        folder = self.cache / "built" / key
        with self._locks.setdefault(key, Lock()):  # the same target twice (A/A) is built once
            found = self._kept(folder, arm, model)
            if found is None:
                first = nullcontext(worker) if worker else self.worker(arm, cpus)
                try:
                    found = self._build(arm, model, folder, runs, first, limit)
                except ArmFailed as error:
                    if error.why.kind is not NotRunKind.KILLED or self._stopped.is_set():
                        raise
                    found = self._build(arm, model, folder, runs, self.worker(arm, cpus), limit)
        if runs and (fault := probe_fault(found.probe, arm.target)):
            raise ArmFailed(fault)
        other = self.interpreters.get(arm.target.python)
        there = (other.folders, other.version) if other else ()
        return replace(found, install_bytes=install_bytes(arm.target, *there))

    def holds(self, arm: Arm, model: ExportedModel, version: str, runs: bool) -> bool:
        """Whether this build is in the cache, as far as can be told without reading it."""
        return (self.cache / "built" / self._key(arm, model, version, runs) / _RECORD).exists()

    @contextmanager
    def worker(self, arm: Arm, cpus: frozenset[int] | None = None) -> Iterator[process.WorkerProcess]:
        """A process in which to build this arm.

        Args:
            cpus: see `prepare`.

        Raises:
            ArmFailed: the builds were stopped.
        """
        environment = child_environment(arm.threads, 0, backends.capabilities(arm.target.backend).variables)
        log, other = self.logs / process.log_name(f"build-{arm.label}"), self.interpreters.get(arm.target.python)
        with process.worker(environment, self._lane(arm, cpus), log, other) as worker:
            self._working.add(worker)
            try:
                if self._stopped.is_set():
                    raise ArmFailed("the run was stopped before it was built")
                yield worker
            finally:
                self._working.discard(worker)

    def _lane(self, arm: Arm, cpus: frozenset[int] | None) -> frozenset[int]:
        """As many of the CPUs as one instance has threads: a compiler must see what the arm will."""
        lane = self.placement if cpus is None else replace(self.placement, arms=cpus, threads=len(cpus))
        return lane.narrowed(arm.threads).arms

    def _kept(self, folder: Path, arm: Arm, model: ExportedModel) -> BuiltArm | None:
        """A whole entry of the cache; None when there is none, or one that isn't as it was written."""
        if not folder.exists():
            return None
        try:
            record = open_sealed(folder / _RECORD)
            for name, digest in record["files"].items():
                if sha256(folder / name) != digest:
                    raise ValueError(f"{name} was changed after it was written")
            mark_used(folder)
            return _opened(folder, arm, model, record, cached=True)
        except (OSError, ValueError, KeyError) as error:
            if self.progress:
                reason = error if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
                self.progress.say(f"{folder} is not a whole build of {arm.label}: {reason}: it is made again")
            return None

    def _build(
        self,
        arm: Arm,
        model: ExportedModel,
        folder: Path,
        runs: bool,
        place: AbstractContextManager[process.WorkerProcess],
        limit: Deadline,
    ) -> BuiltArm:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with scratch(self.cache) as fresh:
            with place as worker:
                said, build_s = ask(worker, "build", BUILD_TIMEOUT_S, limit, exported=model, arm=arm, folder=fresh)
                facts = dict(reported.facts(said))
                probe = self._probe(worker, arm, limit) if runs and not facts.get("elsewhere") else None
            record = {"facts": facts, "build_s": build_s, "probe": probe}
            record["files"] = {str(p.relative_to(fresh)): sha256(p) for p in fresh.rglob("*") if p.is_file()}
            (fresh / _RECORD).write_text(sealed(record), encoding="utf-8")
            shutil.rmtree(folder, ignore_errors=True)
            fresh.rename(folder)
        return _opened(folder, arm, model, record, cached=False)

    def _probe(self, worker: process.WorkerProcess, arm: Arm, limit: Deadline) -> str | None:
        """A probe through the same adapter, in the same process, on a model of its own."""
        probe = self._probe_exported(arm)
        if probe is None:
            return None
        asked = replace(arm, target=replace(arm.target, scheme="+".join(scheme_of(arm.target).for_probe().words)))
        with scratch(self.cache) as folder:
            facts, _ = ask(worker, "build", BUILD_TIMEOUT_S, limit, exported=probe, arm=asked, folder=folder)
            built = Built(arm=asked, exported=probe, folder=folder, facts=facts)
            answer: str = ask(worker, "probe", LOAD_TIMEOUT_S, limit, built=built)
        return answer

    def _probe_exported(self, arm: Arm) -> ExportedModel | None:
        if Artifact.NONE in backends.capabilities(arm.target.backend).consumes:
            return None
        key = probe_key(arm)
        return self.probes.get(key) if key else None

    def _key(self, arm: Arm, model: ExportedModel, version: str, runs: bool) -> str:
        """All that the artifact depends on: model, target, threads, options, library, adapter code, machine, GPU; of a
        shipped folder its manifest, which hashes the rest.
        """
        backend, probe = arm.target.backend, self._probe_exported(arm)
        content = [
            model.key,
            str(arm.target),
            arm.threads,
            sorted(arm.options.items()),
            version,
            [sha256(file) for file in [*_code_of(arm.target), Path(str(precision_checks.__file__))]],
            self.machine,
            cuda_driver.model() if arm.target.device is Device.CUDA else None,  # the machine's facts need NVML for it
            probe.key if probe and runs else None,
            [version_of(package) for package in backends.entry(backend).makers],
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def ask(worker: process.WorkerProcess, command: str, most_s: float, limit: Deadline, **arguments: Any) -> Any:
    """Ask a build's worker, for so many seconds at most, or until `limit`.

    Raises:
        Hung: it gave no answer in its time.
    """
    left_s = max(0.0, limit.left_s)
    try:
        return worker.ask(command, min(most_s, left_s), **arguments)
    except Hung as hung:
        raise Hung(hung.why.reason, had_part=left_s < most_s) from None


def _code_of(target: Target) -> list[Path]:
    """All code that decides what an adapter builds: its own, what shipped adapters share, and quantizers."""
    if target.folder:
        return [*code.code_of(backends.runner(target)), Path(target.folder) / MANIFEST]
    backend, shipped = target.backend, target.backend in backends.SHIPPED
    own = code.code_of(backends.get(backend)) if shipped else map(Path, backends.describe(backend).code)
    shared = (Path(package.__path__[0]) for package in (backends, quantize))
    return [*own, *(file for folder in shared for file in sorted(folder.glob("*.py")))]


def _opened(folder: Path, arm: Arm, model: ExportedModel, record: Mapping[str, Any], *, cached: bool) -> BuiltArm:
    return BuiltArm(
        built=Built(arm=arm, exported=model, folder=folder, facts=record["facts"]),
        build_s=record["build_s"],
        cached=cached,
        probe=record["probe"],
    )
