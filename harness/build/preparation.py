"""Prepare everything before the first restart: exports by group and variant, then a build of each arm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from shootout import backends, budget
from shootout.backends.adapter import Built
from shootout.build.builder import Builder, BuiltArm, Exports, ask, export_all, leading_of, needs_of, open_delivery
from shootout.build.pool import BuildPool, lanes, lanes_on_gpu
from shootout.clock import Deadline
from shootout.constants import BUILD_TIMEOUT_S, MIN_INPUT_BUFFERS
from shootout.contract import Arm, NotRun, NotRunKind
from shootout.errors import ArmOut, Hung, ModelError, ShootoutError, SkippedArm, UsageError
from shootout.export.delivery import ProbeKey
from shootout.exported.model import ExportedModel
from shootout.host import store
from shootout.host.scratch import collect
from shootout.messages import Progress
from shootout.models.user import scoring
from shootout.study.feasibility import check_export, check_memory_of_exports, device_bytes
from shootout.study.plan import Plan, PlannedGroup, measure_of
from shootout.study.preview import size_of
from shootout.study.target import open_once, provider
from shootout.units import counted, span

AT_ONCE_S = 1.0
TOO_LATE = "not built in the time that --max-time leaves for builds"
NO_ANSWER = (
    "not built: without labels or an error that you accept it can't be shipped, and --max-time leaves just the time "
    "to race those that can"
)
MORE_TIME = "run the same command again, with more time: what was built is kept"

OTHER_EXPORT = (
    "this run was begun on another export of {model}, and times over other inputs don't belong in one series; "
    "--fresh measures again"
)


class Ledger(Protocol):
    """Record what became of the arms, by their group's name."""

    def is_out(self, group: str, arm: Arm) -> bool:
        """Return whether this arm was skipped or failed."""

    def hung(self, group: str, arm: Arm) -> bool:
        """Return whether this arm gave no answer within its part of `--max-time` in an earlier process of the run."""

    def note(self, group: str, arm: Arm, why: NotRun) -> None:
        """Note why an arm is out."""

    def built(self, group: str, arm: Arm, found: BuiltArm, *, runs: bool) -> None:
        """Note that an arm was built; `runs`: it can run here too."""


@dataclass(frozen=True, slots=True, eq=False)
class BuildJob:
    """Hold one arm to build, and its model, which is there after the export; canceled if it can't be had."""

    group: PlannedGroup
    arm: Arm
    model: Future[ExportedModel] = field(default_factory=Future)

    @property
    def expected_s(self) -> float:
        """Return the seconds that the build takes by rule of thumb."""
        return expected_s(self.group, self.arm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """Export and build all that a run needs.

    Attributes:
        plan: what is available here, and where it may run.
        machine: what makes a build one of this machine (`environment.fingerprint`).
        deadline: when the whole run ends. Exports and builds have shares of the time until then: arms that aren't ready
            when those are over are not reached, and what is ready goes on.
        begun_on: by group and label, the key of the exported model that an earlier process of this run built the arm
            from.
    """

    plan: Plan
    machine: str
    logs: Path
    ledger: Ledger
    progress: Progress
    deadline: Deadline = field(default_factory=lambda: Deadline(None))
    begun_on: Mapping[tuple[str, str], str] = field(default_factory=dict)
    _waiting: set[BuildJob] = field(default_factory=set, init=False)

    def run(self, groups: Sequence[PlannedGroup]) -> dict[str, dict[str, Built]]:
        """Make everything ready; what can't be becomes a skip or a failure.

        Builds run side by side, the longest first. Those for a GPU come behind all others, as many at once as its
        memory holds; those that choose kernels by timing them there come last, one by one. All lanes but one start
        during the export, because a build's first steps need no model. If there is a limit, cached builds and the
        baseline come first, then the shortest (see `_rank`), so that no long one takes the time of several short ones.
        So none starts during the export if not all of them have time, and one that would take longer than the limit
        isn't begun.

        Returns:
            By group and label, each arm that can be loaded.

        Raises:
            ShootoutError: no model could be exported at all.
        """
        for group in groups:
            self._skip_the_impossible(group)
        collect(store.cache_folder())
        wanted = [group for group in groups if group.building]
        probes: dict[ProbeKey, ExportedModel] = {}
        builder = Builder(
            cache=store.cache_folder(),
            placement=self.plan.placement,
            probes=probes,
            machine=self.machine,
            logs=self.logs,
            interpreters=self.plan.interpreters,
            progress=self.progress,
            delivery=self.plan.delivery,
        )
        jobs = [BuildJob(group, arm) for group in wanted for arm in self._arms_to_build(group)]
        self._waiting.update(jobs)
        self.progress.stage(self._describe_work(jobs))
        beside = [job for job in self._order(jobs) if not job.arm.target.device.is_gpu]
        alone = [job for job in jobs if job not in beside]
        cpus = lanes(self.plan.placement)
        with BuildPool[BuildJob, BuiltArm](cpus, builder.stop) as pool:
            hard = [job for job in beside if backends.entry(job.arm.target.backend).get_ready]
            early = [job for job in hard if _ends_in_time(job, self.deadline) and not self._hung_before(job)]
            early = early[: len(cpus) - 1 if budget.builds(self.deadline).allows(self._expect_all_s(jobs)) else 0]
            for job in early:
                pool.submit(job, partial(self._build_arm, job, builder))
            with _called_off(jobs):
                exports = self._obtain_exports(wanted)
                self._try_metric(wanted, exports)
                probes |= exports.probes
                for group in wanted:
                    self._hand_out([job for job in jobs if job.group is group], exports)
            limit = budget.builds(self.deadline)
            rest = [job for job in beside if job not in early]
            kept = self._find_cached([*rest, *alone], builder) if limit.seconds is not None else set[BuildJob]()
            gone = [job for job in jobs if job.model.cancelled() or not _ends_in_time(job, limit)]
            self._waiting.difference_update(kept, gone)
            self._begin_builds(rest, kept, pool, builder, limit)
            ready = self._collect_builds(pool, limit)
        timing = [job for job in alone if backends.entry(job.arm.target.backend).times_kernels]
        together = [job for job in alone if job not in timing]
        needs_bytes = [device_bytes(job.arm, job.model.result()) for job in together if not job.model.cancelled()]
        shared = lanes_on_gpu(cpus, sum(map(len, cpus)), needs_bytes)
        for some, sets in ((together, shared), (timing, cpus[:1])):
            with BuildPool[BuildJob, BuiltArm](sets, builder.stop) as pool:
                self._begin_builds(some, kept, pool, builder, limit)
                ready |= self._collect_builds(pool, limit)
        builder.close()
        return {group.record.name: self._of_group(group, ready) for group in wanted}

    def _order(self, jobs: Sequence[BuildJob]) -> list[BuildJob]:
        """Return jobs in the order of their times: the shortest first if there is a limit, else the longest."""
        return longest_first(jobs) if self.deadline.seconds is None else sorted(jobs, key=self._rank)

    def _obtain_exports(self, groups: Sequence[PlannedGroup]) -> Exports:
        """Export what the groups need, or open what another machine exported for them.

        Raises:
            ShootoutError: nothing that could be measured could be exported.
        """
        if self.plan.delivery:
            return open_delivery(self.plan.delivery)
        every = [*self.plan.groups, *groups]  # since others of a model may join later
        leading = leading_of(every, any_error=self.plan.study.max_error > 0)
        return export_all(groups, self.progress, self.deadline, set(self.begun_on.values()), needs_of(every), leading)

    def _try_metric(self, groups: Sequence[PlannedGroup], exports: Exports) -> None:
        """Refuse a metric that fails on the reference outputs of a model's first call, before anything is built.

        Raises:
            UsageError: it fails; says the shapes.
        """
        measure = measure_of(self.plan.study)
        made = {
            one.model: one
            for group in groups
            for arm in group.building
            if isinstance(one := exports.of(group, arm), ExportedModel)
        }
        for model, exported in made.items():
            if fault := scoring.try_first_call(measure, exported, min(scoring.TRIAL_S, self.deadline.left_s)):
                raise UsageError(f"--metric {measure.metric} can't score the outputs of {Path(model).name}: {fault}")

    def _describe_work(self, jobs: Sequence[BuildJob]) -> str:
        """Describe the work, and its time limit if there is one."""
        what = f"exporting and building, {counted(len(jobs), 'target')}"
        if self.deadline.seconds is None or not jobs:
            return what
        takes = f"builds take about {span(self._expect_all_s(jobs))} if none is cached"
        return f"{what}: {takes}; --max-time leaves {span(max(self.deadline.left_s, 0.0))} for all"

    def _expect_all_s(self, jobs: Sequence[BuildJob]) -> float:
        """Return the seconds that all builds take side by side; 0 without any."""
        expected = [job.expected_s for job in jobs]
        return max(sum(expected) / len(lanes(self.plan.placement)), *expected, 0.0)

    def _find_cached(self, jobs: Sequence[BuildJob], builder: Builder) -> set[BuildJob]:
        """Find the jobs whose builds are in the cache."""
        ready = [job for job in jobs if not job.model.cancelled()]
        return {job for job in ready if builder.holds(job.arm, job.model.result(), *self._built_with(job))}

    def _begin_builds(
        self,
        jobs: Sequence[BuildJob],
        kept: set[BuildJob],
        pool: BuildPool[BuildJob, BuiltArm],
        builder: Builder,
        limit: Deadline,
    ) -> None:
        """Begin the jobs that end in time, the kept ones first; note down those that would take too long."""
        waiting = [job for job in jobs if not job.model.cancelled()]
        if limit.seconds is not None:
            late = [job for job in waiting if job not in kept and not _ends_in_time(job, limit)]
            for job in late:
                self._not_reached(job)
            needless = [job for job in waiting if job not in kept and job not in late and not self._spares_a_race(job)]
            for job in needless:
                self._not_reached(job, NO_ANSWER)
            late += needless
            waiting = [job for job in waiting if job not in late]
            waiting.sort(
                key=lambda job: (job not in kept, self._hung_before(job), not _is_baseline(job), self._rank(job))
            )
        for job in waiting:
            pool.submit(job, partial(self._build_arm, job, builder), spared=job in kept)

    def _rank(self, job: BuildJob) -> tuple[int, float]:
        """Return what sorts the builds for which there may be no time: the shortest first.

        Under a tuning run's limits it is each group's own order first, which begins with the most telling.
        """
        labels = [arm.label for arm in job.group.record.arms]
        return 0 if self.plan.limits is None else labels.index(job.arm.label), job.expected_s

    def _hung_before(self, job: BuildJob) -> bool:
        return self.ledger.hung(job.group.record.name, job.arm)

    def _time_for(self, job: BuildJob) -> Deadline:
        """Return the time that a build which begins now may take: all that builds have, if those that wait have a lane
        of their own.
        """
        limit = budget.builds(self.deadline)
        if limit.seconds is None or len(self._waiting) < len(lanes(self.plan.placement)):
            return limit
        return Deadline(budget.one_arm_s(limit, job.expected_s))

    def _spares_a_race(self, job: BuildJob) -> bool:
        """Return whether a build is of a target that may be shipped, or leaves the time for two restarts of those."""
        group = job.group
        leading = leading_of([group], any_error=self.plan.study.max_error > 0)
        if str(job.arm.target.precision) in leading:
            return True
        call_s = size_of(group.request, group.weight_bytes).call_s
        players = [arm for arm in group.playing if str(arm.target.precision) in leading]
        race_s = 2 * len(players) * (budget.least_calls_s(call_s) + MIN_INPUT_BUFFERS * call_s)
        return self.deadline.allows(job.expected_s + race_s)

    def _not_reached(self, job: BuildJob, reason: str = TOO_LATE) -> None:
        """Note that there was no time for it; if the arm can't run here anyway, note the reason for that."""
        self._waiting.discard(job)
        late = NotRun(NotRunKind.NOT_REACHED, reason, MORE_TIME)
        self.ledger.note(job.group.record.name, job.arm, job.group.skips.get(job.arm.label, late))

    def _skip_the_impossible(self, group: PlannedGroup) -> None:
        for arm in group.record.arms:
            if not arm.control and (why := group.skips.get(arm.label)) and not why.builds:
                self.ledger.note(group.record.name, arm, why)

    def _arms_to_build(self, group: PlannedGroup) -> list[Arm]:
        """Return the arms of a group that are built: a control is its baseline's."""
        return [arm for arm in group.building if not arm.control and not self.ledger.is_out(group.record.name, arm)]

    def _hand_out(self, jobs: Sequence[BuildJob], exports: Exports) -> None:
        """Give each job of one group its model, or call it off and say why."""
        exported_models: dict[str, ExportedModel] = {}
        refused: dict[str, NotRun] = {}
        for job in jobs:
            exported = exports.of(job.group, job.arm)
            if isinstance(exported, SkippedArm):
                refused[job.arm.label] = exported.why
            elif isinstance(exported, ShootoutError):
                kind = exported.kind if isinstance(exported, ModelError) else NotRunKind.FAILED
                broken = NotRun(kind, str(exported), during="export")
                refused[job.arm.label] = job.group.skips.get(job.arm.label, broken)
            elif (key := self.begun_on.get((job.group.record.name, job.arm.label))) and key != exported.key:
                raise UsageError(OTHER_EXPORT.format(model=exported.model))
            elif why := check_export(job.arm, exported):
                refused[job.arm.label] = why
            elif job.arm.target.folder and (theirs := open_once(job.arm.target.folder).misfit(exported)):
                raise UsageError(theirs)
            else:
                exported_models[job.arm.label] = exported.for_selection() if self.plan.on_selection else exported
        refused |= check_memory_of_exports([job.arm for job in jobs], exported_models, self.plan.here.memory_bytes)
        for job in jobs:
            if why := refused.get(job.arm.label):
                self.ledger.note(job.group.record.name, job.arm, why)
                job.model.cancel()
            else:
                job.model.set_result(exported_models[job.arm.label])

    def _built_with(self, job: BuildJob) -> tuple[str, bool]:
        """Return the library's version, and whether the arm can run here."""
        version = self.plan.available[provider(job.arm.target)].version
        if other := self.plan.interpreters.get(job.arm.target.python):
            version += f" {other.digest}"
        return version, job.arm.label not in job.group.skips

    def _build_arm(self, job: BuildJob, builder: Builder, cpus: frozenset[int]) -> BuiltArm:
        self._waiting.discard(job)
        version, runs = self._built_with(job)
        with ExitStack() as stack:
            worker = None
            if not _is_there_soon(job.model):
                worker = stack.enter_context(builder.worker(job.arm, cpus))
                try:
                    ask(worker, "get_ready", BUILD_TIMEOUT_S, self._time_for(job), backend=job.arm.target.backend)
                except Hung:
                    raise
                except ArmOut:
                    pass  # the build reports what is wrong
            model = job.model.result()
            limit = self._time_for(job)
            return builder.prepare(job.arm, model, version, runs=runs, cpus=cpus, worker=worker, limit=limit)

    def _collect_builds(self, pool: BuildPool[BuildJob, BuiltArm], limit: Deadline) -> dict[tuple[str, str], Built]:
        """Collect the builds by group and label, and report each to the ledger as it ends."""
        ready: dict[tuple[str, str], Built] = {}
        waiting = pool.keys()
        count = len(waiting)
        self._show_progress(waiting, count)

        def look() -> bool:
            self._show_progress(waiting, count)
            return limit.allows(0.0)

        for job, future in pool.results(look):
            waiting.remove(job)
            name, why = job.group.record.name, job.group.skips.get(job.arm.label)
            build = self._take_result(job, future, stopped=job in pool.stopped)
            self._show_progress(waiting, count)
            if build is None:
                continue
            why = why or build.elsewhere
            self.ledger.built(name, job.arm, build, runs=why is None)
            if why:
                self.ledger.note(name, job.arm, why)
            else:
                ready[name, job.arm.label] = build.built
        return ready

    def _of_group(self, group: PlannedGroup, ready: Mapping[tuple[str, str], Built]) -> dict[str, Built]:
        """Return a group's part of what is ready, its control included."""
        name = group.record.name
        own = {label: built for (of, label), built in ready.items() if of == name}
        copies = [arm for arm in group.playing if arm.control and not self.ledger.is_out(name, arm)]
        controls = copies if group.record.baseline in own else []
        return own | {arm.label: replace(own[str(group.record.baseline)], arm=arm) for arm in controls}

    def _take_result(self, job: BuildJob, future: Future[BuiltArm], *, stopped: bool) -> BuiltArm | None:
        try:
            return future.result()
        except (CancelledError, ArmOut) as error:
            if stopped and not isinstance(error, SkippedArm):  # a library's own word on this build is one all the same
                self._not_reached(job)
            elif isinstance(error, ArmOut):
                self.ledger.note(job.group.record.name, job.arm, _why_unbuilt(job, error.why))
            return None  # called off otherwise: its model can't be had, as the ledger knows

    def _show_progress(self, waiting: Sequence[BuildJob], count: int) -> None:
        """Show what is being built: the first jobs that wait, since the order is first come, first served."""
        if waiting:
            names = ", ".join(job.arm.label for job in waiting[: len(lanes(self.plan.placement))])
            self.progress.detail(f"{count - len(waiting)} of {count} built, now {names}")


def longest_first(jobs: Sequence[BuildJob]) -> list[BuildJob]:
    """Sort jobs so that all lanes are busy to the end; equals keep their order."""
    return sorted(jobs, key=lambda job: -job.expected_s)


def expected_s(group: PlannedGroup, arm: Arm) -> float:
    """Return the seconds that a build of a group's arm takes by rule of thumb."""
    row = backends.entry(arm.target.backend)
    return row.expect_build_s(arm.target.mode, arm.target.precision, group.weight_bytes)


def _ends_in_time(job: BuildJob, limit: Deadline) -> bool:
    return limit.allows(job.expected_s)


def _why_unbuilt(job: BuildJob, why: NotRun) -> NotRun:
    """Return why an arm has no build; if it can't run here anyway, it is a skip though its build failed."""
    skip = job.group.skips.get(job.arm.label)
    if skip is None or not why.failed:
        return replace(why, during="build")
    return replace(skip, kind=NotRunKind.UNAVAILABLE, reason=f"{skip.reason}; its build failed too: {why.reason}")


def _is_baseline(job: BuildJob) -> bool:
    return job.arm.label == job.group.record.baseline


def _is_there_soon(model: Future[ExportedModel]) -> bool:
    """Return whether the model is there now, or will be at once, as if it is in the cache."""
    try:
        model.exception(AT_ONCE_S)
    except TimeoutError:
        return False
    return True


@contextmanager
def _called_off(jobs: Sequence[BuildJob]) -> Iterator[None]:
    """Let no job wait for a model that will not come."""
    try:
        yield
    except BaseException:
        for job in jobs:
            job.model.cancel()
        raise
