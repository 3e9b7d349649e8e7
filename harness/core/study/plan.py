"""Study × what is available here → a plan: groups of arms that race each other, and skips.

`make_plan` looks at the machine; all else is pure.

For throughput a target's settings (batches, instances) compete. Picking the fastest of many is biased by luck, so it
happens in two groups. The first one tries all settings and gives no verdict; each restart halves what is left of every
target. The second measures each target's chosen setting, its plain one and the baseline again.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from shootout.core import backends
from shootout.core.adapter import check_options
from shootout.core.clock import Stopwatch
from shootout.core.constants import BATCH, RACING_S
from shootout.core.contract import SCALED, Arm, Artifact, Device, NotRun, NotRunKind, Option, Target
from shootout.core.errors import ModelError, UsageError, unknown
from shootout.core.exported import client
from shootout.core.exported.client import Delivery
from shootout.core.exported.request import Content, Request, find_model, is_file, name_model
from shootout.core.host import environment
from shootout.core.host.placement import Placement, allowed_cpus, place, widest
from shootout.core.host.store import cache_folder
from shootout.core.messages import Progress
from shootout.core.scenario import Arrivals, find_scenario
from shootout.core.scoring import scorer
from shootout.core.stats.goals import read_goal
from shootout.core.stats.readings import LEAST_TAILS
from shootout.core.study.feasibility import Here, find_obstacles, needed_bytes, weight_bytes
from shootout.core.study.group import GroupRecord, count_comparisons, own_fp32, with_control
from shootout.core.study.points import (
    Point,
    at_size,
    describe,
    group_name,
    names_of,
    points,
    request,
    rows_of,
    targets_of,
)
from shootout.core.study.schema import Study, study_options
from shootout.core.study.target import parse_targets, provider, refuse_other_models, scheme_of, shipped_hashes
from shootout.core.worker.availability import PythonInterpreter, examine, known_available


def find_crowded(arms: Sequence[Arm], threads: int) -> dict[str, NotRun]:
    """Explain why arms don't fit on the CPUs, by label.

    Args:
        threads: that an arm may have, all its instances together.
    """
    return {
        arm.label: NotRun(
            NotRunKind.TOO_BIG,
            f"{arm.instances} instances need as many threads, and a target has {threads} here",
            "--threads all, or fewer --instances",
        )
        for arm in arms
        if arm.cpus > threads
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGroup:
    """Arms that race each other.

    Attributes:
        request: the model as it is.
        skips: why an arm isn't run, by label.
        needs_bytes: memory at its peak, of what can run or be built here.
        weight_bytes: of the model in float32; 0 where only the export tells.
        arrivals: the sizes of the calls in order, where they vary; the model is that of the largest then.
    """

    record: GroupRecord
    request: Request
    skips: Mapping[str, NotRun]
    needs_bytes: int = 0
    weight_bytes: int = 0
    arrivals: Arrivals | None = None

    def request_of(self, arm: Arm) -> Request:
        """Return what this arm computes: the model as it is, or the variant that its scheme names."""
        module = is_file(arm.model) and _takes_module(arm)
        scheme = scheme_of(arm.target)
        device = arm.target.device if scheme.is_quantized else Device.CPU
        made = replace(self.request, variant=scheme.made, batch=arm.batch, module=module, device=device)
        return replace(made, model=arm.model, original=made.model) if arm.file else made

    def requests_of(self, arm: Arm) -> dict[int, Request]:
        """Return what an arm is built from: by size if the sizes of the calls vary, what it pads to among them, else
        under 0.
        """
        whole = self.request_of(arm)
        if self.arrivals is None:
            return {0: whole}
        runs = self.arrivals.runs(scheme_of(arm.target).bucket)
        return {size: at_size(whole, self.arrivals.axis, size) for size in sorted({*runs, *runs.values()})}

    @property
    def playing(self) -> list[Arm]:
        """Return the arms to measure, control included."""
        return [arm for arm in self.record.arms if arm.label not in self.skips]

    @property
    def building(self) -> list[Arm]:
        """Return the arms to build: those to measure, and those that can be built here but not run."""
        return [arm for arm in self.record.arms if arm.label not in self.skips or self.skips[arm.label].builds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A study made concrete on this machine.

    Attributes:
        named: target texts that the user asked for by name; that one can't run is an error, not a mere skip.
        identity: what a run folder must hold for this plan to go on in it.
        interpreters: other Pythons that arms run under, by the name that targets give them.
        here: all that this machine offers, for groups that are planned on the way.
        planning_s: seconds that it took to find that out.
        delivery: what another machine exported and built for this one; None: all is made here.
        limits: what a tuning run's settings must keep, by a policy's keys in their basic units; None: it has no limit.
        on_selection: accuracy and metrics are measured on the rows that a search may look at.
    """

    study: Study
    groups: Sequence[PlannedGroup]
    placement: Placement
    here: Here
    identity: str
    named: tuple[str, ...] = ()
    interpreters: Mapping[str, PythonInterpreter] = field(default_factory=dict)
    planning_s: float = 0.0
    delivery: Delivery | None = None
    limits: Mapping[str, float] | None = None
    on_selection: bool = False

    @property
    def racing_s(self) -> float | None:
        """Return the seconds of racing without a time limit of the user's; None, as long as it takes.

        Only a race for the best arm has an answer at any time; verdicts and choices are waited for, and a scenario may
        have a time of its own.
        """
        asked = [group.record for group in self.groups if group.playing]
        if self.study.turns or not all(record.goal.aim == "best" and record.selects_for is None for record in asked):
            return None
        return RACING_S * len(asked)

    @property
    def restart_s(self) -> float:
        """Return the seconds that the arms of a restart share, where a scenario fixes that; else 0."""
        return self.study.dealt_s / (self.study.turns * self.racing) if self.study.turns else 0.0

    @property
    def racing(self) -> int:
        """Return how many groups share that time, 1 at least."""
        return max(sum(bool(group.playing) for group in self.groups), 1)


def make_plan(
    study: Study, named: Sequence[str] = (), *, fresh: bool = False, progress: Progress | None = None
) -> Plan:
    """Find out what is available here and plan the cells; `fresh`: probe again what worked here before.

    Args:
        progress: hears of it if a function of the user's has to read files first.

    Raises:
        UsageError: the study asks for something unknown or impossible.
    """
    targets = targets_of(study)
    rows = rows_of(study, progress)  # first: the sizes of an ONNX file's open axes may be those of its rows
    every = points(study)
    sized = (request(study, point) for point in every)
    counts = {count for one in sized if (count := one.source.check_sizes(one)) is not None}
    counts = counts or scorer().find_counts(rows)
    refuse_other_models(targets, [model for point in every for model in (point.model, *point.others)])
    placement = widest([point.threads for point in every])
    asked, facts, refused = _check_models(study, every)
    files = [digest for one in facts.values() for digest in one.hashes]
    files += scorer().check(study, rows, counts, asked)
    here = Here(
        available={},
        threads=place(None).threads,
        cpus=len(allowed_cpus()),
        memory_bytes=environment.memory_available_bytes(),
        disk_bytes=shutil.disk_usage(cache_folder()).free,
        facts=facts,
        refused=refused,
    )
    refuse_unknown_names(study, every[0], here)  # which takes no time; to look whether a backend works takes seconds
    with Stopwatch() as watch:
        asked_for = {provider(target) for target in targets}
        others = examine(study.pythons, {name for name, _ in asked_for})
        available = known_available(asked_for, others, fresh=fresh)
    here = replace(here, available=available)
    groups = plan_groups(study, here)
    if progress:
        playing = [arm for group in groups for arm in group.playing]
        for doubt in scorer().find_doubts(study, counts, [group.request for group in groups], playing):
            progress.say(f"note: {doubt}")
    files += shipped_hashes(targets)
    made = Plan(
        study=study,
        groups=groups,
        placement=placement,
        here=here,
        identity=identity(study, groups, [*files, *(other.digest for other in others.values())]),
        named=tuple(named),
        interpreters=others,
        planning_s=watch.seconds,
    )
    most = max((len(group.playing) for group in groups), default=0)
    for scenario in study.scenarios if made.restart_s else ():
        scenario.check_time(study.options_of(scenario), made.restart_s, most)
    return made


def _check_models(
    study: Study, every: Sequence[Point]
) -> tuple[dict[str, Request], dict[str, Content], dict[str, NotRun]]:
    """Check each model's files once, since all its points have the same.

    Returns:
        By model the request for it, and what a check found out of it and of the files that race it. Last, why such a
        file can't race it.

    Raises:
        UsageError: the first of several files holds a lower precision, and another is plain.
    """
    by_model = {point.model: point for point in every}
    requests = {model: request(study, point) for model, point in by_model.items()}
    asked = dict(requests)
    for model, point in by_model.items():
        asked |= {other: replace(requests[model], model=other, original=model) for other in point.others}
    facts, refused = dict[str, Content](), dict[str, NotRun]()
    for model, export in asked.items():
        try:
            facts[model] = client.check(export).content
        except ModelError as error:
            if model in requests:
                raise
            refused[model] = NotRun(NotRunKind.UNFIT, str(error))
    for point in by_model.values():
        _refuse_lossy_original(point, facts)
    return requests, facts, refused


def _refuse_lossy_original(point: Point, facts: Mapping[str, Content]) -> None:
    """Refuse a first file of several that holds a lower precision if another is plain: the others are held to it.

    Raises:
        UsageError: it does; says which file comes first.
    """
    plain = next((other for other in point.others if other in facts and not facts[other].holds), None)
    if facts[point.model].holds and plain is not None:
        kinds = " and ".join(one.upper() for one in facts[point.model].holds)
        files = ",".join([plain, point.model, *(other for other in point.others if other != plain)])
        why = f"{name_model(point.model)} holds {kinds}, and the first file is the reference of the others"
        raise UsageError(f"{why}: put {name_model(plain)} first, as in {shlex.quote(files)}")


def refuse_unknown_names(study: Study, point: Point, here: Here) -> None:
    """Refuse unknown options and an unknown baseline, whatever works on this machine.

    Args:
        point: one of the study's; they have the same arms.

    Raises:
        UsageError: there is one.
    """
    targets = {model: targets_of(study, here.first(model)) for model in (point.model, *point.others)}
    _refuse_unknown_options(study, targets[point.model])
    arms = _make_arms(study, targets, point, here)
    if study.baseline is not None:
        _find_baseline(study, study.baseline, arms, here)


def plan_groups(study: Study, here: Here) -> list[PlannedGroup]:
    """Plan the study's groups, one per model parameters and batch, in the order of `points`.

    Raises:
        UsageError: unknown names, bad values, or a baseline that isn't among the arms or can't run.
    """
    every = points(study)
    raced = {model for point in every for model in (point.model, *point.others)}
    targets = {model: targets_of(study, here.first(model)) for model in raced}
    for own in targets.values():
        _refuse_unknown_options(study, own)
    groups = [
        _plan_group(study, _make_arms(study, {**targets, point.model: family}, point, here), point, here, apart)
        for point in every
        for apart, family in _split_targets(study, targets[point.model])
    ]
    for name, count in Counter(group.record.name for group in groups).items():
        if count > 1:
            raise UsageError(f"{name!r} is named {count} times: give each model file a name of its own")
    return groups


def _refuse_unknown_options(study: Study, targets: Sequence[Target]) -> None:
    """Refuse an option that every target it is meant for would refuse. An option that some take fails only the others.

    Raises:
        UsageError: there is one; says what these backends take. A backend that declares no options takes any.
    """
    for name, knobs in study.options.items():
        meant = [target for target in targets if name in names_of(target)]
        for key, value in knobs.items():
            faults = [_option_fault(Arm(target=target, model="", options={key: value})) for target in meant]
            if faults and all(faults):
                raise UsageError(f"--option {name}.{key}={value}: {faults[0]}")


def _option_fault(arm: Arm) -> str:
    """Explain why the arm's backend refuses its options, "" if it takes them."""
    declared = describe(arm.target.backend)[0].options
    try:
        check_options(arm, declared or [Option(name="*", help="whatever it takes")])
    except ValueError as error:
        return str(error)
    return ""


def _split_targets(study: Study, targets: Sequence[Target]) -> list[tuple[str, Sequence[Target]]]:
    """Split the targets into those that race each other, each part with what is added to its group's name.

    All targets race each other; under `pythons` each races its twins alone. An upgrade is a question of its own for
    each target. A study that names `@python` or a baseline has its own question.
    """
    has_question = study.baseline or any("@" in text for text in (*study.targets, *study.backend))
    own = [target for target in dict.fromkeys(targets) if not target.python]
    if not study.pythons or has_question or len(own) < 2:
        return [("", targets)]
    return [(f", {target}", [twin for twin in targets if replace(twin, python="") == target]) for target in own]


def name_quantizer(target: Target) -> str:
    """Return whose quantizer makes a target's model: the `vendor`'s, the one of the `shared` file, or `none`."""
    if scheme_of(target).is_quantized:
        return "shared"
    return "vendor" if target.precision in SCALED else "none"


def _make_arms(study: Study, targets: Mapping[str, Sequence[Target]], point: Point, here: Here) -> list[Arm]:
    """Make all arms of a group: each target on the point's model, and on each file that races it.

    Args:
        targets: by model; those of a file may have its own precisions.
    """
    seen: Counter[tuple[str, Target]] = Counter()
    arms = []
    asked = [(model, target) for model in (point.model, *point.others) for target in targets[model]]
    for model, target in _drop_others_files(asked, here):
        seen[model, target] += 1
        options = {key: value for name in names_of(target) for key, value in study.options.get(name, {}).items()}
        arms.append(
            Arm(
                target=target,
                model=model,
                file=name_model(model) if model in point.others else "",
                parameters=point.parameters,
                batch=point.batch,
                threads=here.count(point.threads),
                options=options,
                ordinal=seen[model, target],
                scenario=point.scenario,
                settings="tuned" if options else "closed",
                quantizer=name_quantizer(target),
            )
        )
    scenario = find_scenario(point.scenario)
    own, is_batch_named = study.options_of(scenario), "batch" in study.model_fields_set
    spread = list[Arm]()
    for arm in arms:
        takes_any = not (is_batch_named or is_file(arm.model)) and find_model(arm.model).takes_batch
        spread += scenario.spread(arm, () if takes_any else study.batch, own)
    return spread


def _drop_others_files(asked: Sequence[tuple[str, Target]], here: Here) -> list[tuple[str, Target]]:
    """Drop a library's target on files of other libraries, if it has a file of its own among these."""

    def is_own(model: str, target: Target) -> bool:
        return here.facts_of(model).native in describe(target.backend)[0].consumes

    own = {target for model, target in asked if is_own(model, target)}
    return [(model, target) for model, target in asked if target not in own or is_own(model, target)]


def _plan_group(study: Study, arms: list[Arm], point: Point, here: Here, apart: str) -> PlannedGroup:
    """Order the arms, the baseline first and its control last, and explain why some can't run."""
    asked, arrivals = request(study, point), point.arrivals
    skips = find_crowded(arms, here.count(point.threads)) | find_obstacles(arms, here)
    if arrivals:
        skips = {**arrivals.find_bad_sizes(asked, arms), **skips}
    runnable = [arm for arm in arms if arm.label not in skips]
    baseline = _choose_baseline(study, arms, runnable, skips, here)
    ordered = with_control(baseline, arms) if baseline else tuple(arms)
    measured_too = [arm for arm in runnable if arm is not baseline and (study.against_own_fp32 or arm.file)]
    references = {arm.label: own.label for arm in measured_too if (own := own_fp32(runnable, arm))}
    goal, label = read_goal(study.aims_at), baseline.label if baseline else None
    record = GroupRecord(
        name=group_name(point) + apart,
        baseline=label,
        comparisons=count_comparisons(label, runnable, references, goal),
        arms=ordered,
        goal=goal,
        least_restarts=study.turns or study.least_restarts or (LEAST_TAILS if goal.aim == "resolve" else 0),
        references=references,
        scores_all=asked.scores_all,
    )
    record = find_scenario(point.scenario).shape(record, runnable)
    made = [arm for arm in arms if arm.label not in skips or skips[arm.label].builds]
    return PlannedGroup(
        record=record,
        request=replace(asked, sweep=_widen_sweep(asked, made, arrivals)),
        skips=skips,
        needs_bytes=needed_bytes(made, here),
        weight_bytes=weight_bytes(made, here) if made else 0,
        arrivals=arrivals,
    )


def _widen_sweep(asked: Request, arms: Sequence[Arm], arrivals: Arrivals | None) -> dict[str, tuple[int, int]]:
    """Return the least and the largest of each size that a group's arms are exported for."""
    sizes = {BATCH: {arm.batch for arm in arms}}
    if arrivals:
        buckets = [scheme_of(arm.target).bucket for arm in arms]
        sizes[arrivals.axis] = {size for bucket in (None, *buckets) for size in arrivals.runs(bucket).values()}
    found = {name: (min(some), max(some)) for name, some in sizes.items() if len(some) > 1}
    return {**asked.sweep, **found}


def _takes_module(arm: Arm) -> bool:
    """Return whether a user's file must be made a torch module for this arm."""
    consumes = backends.capabilities(arm.target.backend).consumes
    return Artifact.MODULE in consumes and Artifact.ONNX not in consumes


def _choose_baseline(
    study: Study, arms: list[Arm], runnable: list[Arm], skips: Mapping[str, NotRun], here: Here
) -> Arm | None:
    if study.baseline is None:
        # Only the export tells which arms get a torch module of a file, so the baseline is one that reads the file.
        of_file = is_file(arms[0].model)
        sure = [arm for arm in runnable if not (of_file and _takes_module(arm))]
        # The baseline and its copy play in every restart, and in a race for the best it is of no interest by itself.
        names = backends.baselines(loads_quickly=of_file or read_goal(study.aims_at).aim == "best")
        usual = [here.first(arms[0].model)(name)[1] for name in names]
        # Nor is it known before a load whether a Vulkan device is a program, which is never timed.
        timed = [arm for arm in runnable if arm.target.device is not Device.VULKAN]
        best = [arm for target in usual for arm in sure if arm.target == target]
        return next(iter(best or [arm for arm in sure if arm in timed] or timed or sure or runnable), None)
    wanted = _find_baseline(study, study.baseline, [*runnable, *arms], here)  # of its settings, one that can run
    if wanted in skips and not runnable:
        return None  # too big, or too many threads: a grid goes on with its other cells
    if wanted in skips:
        raise UsageError(f"the baseline {wanted!r} can't run here: {skips[wanted].reason}; {skips[wanted].fix}")
    return next(arm for arm in arms if arm.label == wanted)


def _find_baseline(study: Study, baseline: str, arms: Sequence[Arm], here: Here) -> str:
    """Return the label of the first arm that a baseline's text means.

    Raises:
        UsageError: it means none of them.
    """
    labels = [arm.label for arm in arms]
    if baseline in labels:
        return baseline
    first = here.first(arms[0].model)
    named = parse_targets(baseline, first, study.pythons) if "#" not in baseline else []
    for arm in arms:
        if named and arm.target == named[0]:
            return arm.label
    raise unknown("baseline", baseline, set(labels))


def identity(study: Study, groups: list[PlannedGroup], files: list[str]) -> str:
    """Hash what is measured (`files`: hashes of the user's own); a run folder only goes on with the same hash."""
    silent = {"description", "ceilings", "energy", "unsynchronized"}
    # of a folder that was begun without the key
    silent |= {name for name in ("least_restarts", "stream") if not getattr(study, name)}
    silent |= {"state"} if study.state is None else set()
    unset = {name: option.default for name, option in study_options().items() if option.is_always_hashed}
    fields = unset | study.model_dump(mode="json", exclude=silent)
    content = {
        "study": fields | {"goal": study.aims_at},  # the default is the same question, whether it was said or not
        "arms": [[arm.label for arm in group.playing] for group in groups],
        "files": files,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
