"""Measure what a claim takes, and judge it: what a test calls by the fixture `race`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, cast

from shootout.api import check_options
from shootout.apps.judge.analysis import Analysed, analyse_cells
from shootout.apps.judge.claim import Claim, JudgedClaim, judge_claim
from shootout.commands.output import show_progress
from shootout.commands.run import measure_run, plan_run
from shootout.commands.selection import choose
from shootout.core.clock import Deadline
from shootout.core.contract import Arm, NotRunKind, short
from shootout.core.errors import ArmFailed, Unavailable, UsageError
from shootout.core.exported import client
from shootout.core.study.plan import Plan
from shootout.core.study.points import describe, points, request
from shootout.core.study.target import parse_targets
from shootout.core.worker.availability import examine
from shootout.tell.limits import Standing
from shootout.tell.study_options import DEFAULT, RunOptions

CHOSEN = ("model", "parts", "backends", "baseline", "goal", "policy", "out", "fresh", "strict")
"""The options of a run that the model, the targets and the claim give."""
OPEN = frozenset({NotRunKind.SOFTWARE, NotRunKind.OFF_LIMITS, NotRunKind.NOT_REACHED, NotRunKind.KILLED})
"""Why a target may lack a time though nothing is wrong with it."""


@dataclass(slots=True)
class Races:
    """Measure each race once, and keep its run.

    Attributes:
        make_folder: makes an empty folder for a run.
        max_time_s: of a race whose options have none, exports and builds included.
        runs: by the model with its options, as `_name_question` has them, and by what the claim asked.
    """

    make_folder: Callable[[], Path]
    max_time_s: float
    runs: dict[tuple[str, str], Analysed] = field(default_factory=dict)

    def judge(
        self, model: Any, claim: Claim, targets: Sequence[str], options: RunOptions
    ) -> tuple[JudgedClaim, Analysed]:
        """Judge a claim by a run that is there, or else by one for this claim; also return the run.

        Args:
            targets: the one that it is about, and the one that it is compared with if there is one.
            options: of the run, but for those of `CHOSEN`.

        Raises:
            UsageError: an option or a target is wrong, or the options ask for several sizes.
            Unavailable: a target can't run here.
            ArmFailed: a target broke.
        """
        _refuse_chosen(options)
        given = check_options({"max_time_s": self.max_time_s, **options, "model": model})
        question = _name_question(given, targets)
        for run in [run for (mine, _), run in self.runs.items() if mine == question]:
            names = _find_labels(_arms_of(run), targets, options)
            judged = judge_claim(run, claim, *names) if len(names) == len(targets) else None
            if judged and judged.standing is not Standing.UNKNOWN:
                return judged, run
        judged, run = self._race(question, claim, targets, given, _ask(claim, targets))
        if run.complete and claim.factor > 1 and judged.next:  # it had its goal, and a closer look would tell
            judged, run = self._race(question, claim, targets, given, _ask(claim, targets, judged.value or 0.0))
        return judged, run

    def _race(
        self, question: str, claim: Claim, targets: Sequence[str], given: RunOptions, asked: dict[str, Any]
    ) -> tuple[JudgedClaim, Analysed]:
        """Judge a claim by the run that these options ask for, which is measured unless it is there."""
        key = question, repr(sorted(asked.items()))
        if key not in self.runs:
            self.runs[key] = _measure(cast("RunOptions", {**given, **asked}), self.make_folder())
        run = self.runs[key]
        names = _find_labels(_arms_of(run), targets, given)
        judged = judge_claim(run, claim, *names)
        if judged.standing is Standing.UNKNOWN:
            _refuse_broken(run, names)
        return judged, run


def _name_question(given: RunOptions, targets: Sequence[str]) -> str:
    """Name the options with each file among them as it is now: a test may write another model by the same name.

    What a plan hashes tells the rest: external data, the .py files beside its own, the packages of other Pythons.
    """
    study = choose(DEFAULT, {**given, "backends": tuple(targets)})
    made_of = client.check(request(study, points(study)[0])).content.hashes
    others = [other.digest for other in examine(study.pythons).values()]
    values = [one for value in given.values() for one in (value if isinstance(value, (list, tuple)) else [value])]
    words = {part for one in values if isinstance(one, (str, PathLike)) for part in re.split(r":(?=\w+$)", str(one))}
    named = [path.expanduser().resolve() for path in map(Path, words) if path.expanduser().exists()]
    files = [file for path in named for file in (path, *path.rglob("*")) if file.is_file()]
    stamps = sorted((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    return repr((sorted(given.items()), stamps, made_of, others))


def _refuse_chosen(options: Iterable[str]) -> None:
    """Refuse an option that a race is given otherwise.

    Raises:
        UsageError: there is one.
    """
    if given := [name for name in options if name in CHOSEN]:
        raise UsageError(f"leave out {given[0]}=: the model, the targets and the claim of a race give it")


def _ask(claim: Claim, targets: Sequence[str], value: float = 0.0) -> dict[str, Any]:
    """Return the options of a run that ends as soon as it tells a claim.

    Args:
        value: as `Claim.race` has it.
    """
    arm, other = [*targets, None][:2]
    if arm == other:
        raise UsageError(f"{arm!r} is compared with itself: name another target")
    asked = claim.race(str(arm), other, value)
    first = [asked["baseline"]] if "baseline" in asked else []
    return {"backends": tuple(dict.fromkeys([*first, *targets])), **asked}


def _measure(options: RunOptions, out: Path) -> Analysed:
    """Measure what the options ask for into a folder.

    Raises:
        UsageError, Unavailable: as `Races.judge`.
    """
    limit = Deadline(options["max_time_s"])
    with show_progress() as progress:
        plan, policy = plan_run(DEFAULT, options, progress)
        _refuse_unfit(plan, options)
        measure_run(plan, policy, out, options, limit, progress)
    return analyse_cells(out)


def _refuse_unfit(plan: Plan, options: RunOptions) -> None:
    """Refuse a plan of several groups, of several targets for a name, or of a target that can't run here."""
    if len(plan.groups) > 1:
        names = ", ".join(repr(one.record.name) for one in plan.groups)
        raise UsageError(f"a claim is on one model at one size, and these options give several: {names}")
    _find_labels(plan.groups[0].record.arms, options["backends"], options)
    for label, why in plan.groups[0].skips.items():
        raise Unavailable("; ".join(filter(None, [f"{short(label)} can't run here: {why.reason}", why.fix])))


def _arms_of(run: Analysed) -> list[Arm]:
    return [one.arm for one in run.rows]


def _find_labels(arms: Iterable[Arm], targets: Sequence[str], options: RunOptions) -> list[str]:
    """Return the label of the arm that each text names; none of a text whose target isn't among the arms.

    Raises:
        UsageError: a text names no target, or several.
    """
    labels = {arm.label: str(arm.target) for arm in arms if not arm.control}
    found: list[str] = []
    for text in targets:
        firsts = (describe, partial(describe, native=True))
        named = {str(target) for first in firsts for target in parse_targets(text, first, options.get("pythons", ()))}
        mine = [label for label, target in labels.items() if target in named]
        if len(mine) > 1:
            raise UsageError(f"{text!r} names several targets, and a claim is on one: {', '.join(mine)}")
        found += mine
    return found


def _refuse_broken(run: Analysed, names: Sequence[str]) -> None:
    """Refuse to leave a claim open because of a target that broke.

    Raises:
        ArmFailed: one did.
    """
    for row in run.document.rows:
        if row.arm in names and row.cause is not None and row.cause not in OPEN:
            raise ArmFailed(f"{short(row.arm)} {row.outcome}: {row.reason}; the run is in {str(run.folder)!r}")
