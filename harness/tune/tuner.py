"""Finds each backend's best own settings by racing them, then races the winners: `shootout tune`.

Who wins among many was lucky too (the winner's curse), so the search only proposes: the gain comes from a race of the
default and the winner alone, on generations that the search never saw. Each stage is a run like any other, in a folder
of its own below the tuning run's, so that it resumes, and can be looked at by itself. A stage is never continued once
the next one began, since that one rests on its choice.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from shootout import backends
from shootout.contract import Precision, Scenario
from shootout.errors import UsageError, unknown
from shootout.host import environment
from shootout.host.placement import place
from shootout.journal import journal
from shootout.journal.run_folder import new_folder
from shootout.report.progress import Progress
from shootout.results.document import Document
from shootout.study import points
from shootout.study.plan import Plan, make_plan
from shootout.study.schema import Study
from shootout.tune import results
from shootout.tune.stages import Ground, plan_stage
from shootout.tune.tuning_stages import ALONE, CONFIRMED, STAGES, TOGETHER, TUNED, Stage, stage_of

SHARES = {ALONE: 0.45, TOGETHER: 0.4, CONFIRMED: 1.0, TUNED: 1.0}
"""Of the time that is left, what each stage may take at most."""


def of_every_backend(study: Study) -> Study:
    """What is tuned where nobody names a target: every backend as it comes, on the study's device and precision."""
    return study if study.backend else study.model_copy(update={"targets": backends.names()})


def configure(study: Study, allowed: Collection[Precision]) -> Ground:
    """Find out what is here.

    Raises:
        UsageError: the study asks for something unknown, or for more than one model, batch or thread count.
    """
    if study.scenario != (Scenario.LATENCY,):
        raise UsageError("tune looks at latency: leave --scenario out")
    if (count := len(points.points(study))) > 1:
        raise UsageError(f"tune looks at one model at a time: give one value for each axis, got {count} combinations")
    planned = make_plan(study)
    widest = place("all")
    return Ground(
        planned=replace(planned, placement=widest), most_threads=widest.threads, allowed=tuple(dict.fromkeys(allowed))
    )


def parse_allowed(text: str | None) -> tuple[Precision, ...]:
    """`bf16,int8` → precisions.

    Raises:
        UsageError: one that isn't known.
    """
    known = {str(precision): precision for precision in Precision}
    parts = [part.strip() for part in text.split(",")] if text else []
    for part in parts:
        if part not in known:
            raise unknown("precision in --allow", part, known)
    return tuple(known[part] for part in parts)


def default_folder(ground: Ground, *, fresh: bool) -> Path:
    """`results/tune/<time>` under the current folder, or the newest unfinished one there of the same request."""
    parent = Path("results") / "tune"
    now = environment.fingerprint(environment.facts())
    for folder in [] if fresh else sorted(parent.glob("*"), reverse=True):
        try:
            found = results.read(folder)
        except UsageError:
            continue
        first = found.stages[ALONE]
        same = (first.identity, first.fingerprint) == (plan_stage(ground, ALONE, {}).identity, now)
        if same and not found.complete:
            return folder
    return new_folder(parent)


def tune(
    ground: Ground,
    out: Path,
    measure: Callable[..., Document],
    *,
    fresh: bool,
    max_time_s: float | None,
    progress: Progress,
) -> None:
    """Run the stages that are left; `results.read` then tells what was found.

    Args:
        measure: runs a plan in a folder, as `shootout.commands.run.measure` does.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; what was measured is on disk.
        UsageError: `out` can't be used, or holds another tuning run.
    """
    spent_s = 0.0
    if fresh:
        _clear(out)
    for name in STAGES:
        stages = {done: stage for done in STAGES if (stage := stage_of(out, done))}
        planned = plan_stage(ground, name, stages)
        if not _is_open(out, name, planned, stages):
            continue
        left_s = None if max_time_s is None else max_time_s - spent_s
        if left_s is not None and left_s <= 0:
            progress.say(f"no time is left for the stage {name!r}; run the same command again to go on")
            return
        progress.say(f"stage {name}: {_said(planned)}")
        limit_s = None if left_s is None else SHARES[name] * left_s
        document = measure(planned, out / name, fresh=False, max_time_s=limit_s, progress=progress)
        if name == CONFIRMED and not document.complete:
            progress.say("not every winner is confirmed yet; run the same command again to go on")
            return
        spent_s += document.wall_s - (stages[name].document.wall_s if name in stages else 0.0)


def _is_open(out: Path, name: str, planned: Plan, stages: Mapping[str, Stage]) -> bool:
    """Whether this stage has something to measure.

    Raises:
        UsageError: its folder holds the stage of another request, or what it rests on was found elsewhere.
    """
    stage, how = stages.get(name), "add --fresh to start over there, or another --out"
    if stage and stage.identity != planned.identity:
        raise UsageError(f"{str(out)!r} holds another tuning run: {how}")
    settled = stage is not None and (
        stage.complete or any(later in stages for later in STAGES[STAGES.index(name) + 1 :])
    )
    if settled or not planned.groups:
        return False
    if ALONE in stages and stages[ALONE].fingerprint != environment.fingerprint(environment.facts()):
        raise UsageError(f"{str(out)!r} was begun on another machine or with other versions: {how}")
    return True


def _said(planned: Plan) -> str:
    arms = Counter(str(arm.target.backend) for group in planned.groups for arm in group.playing if not arm.sentinel)
    return ", ".join(f"{count} of {backend}" for backend, count in arms.items()) or "nothing can run"


def _clear(out: Path) -> None:
    """Remove the stages, and nothing else."""
    for name in STAGES:
        if journal.begun(out / name):
            shutil.rmtree(out / name)
