"""Race the targets of a claim until it is told, and judge it: for the tool `verify`, and for tests by `race`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

from shootout.api import check_options
from shootout.apps.judge.analysis import Analysed, analyse_cells
from shootout.apps.judge.claim import Claim, JudgedClaim, judge_claim, read_claim
from shootout.commands.output import print_answer, show_progress
from shootout.commands.run import choose_out, command_of, find_targets, measure_run, plan_run
from shootout.core.clock import Deadline
from shootout.core.contract import Arm, NotRunKind, short
from shootout.core.errors import ArmFailed, Unavailable, UsageError
from shootout.core.study.plan import Plan
from shootout.tell import reproduce
from shootout.tell.limits import Standing
from shootout.tell.study_options import BY_CLAIM, DEFAULT, RunOptions, flags_of

MOST_TIME_S = 300.0
"""Seconds of a race of `verify`, if none are given."""
OPEN = frozenset({NotRunKind.SOFTWARE, NotRunKind.OFF_LIMITS, NotRunKind.NOT_REACHED, NotRunKind.KILLED})
"""Why a target may lack a time though nothing is wrong with it."""


def verify_claim(
    text: str, targets: Sequence[str], run: Path | None, group: str | None, options: RunOptions, *, as_json: bool
) -> None:
    """Judge a claim by a run, or by a race of its own, and print what came of it.

    Raises:
        UsageError: as `read_claim` and `judge_claim`, neither a run nor a model is given or both are, or one comes with
            what only the other takes.
    """
    race = ClaimRace(read_claim(text), targets, {"max_time_s": MOST_TIME_S, **options})
    if (run is None) is not ("model" in options):
        raise UsageError("verify needs either run, a folder that holds the targets, or model, to race them on")
    if run is None:
        if group:
            raise UsageError(f"--group is of a run, and a race has one group: leave it out; received {group!r}")
        judged = race.judge(race.measure(words=sys.argv[3 + len(targets) :]))
    else:
        flags = flags_of(RunOptions)
        if given := [f"{flags[key].name} {value!r}" for key, value in options.items()]:
            raise UsageError(f"{given[0]} is for a race, and the run is measured already: leave out one")
        judged = judge_claim(analyse_cells(run), race.claim, *targets, group=group)
    print_answer("", None, as_json=as_json, found=judged)


@dataclass(frozen=True, slots=True)
class ClaimRace:
    """Race for a claim, and judge it.

    Attributes:
        targets: the one that it is about, and the one that it is compared with if there is one.
        options: of the run, with a model and a time, but for those of `BY_CLAIM`.
    """

    claim: Claim
    targets: Sequence[str]
    options: RunOptions

    def __post_init__(self) -> None:
        self.claim.refuse_unfit(*self.targets)  # before anything is measured
        refuse_given(self.options, BY_CLAIM)

    def measure(self, value: float = 0.0, words: Sequence[str] = (), out: Path | None = None) -> Analysed:
        """Race until the claim is told.

        Args:
            value: as `Claim.race` has it.
            words: the options as they were typed, for the command that goes on with the run.
            out: a folder for the run; None: as the options have it.

        Raises:
            UsageError: an option or a target is wrong, or the options ask for several sizes.
            Unavailable: a target can't run here.
        """
        limit, asked = Deadline(self.options["max_time_s"]), self.claim.race(*self.targets, value=value)
        targets = [*dict.fromkeys([asked.get("baseline", self.targets[0]), *self.targets])]
        typed = reproduce.flatten((f"--{name}", one) for name, one in {"backends": ",".join(targets), **asked}.items())
        own = {"out": out} if out else {}
        options = cast("RunOptions", {**self.options, **asked, "backends": targets, **own})
        with show_progress() as progress:
            plan, policy = plan_run(DEFAULT, options, progress)
            self._refuse_unfit(plan)
            out, command = choose_out(plan, options), command_of(["run", *words, *typed]) if words else ()
            measure_run(plan, policy, out, options, limit, progress, command)
        return analyse_cells(out)

    def judge(self, run: Analysed) -> JudgedClaim:
        """Judge the claim by such a run; other than by any run, it isn't left open because of a target that broke.

        Raises:
            ArmFailed: a target broke.
        """
        names = self.find_labels(row.arm for row in run.rows)
        judged = judge_claim(run, self.claim, *names)
        for row in run.document.rows if judged.standing is Standing.UNKNOWN else ():
            if row.arm in names and row.cause is not None and row.cause not in OPEN:
                raise ArmFailed(f"{short(row.arm)} {row.outcome}: {row.reason}; the run is in {str(run.folder)!r}")
        return judged

    def find_labels(self, arms: Iterable[Arm]) -> list[str]:
        """Return the label of the arm of each target; none of a target that isn't among the arms.

        Raises:
            UsageError: a text names no target, or several.
        """
        played, found = [arm for arm in arms if not arm.control], list[str]()
        for text in self.targets:
            named = find_targets([text], self.options.get("pythons", ()))
            mine = [*dict.fromkeys(arm.label for arm in played if arm.target in named)]
            if len(mine) > 1:
                raise UsageError(f"{text!r} names several targets, and a claim is on one: {', '.join(mine)}")
            found += mine
        return found

    def _refuse_unfit(self, plan: Plan) -> None:
        """Refuse a plan of several groups, of several targets for a name, or of a target that can't run here."""
        group, *others = plan.groups
        if others:
            names = ", ".join(repr(one.record.name) for one in plan.groups)
            raise UsageError(f"a claim is on one model at one size, and these options give several: {names}")
        self.find_labels(group.record.arms)
        for label, why in group.skips.items():
            raise Unavailable("; ".join(filter(None, [f"{short(label)} can't run here: {why.reason}", why.fix])))


def refuse_given(options: Iterable[str], names: Collection[str]) -> None:
    """Refuse options that a race for a claim is given otherwise.

    Raises:
        UsageError: there is one.
    """
    if found := [name for name in options if name in names]:
        raise UsageError(f"leave out {found[0]}=: the model, the targets and the claim of a race give it")


@dataclass(slots=True)
class Races:
    """Race for each claim once, and keep the run.

    Attributes:
        make_folder: makes an empty folder for a run.
        max_time_s: of a race whose options have none, exports and builds included.
        runs: by their options, the identity of a plan of their targets, and what the claim added: these targets, and
            the run.
    """

    make_folder: Callable[[], Path]
    max_time_s: float
    runs: dict[tuple[str, str, str], tuple[Sequence[str], Analysed]] = field(default_factory=dict)

    def judge(self, model: Any, claim: Claim, targets: Sequence[str], options: RunOptions) -> JudgedClaim:
        """Judge a claim by a run that is there, or else by one for this claim, and by a closer one if that is needed.

        Args:
            targets, options: as `ClaimRace` has them.

        Raises:
            UsageError, Unavailable, ArmFailed: as `ClaimRace`.
        """
        refuse_given(options, ("model", "out", "fresh"))
        if hasattr(model, "forward") and options.get("inputs") is None:
            raise UsageError(f"{type(model).__name__}: give example inputs too: race(m, {targets[0]!r}, inputs=x)")
        given = check_options({"max_time_s": self.max_time_s, **options, "model": model})
        race, asked, mine, value = ClaimRace(claim, targets, given), repr(sorted(given.items())), sorted(targets), 0.0
        find_identity = cache(lambda *named: identify(given, named))  # of one plan, most often: a claim has one set
        for (its, identity, _), (named, run) in self.runs.items():
            has_all = its == asked and len(race.find_labels(row.arm for row in run.rows)) == len(targets)
            if not has_all or identity != find_identity(*named):
                continue
            if (judged := race.judge(run)).standing is not Standing.UNKNOWN:
                return judged
        for _ in range(2):
            key = asked, find_identity(*mine), repr(claim.race(*targets, value=value))
            if key not in self.runs:
                self.runs[key] = mine, race.measure(value, out=self.make_folder())
            judged = race.judge(self.runs[key][1])
            if not judged.run.complete or claim.factor == 1 or not judged.next:
                break
            value = judged.figure.value or 0.0  # it had its goal, and a closer look would tell
        return judged


def identify(given: RunOptions, targets: Sequence[str]) -> str:
    """Return the identity of a plan of targets; it is another one if a file or a package of them changes."""
    return plan_run(DEFAULT, cast("RunOptions", {**given, "backends": targets}))[0].identity
