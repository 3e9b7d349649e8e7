"""Plan the race of a gate: the reference beside a candidate on one model, toward the limit.

A shipped folder's `load.py` checks the inputs of each call, which is a part of a call of microseconds. So the candidate
is made into such a folder too, if that can be done; it then runs as the reference does, in one session.
"""

from __future__ import annotations

import platform
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shootout import models
from shootout.apps.judge.decide.limits import SPREAD, refuse_drop_of_all
from shootout.apps.judge.gate.evidence import Limits
from shootout.apps.judge.gate.reference import Reference
from shootout.apps.judge.to_ship import find_arm_to_ship
from shootout.apps.ship.artifact import find_built
from shootout.apps.ship.folder import shipping, write_folder
from shootout.backends.shipped import ShippedFolder, open_once, open_shipped
from shootout.core import backends
from shootout.core.constants import COPY, SHIPPED
from shootout.core.contract import Arm, Artifact, Device, NotRunKind, Precision, Target
from shootout.core.errors import ArmFailed, SkippedArm, Unavailable, UsageError
from shootout.core.exported.request import is_file, is_own
from shootout.core.install import install
from shootout.core.messages import Progress
from shootout.core.scoring import ACCURACY
from shootout.core.stats.readings import LEAST_TAILS
from shootout.core.study.plan import Plan, make_plan
from shootout.core.study.points import describe, metric_of, points, request
from shootout.core.study.schema import Study, checked, study_options
from shootout.core.study.target import parse_targets, provider
from shootout.core.worker.availability import known_available
from shootout.tell import reproduce
from shootout.tell.axes import read_axes
from shootout.tell.limits import Limit

MOST_RESTARTS = 1_000
"""It is the time that ends a gate."""

_DEVICE = re.compile(rf"(?<!\.py):({'|'.join(Device)})(:|$)")
"""A target's device, behind its backend; `module:function` is a model."""

ONE_SIZE = "a gate is about one model at one size"

RUN = "run"

RACING_S = 4.0
"""The candidate's own run shows that it answers right; how fast it is, the gate's race shows."""

CHECK_US = 0.4
"""Microseconds that `load.py` takes to check one input of a call, measured on one machine."""


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

    def note(self, text: str) -> Contest:
        """Return the contest with one more note."""
        return replace(self, notes=(*self.notes, text))


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
    _refuse_missing(parse_targets(reference.target, describe, study.pythons)[0], study.model[0])
    contest = plan_pair(study, reference, limits)
    notes = tuple(_note_own_file(reference, study))
    return replace(contest, notes=notes, given=candidate if candidate and _is_model(candidate) else "")


def plan_pair(study: Study, recorded: Reference, limits: Limits) -> Contest:
    """Plan the race of a study's two targets, the reference first.

    Raises:
        UsageError, Unavailable: as `plan_contest`.
    """
    plan = _share_alpha(make_plan(study, study.targets, takes_few_rows=True), limits.shares)
    (group,) = plan.groups
    mine, other = (arm for arm in group.record.arms if not arm.control)
    for what, arm in (("reference", mine), ("candidate", other)):
        if why := group.skips.get(arm.label):
            fix = _tell_install(arm.target, arm.model) if why.kind is NotRunKind.NOT_INSTALLED else ""
            raise Unavailable(f"the {what} {arm.label} can't run here: {why.reason}; {fix or why.fix}")
    _refuse_equal_versions(plan, mine.target, other.target)
    return Contest(plan=plan, recorded=recorded, limits=limits, names=(mine.label, other.label))


def _refuse_equal_versions(plan: Plan, mine: Target, other: Target) -> None:
    """Refuse to test an upgrade from a version to the same one: it would pass and show nothing."""
    if mine.backend != other.backend or mine.python == other.python:
        return
    before, after = (plan.here.available[provider(target)].version for target in (mine, other))
    ours = platform.python_version()
    pythons = {name: one.version for name, one in plan.interpreters.items()}
    if before == after and pythons.get(mine.python, ours) == pythons.get(other.python, ours):
        raise UsageError(
            f"there is no upgrade: both run {mine.backend} {after}; install the shipped versions here "
            f"and the new ones for --python {other.python or mine.python}"
        )


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
    if isinstance(given["model"], tuple):
        raise UsageError(f"{ONE_SIZE}: --model names {len(given['model'])}; the other file is the --candidate")
    _refuse_another(str(reference.given["model"]), str(given["model"]))
    given["pythons"] = {**given.get("pythons", {}), **options.get("pythons", {})}
    targets = [reference.target, reference.again]
    if candidate and _is_model(candidate) and reference.is_shipped:
        _refuse_no_file(candidate)
        _refuse_another(str(given["model"]), candidate)
        given["model"] = candidate
    elif candidate and _is_model(candidate):
        given["model"] = _check_files(str(given["model"]), candidate)
        targets = [reference.target]
    elif candidate:
        targets[1] = _one_target(candidate, given["pythons"])
    if "model" not in options and given["model"] == reference.given["model"]:
        given["model"] = _find_model(reference, targets[-1])
    _refuse_unused(options.get("pythons", {}), targets, candidate)
    spread = SPREAD & {Limit.P99, Limit.READY, Limit.CPU} & (limits.policy.limits.keys() if limits.policy else set())
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
    _refuse_sizes(study, reference)
    return study


def _refuse_no_file(candidate: str) -> None:
    """Refuse a candidate's file that isn't there, as after a build that failed: nothing may take its place."""
    if is_file(candidate) and not Path(candidate).expanduser().is_file():
        raise UsageError(f"the candidate {candidate!r} isn't there: no such file; name the file that was built")


def _find_model(reference: Reference, target: str) -> str:
    """Return the reference's own model: if its file is gone, the one in the shipped folder, if that target can run it.

    Raises:
        UsageError: there is none.
    """
    model = str(reference.given["model"])
    if not is_file(model) or Path(model).expanduser().is_file():
        return model
    backend = re.split("[+@:/]", target)[0]
    own = _own_files(reference) if reference.is_shipped and reference.again.startswith(f"{backend}:") else []
    if len(own) != 1:
        raise UsageError(f"the model's file {model!r} isn't here: give it with --model PATH")
    return own[0]


def _own_files(reference: Reference) -> list[str]:
    """Return the ONNX files of a shipped folder that hold the model in float, as the runtime of the folder reads it."""
    found = open_shipped(Path(reference.place))
    if found.arm.precision != Precision.FP32 or found.arm.scheme:
        return []
    return [str(Path(reference.place) / name) for name in found.files if is_file(name)]


def _note_own_file(reference: Reference, study: Study) -> Iterator[str]:
    """Note that the folder's own file took the place of the model's."""
    if study.model[0] != reference.given["model"] and reference.is_shipped and study.model[0] in _own_files(reference):
        model = reference.given["model"]
        yield f"{model} isn't here, so {study.model[0]} takes its place; --model PATH names another file"


def _refuse_unused(pythons: Mapping[str, Any], targets: Sequence[str], candidate: str | None) -> None:
    """Refuse an interpreter that neither side runs under: each would get a twin there, and a gate races two."""
    heads = [re.split("[:/]", target)[0] for target in targets]
    used = {head.partition("@")[2] for head in heads}
    for name in sorted(pythons.keys() - used):
        told, fix = candidate or targets[-1], f"leave out --python {name}"
        head = re.split("[:/]", told)[0]
        if "@" not in head and not _is_model(told):
            fix = f"write --candidate {head}@{name}{told.removeprefix(head)}"
        raise UsageError(f"--python {name} is not used by the candidate {told}: {fix}")


def _refuse_sizes(study: Study, reference: Reference) -> None:
    """Refuse several sizes, and one that isn't the reference's."""
    sizes: Mapping[str, Sequence[object]] = {"batch": study.batch, "threads": study.threads, **study.parameters}
    for name, values in sizes.items():
        if len(values) > 1:
            raise UsageError(f"{ONE_SIZE}: {name} has {len(values)} values; give one")
    if (batch := tuple(reference.given.get("batch", study.batch))) != study.batch:
        raise UsageError(f"{ONE_SIZE}: the reference is of batch {batch[0]}, and --batch says {study.batch[0]}")


def _is_model(candidate: str) -> bool:
    """Tell whether a candidate is no target; what begins like one is one."""
    if re.split("[+@:/]", candidate)[0] in {*backends.names(), SHIPPED} or _DEVICE.search(candidate):
        return False
    return candidate in models.names() or is_file(candidate) or is_own(candidate)


def _refuse_another(model: str, other: str) -> None:
    """Refuse two models of ours; what files hold is compared when they are exported."""
    if model != other and {model, other} & {*models.names()}:
        raise UsageError(f"the reference runs {model!r}, and the candidate {other!r}: a gate is about one model")


def _check_files(reference: str, candidate: str) -> tuple[str, str]:
    """Return the two files that race each other."""
    if not (is_file(reference) and is_file(candidate)):
        raise UsageError(
            f"candidate {candidate!r} is a model, and the reference is a run of {reference!r}: ship the reference, "
            "or give an ONNX file for a run of an ONNX file"
        )
    _refuse_no_file(candidate)
    if Path(reference).resolve() == Path(candidate).resolve():
        raise UsageError(f"candidate {candidate!r} is the reference's own file: keep the old one under another name")
    return reference, candidate


def _one_target(text: str, pythons: Mapping[str, Any]) -> str:
    found = parse_targets(text, describe, pythons)
    if len(found) > 1:
        raise UsageError(f"candidate {text!r} names {len(found)} targets: name one")
    return str(found[0])


def _refuse_missing(target: Target, model: str) -> None:
    """Stop at once if the reference's own backend can't run here."""
    if target.python:
        return
    found = known_available({provider(target)})[provider(target)]
    if not found.ok:
        fix = _tell_install(target, model) if found.why and found.why.kind is NotRunKind.NOT_INSTALLED else ""
        raise Unavailable(f"the reference {target} can't run here: {found.reason}; {fix or found.fix}")


def _tell_install(target: Target, model: str) -> str:
    """Return one command that installs all that a backend takes to be built from a model; "" for a third party's.

    An ONNX file's reference outputs are ONNX Runtime's, and what runs torch's program of it needs torch's extra.
    """
    extra = backends.entry(target.backend).extra
    if not extra or target.python:
        return ""
    takes_file = Artifact.ONNX in backends.capabilities(target.backend).consumes
    extras = [extra, *(["onnxruntime", *([] if takes_file else ["torch"])] if is_file(model) else [])]
    return install(",".join(dict.fromkeys(extras)))


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
    try:
        shipping(target)
    except SkippedArm as error:
        return str(error)
    return ""


def plan_alone(contest: Contest) -> Plan:
    """Plan one short restart of the candidate by itself: a folder is made of what was measured and found right."""
    study = contest.plan.study
    alone = {"targets": study.targets[1:], "baseline": None, "goal": "best", "max_restarts": 1}
    return make_plan(study.model_copy(update={**alone, "least_restarts": 0}), takes_few_rows=True)


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


def refuse_another_model(contest: Contest) -> None:
    """Refuse a packed candidate that takes other inputs, or gives other outputs, than the shipped reference.

    Raises:
        UsageError: it does.
    """
    if not contest.packed:
        return
    mine, other = _open_both(contest)
    for verb, theirs, ours in (("takes", mine.inputs, other.inputs), ("gives", mine.outputs, other.outputs)):
        if theirs != ours:
            told = [", ".join(f"{one.name} {one.dtype}{[*one.shape]}" for one in specs) for specs in (ours, theirs)]
            raise UsageError(
                f"the candidate {', '.join(contest.plan.study.model)} is another model: it {verb} {told[0]}; "
                f"the reference {verb} {told[1]}"
            )


def _open_both(contest: Contest) -> tuple[ShippedFolder, ShippedFolder]:
    """Return the folders of reference and candidate."""
    return open_shipped(Path(contest.recorded.place)), open_shipped(Path(contest.rival.target.folder))


def reword(contest: Contest, text: str) -> str:
    """Return a line of the race without blame on the reference for what a candidate's file computes; "" for no line."""
    mine = f"failed: {contest.names[0]}"
    if not (contest.packed and contest.given and text.startswith(mine) and "above the error bound" in text):
        return text
    if text.startswith(mine + COPY):
        return ""
    why = text.removeprefix(f"{mine}: ")
    return f"{contest.given} computes something else than the reference: {why}"


def note_same_model(contest: Contest) -> Contest:
    """Add a note if the candidate's file comes to the very model that is shipped: the gate then tests nothing new."""
    if not contest.packed or not contest.given:
        return contest
    files = (found.files.items() for found in _open_both(contest))
    mine, other = ({name: sha for name, sha in some if name.startswith("model/")} for some in files)
    return contest.note(f"{contest.given} comes to the shipped model, byte for byte") if mine == other else contest


def note_unpacked(contest: Contest, why: str) -> Contest:
    """Add a note that only the reference's calls go through a `load.py`."""
    return contest.note(
        f"only the reference runs by a load.py, whose checks take about {CHECK_US:g} us a call for each input"
        f"{_tell_bias(contest)}; the candidate runs by its adapter: {why}"
    )


def _tell_bias(contest: Contest) -> str:
    """Tell which part of the reference's call the checks take, by its recorded time."""
    arms = contest.plan.groups[0].record.arms
    place = next((arm.target.folder for arm in arms if arm.label == contest.names[0]), "")
    folder = open_once(place) if place else None
    if folder is None or not folder.median_ns:
        return ""
    share = 1e3 * CHECK_US * len(folder.inputs) / folder.median_ns
    return f", up to {100 * share:.2g} % in the candidate's favor"


def _is_whole(folder: Path) -> bool:
    try:
        open_shipped(folder)
    except UsageError:
        return False
    return True


def tell_adoption(contest: Contest, folder: str) -> str | None:
    """Return the command that puts a candidate that passed in the shipped folder's place; None if there is none.

    An upgrade is measured and shipped again, once its versions are installed here.

    Args:
        folder: of the packed candidate; "" without one.
    """
    reference = contest.recorded
    goal, new = map(shlex.quote, (reference.place, f"{reference.place.rstrip('/')}-new"))
    if folder:
        make = f"cp -r {shlex.quote(folder)} {new}"
    elif reference.is_shipped and contest.rival.target.python:
        study = contest.plan.study
        data = reproduce.write_given(study.model_copy(update={"pythons": {}}).given)
        words = [word for option in data for word in option if word]
        told = [study.model[0], "--backends", reference.again, *words, "--out", "results/upgrade"]
        make = f"shootout run {reproduce.quote(told)} && shootout ship results/upgrade -o {new}"
    else:
        return None
    return f"{make} && rm -r {goal} && mv {new} {goal}"


def name_folder(contest: Contest) -> str:
    """Name the folder by its target, and not as the reference's folder: its label is made of that name."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", str(contest.rival.target))
    return f"{name}-candidate" if contest.names[0] == f"{SHIPPED}:{name}" else name
