"""Plan the race of a gate: the reference beside a candidate on one model, toward the limit.

The reference is a shipped folder. Its `load.py` checks the inputs of each call, which is a part of a call of
microseconds. So the candidate is made into such a folder too, if that can be done; it then runs as the reference does,
in one session.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shootout import models
from shootout.apps.judge.decide.limits import SPREAD, refuse_drop_of_all
from shootout.apps.judge.decide.policy import Policy, as_policy
from shootout.apps.judge.to_ship import find_arm_to_ship
from shootout.apps.ship.folder import find_built, write_folder
from shootout.backends.shipped import LANDING, MANIFEST, ShippedFolder, open_shipped, read_row
from shootout.core import backends
from shootout.core.constants import BIAS_FLOOR, INDIFFERENT, SHIPPED
from shootout.core.contract import Arm, Device
from shootout.core.errors import ArmFailed, SkippedArm, Unavailable, UsageError
from shootout.core.exported.request import is_file, is_own
from shootout.core.messages import Progress
from shootout.core.scoring import ACCURACY
from shootout.core.stats.goals import MOST_PERCENT, Goal
from shootout.core.stats.readings import LEAST_TAILS
from shootout.core.study.plan import Plan, make_plan
from shootout.core.study.points import describe, metric_of, points, request
from shootout.core.study.schema import Study, checked, study_options
from shootout.core.study.target import parse_targets
from shootout.tell import registered
from shootout.tell.limits import SHARE, Limit, Standing
from shootout.tell.option_values import read_axes

MOST_RESTARTS = 1_000
"""It is the time that ends a gate."""

_DEVICE = re.compile(rf"(?<!\.py):({'|'.join(Device)})(:|$)")
"""A target's device, behind its backend; `file.py:function` is a model."""

RUN = "run"

RACING_S = 4.0
"""The candidate's own run shows that it answers right; how fast it is, the gate's race shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Hold what it may do worse than the reference; None: that is told and not limited.

    Attributes:
        slower: as a share of the reference's time.
        size: by which share its artifact may be larger.
        same_proof: whether what ran must be alike.
        policy: whose limits it must keep, too.
        max_error: the relative error that is accepted of any precision; 0: its error bound.
        metric: what scores the rows, which may lose as much as in a run; "" for none.
    """

    slower: float = INDIFFERENT
    size: float | None = None
    same_proof: bool = False
    policy: Policy | None = None
    max_error: float = 0.0
    metric: str = ""

    @property
    def shares(self) -> int:
        """Return into how many parts the chance of an error goes: race, metric and policy have one each."""
        return 1 + bool(self.metric) + bool(self.policy and self.policy.limits)

    @property
    def goal(self) -> Goal:
        """Return what the race is for."""
        return Goal(aim="limit", within=self.slower)


def read_limits(options: Mapping[str, Any]) -> Limits:
    """Return the limits of a gate's options.

    Raises:
        UsageError: one has no unit, can't be kept or told, or the policy can't be read.
    """
    policy = as_policy(options["policy"]) if options.get("policy") is not None else None
    slower = policy.indifferent if policy else INDIFFERENT
    if "slower" in options:
        slower = SHARE.read("--slower", options["slower"], "5%")
    if not BIAS_FLOOR <= slower <= MOST_PERCENT / 100:
        raise UsageError(
            f"invalid --slower {100 * slower:g}%: use a value from {100 * BIAS_FLOOR:g}%, what the harness may err by, "
            f"to {MOST_PERCENT}%"
        )
    size = options.get("size")
    return Limits(
        slower=slower,
        size=None if size is None else SHARE.read("--size", size, "10%"),
        same_proof=options.get("same_proof", False),
        policy=policy,
        max_error=options.get("max_error", 0.0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Hold the shipped folder that the candidate races; it runs as it was shipped, whatever became of its model's file.

    Attributes:
        place: the folder.
        again: the target that makes it from its model.
        given: what else its study needs, by the keywords of `shootout.run`.
        metric: the one that admitted it; "" if none did.
    """

    place: str
    again: str
    given: Mapping[str, Any]
    metric: str = ""

    @property
    def target(self) -> str:
        """Return the target that races, as `study.target` reads it."""
        return f"{SHIPPED}:{self.place}"


def read_reference(folder: Path) -> Reference:
    """Read the reference in a shipped folder; its model by the run's document beside it.

    Raises:
        UsageError: it is none, or one of its files was changed.
    """
    if not any((folder / name).exists() for name in (MANIFEST, LANDING)):  # the latter is refused with a better word
        what = "is no shipped folder" if folder.exists() else "isn't there"
        raise UsageError(f"the reference {str(folder)!r} {what}: name one made by `shootout ship RUN -o DIR`")
    found = open_shipped(folder)
    row, arm = read_row(found), found.arm
    given = {
        "model": _model_of(found, row["model"]),
        "parameters": {name: (value,) for name, value in row["parameters"].items()},
        "batch": (arm.batch,),
        "threads": (arm.threads,),
        "options": {row["backend"]: row["options"]} if row["options"] else {},
    }
    return Reference(place=str(found.folder), again=arm.target, given=given, metric=_find_admitting_metric(row))


def _find_admitting_metric(row: Mapping[str, Any]) -> str:
    metric = (row.get("fidelity") or {}).get("metric") or {}
    return str(metric["name"]) if metric.get("standing") == Standing.MET else ""


def _model_of(found: ShippedFolder, said: str) -> str:
    """Find the model that a folder was made of: by the name in its run if that is known here, else by its path."""
    if said in models.names() or not is_own(found.model["name"]):
        return said
    try:
        models.get(said)
    except UsageError:
        lay = Path(found.model["name"]).expanduser()
        return str(lay if lay.name == Path(said).name else lay.parent)  # a folder is named, and its configuration lies
    return said


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A reference and a candidate whose race is planned on this machine.

    Attributes:
        recorded: what the reference is, and where it comes from.
        limits: what the candidate must keep to.
        names: the labels of the reference's and the candidate's arm.
        packed: whether this gate made the candidate's folder, so that its record is as new as the race.
        given: the candidate's file as it was typed; "" for a target.
        notes: sentences for people on how the two run.
    """

    plan: Plan
    recorded: Reference
    limits: Limits
    names: tuple[str, str]
    packed: bool = False
    given: str = ""
    notes: tuple[str, ...] = ()

    @property
    def rival(self) -> Arm:
        """Return the candidate's arm."""
        return next(arm for arm in self.plan.groups[0].record.arms if arm.label == self.names[1])


def plan_contest(reference: Reference, candidate: str | None, limits: Limits, options: Mapping[str, Any]) -> Contest:
    """Plan the race.

    Args:
        candidate: a target, or an ONNX file for the reference's target; None: the reference's target, made again.
        options: of `GateOptions`.

    Raises:
        UsageError: the candidate is neither, or is another model than the reference's; or there are several sizes.
        Unavailable: one of the two can't run here.
    """
    study = make_study(reference, candidate, limits, options)
    refuse_unjudged(study, limits)
    contest = plan_pair(study, reference, limits)
    return replace(contest, given=candidate if candidate and _is_model(candidate) else "")


def plan_pair(study: Study, recorded: Reference, limits: Limits) -> Contest:
    """Plan the race of a study's two targets, the reference first.

    Raises:
        UsageError, Unavailable: as `plan_contest`.
    """
    plan = _share_alpha(make_plan(study, study.targets), limits.shares)
    arms = [arm for group in plan.groups for arm in group.record.arms if not arm.control]
    if len(arms) != 2:
        raise UsageError(
            f"a gate races one candidate beside the reference, on one model at one size, and this is a race of "
            f"{', '.join(dict.fromkeys(arm.label for arm in arms))}: leave out what adds the others"
        )
    for what, arm in zip(("reference", "candidate"), arms, strict=True):
        if why := plan.groups[0].skips.get(arm.label):
            raise Unavailable(f"the {what} {arm.label} can't run here: {why.reason}; {why.fix}")
    return Contest(plan=plan, recorded=recorded, limits=limits, names=(arms[0].label, arms[1].label))


def _share_alpha(plan: Plan, shares: int) -> Plan:
    """Return the plan with the race's share of the chance of an error."""
    if shares == 1:
        return plan
    groups = [
        replace(one, record=one.record.model_copy(update={"comparisons": one.record.comparisons * shares}))
        for one in plan.groups
    ]
    return replace(plan, groups=groups, identity=f"{plan.identity}/{shares}")


def make_study(reference: Reference, candidate: str | None, limits: Limits, options: Mapping[str, Any]) -> Study:
    """Return the study, without a look at the machine.

    Raises:
        UsageError: as `plan_contest`.
    """
    names = {*Study.model_fields, *study_options()} - {"pythons"}
    given = {**reference.given, **{name: options[name] for name in names if name in options}}
    _refuse_another(str(reference.given["model"]), str(given["model"]))
    given["pythons"] = {**given.get("pythons", {}), **options.get("pythons", {})}
    targets = [reference.target, reference.again]
    if candidate and _is_model(candidate):
        _refuse_another(str(given["model"]), candidate)
        given["model"] = candidate
    elif candidate:
        targets[1:] = map(str, parse_targets(candidate, describe, given["pythons"]))
    model = str(given["model"])
    if is_file(model) and not Path(model).expanduser().is_file():
        fix = "name the model's file by --model, and the candidate's as it was built"
        raise UsageError(f"{model!r} isn't there: {fix}")
    spread = SPREAD & {Limit.P99, Limit.READY} & (limits.policy.limits.keys() if limits.policy else set())
    fields = {
        "name": "gate",
        **given,
        "targets": targets,
        "baseline": reference.target,
        "goal": str(limits.goal),
        "max_restarts": MOST_RESTARTS,
        "least_restarts": LEAST_TAILS if spread else 0,  # their bound is the worst of several
    }
    # An empty state says that there is none; anything else that is empty says nothing.
    study = checked(read_axes({key: value for key, value in fields.items() if value or key == "state"}))
    if (batch := tuple(reference.given.get("batch", study.batch))) != study.batch:
        raise UsageError(f"the reference is of batch {batch[0]}, and --batch says {study.batch[0]}: leave it out")
    return study


def _is_model(candidate: str) -> bool:
    """Tell whether a candidate is no target; what begins like one is one."""
    if re.split("[+@:/]", candidate)[0] in {*backends.names(), SHIPPED} or _DEVICE.search(candidate):
        return False
    return candidate in models.names() or is_file(candidate) or is_own(candidate)


def _refuse_another(model: str, other: str) -> None:
    """Refuse two models of ours; what files hold is compared when they are exported."""
    if model != other and {model, other} & {*models.names()}:
        raise UsageError(f"the reference runs {model!r}, and the candidate {other!r}: a gate is about one model")


def refuse_unjudged(study: Study, limits: Limits) -> None:
    """Refuse a limit on rows that nothing is given for, which no race would settle, or that any loss keeps.

    Raises:
        UsageError: it says what to give.
    """
    wanted = limits.policy.limits if limits.policy else {}
    named = next((f"{one} of the policy" for one in (Limit.METRIC, Limit.MOST_METRIC) if one in wanted), "")
    told = named or (f"--max-drop {study.max_drop}" if study.max_drop else "the metric that admitted the reference")
    is_accuracy = limits.metric in ("", ACCURACY)
    asked = request(study, points(study)[0])
    is_of_rows = asked.source.may_be_scored(asked) and (study.metric or is_accuracy)
    if (named or limits.metric) and not is_of_rows:
        data = "--labels labels.npz" if is_accuracy else f"--truth truth.npz --metric {limits.metric}"
        raise UsageError(f"{told} needs rows: give --inputs rows.npz {data}")
    if limits.policy and is_of_rows:
        refuse_drop_of_all(limits.policy, [metric_of(study).metric])


def why_unshippable(contest: Contest) -> str:
    """Tell why no folder can be made of the candidate, "" if one can."""
    target = contest.rival.target
    if target.python:
        return f"{target} runs under another interpreter, whose packages are its own"
    return registered.why_unshippable(target)


def plan_alone(contest: Contest) -> Plan:
    """Plan one short restart of the candidate by itself: a folder is made of what was measured and found right."""
    study = contest.plan.study
    alone = {"targets": study.targets[1:], "baseline": None, "goal": "best", "max_restarts": 1}
    return make_plan(study.model_copy(update={**alone, "least_restarts": 0}))


def pack(contest: Contest, folder: Path, run: Path, progress: Progress) -> Contest:
    """Plan the race with the candidate as a folder; with the candidate as it is, and a note, if that can't be made.

    Args:
        folder: to be made; one that is there is kept, since it was made of that run.
        run: that of `plan_alone`.
    """
    target = str(contest.rival.target)
    try:
        if not _is_whole(folder):
            shutil.rmtree(folder, ignore_errors=True)
            source = find_arm_to_ship(run, target)
            write_folder(source, find_built(source, progress), folder)
    except (UsageError, SkippedArm, ArmFailed) as error:
        return note_unpacked(contest, str(error))
    study = contest.plan.study
    pair = {"targets": (study.targets[0], f"{SHIPPED}:{folder}"), "options": {}}  # a folder's settings came with it
    packed = plan_pair(study.model_copy(update=pair), contest.recorded, contest.limits)
    return replace(packed, packed=True, given=contest.given)


def note_unpacked(contest: Contest, why: str) -> Contest:
    """Add a note that only the reference's calls go through a `load.py`."""
    told = "only the reference runs by a load.py, which checks the inputs of each call; the candidate by its adapter"
    return replace(contest, notes=(f"{told}: {why}",))


def _is_whole(folder: Path) -> bool:
    try:
        open_shipped(folder)
    except UsageError:
        return False
    return True


def tell_adoption(contest: Contest, folder: str) -> str | None:
    """Return the command that puts a candidate that passed in the shipped folder's place; None if there is none.

    Args:
        folder: of the packed candidate; "" without one.
    """
    place = contest.recorded.place
    goal, new = map(shlex.quote, (place, f"{place.rstrip('/')}-new"))
    return f"cp -r {shlex.quote(folder)} {new} && rm -r {goal} && mv {new} {goal}" if folder else None


def name_folder(contest: Contest) -> str:
    """Name the folder by its target, and not as the reference's folder: its label is made of that name."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", str(contest.rival.target))
    return f"{name}-candidate" if contest.names[0] == f"{SHIPPED}:{name}" else name
