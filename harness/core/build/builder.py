"""Export and build, once per arm and cached by content: after this, a restart only has to load.

Each build runs in a process of its own, placed and limited as the arm itself will be, since some runtimes choose code
by the threads and CPUs they see. Imports that builds share are made once (`worker.fork_server`). A probe also settles
what the arm really computes in.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Event, Lock
from typing import Any

from shootout.core import backends, plugins
from shootout.core.adapter import Built
from shootout.core.clock import Deadline
from shootout.core.constants import BUILD_TIMEOUT_S, LOAD_TIMEOUT_S
from shootout.core.contract import SCALED, Arm, Artifact, Device, Precision, Target
from shootout.core.errors import ArmFailed, ModelError, NotRun, NotRunKind, ShootoutError, SkippedArm
from shootout.core.exported import client
from shootout.core.exported.client import Delivery, ModelKey, ProbeKey
from shootout.core.exported.model import INPUTS, ExportedModel, sha256
from shootout.core.exported.request import Request
from shootout.core.host.devices import accelerator
from shootout.core.host.environment import version_of
from shootout.core.host.folders import Scratch
from shootout.core.host.placement import Placement, child_environment
from shootout.core.host.store import mark_used, open_sealed, sealed
from shootout.core.messages import Progress
from shootout.core.scenario import own_build
from shootout.core.schemes import FULL
from shootout.core.study.plan import PlannedGroup
from shootout.core.study.target import scheme_of
from shootout.core.worker import reported, verification
from shootout.core.worker.availability import PythonInterpreter
from shootout.core.worker.fork_server import ForkServer, ForkServers, can_fork
from shootout.core.worker.process import WorkerProcess, log_name
from shootout.core.worker.verification import probe_fault, probe_name

Exported = ExportedModel | ShootoutError
UNSENT = "the machine that exports for this one gave no exported model of this size"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exports:
    """Hold what was exported, or why it couldn't be.

    Attributes:
        models: by group, and `_request_key` of the request.
        probes: by `probe_key`; one that couldn't be exported is missing.
        were_sent: whether another machine made them, which may be out of reach when a search adds a size.
    """

    models: Mapping[ModelKey, Exported]
    probes: Mapping[ProbeKey, ExportedModel]
    were_sent: bool = False

    def of(self, group: PlannedGroup, arm: Arm) -> Exported:
        """Return the exported model that this arm is built from, or why there is none."""
        found = dict[int, Exported]()
        late = SkippedArm(UNSENT, "name the size in the command", NotRunKind.NOT_REACHED)
        for size, request in group.requests_of(arm).items():
            key = (group.record.name, *_request_key(request), size)
            found[size] = self.models.get(key, late) if self.were_sent else self.models[key]
        if group.arrivals is None:
            return found[0]
        made = {size: one for size, one in found.items() if isinstance(one, ExportedModel)}
        if errors := [one for one in found.values() if isinstance(one, ShootoutError)]:
            return errors[0]
        scheme = scheme_of(arm.target)
        try:
            return group.arrivals.compose(made, scheme.bucket, is_open=scheme.is_dynamic)
        except ModelError as error:
            return error


def export_all(
    groups: Sequence[PlannedGroup],
    progress: Progress,
    limit: Deadline,
    begun_on: Collection[str] = (),
    needs: Collection[str] = (),
    leading: Collection[str] = (),
) -> Exports:
    """Export all that these groups' arms are built from; what must be made shares one process.

    Args:
        progress: shows what is exported, and which probe couldn't be.
        limit: when the whole run ends; a model for which there is no time is skipped.
        begun_on: the keys of the exported models that this run began with.
        needs: the precisions whose errors are needed, see `needs_of`.
        leading: those of them that may be the answer (`leading_of`).

    Raises:
        ShootoutError: nothing that could be measured could be exported.
    """
    wanted = {
        key: replace(request, needs=tuple(sorted(needs)))
        for group in groups
        for key, request in _list_requests(group, group.building).items()
    }
    shown = {key for group in groups for arm in group.building if (key := probe_key(arm))}
    saturates = next((group.request.saturates for group in groups), None)
    probes = {key: replace(probe_request(*key), saturates=saturates) for key in sorted(shown)}
    results = client.obtain_all([*wanted.values(), *probes.values()], progress, limit, leading, begun_on)
    models = dict(zip(wanted, results, strict=False))
    made = [models[key] for group in groups for key in _list_requests(group, group.playing)]
    _require_one(made)
    proofs = dict(zip(probes, results[len(wanted) :], strict=True))
    for (name, variant, _), result in proofs.items():
        if isinstance(result, ShootoutError):
            probe = " ".join([variant, name]).strip()
            progress.say(f"no {probe}, so precisions rest on errors and node counts alone: {result}")
    plain = {key: models.get((*key[:2], "", key[3], Device.CPU, False, key[6])) for key in models}
    return Exports(
        models={key: _same_inputs(result, plain[key]) for key, result in models.items()},
        probes={key: result for key, result in proofs.items() if isinstance(result, ExportedModel)},
    )


def open_delivery(delivery: Delivery) -> Exports:
    """Open the exported models that another machine made for this one, which lie in the cache.

    Raises:
        ShootoutError: there is none that could be measured.
    """
    gone = ModelError("what was exported on another machine and sent here is gone: run again")
    models = {
        key: made if isinstance(made, ShootoutError) else client.lookup(made, is_whole=False) or gone
        for key, made in delivery.models.items()
    }
    _require_one(models.values())
    probes = {key: client.lookup(made, is_whole=False) for key, made in delivery.probes.items()}
    return Exports(models=models, probes={key: made for key, made in probes.items() if made}, were_sent=True)


def _require_one(made: Collection[Exported]) -> None:
    """Refuse exports of which none could be made, unless all are skips.

    Raises:
        ShootoutError: why the first one couldn't.
    """
    errors = [one for one in made if isinstance(one, ShootoutError) and not isinstance(one, SkippedArm)]
    if errors and not any(isinstance(one, ExportedModel) for one in made):
        raise errors[0]


def needs_of(groups: Iterable[PlannedGroup]) -> set[str]:
    """Return the precisions that arms run in, and those that may compute what isn't quantized.

    Those of backends and devices that this machine lacks aren't needed.
    """
    precisions = {
        arm.target.precision
        for group in groups
        for arm in group.record.arms
        if (why := group.skips.get(arm.label)) is None or why.builds or why.kind is not NotRunKind.UNAVAILABLE
    }
    needs, scaled = {str(one) for one in precisions}, any(one in SCALED for one in precisions)
    return needs | ({str(Precision.FP16), str(Precision.BF16)} if scaled else set())


def leading_of(groups: Iterable[PlannedGroup], *, any_error: bool) -> set[str]:
    """Return the precisions among `needs_of` that may be the answer: without labels or a metric only exact ones.

    Args:
        any_error: whether the user allows an error.
    """
    groups = list(groups)
    if any_error or any(group.request.scored or group.request.source.labels(group.request) for group in groups):
        return needs_of(groups)
    return needs_of(groups) & set(map(str, FULL))


def probe_key(arm: Arm) -> ProbeKey | None:
    """Return the probe that shows what this arm really computes in, and the variant of it that its scheme needs.

    None for a file in its own precisions, which a probe's model would not have, and for a shipped folder or a library
    of trees, which can't run another model.
    """
    if arm.target.precision is Precision.NATIVE or arm.target.folder or backends.entry(arm.target.backend).own_files:
        return None
    variant = scheme_of(arm.target).for_probe().variant
    return probe_name(arm.target.precision), variant, arm.target.device if variant else Device.CPU


def probe_request(name: str, variant: str = "", device: Device = Device.CPU) -> Request:
    """Return the export request of a probe."""
    return Request(model=name, batch=import_module(plugins.PROBES).BATCHES[name], variant=variant, device=device)


def _list_requests(group: PlannedGroup, arms: Sequence[Arm]) -> dict[ModelKey, Request]:
    """Return the requests of arms: for the model as it is, if one needs it, and then for its variants."""
    requests = {
        (group.record.name, *_request_key(request), size): request
        for arm in arms
        for size, request in group.requests_of(arm).items()
    }
    return {key: requests[key] for key in sorted(requests)}


def _request_key(request: Request) -> tuple[str, str, int, Device, bool]:
    """Return what separates the requests of one group from each other."""
    return request.model, request.variant, request.batch, request.device, request.module


def _same_inputs(variant: Exported, plain: Exported | None) -> Exported:
    """Refuse a variant whose inputs aren't the same bytes as the plain model's, because times wouldn't compare."""
    if isinstance(variant, ShootoutError) or plain is None or isinstance(plain, ShootoutError):
        return variant
    if sha256(variant.folder / INPUTS) != sha256(plain.folder / INPUTS):
        return ModelError(f"{variant.model}, {variant.variant}: its inputs differ from those of the model as it is")
    return variant


_RECORD = "built.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """Build arms for one cache, machine and set of interpreters, with the probes' own models."""

    cache: Path
    placement: Placement
    probes: Mapping[ProbeKey, ExportedModel]
    machine: str
    logs: Path
    interpreters: Mapping[str, PythonInterpreter] = field(default_factory=dict)
    progress: Progress | None = None
    delivery: Delivery | None = None
    _working: set[WorkerProcess] = field(default_factory=set, init=False)
    _stopped: Event = field(default_factory=Event, init=False)
    _locks: dict[str, Lock] = field(default_factory=dict, init=False)
    _servers: ForkServers = field(default_factory=ForkServers, init=False)

    def close(self) -> None:
        """End what builds are forked from."""
        self._servers.kill()

    def stop(self) -> None:
        """End every build, running or about to; each raises `ArmFailed` in the thread that waits for it."""
        self._stopped.set()
        self._servers.end()
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
        limit: Deadline | None = None,
    ) -> Built:
        """Build `arm` on `model`, or take it from the cache; a corrupted cache entry is rebuilt.

        Args:
            version: of the backend's library, part of the cache key.
            runs: whether the arm can run here, so that a probe can be asked.
            cpus: where the build may run; the arms' own CPUs when None.
            limit: when its part of the run's time is over; None: no limit but that of every build.

        Raises:
            ArmFailed: the build broke, gave no answer in its time, or was killed twice, or the probe found another
                precision than the label's.
            SkippedArm: the backend can't build this here.
        """
        limit = limit or Deadline(None)
        key = self._cache_key(arm, model, version, runs)
        folder = self.cache / "built" / key
        with self._locks.setdefault(key, Lock()):  # the same target twice (A/A) is built once
            build = self._open_cached(folder, arm, model)
            if build is None:
                try:
                    build = self._build_anew(arm, model, folder, runs, self.worker(arm, cpus, model, limit), limit)
                except ArmFailed as error:
                    if error.why.kind is not NotRunKind.KILLED or self._stopped.is_set():
                        raise
                    build = self._build_anew(arm, model, folder, runs, self.worker(arm, cpus, model, limit), limit)
        if runs and (fault := probe_fault(build.probe, arm.target)):
            raise ArmFailed(fault)
        other = self.interpreters.get(arm.target.python)
        there = (other.folders, other.version) if other else ()
        wanted = backends.entry(arm.target.backend).installed(arm.target)
        return replace(build, install_bytes=plugins.load(plugins.INSTALLED)(wanted, *there))

    def holds(self, arm: Arm, model: ExportedModel, version: str, runs: bool) -> bool:
        """Return whether this build seems to be in the cache, or was delivered; it isn't read."""
        if self.delivery and name_build(model.key, arm) in self.delivery.builds:
            return True
        return (self.cache / "built" / self._cache_key(arm, model, version, runs) / _RECORD).exists()

    def begin_imports(self, arm: Arm, cpus: frozenset[int], limit: Deadline) -> None:
        """Start what a build of this arm is forked from, as far as that is known without its model, and wait for it.

        Args:
            cpus, limit: see `prepare`.
        """
        if not (self.delivery or self.interpreters.get(arm.target.python)):
            self.fork_server(_list_shared(arm, None), arm.threads, self._cpus_for(arm, cpus), limit)

    def fork_server(
        self, modules: Sequence[str], threads: int, cpus: frozenset[int], limit: Deadline
    ) -> ForkServer | None:
        """Return the process that has imported the modules, or as many of the first ones as can be forked.

        Imports are most of a short build: torch takes 1 s of CPU time, Dynamo another one, a converter 1 to 2 s. Each
        is imported once for all builds: what imports more is forked from what imports less.

        Args:
            threads: compute threads of the build's arm.
            cpus: those of the build; a server that is there may have as many others.
            limit: when a server that isn't ready is ended.

        Returns:
            None if nothing can be forked.
        """
        found = None
        for count in range(len(modules) + 1 if can_fork() else 0):
            start = partial(
                ForkServer,
                modules[:count],
                environment=child_environment(threads, 0),
                cpus=cpus,
                log=self.logs / log_name("-".join(["build-import", *modules[:count]])),
                parent=found,
            )
            timeout_s = max(0.0, min(LOAD_TIMEOUT_S, limit.left_s))
            if (server := self._servers.obtain((*modules[:count], threads), start, timeout_s)) is None:
                break
            found = server
        return found

    @contextmanager
    def worker(
        self,
        arm: Arm,
        cpus: frozenset[int] | None = None,
        model: ExportedModel | None = None,
        limit: Deadline | None = None,
    ) -> Iterator[WorkerProcess]:
        """Run a process in which to build this arm, forked if it can be.

        Args:
            cpus: see `prepare`.
            model: what it is built from, if that is known.
            limit: see `prepare`.

        Raises:
            ArmFailed: the builds were stopped.
        """
        environment = child_environment(arm.threads, 0, backends.capabilities(arm.target.backend).variables)
        log, other = self.logs / log_name(f"build-{arm.label}"), self.interpreters.get(arm.target.python)
        place = self._cpus_for(arm, cpus)
        shared = () if self.delivery else _list_shared(arm, model)
        starter = None if other else self.fork_server(shared, arm.threads, place, limit or Deadline(None))
        with WorkerProcess(environment, place, log, other, starter) as worker:
            self._working.add(worker)
            try:
                if self._stopped.is_set():
                    raise ArmFailed("the run was stopped before it was built")
                yield worker
            finally:
                self._working.discard(worker)

    def _cpus_for(self, arm: Arm, cpus: frozenset[int] | None) -> frozenset[int]:
        """Return as many of the CPUs as one instance has threads: a compiler must see what the arm will."""
        lane = self.placement if cpus is None else replace(self.placement, arms=cpus, threads=len(cpus))
        return lane.narrowed(arm.threads).arms

    def _open_cached(self, folder: Path, arm: Arm, model: ExportedModel) -> Built | None:
        """Open an entry of the cache; None if there is none, or if it is damaged."""
        if not folder.exists():
            return None
        try:
            record = _read_record(folder)
            mark_used(folder)
            return _open_build(folder, arm, model, record, cached=True)
        except (OSError, ValueError, KeyError) as error:
            if self.progress:
                reason = error if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
                self.progress.say(f"{folder} is not a whole build of {arm.label}: {reason}: it is made again")
            return None

    def _build_anew(
        self,
        arm: Arm,
        model: ExportedModel,
        folder: Path,
        runs: bool,
        place: AbstractContextManager[WorkerProcess],
        limit: Deadline,
    ) -> Built:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with Scratch(self.cache) as fresh:
            with place as worker:
                facts, build_s = self._make(worker, arm, model, fresh, limit)
                probe = self._run_probe(worker, arm, limit) if runs else None
            record = {"facts": facts, "build_s": build_s, "probe": probe}
            record["files"] = {str(p.relative_to(fresh)): sha256(p) for p in fresh.rglob("*") if p.is_file()}
            (fresh / _RECORD).write_text(sealed(record), encoding="utf-8")
            shutil.rmtree(folder, ignore_errors=True)
            fresh.rename(folder)
        return _open_build(folder, arm, model, record, cached=False)

    def _make(
        self, worker: WorkerProcess, arm: Arm, model: ExportedModel, folder: Path, limit: Deadline
    ) -> tuple[dict[str, Any], float]:
        """Build into an empty folder, or copy there what another machine built; return its facts, and seconds.

        Raises:
            SkippedArm: it can't be built here, or that machine could not build it.
            ArmFailed: the build broke, or what that machine sent is damaged.
        """
        if self.delivery and (sent := self.delivery.builds.get(name_build(model.key, arm))):
            if isinstance(sent, NotRun):
                raise SkippedArm(sent.reason, sent.fix, sent.kind)
            try:
                record = _read_record(sent)
                shutil.copytree(sent, folder, ignore=shutil.ignore_patterns(_RECORD), dirs_exist_ok=True)
            except (OSError, ValueError, KeyError) as error:
                damaged = f"what {self.delivery.made_on} built and sent is damaged here: {error}"
                raise ArmFailed(f"{damaged}; remove {sent} and run again") from None
            facts = record["facts"]
            notes = [*facts.get("notes", ()), f"built on {self.delivery.made_on}, and sent"]
            return {**facts, "notes": notes}, record["build_s"]
        answer, build_s = worker.ask("build", BUILD_TIMEOUT_S, limit.left_s, exported=model, arm=arm, folder=folder)
        return dict(reported.check_facts(answer)), build_s

    def _run_probe(self, worker: WorkerProcess, arm: Arm, limit: Deadline) -> str | None:
        """Run a probe through the same adapter, in the same process, on a model of its own."""
        if (probe := self._probe_exported(arm)) is None:
            return None
        asked = as_probe(arm)
        with Scratch(self.cache) as folder:
            facts, _ = self._make(worker, asked, probe, folder, limit)
            built = Built(arm=asked, exported=probe, folder=folder, facts=facts)
            answer: str = worker.ask("probe", LOAD_TIMEOUT_S, limit.left_s, built=built)
        return answer

    def _probe_exported(self, arm: Arm) -> ExportedModel | None:
        if Artifact.NONE in backends.capabilities(arm.target.backend).consumes:
            return None
        key = probe_key(arm)
        return self.probes.get(key) if key else None

    def _cache_key(self, arm: Arm, model: ExportedModel, version: str, runs: bool) -> str:
        """Hash all that the artifact depends on: model, target, threads, options, library, adapter code, machine, GPU.

        Where the scenario builds in a way of its own, that counts too (`own_build`).
        A shipped folder's manifest stands for its code: it hashes all other files.
        """
        backend, probe = arm.target.backend, self._probe_exported(arm)
        shared = (verification, import_module(plugins.PROBES))
        code = [*_code_of(arm.target), *(Path(str(one.__file__)) for one in shared)]
        content = [
            model.key,
            str(arm.target),
            arm.threads,
            sorted(arm.options.items()),
            version,
            [sha256(file) for file in code],
            self.machine,
            device.model() if (device := accelerator(arm.target.device)) else None,
            probe.key if probe and runs else None,
            [version_of(package) for package in backends.entry(backend).makers],
        ]
        if self.delivery:  # another build of the same, by another version there, is another one here
            named = [name_build(model.key, arm), *([name_build(probe.key, as_probe(arm))] if probe else [])]
            content.append([getattr(self.delivery.builds.get(name), "name", None) for name in named])
        content += own_build(arm)
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _list_shared(arm: Arm, model: ExportedModel | None) -> Sequence[str]:
    """Return the modules that a build's process begins with.

    A library for a GPU, or a third party's, is imported by the build itself.
    """
    row = backends.shipped().get(arm.target.backend)
    if not row or arm.target.device is not Device.CPU or arm.target.folder:
        return ()
    takes_program = model and model.is_program and Artifact.MODULE in backends.capabilities(arm.target.backend).consumes
    return max(row.build_shared, backends.program_shared() if takes_program else (), key=len)


def name_build(exported: str, arm: Arm) -> str:
    """Name a build by what a portable one depends on: exported model's key, target, options, a scenario's own build."""
    content = [exported, str(arm.target), sorted(arm.options.items()), *own_build(arm)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def as_probe(arm: Arm) -> Arm:
    """Return the arm as its probe is built: with the words of its scheme that apply to any model."""
    return replace(arm, target=replace(arm.target, scheme="+".join(scheme_of(arm.target).for_probe().words)))


def _code_of(target: Target) -> list[Path]:
    """Return all code that decides what an adapter builds: its own, what shipped adapters share, and quantizers."""
    if target.folder:
        return [*backends.code_of(backends.runner(target)), backends.open_shipped(target.folder).manifest]
    return [*backends.code_of(backends.get(target.backend)), *backends.shared_code()]


def _read_record(folder: Path) -> dict[str, Any]:
    """Read what is said of a build, once all its files are known to be as they were written.

    Raises:
        OSError: something is missing.
        ValueError: something was changed.
    """
    record = open_sealed(folder / _RECORD)
    for name, digest in record["files"].items():
        if sha256(folder / name) != digest:
            raise ValueError(f"{name} was changed after it was written")
    return record


def _open_build(folder: Path, arm: Arm, model: ExportedModel, record: Mapping[str, Any], *, cached: bool) -> Built:
    told = {name: record[name] for name in ("facts", "build_s", "probe")}
    return Built(arm=arm, exported=model, folder=folder, cached=cached, **told)
