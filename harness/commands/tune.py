"""`shootout tune`: search each target's best own settings, confirm them, race them, print."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from shootout.apps.judge.decide.question import find_over_limits, judge_stage, policy_of, read_limits
from shootout.apps.judge.racing import AnswerPurpose, PolicyPurpose
from shootout.apps.sensitivity import rank_layers
from shootout.apps.tune import search, table
from shootout.apps.tune.results import ALONE, TuneOutcome, Tuning, is_tuning, read_tuning
from shootout.apps.tune.search import TuningSearch
from shootout.apps.tune.settings import list_mixes
from shootout.backends import chosen_gpu
from shootout.commands import selection
from shootout.commands.output import print_answer, show_progress, width
from shootout.commands.run import measure
from shootout.core.build.builder import leading_of, needs_of
from shootout.core.clock import Deadline
from shootout.core.contract import NotRun
from shootout.core.errors import ExitCode, Interrupted, ModelError, NothingMeasured, ShootoutError, SkippedArm
from shootout.core.exported.client import obtain_all
from shootout.core.journal.records import Played
from shootout.core.race.race import Race
from shootout.core.study import points
from shootout.core.study.plan import Plan
from shootout.tell.cache_limit import in_use
from shootout.tell.document import Document
from shootout.tell.limits import Limit
from shootout.tell.progress import ProgressDisplay
from shootout.tell.study_options import DEFAULT, TuneOptions


@dataclass(slots=True)
class StagePurpose(AnswerPurpose):
    """A stage of a tuning run under limits: settings that break one leave, and none is waited for.

    A search only proposes, so there what the first restart's rows show is enough.
    """

    plan: Plan
    limits: Mapping[str, float]

    def bars_from(self, race: Race) -> int:
        """Return 1 in a search."""
        return 1 if self.plan.on_selection else AnswerPurpose.bars_from(self, race)

    def find_breach(self, line: Played, install_bytes: int | None) -> NotRun | None:
        """Return the limit that one restart shows to be broken."""
        purpose = PolicyPurpose(policy_of(self.limits), self.plan.study.metric is not None)
        return purpose.find_breach(line, install_bytes)

    def find_broken(self, out: Path) -> Mapping[str, Collection[str]]:
        """Return by group the settings that are known to break a limit."""
        return find_over_limits(self.limits, out)


def tune(options: TuneOptions, *, as_json: bool) -> int:
    """Tune and print; return the exit code."""
    code, limit = 0, Deadline(options.get("max_time_s"))
    with show_progress() as progress:
        wanted, out = _make_search(options)
        try:
            _measure_stages(wanted, out, options, progress, limit)
        except Interrupted as interrupted:
            progress.say(f"shootout: {interrupted}")
            code = interrupted.exit_code
        progress.say(f"run folder: {out}")
    tuning = read_tuning(out, judge_stage)
    print_answer(table.render(tuning, width()), table.as_data(tuning), as_json=as_json)
    return code or exit_code(tuning, named=bool(options.get("backends")))


def measure_settings(options: TuneOptions, progress: ProgressDisplay) -> Tuning:
    """Tune without a word on stdout, for Python."""
    limit = Deadline(options.get("max_time_s"))
    wanted, out = _make_search(options)
    _measure_stages(wanted, out, options, progress, limit)
    return read_tuning(out, judge_stage)


def exit_code(tuning: Tuning, *, named: bool) -> int:
    """Return 6 if a target that was `named` can't run here, 4 if one failed, 3 if nothing was measured, else 0."""
    outcomes = {tuned.conclusion.outcome for tuned in tuning.found.values()}
    ended = {TuneOutcome.SKIPPED: ExitCode.UNAVAILABLE, TuneOutcome.FAILED: ExitCode.FAILED}
    worst = next((code for outcome, code in ended.items() if named and outcome in outcomes), 0)
    return worst or (0 if outcomes - set(ended) else ExitCode.NOTHING)


def _make_search(options: TuneOptions) -> tuple[TuningSearch, Path]:
    """Return what to search, and the folder to search in."""
    limits, given = read_limits(options), dict[str, Any](options)
    if Limit.ERROR in (limits or {}):
        given["max_error"] = (limits or {})[Limit.ERROR]  # an error under its limit is tolerated
    chosen = selection.choose(DEFAULT, given)
    chosen_gpu.choose_gpu(options.get("gpu"), {target.device for target in points.targets_of(chosen)})
    if not options.get("backends"):
        chosen = search.of_every_backend(chosen)
    wanted = search.make_search(chosen, search.read_precisions(options.get("precision", ())), limits)
    return wanted, Path(
        options.get("out") or search.choose_folder(wanted, judge_stage, fresh=options.get("fresh", False))
    )


def _measure_stages(
    wanted: TuningSearch, out: Path, options: TuneOptions, progress: ProgressDisplay, limit: Deadline
) -> None:
    """Rank the layers if mixes are wanted, and run the stages that are left.

    Raises:
        NothingMeasured: there is no time for any.
    """

    def stage(plan: Plan, out: Path, limit: Deadline) -> Document:
        purpose = StagePurpose(plan, plan.limits) if plan.limits is not None else None
        return measure(plan, out, fresh=False, limit=limit, progress=progress, purpose=purpose)

    if limit.left_s <= 0 and not is_tuning(out):
        raise NothingMeasured(f"--max-time {limit.seconds:g} s was over before anything was measured: give more")
    fresh = options.get("fresh", False)
    wanted = search.with_mixes(wanted, out, partial(_rank_mixes, limit=limit, progress=progress), fresh=fresh)
    search.tune(wanted, out, stage, judge_stage, fresh=fresh, limit=limit, say=progress.say)


def _rank_mixes(wanted: TuningSearch, *, limit: Deadline, progress: ProgressDisplay) -> list[str]:
    """Rank the layers of the model, in a share of the time; return the mixes that leave the worst in float.

    Raises:
        NothingMeasured: the model wasn't exported in time.
    """
    part, groups = limit.part(search.SHARES[ALONE]), wanted.plan_stage(ALONE, Tuning("", {})).groups
    needs = needs_of(groups)  # the export is that of the first stage, which finds it in the cache
    request = replace(groups[0].request, needs=tuple(sorted(needs)))
    leading = leading_of(groups, any_error=wanted.plan.study.max_error > 0)
    with in_use():
        progress.stage(f"exporting {request.model}, to rank its layers")
        (exported,) = obtain_all([request], progress, part, leading)
        if isinstance(exported, SkippedArm):
            raise NothingMeasured(f"{exported.why.reason}: {exported.why.fix}")
        if isinstance(exported, ShootoutError):
            raise exported
        time = limit.part(search.RANKING_SHARE)
        progress.stage(f"ranking the layers of {request.model}, each quantized alone")
        try:
            found = rank_layers(exported, time, progress)
        except ModelError as error:
            progress.say(f"no layers are left in float: {error}")
            return []
    if found.unmeasured:
        progress.say(f"--max-time left {found.unmeasured} layers unranked: --fresh and more time rank them")
    return list_mixes([part.layer for part in found.parts])
