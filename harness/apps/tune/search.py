"""Finds each backend's best own settings by racing them, then races the winners: the stages of `shootout tune`.

The winner among many was lucky too (the winner's curse), so the search only proposes: the gain comes from a race of the
default and the winner alone, on restarts that the search never saw. Each stage is a run like any other, in a folder
of its own below the tuning run's: it resumes, and can be looked at by itself. A stage is never continued once
the next one began, since that one rests on its choice.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shootout import models
from shootout.apps.tune.results import (
    ALONE,
    CONFIRMED,
    STAGES,
    TOGETHER,
    TUNED,
    JudgeStage,
    Tuning,
    rank_settings,
    read_stages,
    read_tuning,
)
from shootout.apps.tune.settings import Change, apply_changes, combine, list_changes
from shootout.core import backends
from shootout.core.clock import Deadline, Stopwatch
from shootout.core.constants import MAX_RESTARTS
from shootout.core.contract import SCALED, Arm, NotRun, Precision
from shootout.core.errors import UsageError, tell_refusal, unknown
from shootout.core.exported.request import Request, is_file
from shootout.core.host import environment
from shootout.core.host.placement import place
from shootout.core.host.store import open_sealed, sealed
from shootout.core.journal.folder import refuse_links
from shootout.core.results.run import begun, read_run
from shootout.core.scenario import find_scenario
from shootout.core.schemes import is_exact
from shootout.core.stats.goals import Goal
from shootout.core.stats.verdicts import LEAST_RESTARTS
from shootout.core.study.feasibility import find_obstacles, needed_bytes
from shootout.core.study.group import GroupRecord, count_comparisons, own_fp32, with_control
from shootout.core.study.plan import Plan, PlannedGroup, make_plan
from shootout.core.study.points import group_name, points, request, rows_of, targets_of
from shootout.core.study.schema import Study
from shootout.tell import reproduce
from shootout.tell.document import Document, Ratio
from shootout.tell.limits import FIDELITY, Limit, Standing
from shootout.tell.run_folder import new_folder

SHARES = {ALONE: 0.45, TOGETHER: 0.4, CONFIRMED: 1.0, TUNED: 1.0}
"""The most that each stage may take, as a share of the time that is left."""
RANKING_SHARE = 0.2
"""The most that ranking the layers may take, as a share of the time that is left once the model is exported."""
RANKING = "ranking.json"
"""The file in a tuning run's folder with the mixes that the ranking of the layers gave, sealed."""
MORE_TO_SEARCH = 3
"""A search ends so many restarts after the first that could give a verdict: it proposes, it need not be sure."""
ONE_MODEL = "tune looks at one model at a time"
START_OVER = "add --fresh to start over there, or another --out"


Measure = Callable[[Plan, Path, Deadline], Document]
"""Runs a plan in a folder until then, or goes on with it, as `commands.run.measure` does; returns all that is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSearch:
    """The start of a tuning run: its study, and the limits of its candidates.

    Attributes:
        plan: the study's own: its groups, of one model, hold every target's default.
        most_threads: that an arm can have here.
        precisions: those that may be tried instead of a target's own.
        limits: what a setting must keep, in basic units; None: nothing.
        mixes: words of schemes that leave a part of the model in float, which are tried under a limit; those of single
            layers are missing before `with_mixes`.
    """

    plan: Plan
    most_threads: int
    precisions: tuple[Precision, ...]
    limits: Mapping[str, float] | None = None
    mixes: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """Return what the first stage's folder must hold for this search to go on in it."""
        return self.plan_stage(ALONE, Tuning("", {})).identity

    @property
    def leaves_layers_in_float(self) -> bool:
        """Return True if mixes of layers are to be tried, which need a ranking."""
        return self.limits is not None and not {*SCALED}.isdisjoint(self.precisions)

    @property
    def defaults(self) -> dict[str, Arm]:
        """Return the default arms by target."""
        arms = (arm for group in self.plan.groups for arm in group.record.arms if not arm.control)
        return {str(arm.target): arm for arm in sorted(arms, key=lambda arm: arm.ordinal, reverse=True)}

    def skip_of(self, default: Arm) -> NotRun | None:
        """Return why a target can't be tuned here; each has the memory for itself."""
        return find_obstacles([default], self.plan.here).get(default.label)

    def plan_stage(self, name: str, before: Tuning) -> Plan:
        """Plan one stage as a run, from what those before it found; starts nothing."""
        if name == TUNED:
            groups = self._final_group(before)
        else:
            rivals = {target: self._rivals_of(name, before, target) for target in self.defaults}
            groups = [
                self._make_group(f", {target}", [default, *rivals[target]], self.skip_of(default))
                for target, default in self.defaults.items()
                if rivals[target] or name == ALONE
            ]
        arms = [[f"{arm.label} {reproduce.words([arm])}" for arm in group.record.arms] for group in groups]
        asked = [self.plan.identity, name, arms, *([] if self.limits is None else [dict(self.limits)])]
        identity = hashlib.sha256(json.dumps(asked).encode()).hexdigest()
        limit = LEAST_RESTARTS + MORE_TO_SEARCH if name in (ALONE, TOGETHER) else MAX_RESTARTS
        study = self.plan.study.model_copy(update={"name": f"tune-{name}", "max_restarts": limit})
        searches = self.limits is not None and name in (ALONE, TOGETHER)
        told: dict[str, Any] = {"limits": self.limits, "on_selection": searches}
        told["planning_s"] = self.plan.planning_s if name == ALONE else 0.0
        return replace(self.plan, study=study, groups=groups, identity=identity, **told)

    def _rivals_of(self, name: str, before: Tuning, target: str) -> list[Arm]:
        """Return the arms that race the target's default in this stage."""
        default = self.defaults[target]
        if self.skip_of(default) or (name != ALONE and not before.found):
            return []
        if name == CONFIRMED:
            best = before.found[target].best
            return [best] if best else []
        changes = list_changes(default, self.most_threads, self.precisions, self.mixes)
        if self.limits is not None:  # each mix takes a build, so under a limit other knobs wait
            changes = [change for change in changes if change.precision]
        if name == ALONE:
            return [apply_changes(default, [change]) for change in changes]
        stage = before.stages[ALONE]
        ratios, labels = stage.ratios(target), [apply_changes(default, [change]).label for change in changes]
        tried = [(one, ratios.get(at), stage.standing(target, at)) for one, at in zip(changes, labels, strict=True)]
        helped = best_of_each(tried)
        combined = [apply_changes(default, several) for several in combine(default, helped)]
        return [apply_changes(default, helped[:1]), *combined] if combined else []

    def _final_group(self, before: Tuning) -> list[PlannedGroup]:
        """Group the best setting of each target, against each other; empty if fewer than two are left.

        One in another precision has its target's default beside it, which its accuracy is compared with.
        """
        ready = [tuned for tuned in before.found.values() if tuned.ready]
        if len(ready) < 2:
            return []
        rounded = [one for one in ready if one.ship.target.precision is not one.default.target.precision]
        arms = {arm.label: arm for arm in (*(one.ship for one in ready), *(one.default for one in rounded))}
        return [self._make_group(", tuned", [*arms.values()], None)]

    def _make_group(self, apart: str, arms: Sequence[Arm], skip: NotRun | None) -> PlannedGroup:
        """Group arms that race the first one and its hidden copy; a target that can't run here is alone."""
        here, label = self.plan.here, None if skip else arms[0].label
        skips = {arms[0].label: skip} if skip else find_obstacles(arms, here)
        playing = [arm for arm in arms if arm.label not in skips]
        references = {arm.label: own.label for arm in playing if (own := own_fp32(playing, arm))}
        record = GroupRecord(
            name=f"{group_name(points(self.plan.study)[0])}{apart}",
            baseline=label,
            comparisons=count_comparisons(label, playing, references, Goal()),
            arms=tuple(arms) if skip else with_control(arms[0], arms),
            references=references,
        )
        # a search chooses by one half of the rows, and is confirmed by the other
        request = replace(self.plan.groups[0].request, scores_all=False)
        return PlannedGroup(record=record, request=request, skips=skips, needs_bytes=needed_bytes(playing, here))


def refuse_unjudged(limits: Mapping[Limit, float], study: Study, request: Request) -> None:
    """Refuse limits that no rows of this model could show to be kept, before anything is built.

    Raises:
        UsageError: with what to give.
    """
    wanted, labeled = FIDELITY & limits.keys(), _has_labels(request)
    if study.metric and not (labeled or rows_of(study).truth):
        why = "without truth a metric compares with FP32's own outputs, which a search has for no rows of its own"
        fix = "give --truth, or limit the error in place of it, as in --max-error 2e-2"
        raise UsageError(f"--metric {study.metric}: {why}: {fix}")
    if study.metric or labeled or wanted == {Limit.ERROR}:
        return
    told = f"--max-drop {study.max_drop}" if study.max_drop else "what a precision costs"
    raise UsageError(
        f"{told} can't be judged: {study.model[0]} has no labels here: give --inputs data.npz --labels labels.npz, or "
        "limit the error instead, as in --max-error 2e-2"
    )


def _has_labels(request: Request) -> bool:
    if is_file(request.model) or request.inputs_npz:
        return request.source.labels(request) is not None
    return models.get(request.model).task is not None


def list_schemes_for(limits: Mapping[Limit, float], study: Study, request: Request) -> list[str]:
    """Return the words of schemes that may keep such limits by themselves, the cheapest first.

    That is the shared file, which rounds products alone, and what chooses layers to leave in float.
    """
    words = ["shared"]
    if not study.metric and _has_labels(request) and Limit.ERROR not in limits:
        words.append("accuracy-control")
    return words


def make_search(
    study: Study, precisions: Collection[Precision], limits: Mapping[Limit, float] | None = None
) -> TuningSearch:
    """Find out what is here.

    Args:
        precisions: those that may be tried instead of a target's own.
        limits: what a setting must keep; None: nothing.

    Raises:
        UsageError: the study asks for something unknown, or for more than one model, batch or thread count; or a limit
            can't be judged.
    """
    if not all(find_scenario(name).is_one_call for name in study.scenario):
        raise UsageError("tune looks at latency: leave --scenario out")
    (point, *more) = points(study)
    if more:
        raise UsageError(f"{ONE_MODEL}: give one value for each axis, got {len(more) + 1} combinations")
    if point.others:
        raise UsageError(f"{ONE_MODEL}: name one file, such as {shlex.quote(point.model)}")
    asked = replace(request(study, point), scores_all=False)
    if limits is not None:
        refuse_unjudged(limits, study, asked)
        for target in targets_of(study):
            if not is_exact(target.precision, target.scheme, ""):
                raise UsageError(
                    f"limits compare with plain FP32, and {target} isn't: name {target.backend} in --backends, and "
                    f"{target.precision} in --precision"
                )
    plan, widest = make_plan(study), place("all")
    found = TuningSearch(
        plan=replace(plan, placement=widest),
        most_threads=widest.threads,
        precisions=tuple(dict.fromkeys(precisions)),
        limits=None if limits is None else {str(name): value for name, value in limits.items()},
    )
    mixes = list_schemes_for(limits or {}, study, asked) if found.leaves_layers_in_float else ()
    return replace(found, mixes=tuple(mixes))


def with_mixes(
    search: TuningSearch, out: Path, rank: Callable[[TuningSearch], Sequence[str]], *, fresh: bool
) -> TuningSearch:
    """Return the search with the mixes of layers to try: those kept in `out`, else as `rank` finds them.

    What is found is kept there, since a run goes on with the candidates that it began with.

    Args:
        rank: returns words of schemes, in the order in which to build them.

    Raises:
        UsageError: `out` can't be written, has links, or holds another tuning run.
    """
    refuse_links(out, (*STAGES, RANKING))
    if not search.leaves_layers_in_float:
        return search
    if not fresh and (kept := _read_mixes(search, out)):
        return kept
    if not fresh and begun(out / ALONE):
        raise UsageError(f"{str(out)!r} holds another tuning run: {START_OVER}")
    with Stopwatch() as watch:
        mixes = list(rank(search))
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / RANKING).write_text(sealed({"request": search.identity, "mixes": mixes}), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"can't write into {str(out)!r}: {tell_refusal(error, 'choose another --out')}") from None
    plan = replace(search.plan, planning_s=search.plan.planning_s + watch.seconds)
    return replace(search, plan=plan, mixes=(*search.mixes, *mixes))


def _read_mixes(search: TuningSearch, out: Path) -> TuningSearch | None:
    """Return the search with the mixes that a folder holds; None if it holds none of this search."""
    try:
        kept = open_sealed(out / RANKING)
    except (OSError, ValueError):
        return None
    return replace(search, mixes=(*search.mixes, *kept["mixes"])) if kept["request"] == search.identity else None


def of_every_backend(study: Study) -> Study:
    """Return what is tuned if no target is named: every backend as it comes, on the study's device and precision."""
    every = tuple(one for one in backends.names() if not backends.entry(one).own_files)
    return study if study.backend else study.model_copy(update={"targets": every})


def read_precisions(names: Collection[str]) -> tuple[Precision, ...]:
    """Return the precisions that may be tried, by their names.

    Raises:
        UsageError: one that isn't known.
    """
    known = {str(precision): precision for precision in Precision}
    for name in names:
        if name not in known:
            raise unknown("precision in --precision", name, known)
    return tuple(known[name] for name in names)


def choose_folder(search: TuningSearch, judge: JudgeStage, *, fresh: bool) -> Path:
    """Return `results/tune/<time>` here, or the newest unfinished one there of the same request."""
    parent, fingerprint = Path("results") / "tune", _take_fingerprint()
    for folder in [] if fresh else sorted(parent.glob("*"), reverse=True):
        kept = _read_mixes(search, folder)
        try:
            found = read_tuning(folder, judge)
        except UsageError:
            if kept:  # it was ended behind the ranking
                return folder
            continue
        first, wanted = found.stages[ALONE], (kept or search).identity
        if (first.run.facts.identity, first.fingerprint) == (wanted, fingerprint) and not found.complete:
            return folder
    return new_folder(parent)


def tune(
    search: TuningSearch,
    out: Path,
    measure: Measure,
    judge: JudgeStage,
    *,
    fresh: bool,
    limit: Deadline,
    say: Callable[[str], None],
) -> None:
    """Run the stages that are left; `results.read_tuning` then tells what was found.

    Args:
        judge: see `read_stages`.
        limit: when the whole command ends.
        say: tells people where it is.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; what was measured is on disk.
        UsageError: `out` can't be used, or holds another tuning run.
    """
    for name in STAGES:
        if fresh and begun(out / name):
            shutil.rmtree(out / name)
    for name in STAGES:
        before = read_stages(out, judge)
        plan = search.plan_stage(name, before)
        if not _is_open(out, name, plan, before):
            continue
        if limit.left_s <= 0:
            say(f"no time is left for the stage {name!r}; run the same command again to go on")
            return
        arms = Counter(str(arm.target.backend) for group in plan.groups for arm in group.playing if not arm.control)
        told = ", ".join(f"{count} of {backend}" for backend, count in arms.items())
        say(f"stage {name}: {told or 'nothing can run'}")
        for share in (SHARES[name], 1.0):
            part = limit.part(share)
            measure(plan, out / name, part)
            limit.put_off(part.waited_s)  # for this machine
            if name != ALONE or limit.left_s <= 0 or not _found_nothing_yet(out, judge):
                break  # else later stages have nothing to do yet
            plan = replace(plan, planning_s=0.0)
        if name == ALONE and _found_nothing_yet(out, judge):
            say("no setting is measured well enough yet; run the same command again to go on")
            return
        if name == CONFIRMED and not read_run(out / name).history.played_out:
            say("not every winner is confirmed yet; run the same command again to go on")
            return


def _found_nothing_yet(out: Path, judge: JudgeStage) -> bool:
    """Return True if the first stage was cut short and no setting leads."""
    if read_run(out / ALONE).history.played_out:
        return False
    return not any(one.best for one in read_stages(out, judge).found.values())


def best_of_each(results: Sequence[tuple[Change, Ratio | None, Standing]]) -> list[Change]:
    """Return the best value of each knob that helped, the largest gain first."""
    best: dict[str, Change] = {}
    for change in rank_settings(results):
        best.setdefault(change.knob, change)
    gains = {id(change): ratio.value for change, ratio, _ in results if ratio}
    return sorted(best.values(), key=lambda change: gains[id(change)])


def _is_open(out: Path, name: str, plan: Plan, before: Tuning) -> bool:
    """Return True if this stage has something to measure.

    Raises:
        UsageError: its folder holds the stage of another request, or what it rests on was found elsewhere.
    """
    stage = before.stages.get(name)
    if stage and stage.run.facts.identity != plan.identity:
        raise UsageError(f"{str(out)!r} holds another tuning run: {START_OVER}")
    later = STAGES[STAGES.index(name) + 1 :]
    if not plan.groups or (stage and (stage.run.history.played_out or not before.stages.keys().isdisjoint(later))):
        return False
    if before.stages and before.stages[ALONE].fingerprint != _take_fingerprint():
        raise UsageError(f"{str(out)!r} was begun on another machine or with other versions: {START_OVER}")
    return True


def _take_fingerprint() -> str:
    return environment.fingerprint(environment.facts())
