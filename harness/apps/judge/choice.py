"""Which arm of a cell to ship, by rule. Pure; docs/measurement.md has the rule in words.

An arm *keeps* the model where it is plain FP32, or where its accuracy is known (in pairs with a plain FP32 arm's, on
the labeled split) to have lost less than `MARGIN`. The choice is among those that do: a faster one that isn't known to
is named instead.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from shootout import models
from shootout.backends import USUAL
from shootout.core import backends
from shootout.core.constants import ALPHA, BUILD_SHARE, INDIFFERENT, MAX_RESTARTS_IN_TIME, RACING_S
from shootout.core.contract import INTEGERS, Array, Device, NotRunKind, Precision, family, short
from shootout.core.exported.request import name_model
from shootout.core.results.group import Group, unfit_for, unvouched
from shootout.core.scenario import find_scenario
from shootout.core.schemes import is_exact
from shootout.core.stats.goals import Aim
from shootout.core.stats.leaders import Compare, Leaders, find_leaders
from shootout.core.stats.verdicts import Comparison, Verdict
from shootout.core.units import counted, round_limit
from shootout.models.metrics import count_rows_for_rare
from shootout.tell import registered, reproduce
from shootout.tell.document import (
    Answer,
    Chosen,
    GroupSummary,
    Metric,
    NoGain,
    NotRaced,
    Passed,
    Ratio,
    Rival,
    Row,
    Shipped,
    SmallerStep,
    Sure,
    Timing,
    WouldChange,
    ratio_of,
)
from shootout.tell.limits import Standing
from shootout.tell.option_values import read_seconds
from shootout.tell.paired import ask_drop, quantile_of
from shootout.tell.wording import NO_LABELS, RANDOM_INPUTS, tell_lost_part, tell_metric_limit, tell_threads

Admitted = Literal["fp32", "metric", "policy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is known of a group of arms that raced each other.

    Attributes:
        aim: what the race is for.
        most_restarts: that a race for the best arm may last.
        restart_s: how long the last one took.
        rows: of the group, and those of the group that chose its settings.
        compare: (arm, other) → the first one's time ÷ the other's.
        restarts_needed: (arm, other) → in all, for a verdict on the two: in this race if it goes on, else in one of
            the two alone. None: that can't be estimated.
        unvouched: why no verdict of the group stands; None where they stand.
        withheld: why no verdict on an arm may be given, whatever stands of the group.
        again: labels of arms → the options of `shootout run` that race these alone (`reproduce.options`).
        command: the command that the run was begun with, without its folder and time; "" if that isn't known.
        has_policy: whether the run was begun with a policy, so that it measures all that this needs.
        run: the run's folder, quoted for a shell.
        on: see `Header`.
        named: the options by which a command names this cell among the answers of its run.
        given: what the run was given that no arm tells, by the fields of `Study`.
        is_scored: a metric scores its rows, even if that failed.
        complete: whether the same command would measure no more.
    """

    group: str
    baseline: str | None
    restarts: int
    control_holds: bool | None
    aim: Aim
    most_restarts: int
    restart_s: float
    rows: Sequence[Row]
    compare: Callable[[str, str], Comparison | None]
    restarts_needed: Callable[[str, str], int | None]
    unvouched: str | None
    withheld: Callable[[str], str | None]
    again: Callable[[Sequence[str]], Sequence[tuple[str, str]]]
    command: str = ""
    has_policy: bool = False
    run: str = "RUN"
    on: str = ""
    named: Sequence[str] = ()
    given: Mapping[str, Any] = field(default_factory=dict)
    is_scored: bool = False
    complete: bool = True

    @property
    def goes_on(self) -> bool:
        """Return True if the same command, given more time, goes on until the fastest arm is known."""
        return _goes_on(self.aim, complete=self.complete)

    @property
    def more_time(self) -> str:
        """Return the time that is proposed for more of it; see `more_time`."""
        return more_time(self.rows)

    def resume(self, time: str) -> str | None:
        """Return the command that goes on with the run for so long; None if that isn't known."""
        return resume(self.command, self.run, time, on=self.on)

    def read_by(self, command: str, *options: str) -> str:
        """Return a command that reads the run, and names this cell if the run has several answers."""
        named = [reproduce.quote(self.named)] if self.named else []
        return " ".join([f"shootout {command} {self.run}", *named, *options])

    def ship(self, *options: str) -> str:
        """Return the command that ships from this cell into a folder that doesn't exist yet."""
        return self.read_by("ship", *options, f"-o {reproduce.name_free(FOLDER)}")

    def admits(self, row: Row) -> Admitted | None:
        """Return why a row may be shipped without a word about its error; None: it may not."""
        if is_plain(row):
            return "fp32"
        metric = row.fidelity.metric if row.fidelity else None
        if metric is None or metric.standing is not Standing.MET:
            return None
        plain = {one.arm for one in self.rows if is_plain(one)}
        return "metric" if metric.limits != "drop" or (metric.change and metric.change.against in plain) else None

    def judged(self, arm: str, other: str) -> Comparison | None:
        """Return the first one's time ÷ the other's, without a verdict where none stands."""
        found = self.compare(arm, other)
        return replace(found, verdict=Verdict.CANT_TELL) if found and self.unvouched else found

    def ratio(self, arm: str, other: str) -> Ratio | None:
        """Return the same, as the document shows it."""
        found = self.compare(arm, other)
        if found is None:
            return None
        return ratio_of(found, self.unvouched or self.withheld(arm) or self.withheld(other))


def resume(command: str, run: str, time: str, *, on: str = "") -> str | None:
    """Return the command that goes on with a run for so long; None if that isn't known.

    Args:
        command, run, on: see `Cell`.
        time: "" for as long as the run takes by itself.
    """
    out = run
    if on:  # a host's part lies in the folder of the whole run
        out = reproduce.quote([str(Path(*shlex.split(out)).parent)])
    return " ".join([command, "--out", out, *_limit_words(time)]) if command else None


def _limit_words(time: str) -> list[str]:
    return ["--max-time", time] if time else []


def _run_s(builds_s: float, race_s: float) -> float:
    """Return the seconds of a run whose builds end in their share of it, and which has so much left for the race."""
    return max(builds_s / BUILD_SHARE, builds_s + race_s)


def _goes_on(aim: Aim, *, complete: bool) -> bool:
    return not complete and aim == "best"


def is_plain(row: Row) -> bool:
    """Tell whether it is the model as it is, in FP32 or the file's own precisions, its error known to be in the error
    bound.
    """
    is_met = row.fidelity is None or row.fidelity.standing == "met"
    return is_met and is_exact(row.precision, row.scheme, row.file)


def is_near(ratio: Ratio | None) -> bool:
    """Tell whether the ratio measured is within the indifference, whatever its interval."""
    return ratio is not None and 1 / (1 + INDIFFERENT) <= ratio.value <= 1 + INDIFFERENT


def make_cells(
    groups: Sequence[Group],
    summaries: Sequence[GroupSummary],
    rows: Sequence[Row],
    *,
    complete: bool,
    given: Mapping[str, Any] = MappingProxyType({}),
    base: Path | None = None,
    command: str = "",
    has_policy: bool = False,
    run: str = "RUN",
    on: str = "",
) -> Iterator[tuple[str, Cell]]:
    """Yield each group whose figures count: not those that select settings.

    Args:
        given, command, has_policy, run, on: see `Cell`.
        base: the folder from which the arms and `given` name files; None: the current one.
    """
    counting = [(group, summary) for group, summary in zip(groups, summaries, strict=True) if not summary.selects]
    for group, summary in counting:
        mine = [row for row in rows if row.group in (summary.name, summary.confirms)]
        cell = _make_cell(group, summary, mine, complete=complete)
        again = partial(_race_again_options, group, given, base)
        named = ("--group", summary.name) if len(counting) > 1 else ()
        told = replace(cell, given=given, command=command, has_policy=has_policy, run=run, on=on)
        yield summary.name, replace(told, again=again, named=named)


def _make_cell(group: Group, summary: GroupSummary, rows: Sequence[Row], *, complete: bool) -> Cell:
    known, rules = group.evidence("end_to_end"), group.rules
    aim = rules.goal.aim
    # two arms alone have α to themselves
    ahead = known if _goes_on(aim, complete=complete) else replace(known, rules=replace(rules, comparisons=1))

    def needed(one: str, other: str) -> int | None:
        found = ahead.compare_rivals(one, other)
        if found is None:
            return None
        return found.restarts if found.decided else found.restarts_needed

    return Cell(
        group=summary.name,
        baseline=summary.baseline,
        restarts=summary.restarts,
        control_holds=summary.control.holds if summary.control.ratio else None,
        aim=aim,
        most_restarts=rules.max_restarts if aim != "baseline" else MAX_RESTARTS_IN_TIME,
        restart_s=group.rounds[-1].lasting_s if group.rounds else 0.0,
        rows=rows,
        compare=known.compare_rivals,
        restarts_needed=needed,
        unvouched=unvouched(group),
        withheld=lambda label: unfit_for(group, label),
        again=partial(_race_again_options, group, {}, None),
        is_scored=any(line.scores for line in group.checked.values()),
        complete=complete,
    )


def _race_again_options(
    group: Group, given: Mapping[str, Any], base: Path | None, labels: Sequence[str]
) -> Sequence[tuple[str, str]]:
    arms = {arm.label: arm for arm in group.record.arms}
    found = reproduce.options([arms[label] for label in labels], given)
    return [(name, reproduce.relocate_value(name, value, base)) for name, value in found]


FOLDER = "model-1"
"""The folder that a suggested `ship` makes; the next free number if it exists."""


UNJUDGED = "no target's error could be checked against its error bound: random inputs are too insensitive here"


UNCHECKED = "its outputs were compared with no error bound"


UNSCORED = "the metric gave no scores: why is below"


AS_SMALL = 1.05
"""Artifacts within 5 % of the smallest count as equally small."""


AS_SOON, AS_SOON_S = 1.2, 0.05
"""Arms that are ready within 20 %, or 50 ms, of the soonest count as ready equally soon."""


def choose(cell: Cell) -> Answer:
    """Return the cell's answer; without one to ship where nothing sound is measured, or the control shows a bias."""
    mine = [row for row in cell.rows if row.group == cell.group]
    measured = [row for row in mine if row.end_to_end]
    faults = {row.arm: why for row in measured if (why := find_fault(cell, row))}
    never_held = {row.arm: row.reason or "" for row in mine if row.serve and not row.end_to_end}
    told: dict[str, Any] = {"group": cell.group, "not_raced": _group_not_raced(cell, measured)}
    sure = Sure(restarts=cell.restarts, control_holds=cell.control_holds)
    told_of = {**faults, **never_held}
    more = None if cell.complete else cell.resume(cell.more_time)
    unsound = [Passed(arm=arm, because="unsound", against=None, ratio=None, reason=why) for arm, why in told_of.items()]
    if not any(row.outcome == "measured" for row in measured):
        return Answer(**told, ship=None, reason="nothing was timed", sure=sure, passed=tuple(unsound), next=more)
    if cell.unvouched and cell.control_holds is False:
        return Answer(**told, ship=None, reason=cell.unvouched, sure=sure, next=_command_again(cell))
    sound = [row for row in measured if row.arm not in faults]
    if sound:
        return _make_answer(cell, sound, unsound, told, sure)
    why = next(iter(faults.values()))
    if unsteady := [row for row in measured if faults[row.arm] == cell.withheld(row.arm)]:
        others = [one for one in unsound if one.arm not in {row.arm for row in unsteady}]
        return _make_answer(replace(cell, unvouched=cell.unvouched or why), unsteady, others, told, sure)
    return Answer(**told, ship=None, reason=why, sure=sure, passed=tuple(unsound), next=more)


def _make_answer(
    cell: Cell, sound: Sequence[Row], unsound: Sequence[Passed], told: dict[str, Any], sure: Sure
) -> Answer:
    kept = [row for row in sound if cell.admits(row)] or [row for row in sound if row.is_judged]
    if not kept:
        more = None if cell.complete else cell.resume(cell.more_time)
        return Answer(**told, ship=None, reason=UNJUDGED, sure=sure, passed=tuple(unsound), next=more)
    shipped, chosen_by, lost_to = _choose_leader(cell, kept)
    rivals = _ratios_to(cell, sound, shipped)
    if chosen_by and (cell.unvouched or find_untold(rivals.values())):  # the fastest so far, and not the smallest
        shipped, chosen_by, lost_to = _choose_leader(cell, kept, by_time=True)
        rivals = _ratios_to(cell, sound, shipped)
    may_be = [row for row in kept if row is not shipped and row.arm not in lost_to and not _is_slower(rivals[row.arm])]
    tied = [Rival(arm=row.arm, ratio=rivals[row.arm]) for row in may_be if is_near(rivals[row.arm])]
    unsettled = [Rival(arm=row.arm, ratio=rivals[row.arm]) for row in may_be if not is_near(rivals[row.arm])]
    others = [row for row in sound if row is not shipped and row not in may_be]
    beaten = [Rival(arm=row.arm, ratio=rivals[row.arm]) for row in kept if _is_slower(rivals.get(row.arm))]
    closest = min(beaten, key=_ratio_value, default=None)
    sure = sure.model_copy(update={"slower": len(beaten), "closest": closest})
    reason = cell.unvouched or find_untold(rivals.values())
    usual = find_usual(sound, shipped, cell.baseline)
    passed = [_describe_passed(cell, row, shipped, rivals[row.arm], lost_to.get(row.arm)) for row in others]
    is_over = reason is None and (bool(rivals) or cell.complete)
    no_folder = why_no_folder(shipped) or None if is_over else None
    instead = _find_instead(kept, rivals) if no_folder else None
    return Answer(
        **told,
        ship=describe_shipped(shipped, cell),
        reason=reason,
        alone=not rivals and not unsound,
        otherwise=Rival(arm=usual.arm, ratio=rivals[usual.arm]) if usual else None,
        eligible=tuple(row.arm for row in kept),
        tied=tuple(sorted(tied, key=_ratio_value)),
        chosen_by=chosen_by,
        unsettled=tuple(sorted(unsettled, key=_ratio_value)),
        sure=_add_nearest(cell, sure, shipped.arm, [*tied, *unsettled]),
        passed=(*sorted(passed, key=_ratio_value), *unsound),
        would_change=tuple(_changes_by_error_limit(cell, shipped, sound, rivals)),
        smaller=_smaller_steps(cell, shipped, sound, rivals),
        no_gain=tuple(_list_no_gains(cell, sound)),
        next=_next_command(cell, shipped, instead, is_over=is_over),
        no_folder=no_folder,
        instead=instead,
        elsewhere=_command_elsewhere(cell, shipped) if is_over else None,
    )


def why_no_folder(row: Row) -> str:
    """Return why `shootout ship` can't write a folder of what a row measured; "" if it can."""
    if why := find_scenario(row.scenario).unshippable:
        return why

    why = registered.why_row_unshippable(row.backend, row.device, name_model(row.model))
    return f"{why}; {_tell_how_measured(row)}" if why and registered.reads_own_files(row.backend) else why


def _tell_how_measured(row: Row) -> str:
    """Tell the batch, the version and the threads that a library's time holds for: a copied file tells none of them."""

    package = next(iter(backends.entry(row.backend).installs.get("") or ()), row.backend).rpartition("|")[2]
    version = (row.executed or {}).get("version")
    pinned = f"{package}=={version}" if version else package
    return f"at batch {row.batch} it was measured with {pinned} and {tell_threads([row.threads])}"


def _find_instead(kept: Iterable[Row], rivals: Mapping[str, Ratio | None]) -> Rival | None:
    """Return the fastest of the rows that may be shipped and can be put into a folder."""
    able = [row for row in kept if row.arm in rivals and not why_no_folder(row)]
    found = min(able, key=lambda row: _timing_of(row).median_ns, default=None)
    return Rival(arm=found.arm, ratio=rivals[found.arm]) if found else None


def add_ship_ratios(cells: Mapping[str, Cell], answers: Iterable[Answer], rows: Iterable[Row]) -> list[Row]:
    """Return the rows with their ratios to what is shipped in their group."""
    ships = {answer.group: answer.ship.arm for answer in answers if answer.ship}
    found = []
    for row in rows:
        ship, timing = ships.get(row.group), row.end_to_end
        if ship and timing and row.arm != ship:
            ratio = cells[row.group].ratio(row.arm, ship)
            row = row.model_copy(update={"end_to_end": timing.model_copy(update={"ship_ratio": ratio})})
        found.append(row)
    return found


def find_usual(rows: Iterable[Row], shipped: Row, baseline: str | None) -> Row | None:
    """Return the row that one would take otherwise: the library that wrote the file, the fastest of the usual
    backends, or else the baseline.

    Args:
        rows: those with a sound time.
        baseline: the arm; None if there is none.
    """

    names = USUAL.get(shipped.device, USUAL["cpu"])
    others = [row for row in rows if row.arm != shipped.arm and row.end_to_end]
    usual = [row for row in others if registered.reads_own_files(row.backend)]
    usual = usual or [row for row in others if row.backend in names and row.device == shipped.device and is_plain(row)]
    usual = usual or [row for row in others if row.arm == baseline]
    return min(usual, key=lambda row: _timing_of(row).median_ns, default=None)


def _next_command(cell: Cell, shipped: Row, instead: Rival | None, *, is_over: bool) -> str | None:
    """Return the command that comes next; None if nothing can be shipped.

    Args:
        instead: what is shipped in place of it.
        is_over: whether there is no more to measure first.
    """
    if not is_over:
        is_open = not cell.complete and cell.control_holds is not False
        return cell.resume(cell.more_time) if is_open else _command_again(cell)
    if find_scenario(shipped.scenario).varies:
        return _race_one_size(cell, [row.arm for row in cell.rows if row.group == cell.group and row.end_to_end])
    if not cell.admits(shipped) and not is_exact(shipped.precision, shipped.scheme, shipped.file):
        return _command_to_measure(cell, [shipped.arm], shipped) or _command_to_accept(cell, shipped)
    if not instead and why_no_folder(shipped):
        return None
    if shipped.threads == 0:  # nor can a number of threads that isn't set
        count = str((shipped.executed or {}).get("threads") or 1)
        options = [(flag, count if flag == "--threads" else value) for flag, value in cell.again([shipped.arm])]
        return f"shootout run {reproduce.join(options)}"
    target = ["--target", reproduce.quote([short(instead.arm)])] if instead else []
    return cell.ship(*target, *(["--on", reproduce.quote([cell.on])] if cell.on else []))


def _race_one_size(cell: Cell, arms: Sequence[str]) -> str:
    """Return the command that races arms at the one size of their rows, the largest where it varies."""
    options = reproduce.at_one_size(cell.again(arms))
    return f"shootout run {reproduce.join(options)}"


def _command_elsewhere(cell: Cell, shipped: Row) -> str | None:
    """Return the command that races the shipped one of several files on every other runtime; None for one file.

    Such a run races the files on what reads ONNX itself, which leaves the other runtimes out.
    """
    if len({row.model for row in cell.rows}) < 2:
        return None
    options = [(name, value) for name, value in cell.again([shipped.arm]) if name != "--backends"]
    return f"shootout run {reproduce.join(options)}"


def _command_again(cell: Cell) -> str | None:
    """Return the command that measures the same in a new run; None if that isn't known."""
    return " ".join([cell.command, *_limit_words(cell.more_time)]) if cell.command else None


MARGIN_OF_BUILDS = 1.5
"""A build may take so many times what is expected: a rule of thumb knows neither the model nor the load."""
LEAST_OF_STOPPED = 2.0
"""A build that was stopped takes so many times what it had, at least."""
_STOPPED = re.compile(r"'build' was stopped after ([\d,]+) s")


def more_time(rows: Sequence[Row]) -> str:
    """Return the time that is proposed for more of a run; "" where a number of restarts shares a time of its own.

    Args:
        rows: of the run, or of one cell.
    """
    if any(find_scenario(row.scenario).restarts for row in rows[:1]):
        return ""
    return write_minutes(max(read_seconds("", reproduce.MORE_TIME), _run_s(waiting_builds_s(rows), RACING_S)))


def write_minutes(seconds: float) -> str:
    """Write a time for `--max-time`, in whole minutes."""
    return f"{max(math.ceil(seconds / 60), 1)}m"


def waiting_builds_s(rows: Sequence[Row]) -> float:
    """Return the seconds that the builds take which a run had no time for, one after another, with a margin.

    A machine that took longer than expected for the others takes as much longer for these.
    """
    late = [row for row in rows if row.cause is NotRunKind.NOT_REACHED and row.build_s is None and not _has_played(row)]
    if not late:
        return 0.0
    weights = max((row.artifact_bytes or 0 for row in rows), default=0)
    made = [(row.build_s, _expect_build_s(row, weights)) for row in rows if row.build_s and not row.build_cached]
    slower = max(sum(took for took, _ in made) / sum(known for _, known in made), 1.0) if made else 1.0
    return sum(max(MARGIN_OF_BUILDS * slower * _expect_build_s(row, weights), _least_build_s(row)) for row in late)


def _expect_build_s(row: Row, weight_bytes: int) -> float:

    name, _, mode = row.backend.partition("+")
    return backends.entry(name).expect_build_s(mode, row.precision, weight_bytes) if name in backends.names() else 0.0


def _least_build_s(row: Row) -> float:
    """Return the least seconds of a build by what stopped it; 0 if nothing did."""
    stopped = _STOPPED.search(row.reason or "")
    return LEAST_OF_STOPPED * float(stopped[1].replace(",", "")) if stopped else 0.0


def _ratios_to(cell: Cell, rows: Iterable[Row], shipped: Row) -> dict[str, Ratio | None]:
    return {row.arm: cell.ratio(row.arm, shipped.arm) for row in rows if row is not shipped}


def find_untold(rivals: Collection[Comparison | None]) -> str | None:
    """Return why a first place is only the best so far, by how the others compare with it: no interval has an end."""
    if not rivals or any(ratio and (ratio.low or ratio.high) for ratio in rivals):
        return None
    most = max(ratio.restarts if ratio else 0 for ratio in rivals)
    return f"nothing is distinguished after {counted(most, 'restart')}"


def find_fault(cell: Cell, row: Row) -> str | None:
    """Return why a row's time is no ground to ship it; None where it is one."""
    if row.reason and row.cause is not NotRunKind.NOT_REACHED:  # what it measured in time counts
        return f"failed: {row.reason}" if row.outcome == "failed" else row.reason
    return cell.withheld(row.arm) or _broken_limit(row)


def _broken_limit(row: Row) -> str | None:
    if row.serve is None or row.serve.holds:
        return None
    if row.serve.holds is None:
        return "whether its p99 holds the limit isn't known: too few restarts, or too busy a machine"
    if row.serve.searched:
        return "in half of the restarts or more, no rate that was tried held the limit on p99"
    return "its p99 breaks the limit"


def _choose_leader(
    cell: Cell, rows: Sequence[Row], *, by_time: bool = False
) -> tuple[Row, tuple[Chosen, ...], Mapping[str, str]]:
    """Return the row to ship, what chose it among the leaders, and which other arm lost to which leader."""
    found = find_leader(
        rows,
        order_times(rows, cell.baseline),
        cell.judged,
        lambda one, other: is_near(cell.ratio(one, other)),
        by_time=by_time,
    )
    return found.row, found.chosen_by, found.leaders.beaten


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """The row that a rule chose among the leaders, and by what."""

    row: Row
    chosen_by: tuple[Chosen, ...]
    leaders: Leaders


def find_leader(
    rows: Sequence[Row],
    times: Mapping[str, float],
    judged: Compare,
    near: Callable[[str, str], bool],
    *,
    by_time: bool = False,
) -> Led:
    """Find the row to ship: of those that none beats and that are near the best the smaller, then the sooner.

    Args:
        times: by arm, what is to be least.
        judged: how two of them compare.
        near: whether two measured within the indifference.
        by_time: the best, however near others are.
    """
    leaders = find_leaders(times, judged)
    by_arm = {row.arm: row for row in rows}
    close = [arm for arm in leaders.tied if arm == leaders.fastest or near(arm, leaders.fastest)]
    if by_time:
        close = [leaders.fastest]
    size, sizes = find_sizes([by_arm[arm] for arm in close])
    starts_s = [usual_start_s(by_arm[arm]) for arm in close]
    is_small, is_soon = narrow_tie(np.ones(len(close), dtype=np.bool_), np.array(sizes), np.array(starts_s))
    small, soon = ([arm for arm, fits in zip(close, kept, strict=True) if fits] for kept in (is_small, is_soon))
    decided: dict[Chosen, bool] = {
        size: len(small) < len(close),
        "shorter start": len(soon) < len(small),
        "lower time": len(soon) > 1,
    }
    # the leaders come in the order of their times
    return Led(row=by_arm[soon[0]], chosen_by=tuple(how for how, did in decided.items() if did), leaders=leaders)


def narrow_tie(near: Array, sizes: Array, starts_s: Array) -> tuple[Array, Array]:
    """Narrow arms that may be equally good down to the smallest, and these to those that are ready soonest.

    Args:
        near: whether an arm is as good as the best, shape (arms,) or (arms, draws).
        sizes, starts_s: see `find_sizes` and `usual_start_s`; shapes that broadcast to that of `near`.

    Returns:
        Two masks like `near`: as small as the smallest; of these, ready as soon as the soonest.
    """
    small = near & (sizes <= AS_SMALL * np.where(near, sizes, np.inf).min(axis=0))
    soonest = np.where(small, starts_s, np.inf).min(axis=0)
    return small, small & (starts_s <= np.maximum(AS_SOON * soonest, soonest + AS_SOON_S))


def usual_start_s(row: Row) -> float:
    """Return the seconds until a row is usually ready: context, load and first call, the medians.

    The slowest start grows with the number of restarts, which isn't the same for all.
    """
    context_s = row.gpu.context_s if row.gpu else None
    return sum(seconds or 0.0 for seconds in (context_s, row.load_s, row.first_call_s))


def find_sizes(rows: Sequence[Row]) -> tuple[Chosen, list[int]]:
    """Return what each row takes where it runs, and what the smaller is called.

    It is the artifact and the packages that run it, or the artifact alone if the packages aren't known of all.
    """
    artifacts, packages = ([getattr(row, name) for row in rows] for name in ("artifact_bytes", "install_bytes"))
    if None in packages:
        return "smaller artifact", [count or 0 for count in artifacts]
    return "smaller install", [(one or 0) + other for one, other in zip(artifacts, packages, strict=True)]


def order_times(rows: Sequence[Row], baseline: str | None) -> dict[str, float]:
    """Return what orders the rows: ratios to the baseline, which come from shared restarts, or else medians."""
    timed = {row.arm: _timing_of(row) for row in rows}
    ratios = {arm: timing.ratio.value for arm, timing in timed.items() if timing.ratio}
    if set(timed) - set(ratios) <= {baseline}:
        return {arm: ratios.get(arm, 1.0) for arm in timed}
    return {arm: timing.median_ns for arm, timing in timed.items()}


def describe_shipped(row: Row, cell: Cell) -> Shipped:
    """Return what an answer says of the row that it ships."""
    fidelity, timing = row.fidelity, _timing_of(row)
    return Shipped(
        arm=row.arm,
        admitted=cell.admits(row) or "alone",
        median_ns=timing.median_ns,
        ratio=None if row.arm == cell.baseline else timing.ratio,
        artifact_bytes=row.artifact_bytes,
        ready_s=row.ready_s,
        relative_l2=fidelity.relative_l2 if fidelity else None,
        metric=fidelity.metric if fidelity else None,
    )


def _describe_passed(cell: Cell, row: Row, shipped: Row, ratio: Ratio | None, lost_to: str | None) -> Passed:
    """Return why a sound row is not to be shipped: it is slower, or not known to keep the model."""
    if lost_to and not _is_slower(ratio):
        return Passed(arm=row.arm, because="slower", against=lost_to, ratio=cell.ratio(row.arm, lost_to))
    because: Literal["slower", "accuracy"] = "slower" if _is_slower(ratio) else "accuracy"
    reason = _why_unknown(cell, row) if because == "accuracy" else None
    return Passed(arm=row.arm, because=because, against=shipped.arm, ratio=ratio, reason=reason, **_quality_of(row))


def _why_unknown(cell: Cell, row: Row) -> str | None:
    """Return why nothing tells whether a row keeps the model, if that is more than a want of labels."""
    if cell.is_scored and not (row.fidelity and row.fidelity.metric):
        return UNSCORED
    return None if row.is_judged else UNCHECKED


def _add_nearest(cell: Cell, sure: Sure, shipped: str, open_: Iterable[Rival]) -> Sure:
    """Add the open rival that is closest to the shipped arm in time, and what would distinguish the two.

    A far slower one often takes fewer restarts, but leaves the question open which of the fastest to ship.
    """
    unsure = [one.arm for one in open_ if one.ratio is None or one.ratio.verdict is Verdict.CANT_TELL]
    found = {arm: ratio for arm in unsure if (ratio := cell.ratio(arm, shipped))}
    if not found:
        return sure
    arm = min(found, key=lambda arm: abs(math.log(found[arm].value)))
    needed, row = cell.restarts_needed(arm, shipped), next(row for row in cell.rows if row.arm == arm)
    command = _command_to_settle(cell, shipped, row, found[arm].restarts, needed)
    return sure.model_copy(update={"nearest": arm, "restarts_needed": needed, "command": command})


def _command_to_settle(cell: Cell, shipped: str, rival: Row, played: int, needed: int | None) -> str | None:
    """Return the command that goes on, or races the two alone for the better one; None if neither would tell."""
    if needed is None or needed > cell.most_restarts:
        return None
    left = max(needed - played, 1) if cell.goes_on else needed
    builds_s = waiting_builds_s(cell.rows) if cell.goes_on else 0.0
    time = write_minutes(_run_s(builds_s, left * cell.restart_s))
    if cell.goes_on:
        return cell.resume(time)
    if rival.setting:
        return None  # the other race chooses settings of its own
    return f"shootout run {reproduce.join(cell.again([shipped, rival.arm]))} --goal best --max-time {time}"


def _changes_by_error_limit(
    cell: Cell, shipped: Row, sound: Sequence[Row], rivals: Mapping[str, Ratio | None]
) -> Iterable[WouldChange]:
    """Yield the rows that would be shipped under a looser or a tighter limit on the error."""
    plain = [row for row in sound if is_plain(row)]
    if cell.admits(shipped) == "metric" and plain:
        row, _, _ = _choose_leader(cell, plain)
        yield WouldChange(when="tighter", arm=row.arm, ratio=rivals[row.arm], **_quality_of(row))
    if cell.admits(shipped):
        others = [row for row in sound if not cell.admits(row) and is_faster(rivals.get(row.arm))]
        for row in sorted(others, key=lambda row: _ratio_value(Rival(arm=row.arm, ratio=rivals[row.arm]))):
            yield describe_refused(cell, row, rivals[row.arm], [shipped.arm, row.arm])


def describe_refused(cell: Cell, row: Row, ratio: Ratio | None, arms: Sequence[str]) -> WouldChange:
    """Describe a row that would be shipped if its error were accepted.

    Args:
        ratio: its time ÷ the shipped one's.
        arms: those of the cell that a run to measure its accuracy would race.
    """
    measure, metric = _command_to_measure(cell, arms, row), row.fidelity.metric if row.fidelity else None
    loses = metric is not None and metric.standing is Standing.BROKEN
    may_lose = loses or _exceeds_limit(metric)
    return WouldChange(
        when="looser",
        arm=row.arm,
        ratio=ratio,
        why=_tell_refusal(cell, row, is_measurable=measure is not None),
        measure=measure,
        accept=_command_to_accept(cell, row),
        explain=_command_to_explain(cell, row) if loses else None,
        mix=_command_to_mix(cell, row) if may_lose else None,
        **_quality_of(row),
    )


def _tell_refusal(cell: Cell, row: Row, *, is_measurable: bool) -> str:
    """Tell why a row may not be shipped: what it lost and the limit, or that nothing tells what it lost."""
    fidelity = row.fidelity
    if fidelity and (metric := fidelity.metric):
        return ", ".join(filter(None, [tell_metric_limit(metric), tell_lost_part(metric)]))
    if unknown := _why_unknown(cell, row):
        return unknown
    return NO_LABELS if is_measurable else RANDOM_INPUTS


def is_faster(ratio: Ratio | None) -> bool:
    """Tell whether a row is significantly faster, or looks faster by more than is indifferent."""
    if ratio is None or ratio.reason:
        return False
    return ratio.verdict is Verdict.FASTER or (
        ratio.verdict is Verdict.CANT_TELL and ratio.value < 1 / (1 + INDIFFERENT)
    )


def _command_to_measure(cell: Cell, arms: Sequence[str], row: Row) -> str | None:
    """Return the command that measures a row's accuracy; None of a model that draws its own inputs, or with a metric.

    More rows of labels are for the user to find: there is no command for a row whose accuracy is known too roughly.
    """

    fidelity = row.fidelity
    if fidelity is None or cell.is_scored or row.model in models.names():
        return None
    is_of_several = find_scenario(row.scenario).varies or (cell.named and row.parameters)
    told = _race_one_size(cell, arms) if is_of_several or not cell.command else cell.command
    needed = {"inputs": "X.npz", "labels": "Y.npz"}
    if fidelity.top1_agreement is None:  # its first output holds no classes' scores
        needed = {"inputs": "X.npz", "truth": "Y.npz", "metric": "auto"}
    if steps := fidelity.by_step:
        needed = {"stream": str(steps[-1].step), **needed}
    return " ".join([told, *(f"--{name} {file}" for name, file in needed.items() if name not in cell.given)])


def _command_to_explain(cell: Cell, row: Row) -> str | None:
    """Return the command that holds a row beside its own FP32 layer by layer; None if nothing can look into it."""
    if row.device != Device.CPU or find_scenario(row.scenario).unexplainable:
        return None

    if not registered.shows_inside(row.backend):
        return None
    if any(one.model == row.model and registered.reads_own_files(one.backend) for one in cell.rows):
        return None  # a converted file has no products, whose layers could be compared
    return cell.read_by("explain", reproduce.quote([short(row.arm)]))


ANY_LAYER = "float-0"
"""A word of a scheme by which `shootout tune` leaves a layer in float."""


def _command_to_mix(cell: Cell, row: Row) -> str | None:
    """Return the command that searches for layers to leave in float, so that a row keeps the limit; None for others."""
    metric = row.fidelity.metric if row.fidelity else None
    if row.device != Device.CPU or not find_scenario(row.scenario).is_one_call:  # else --backends must name the device
        return None
    if row.precision not in INTEGERS or (metric and metric.limits == "agreement"):
        return None

    if not registered.offers(row.backend, Precision(row.precision), ANY_LAYER):
        return None
    if not reproduce.numbers_layers(row.model, backends.capabilities(row.backend).consumes):
        return None
    scored = (one.fidelity.metric.rows for one in cell.rows if one.fidelity and one.fidelity.metric)
    limit = ask_drop(next(scored, 0))
    return reproduce.search_mix(cell.again([row.arm]), row.backend, row.precision, ("--max-drop", limit))


def _exceeds_limit(metric: Metric | None) -> bool:
    """Tell whether the loss that was measured is above the limit, whatever its interval."""
    if metric is None or metric.change is None or metric.limit is None or metric.limits != "drop":
        return False
    return (metric.change.value if metric.lower_is_better else -metric.change.value) > metric.limit


def _command_to_accept(cell: Cell, row: Row) -> str | None:
    """Return the command that accepts what a row is known to lose; None if nothing is known, or can be shipped."""
    objective = []
    if find_scenario(row.scenario).objective == "rate" or (row.serve and row.serve.searched):
        objective = ["--objective rate"]
    elif not find_scenario(row.scenario).is_one_call:  # a step can't be shipped, and a given rate needs a load
        return None
    option = option_to_accept(row, [one for one in cell.rows if one.group == row.group])
    return cell.read_by("decide", *objective, option) if option else None


def option_to_accept(row: Row, among: Iterable[Row] = ()) -> str | None:
    """Return the option of `decide` that accepts what a row is known to lose; None if nothing is known.

    Args:
        among: rows whose losses `decide` judges beside it.
    """
    fidelity = row.fidelity
    if fidelity is None:
        return None
    if fidelity.metric:
        if _is_agreement(fidelity.metric):
            return _accept_agreement(row, among)
        is_drop = fidelity.metric.limits != "agreement" and fidelity.metric.change is not None
        drop = _find_smallest_drop(row, among) if is_drop else None
        return f"--max-drop {drop}" if drop else None
    if not fidelity.relative_l2 or not row.is_judged:  # nothing says what this error is worth
        return None
    return f"--max-error {round_limit(fidelity.relative_l2)}"


def _find_smallest_drop(row: Row, among: Iterable[Row]) -> str | None:
    """Return the smallest limit of two digits by which `decide` accepts a row's loss; None if nothing is lost.

    Losses of several targets share the chance of an error step by step, so that an interval there may be wider than in
    the run. So few rows as may hide a rare failure show a larger limit alone.

    Args:
        among: see `option_to_accept`.
    """
    mine = _list_losses(row)
    every = [mine, *(losses for one in among if one.arm != row.arm and (losses := _list_losses(one)))]
    if _bound_loss(mine, 1) <= 0:
        return None
    bounds = (_bound_loss(mine, count) for count in range(1, len(every) + 1))
    limit = next(limit for bound in bounds if _is_kept_by_first(every, limit := float(round_limit(bound))))
    metric = row.fidelity.metric if row.fidelity else None
    while (
        metric
        and not _is_agreement(metric)
        and any(_hides_failure(one, limit) for one in (metric, *metric.other_outputs))
    ):
        limit = float(round_limit(math.nextafter(limit, math.inf)))
    return round_limit(limit)


TINY = 1e-12
"""A limit is this far from a bound, so that what is computed in another order meets it all the same."""


def _list_losses(row: Row) -> list[tuple[float, float]]:
    """List of each output's loss the middle of its 95 % interval, and how far that reaches; none if unknown.

    Of an agreement with FP32's own outputs, it is what lacks to all of it; plain FP32 itself lacks nothing.
    """
    fidelity = row.fidelity
    if fidelity and (metric := fidelity.metric):
        if _is_agreement(metric):
            outputs = () if is_plain(row) else (metric, *metric.other_outputs)
            ends = [(one.low, one.high) for one in outputs if one.low is not None and one.high is not None]
            return [(1 - (low + high) / 2, (high - low) / 2 + TINY) for low, high in ends]
        sign = 1.0 if metric.lower_is_better else -1.0
        changes = [one.change for one in (metric, *metric.other_outputs) if one.change]
        return [(sign * (one.low + one.high) / 2, (one.high - one.low) / 2) for one in changes]
    return []


def _bound_loss(losses: Sequence[tuple[float, float]], count: int) -> float:
    """Return the upper bound of the worst loss if so many share the chance of an error."""
    widening = quantile_of(1 - ALPHA / count) / quantile_of(1 - ALPHA)
    return max((middle + reach * widening for middle, reach in losses), default=0.0)


def _is_kept_by_first(every: Sequence[Sequence[tuple[float, float]]], limit: float) -> bool:
    """Return whether the first keeps a limit, if losses that keep it leave the others their share."""
    left = [*range(len(every))]
    while kept := [at for at in left if _bound_loss(every[at], len(left)) <= limit]:
        if 0 in kept:
            return True
        left = [at for at in left if at not in kept]
    return False


def _hides_failure(metric: Metric, limit: float) -> bool:
    """Return whether the rows are so few that a rare failure beyond a limit may be in none of them."""
    if metric.worst is None or metric.change is None:
        return False
    loss = metric.change.value if metric.lower_is_better else -metric.change.value
    return loss < limit and metric.rows < count_rows_for_rare(metric.worst, limit, loss)


def _is_agreement(metric: Metric) -> bool:
    """Return whether a metric says how far outputs agree with FP32's own, of which more is better."""
    return metric.against == "outputs" and not metric.lower_is_better


def _accept_agreement(row: Row, among: Iterable[Row]) -> str | None:
    """Return the option that accepts how little the outputs agree with FP32's, by the rule of `decide`."""
    metric = row.fidelity.metric if row.fidelity else None
    if metric is None or any(None in (one.low, one.high) for one in (metric, *metric.other_outputs)):
        return None
    lacks = float(_find_smallest_drop(row, among) or 0.0)
    return f"--min-agreement {100 * (1 - lacks):.10g}%" if lacks < 1 else None


def _smaller_steps(
    cell: Cell, shipped: Row, sound: Sequence[Row], rivals: Mapping[str, Ratio | None]
) -> tuple[SmallerStep, ...]:
    """Return the rows of known error below the shipped one's size that nothing as small beats in time.

    Only a cell that compares precisions has any.
    """
    if not any(_timing_of(row).own_fp32_ratio for row in sound):
        return ()
    steps, least = [], shipped.artifact_bytes or 0
    known = [row for row in sound if row.is_judged or cell.admits(row)]
    for row in sorted(known, key=lambda row: _timing_of(row).median_ns):
        if row is not shipped and 0 < (row.artifact_bytes or 0) < least / AS_SMALL:
            least = row.artifact_bytes or 0
            steps.append(SmallerStep(arm=row.arm, artifact_bytes=least, ratio=rivals[row.arm], **_quality_of(row)))
    return tuple(steps)


def _list_no_gains(cell: Cell, sound: Sequence[Row]) -> Iterator[NoGain]:
    """List the rows that are known not to be faster than their own backend's FP32, the fastest first."""
    for row in sorted(sound, key=lambda row: _timing_of(row).median_ns):
        if row.why and row.why.ratio.verdict in (Verdict.SLOWER, Verdict.SAME):
            yield NoGain(arm=row.arm, why=row.why, explain=_command_to_explain(cell, row))


def _group_not_raced(cell: Cell, measured: Sequence[Row]) -> tuple[NotRaced, ...]:
    """Return arms without a time, by reason; a target that has one in another setting is none of them.

    The fix of one whose outputs were refused is to find the layer.
    """
    ran = {family(row.arm) for row in measured}
    why: dict[tuple[NotRunKind, str, str | None, str | None], list[str]] = {}
    for row in cell.rows:
        if row.outcome != "measured" and not _has_played(row) and (not row.setting or family(row.arm) not in ran):
            is_refused = row.fidelity is not None and row.fidelity.standing == "refused"
            fix = _command_to_explain(cell, row) if is_refused else row.fix
            mix = _command_to_mix(cell, row) if is_refused and cell.is_scored else None
            why.setdefault((row.cause or NotRunKind.UNAVAILABLE, row.reason or "", fix, mix), []).append(row.arm)
    return tuple(
        NotRaced(arms=tuple(arms), cause=cause, reason=reason, fix=fix or None, mix=mix)
        for (cause, reason, fix, mix), arms in why.items()
    )


def _has_played(row: Row) -> bool:
    """Tell whether it played a whole restart at least."""
    return row.end_to_end is not None or row.serve is not None


def _quality_of(row: Row) -> dict[str, Any]:
    fidelity = row.fidelity
    return {
        "relative_l2": fidelity.relative_l2 if fidelity else None,
        "metric": fidelity.metric if fidelity else None,
    }


def _timing_of(row: Row) -> Timing:
    assert row.end_to_end is not None, "only measured rows have a time"
    return row.end_to_end


def _is_slower(ratio: Ratio | None) -> bool:
    return ratio is not None and ratio.verdict is Verdict.SLOWER


def _ratio_value(one: Rival | Passed) -> float:
    return one.ratio.value if one.ratio else float("inf")
