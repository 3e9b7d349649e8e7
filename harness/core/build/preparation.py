"""Prepare what is raced: exports by group and variant, then a build of each arm, the quick ones first."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event

from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.build.builder import Builder, Exports, export_all, leading_of, needs_of, open_delivery
from shootout.core.clock import Deadline
from shootout.core.constants import BUILD_SHARE, LAST_BUILD_SHARE
from shootout.core.contract import Arm, NotRun, NotRunKind
from shootout.core.errors import ArmFailed, ModelError, ShootoutError, SkippedArm, UsageError
from shootout.core.exported.client import ProbeKey
from shootout.core.exported.model import ExportedModel
from shootout.core.host import store
from shootout.core.host.devices import lanes_on_gpu
from shootout.core.host.folders import collect
from shootout.core.host.placement import lanes
from shootout.core.messages import Progress
from shootout.core.race.recording import Recorder
from shootout.core.scoring import scorer
from shootout.core.stats.verdicts import LEAST_RESTARTS
from shootout.core.study.feasibility import check_export, check_memory_of_exports, device_bytes
from shootout.core.study.plan import Plan, PlannedGroup
from shootout.core.study.points import metric_of
from shootout.core.study.target import provider
from shootout.core.units import counted, span

AT_ONCE_S = 1.0
LOOKING_S = 1.0
QUICK_BUILD_S, QUICK_LOAD_S = 12.0, 4.0
"""Targets that take longer to build, or to load in each restart, wait until there is a first answer without them."""
MOST_OFF = 10.0
"""A rule of thumb for a build's seconds may be so many times too long."""
ENOUGH = 2
"""With so many targets there can be a first answer."""
NOT_BUILT = "not built in the time that --max-time leaves for builds"
MORE_TIME = "run the same command again, with more time: what was built is kept"

OTHER_EXPORT = (
    "this run was begun on another export of {model}, by other files or another shootout, and times over other inputs "
    "don't belong in one series; --fresh measures again"
)


@dataclass(frozen=True, slots=True, eq=False)
class BuildJob:
    """Hold one arm to build, its model and its library's version; `kept`: the build is in the cache."""

    group: PlannedGroup
    arm: Arm
    model: ExportedModel
    version: str
    kept: bool

    @property
    def key(self) -> tuple[str, str]:
        """Return the group's name and the arm's label."""
        return self.group.record.name, self.arm.label

    @property
    def skip(self) -> NotRun | None:
        """Return why the arm can't run here, though it can be built; None: it can."""
        return self.group.skips.get(self.arm.label)

    @property
    def is_baseline(self) -> bool:
        """Tell whether its group is compared with it."""
        return self.arm.label == self.group.record.baseline

    @property
    def expected_s(self) -> float:
        """Return the seconds that the build takes by rule of thumb."""
        return 0.0 if self.kept else expected_s(self.group, self.arm)

    @property
    def loads_s(self) -> float:
        """Return the seconds that the arm takes to load, in each restart, by rule of thumb."""
        return backends.entry(self.arm.target.backend).ready_s


@dataclass(slots=True, kw_only=True)
class Preparation:
    """Export and build all that a run needs, in two steps if there is an answer to be had from the first alone.

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
    recorder: Recorder
    progress: Progress
    deadline: Deadline = field(default_factory=lambda: Deadline(None))
    begun_on: Mapping[tuple[str, str], str] = field(default_factory=dict)
    _probes: dict[ProbeKey, ExportedModel] = field(default_factory=dict, init=False)
    _waiting: set[BuildJob] = field(default_factory=set, init=False)
    _later: list[BuildJob] = field(default_factory=list, init=False)
    _builder: Builder | None = field(default=None, init=False)
    _imports: list[Future[None]] = field(default_factory=list, init=False)

    def run(self, groups: Sequence[PlannedGroup]) -> dict[str, dict[str, Built]]:
        """Export every model, and build what the first answer needs; `find_next` finds what is built behind it.

        What can't be had becomes a skip or a failure.

        Returns:
            By group and label, each arm that can be loaded.

        Raises:
            ShootoutError: no model could be exported at all.
        """
        for group in groups:
            for arm in group.record.arms:
                if not arm.control and (why := group.skips.get(arm.label)) and not why.builds:
                    self.recorder.note(group.record.name, arm, why)
        collect(store.cache_folder())
        wanted = {group.record.name: group for group in groups if group.building}
        arms = {  # a control is its baseline's
            name: [arm for arm in group.building if not arm.control and not self.recorder.is_out(name, arm)]
            for name, group in wanted.items()
        }
        self.progress.stage(self._describe_work([(wanted[name], arm) for name, some in arms.items() for arm in some]))
        builder = self._open_builder()
        with self._ended_on_error():
            with self._begin_imports([arm for some in arms.values() for arm in some], builder):
                exports = self._obtain_exports([*wanted.values()])
            self._try_metric([*wanted.values()], exports)
            self._probes.update(exports.probes)
            limit, first = self.deadline.part(BUILD_SHARE), list[BuildJob]()
            for name, group in wanted.items():
                jobs = self._hand_out(group, arms[name], exports, builder)
                held = self._hold_back(group, jobs, limit)
                first += [job for job in jobs if job not in held]
                if group.record.selects_for:  # one that comes later can't be held against those that have left
                    self._leave_out(held)
                else:
                    self._later += held
            return self._build(first, limit)

    @property
    def has_next(self) -> bool:
        """Tell whether a build that waits for the first answer would end in time."""
        return any(self.deadline.part(BUILD_SHARE).allows(job.expected_s) for job in self._later)

    def count_held(self, group: str) -> int:
        """Count the targets of a group that wait and can run here."""
        return sum(job.skip is None for job in self._later if job.key[0] == group)

    def find_next(self, *, is_idle: bool) -> list[BuildJob]:
        """Return which of the builds that wait come next: all that end in time; none: then there is no time for any.

        A rule of thumb may be far off, so a build that seems to take too long is tried when nothing else is left to do,
        and one at a time: what ends is raced before the next one takes its time.

        Args:
            is_idle: whether nothing else is left to do.
        """
        limit, last = self.deadline.part(BUILD_SHARE), self.deadline.part(LAST_BUILD_SHARE)
        jobs = [job for job in self._later if limit.allows(job.expected_s)]
        if is_idle and not jobs:
            shortest = sorted(self._later, key=lambda job: job.expected_s)[:1]
            jobs = [job for job in shortest if last.allows(job.expected_s / MOST_OFF)]
        if not (jobs and self.deadline.allows(0.0)):
            self._leave_out(self._later)
            self._later.clear()
            self._close_builder()
            return []
        return jobs

    def build(self, jobs: Sequence[BuildJob]) -> dict[str, dict[str, Built]]:
        """Build what `find_next` found; returns as `run`."""
        limit = self.deadline.part(BUILD_SHARE)
        if not all(limit.allows(job.expected_s) for job in jobs):
            limit = self.deadline.part(LAST_BUILD_SHARE)
        self._later[:] = [job for job in self._later if job not in jobs]
        count = sum(job.skip is None for job in jobs)
        self.progress.stage(f"building {counted(count or len(jobs), 'more target')}")
        with self._ended_on_error():
            return self._build(jobs, limit)

    def _hold_back(self, group: PlannedGroup, jobs: Sequence[BuildJob], limit: Deadline) -> list[BuildJob]:
        """Return the builds of one group that wait until the others have raced.

        They are those that don't end in time. In a race for the best they are also those that take long, load slowly,
        can't be shipped or can't run here, if the others are enough for an answer.
        """
        late = self._find_late(jobs, limit)
        if group.record.goal.aim != "best" or group.record.selects_for or self.plan.study.turns:
            return late
        leading = leading_of([group], any_error=self.plan.study.max_error > 0)
        here = [job for job in jobs if job not in late and job.skip is None]
        leads = [job for job in here if str(job.arm.target.precision) in leading and job.loads_s <= QUICK_LOAD_S]
        quick = [job for job in here if job.is_baseline or (job in leads and job.expected_s <= QUICK_BUILD_S)]
        return [job for job in jobs if job not in quick] if len(quick) >= ENOUGH else late

    def _find_late(self, jobs: Sequence[BuildJob], limit: Deadline) -> list[BuildJob]:
        """Return the builds that seem not to end in time, each behind those that begin before it."""
        late, lanes_s = list[BuildJob](), [0.0] * len(lanes(self.plan.placement))
        for job in self._order(jobs) if limit.seconds is not None else ():
            ends_s = min(lanes_s) + job.expected_s
            if limit.allows(ends_s) or job.kept:
                lanes_s[lanes_s.index(min(lanes_s))] = ends_s
            else:
                late.append(job)
        return late

    def _build(self, jobs: Sequence[BuildJob], limit: Deadline) -> dict[str, dict[str, Built]]:
        """Build side by side, those for a GPU behind all others, as many at once as its memory holds.

        Those that choose kernels by timing them there come last, one by one.
        """
        self._waiting.update(jobs)
        are_stopped = False
        alone = [job for job in jobs if job.arm.target.device.is_gpu]
        timing = [job for job in alone if backends.entry(job.arm.target.backend).times_kernels]
        together = [job for job in alone if job not in timing]
        cpus = lanes(self.plan.placement)
        needs_bytes = [device_bytes(job.arm, job.model) for job in together]
        shared = lanes_on_gpu(cpus, sum(map(len, cpus)), needs_bytes) if together else cpus[:1]
        ready: dict[tuple[str, str], Built] = {}
        beside = [job for job in jobs if job not in alone]
        for some, sets in ((beside, cpus), (together, shared), (timing, cpus[:1])):
            built, was_stopped = self._build_on(sets, self._order(some), limit)
            ready |= built
            are_stopped |= was_stopped
        if not self._await_imports(limit) or are_stopped or not self._later:
            self._close_builder()
        names = dict.fromkeys(job.key[0] for job in jobs)
        return {name: {label: built for (of, label), built in ready.items() if of == name} for name in names}

    def _build_on(
        self, lanes: Sequence[frozenset[int]], jobs: Sequence[BuildJob], limit: Deadline
    ) -> tuple[dict[tuple[str, str], Built], bool]:
        """Return what is built side by side and can be loaded, by group and label, and whether the time ended any."""
        builder, waiting, are_stopped = self._open_builder(), list(jobs), False
        ready: dict[tuple[str, str], Built] = {}

        def look() -> bool:
            self._show_progress(waiting, len(jobs))
            return limit.allows(0.0)

        self._show_progress(waiting, len(jobs))
        build = partial(self._build_arm, builder=builder, limit=limit)
        with closing(run_on_lanes(jobs, lanes, build, builder.stop, look)) as results:
            for job, future, was_stopped in results:
                waiting.remove(job)
                are_stopped |= was_stopped
                if built := self._take_result(job, future, was_stopped=was_stopped):
                    ready[job.key] = built
        return ready, are_stopped

    def _open_builder(self) -> Builder:
        """Return what builds, with the processes that builds are forked from: they are idle while arms race."""
        if self._builder is None:
            self._builder = Builder(
                cache=store.cache_folder(),
                placement=self.plan.placement,
                probes=self._probes,
                machine=self.machine,
                logs=self.logs,
                interpreters=self.plan.interpreters,
                progress=self.progress,
                delivery=self.plan.delivery,
            )
        return self._builder

    def _close_builder(self) -> None:
        if self._builder:
            self._builder.close()
            self._builder = None

    @contextmanager
    def _ended_on_error(self) -> Iterator[None]:
        """End what builds are forked from if anything is raised, since a thread may wait for it."""
        try:
            yield
        except BaseException:
            if self._builder:
                self._builder.stop()
            self._close_builder()
            raise

    def _await_imports(self, limit: Deadline) -> bool:
        """Wait until nothing is imported any more: nothing else runs while arms race. False if that takes too long."""
        is_done = True
        while self._imports:
            try:
                self._imports.pop().result(None if limit.seconds is None else max(0.0, limit.left_s))
            except TimeoutError:
                is_done = False
        return is_done

    @contextmanager
    def _begin_imports(self, arms: Sequence[Arm], builder: Builder) -> Iterator[None]:
        """Import what builds begin with, on the last CPUs, while an export goes on: that of a kept one ends at once."""
        place, is_over = lanes(self.plan.placement)[-1], Event()

        def begin() -> None:
            if not is_over.wait(AT_ONCE_S):
                for arm in sorted(arms, key=lambda arm: backends.entry(arm.target.backend).build_s):
                    if not is_over.is_set():
                        builder.begin_imports(arm, place, self.deadline)

        thread = ThreadPoolExecutor(1)
        self._imports.append(thread.submit(begin))
        try:
            yield
        finally:
            is_over.set()
            thread.shutdown(wait=False)

    def _order(self, jobs: Sequence[BuildJob]) -> list[BuildJob]:
        """Return jobs in the order in which they begin: the longest first, so that all lanes are busy to the end.

        If there is a limit, cached builds and the baseline come first, then what is built and loaded twice soonest, so
        that no long one takes the time of several short ones. Under a tuning run's limits it is each group's own order,
        which begins with the most telling.
        """
        if self.deadline.seconds is None:
            return sorted(jobs, key=lambda job: -job.expected_s)

        def order(job: BuildJob) -> tuple[float, ...]:
            hung, arms = self.recorder.hung(job.key[0], job.arm), [arm.label for arm in job.group.record.arms]
            place = 0 if self.plan.limits is None else arms.index(job.arm.label)
            return not job.kept, hung, not job.is_baseline, place, job.expected_s + LEAST_RESTARTS * job.loads_s

        return sorted(jobs, key=order)

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
        """Refuse a metric that fails on a model's reference outputs, before anything is built; say if rows don't fit.

        Raises:
            UsageError: it fails; says the shapes.
        """
        metric = metric_of(self.plan.study)
        made = {
            one.model: one
            for group in groups
            for arm in group.building
            if isinstance(one := exports.of(group, arm), ExportedModel)
        }
        for model, exported in made.items():
            if fault := scorer().try_first_call(metric, exported, self.deadline.left_s):
                raise UsageError(f"--metric {metric.metric} can't score the outputs of {Path(model).name}: {fault}")
            for doubt in scorer().find_misfits(metric, exported):
                self.progress.say(f"note: {doubt}")

    def _describe_work(self, arms: Sequence[tuple[PlannedGroup, Arm]]) -> str:
        """Describe the work, and its time limit if there is one."""
        what = f"exporting and building, {counted(len(arms), 'target')}"
        if self.deadline.seconds is None or not arms:
            return what
        builds_s = [expected_s(*one) for one in arms]
        all_s = max(sum(builds_s) / len(lanes(self.plan.placement)), *builds_s)  # side by side
        left = f"--max-time leaves {span(max(self.deadline.left_s, 0.0))} for all"
        return f"{what}: builds take about {span(all_s)} if none is cached; {left}"

    def _leave_out(self, jobs: Iterable[BuildJob]) -> None:
        """Note that there was no time for these; if an arm can't run here anyway, note the reason for that."""
        for job in jobs:
            self._waiting.discard(job)
            late = NotRun(NotRunKind.NOT_REACHED, NOT_BUILT, MORE_TIME)
            self.recorder.note(job.key[0], job.arm, job.skip or late)

    def _hand_out(self, group: PlannedGroup, arms: Sequence[Arm], exports: Exports, builder: Builder) -> list[BuildJob]:
        """Return a job for each arm of a group whose model can be had; of the others say why not."""
        models: dict[str, ExportedModel] = {}
        refused: dict[str, NotRun] = {}
        for arm in arms:
            exported = exports.of(group, arm)
            if isinstance(exported, SkippedArm):
                refused[arm.label] = exported.why
            elif isinstance(exported, ShootoutError):
                kind = exported.kind if isinstance(exported, ModelError) else NotRunKind.FAILED
                broken = NotRun(kind, str(exported), during="export")
                refused[arm.label] = group.skips.get(arm.label, broken)
            elif (key := self.begun_on.get((group.record.name, arm.label))) and key != exported.key:
                raise UsageError(OTHER_EXPORT.format(model=exported.model))
            elif why := check_export(arm, exported):
                refused[arm.label] = why
            elif arm.target.folder and (theirs := backends.open_shipped(arm.target.folder).misfit(exported)):
                raise UsageError(theirs)
            else:
                models[arm.label] = exported.for_selection() if self.plan.on_selection else exported
        refused |= check_memory_of_exports(arms, models, self.plan.here.memory_bytes)
        jobs = list[BuildJob]()
        for arm in arms:
            if why := refused.get(arm.label):
                self.recorder.note(group.record.name, arm, why)
                continue
            model, other = models[arm.label], self.plan.interpreters.get(arm.target.python)
            version = self.plan.here.available[provider(arm.target)].version
            version = f"{version} {other.digest}" if other else version
            kept = builder.holds(arm, model, version, arm.label not in group.skips)
            jobs.append(BuildJob(group, arm, model, version, kept))
        return jobs

    def _build_arm(self, job: BuildJob, cpus: frozenset[int], builder: Builder, limit: Deadline) -> Built:
        """Build one arm in a part of the time, or in all of it if the builds that wait have a lane of their own."""
        self._waiting.discard(job)
        if limit.seconds is not None and len(self._waiting) >= len(lanes(self.plan.placement)):
            limit = Deadline(limit.one_arm_s(job.expected_s))
        return builder.prepare(job.arm, job.model, job.version, runs=job.skip is None, cpus=cpus, limit=limit)

    def _take_result(self, job: BuildJob, future: Future[Built], *, was_stopped: bool) -> Built | None:
        """Report a build that ended to the recorder; return it if it can run here."""
        try:
            build = future.result()
        except (CancelledError, ArmFailed, SkippedArm) as error:
            # a library's own word on this build is one all the same
            if was_stopped and not isinstance(error, SkippedArm):
                self._leave_out([job])
            elif not isinstance(error, CancelledError):
                why = replace(error.why, during="build")
                if job.skip and error.why.failed:  # it can't run here anyway, so it is a skip though its build failed
                    reason = f"{job.skip.reason}; its build failed too: {error.why.reason}"
                    why = replace(job.skip, kind=NotRunKind.UNAVAILABLE, reason=reason)
                self.recorder.note(job.key[0], job.arm, why)
            return None  # called off otherwise: its model can't be had, as the recorder knows
        self.recorder.built(job.key[0], job.arm, build, runs=job.skip is None)
        if job.skip:
            self.recorder.note(job.key[0], job.arm, job.skip)
        return None if job.skip else build

    def _show_progress(self, waiting: Sequence[BuildJob], count: int) -> None:
        """Show what is being built: the first jobs that wait, since the order is first come, first served."""
        if waiting:
            names = ", ".join(job.arm.label for job in waiting[: len(lanes(self.plan.placement))])
            self.progress.detail(f"{count - len(waiting)} of {count} built, now {names}")


def run_on_lanes(
    jobs: Sequence[BuildJob],
    lanes: Sequence[frozenset[int]],
    build: Callable[[BuildJob, frozenset[int]], Built],
    stop: Callable[[], None],
    look: Callable[[], bool],
) -> Generator[tuple[BuildJob, Future[Built], bool]]:
    """Run jobs side by side, one per lane at a time, first come, first served; closed early, it leaves nothing running.

    A compiler sees the machine that its arm will see, and no two builds share a CPU. They still share caches and
    memory, so `build_s` may be a little longer than alone; no latency is measured meanwhile.

    Args:
        lanes: sets of CPUs; a job is called with the one it gets.
        stop: makes all running jobs end soon, with an exception of theirs.
        look: called when some ended, and every LOOKING_S seconds; once it is False, jobs that wait are cancelled
            unless their build is kept, and those that run are stopped.

    Yields:
        Every job as it ends, and whether it ran or waited when `look` was False.
    """
    free, stopped = SimpleQueue[frozenset[int]](), set[BuildJob]()
    for lane in lanes:
        free.put(lane)

    def run(job: BuildJob) -> Built:
        lane = free.get()
        try:
            return build(job, lane)
        finally:
            free.put(lane)

    pool = ThreadPoolExecutor(len(lanes))
    futures = {pool.submit(run, job): job for job in jobs}
    left, goes_on = set(futures), True
    try:
        while left:
            ended, left = wait(left, LOOKING_S, FIRST_COMPLETED)
            yield from ((futures[one], one, futures[one] in stopped) for one in ended)
            if goes_on and left and not look():
                goes_on, stopped = False, {futures[one] for one in left if not one.done()}
                for future in left:
                    if not futures[future].kept:
                        future.cancel()
                stop()
    finally:
        if left:
            pool.shutdown(wait=False, cancel_futures=True)
            stop()
        pool.shutdown()


def expected_s(group: PlannedGroup, arm: Arm) -> float:
    """Return the seconds that a build of a group's arm takes by rule of thumb."""
    row = backends.entry(arm.target.backend)
    return row.expect_build_s(arm.target.mode, arm.target.precision, group.weight_bytes)
