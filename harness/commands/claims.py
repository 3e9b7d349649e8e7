"""Race the targets of a claim until it is told, and judge it: for the tool `verify`, and for tests by `race`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Unpack, cast

import typer

from shootout.api import check_options
from shootout.apps.judge.analysis import Analysed, analyse_cells
from shootout.apps.judge.claim import Claim, JudgedClaim, judge_claim, read_claim
from shootout.commands.options import Group, Json
from shootout.commands.output import print_answer, show_progress
from shootout.commands.run import choose_out, command_of, measure_run, plan_run
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
from shootout.tell.study_options import DEFAULT, RunOptions, flags_of

GIVEN = ("parts", "backends", "baseline", "goal", "policy", "strict")
"""The options of a run that the targets and the claim give."""
MOST_TIME_S = 300.0
"""Seconds of a race of `verify`, if none are given."""
OPEN = frozenset({NotRunKind.SOFTWARE, NotRunKind.OFF_LIMITS, NotRunKind.NOT_REACHED, NotRunKind.KILLED})
"""Why a target may lack a time though nothing is wrong with it."""


def verify(
    claim: str,
    a: str,
    b: Annotated[str | None, typer.Argument()] = None,
    *,
    run: Path | None = None,
    group: Group = None,
    as_json: Json = False,
    **options: Unpack[RunOptions],
) -> None:
    """Judge a claim by a run, or by a race of its own; agents alone have this command.

    Raises:
        UsageError: as `read_claim` and `judge_claim`, neither a run nor a model is given or both are, or one comes with
            what only the other takes.
    """
    asked, targets = read_claim(claim), [a, *([b] if b else [])]
    asked.refuse_unfit(*targets)  # before anything is measured
    if (run is None) is not ("model" in options):
        raise UsageError("verify needs either run, a folder that holds the targets, or model, to race them on")
    if run:
        flags = flags_of(RunOptions)
        if given := [f"{flags[key].name} {value!r}" for key, value in options.items()]:
            raise UsageError(f"{given[0]} is for a race, and the run is measured already: leave out one")
        judged = judge_claim(analyse_cells(run), asked, *targets, group=group)
    elif group:
        raise UsageError(f"--group is of a run, and a race has one group: leave it out; received {group!r}")
    else:
        wanted, typed = ask(asked, targets), sys.argv[3 + len(targets) :]
        for name, value in wanted.items():
            typed += [f"--{name}", ",".join(value) if name == "backends" else value]
        raced = race_for(wanted, {"max_time_s": MOST_TIME_S, **options}, command_of(["run", *typed]))
        judged = judge_raced(raced, asked, targets, options)
    print_answer("", None, as_json=as_json, found=judged)


def ask(claim: Claim, targets: Sequence[str], value: float | None = None) -> dict[str, Any]:
    """Return the options of a run that ends as soon as it tells a claim.

    Args:
        targets: the one that it is about, and the one that it is compared with if there is one.
        value: as `Claim.race` has it.

    Raises:
        UsageError: the claim can't be on these.
    """
    claim.refuse_unfit(*targets)
    asked = claim.race(*targets, value=value or 0.0)
    return {"backends": tuple(dict.fromkeys([asked.get("baseline", targets[0]), *targets])), **asked}


def race_for(asked: dict[str, Any], options: RunOptions, command: Sequence[str] = ()) -> Analysed:
    """Race for a claim until it is told.

    Args:
        asked: what `ask` returns.
        options: of the run, with a model and a time, but for those of `GIVEN`.
        command: the words of a command that does the same, for what goes on with the run.

    Raises:
        UsageError: an option or a target is wrong, or the options ask for several sizes.
        Unavailable: a target can't run here.
    """
    refuse_given(options, GIVEN)
    limit, given = Deadline(options["max_time_s"]), cast("RunOptions", {**options, **asked})
    with show_progress() as progress:
        plan, policy = plan_run(DEFAULT, given, progress)
        _refuse_unfit(plan, given)
        measure_run(plan, policy, out := choose_out(plan, given), given, limit, progress, command)
    return analyse_cells(out)


def judge_raced(run: Analysed, claim: Claim, targets: Sequence[str], options: RunOptions) -> JudgedClaim:
    """Judge a claim by a run of `race_for`; other than by any run, it isn't left open because of a target that broke.

    Raises:
        ArmFailed: a target broke.
    """
    names = _find_labels(run, targets, options)
    judged = judge_claim(run, claim, *names)
    for row in run.document.rows if judged.standing is Standing.UNKNOWN else ():
        if row.arm in names and row.cause is not None and row.cause not in OPEN:
            raise ArmFailed(f"{short(row.arm)} {row.outcome}: {row.reason}; the run is in {str(run.folder)!r}")
    return judged


@dataclass(slots=True)
class Races:
    """Race for each claim once, and keep the run.

    Attributes:
        make_folder: makes an empty folder for a run.
        max_time_s: of a race whose options have none, exports and builds included.
        runs: by the model with its options, as `_name_question` has them, and by what the claim asked.
    """

    make_folder: Callable[[], Path]
    max_time_s: float
    runs: dict[tuple[str, str], Analysed] = field(default_factory=dict)

    def judge(self, model: Any, claim: Claim, targets: Sequence[str], options: RunOptions) -> JudgedClaim:
        """Judge a claim by a run that is there, or else by one for this claim, and by a closer one if that is needed.

        Args:
            targets: as `ask` has them.
            options: of the run, but for those that are given otherwise.

        Raises:
            UsageError, Unavailable, ArmFailed: as `race_for` and `judge_raced`.
        """
        refuse_given(options, (*GIVEN, "model", "out", "fresh"))
        given = check_options({"max_time_s": self.max_time_s, **options, "model": model})
        question = _name_question(given, targets)
        for run in [run for (mine, _), run in self.runs.items() if mine == question]:
            if len(_find_labels(run, targets, given)) == len(targets):
                judged = judge_raced(run, claim, targets, given)
                if judged.standing is not Standing.UNKNOWN:
                    return judged
        value: float | None = None
        for _ in range(2):
            key = question, repr(asked := ask(claim, targets, value))
            if key not in self.runs:
                self.runs[key] = race_for(asked, {**given, "out": self.make_folder()})
            judged = judge_raced(self.runs[key], claim, targets, given)
            if not judged.run.complete or claim.factor == 1 or not judged.next:
                break
            value = judged.value  # it had its goal, and a closer look would tell
        return judged


def refuse_given(options: RunOptions, names: Collection[str]) -> None:
    """Refuse options that a race for a claim is given otherwise.

    Raises:
        UsageError: there is one.
    """
    if found := [name for name in options if name in names]:
        raise UsageError(f"leave out {found[0]}=: the model, the targets and the claim of a race give it")


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


def _refuse_unfit(plan: Plan, options: RunOptions) -> None:
    """Refuse a plan of several groups, of several targets for a name, or of a target that can't run here."""
    if len(plan.groups) > 1:
        names = ", ".join(repr(one.record.name) for one in plan.groups)
        raise UsageError(f"a claim is on one model at one size, and these options give several: {names}")
    _find_labels(plan.groups[0].record.arms, options["backends"], options)
    for label, why in plan.groups[0].skips.items():
        raise Unavailable("; ".join(filter(None, [f"{short(label)} can't run here: {why.reason}", why.fix])))


def _find_labels(among: Analysed | Iterable[Arm], targets: Sequence[str], options: RunOptions) -> list[str]:
    """Return the label of the arm that each text names; none of a text whose target isn't among the arms.

    Raises:
        UsageError: a text names no target, or several.
    """
    arms = [row.arm for row in among.rows] if isinstance(among, Analysed) else among
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
