"""The answer of a cell: the decision by the default policy, with all that is told of the others. Pure.

Only plain FP32 may be shipped, or a lower precision that is known to keep the run's limit on its metric (`eligible`);
among those one rule chooses (`leader`). A faster target that isn't known to keep it is named instead.
docs/measurement.md has the rule in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shootout import models
from shootout.apps.judge.cell import Cell, is_plain
from shootout.apps.judge.leader import UNJUDGED, Led, admits, choose_among, find_fault, ratios_to_baseline, why_unknown
from shootout.apps.judge.next_steps import (
    command_to_explain,
    command_to_measure,
    command_to_settle,
    describe_refused,
    go_on,
    has_played,
    list_timed,
    measure_again,
    race_beside_plain,
    reach_folder,
    seconds_to_settle,
    why_no_folder,
)
from shootout.backends import USUAL
from shootout.core.constants import INDIFFERENT
from shootout.core.contract import NotRunKind, family, short
from shootout.core.host.store import READ_ROWS
from shootout.core.scenario import find_scenario
from shootout.core.schemes import is_exact
from shootout.core.stats.verdicts import Verdict
from shootout.tell import registered
from shootout.tell.document import Answer, NotRaced, Passed, Ratio, Rival, Row, Shipped, Sure, Timing, WouldChange


def choose(cell: Cell) -> Answer:
    """Return the cell's answer; without one to ship where nothing sound is measured, or the control shows a bias."""
    mine = [row for row in cell.rows if row.group == cell.group]
    timed = [row for row in mine if row.end_to_end]
    faults = {row.arm: why for row in timed if (why := find_fault(cell, row))}
    unsound = faults | {row.arm: row.reason or "" for row in mine if row.serve and not row.end_to_end}
    if not any(row.outcome == "measured" for row in timed):
        return _answer_nothing(cell, "nothing was timed", unsound)
    if cell.unvouched and cell.control_holds is False:
        return _answer_nothing(cell, cell.unvouched, {})
    sound = [row for row in timed if row.arm not in faults]
    if not sound:  # what found no steady state leads without a verdict
        sound = [row for row in timed if faults[row.arm] == cell.withheld(row.arm)]
        cell = replace(cell, unvouched=cell.unvouched or faults[timed[0].arm])
        unsound = {arm: why for arm, why in unsound.items() if arm not in {row.arm for row in sound}}
    kept = [row for row in sound if admits(row)] or [row for row in sound if row.is_judged]
    if not kept:
        return _answer_nothing(cell, UNJUDGED if sound else faults[timed[0].arm], unsound)
    by_arm = {row.arm: row for row in kept}
    led = choose_among(
        by_arm,
        # ratios to the baseline come from shared restarts; medians are second best
        ratios_to_baseline(by_arm, cell.baseline) or {arm: _timing_of(row).median_ns for arm, row in by_arm.items()},
        cell.judged,
        cell.ratio,
        beside=[row.arm for row in sound],
        unvouched=cell.unvouched,
    )
    return _describe_choice(cell, led, sound, unsound)


def _answer_nothing(cell: Cell, reason: str, unsound: Mapping[str, str]) -> Answer:
    """Return an answer without one to ship; an unsound target stands there with the reason."""
    is_biased = cell.unvouched == reason and cell.control_holds is False
    return Answer(
        group=cell.group,
        ship=None,
        reason=reason,
        sure=Sure(restarts=cell.restarts, control_holds=cell.control_holds),
        passed=tuple(_list_unsound(unsound)),
        not_raced=_group_not_raced(cell),
        inputs=_name_inputs(cell),
        next=measure_again(cell) if is_biased else go_on(cell),
        goes_on=not is_biased and not cell.complete,
    )


def _name_inputs(cell: Cell) -> str:
    """Name the inputs of its calls: a file of the user's, or random ones; "" of a model with rows of its own."""
    if inputs := cell.begun.given.get("inputs"):
        path = Path(str(inputs))
        return f"inputs {path.stem if path.parent.name.startswith(READ_ROWS) else path.name}"  # as a reader names them
    registered_ones = {row.model for row in cell.rows} & {*models.names()}
    has_rows = cell.is_scored or any(models.get(name).task for name in registered_ones)  # scored or not so far
    return "" if has_rows else "random inputs"


def _list_unsound(unsound: Mapping[str, str]) -> list[Passed]:
    return [Passed(arm=arm, because="unsound", reason=why) for arm, why in unsound.items()]


def _describe_choice(cell: Cell, led: Led, sound: Sequence[Row], unsound: Mapping[str, str]) -> Answer:
    """Return the answer that ships what was chosen, with all that is known of the others.

    Args:
        sound: the rows whose times count.
        unsound: the arms whose times don't, and the reason.
    """
    shipped = next(row for row in sound if row.arm == led.first)
    rivals = {row.arm: cell.ratio(row.arm, led.first) for row in sound if row is not shipped}
    slower = [Rival(arm=arm, ratio=rivals[arm]) for arm in led.beaten if arm != led.first and _is_slower(rivals[arm])]
    others = [row for row in sound if row is not shipped and row.arm not in led.open]
    others.sort(key=lambda row: _ratio_value(Rival(arm=row.arm, ratio=rivals[row.arm])))
    passed = [
        Passed(arm=row.arm, because="slower")
        if row.arm in led.beaten or _is_slower(rivals[row.arm])
        else Passed(arm=row.arm, because="accuracy", reason=why_unknown(cell, row))
        for row in others
    ]
    choice = led.choice
    sure = tell_sure(cell, led.first, sorted(slower, key=_ratio_value), choice.unsettled or choice.tied)
    is_over = choice.reason is None and not choice.unsettled and (bool(rivals) or cell.complete)
    eligible = [row for row in sound if row.arm in (led.first, *led.open, *led.beaten)]
    usual = find_usual(sound, shipped, cell.baseline)
    if is_over:
        command, goes_on = _find_next(cell, shipped, [row for row in eligible if row is not shipped]), False
    elif sure.command:
        command, goes_on = sure.command, cell.goes_on
    else:
        goes_on = cell.control_holds is not False and not cell.complete
        command = go_on(cell) if goes_on else measure_again(cell)
    return Answer(
        group=cell.group,
        ship=describe_shipped(shipped),
        alone=not rivals and not unsound,
        otherwise=Rival(arm=usual.arm, ratio=rivals[usual.arm]) if usual else None,
        eligible=tuple(row.arm for row in eligible),
        **vars(choice),
        sure=sure,
        passed=(*passed, *_list_unsound(unsound)),
        not_raced=_group_not_raced(cell),
        would_change=tuple(_list_held_back(cell, shipped, sound, rivals)),
        no_gain=tuple(row.arm for row in sorted(sound, key=lambda row: _timing_of(row).median_ns) if row.why),
        inputs=_name_inputs(cell),
        next=command,
        goes_on=goes_on,
        no_folder=why_no_folder(shipped) or None,
    )


def _find_next(cell: Cell, shipped: Row, others: Sequence[Row]) -> str | None:
    """Return the command that comes next if there is no more to measure first; None if nothing can be shipped.

    Args:
        others: the rows that may be shipped, too.
    """
    is_kept = admits(shipped) or is_exact(shipped.precision, shipped.scheme, shipped.file)
    if not is_kept and not find_scenario(shipped.scenario).varies:
        return command_to_measure(cell, list_timed(cell), shipped) or race_beside_plain(cell, shipped)
    if not why_no_folder(shipped):
        return reach_folder(cell, shipped)
    able = [row for row in others if not why_no_folder(row)]
    fastest = min(able, key=lambda row: _timing_of(row).median_ns, default=None)
    return reach_folder(cell, fastest, [("--target", short(fastest.arm))]) if fastest else reach_folder(cell, shipped)


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


def describe_shipped(row: Row) -> Shipped:
    """Return what an answer says of the row that it ships."""
    return Shipped(arm=row.arm, admitted=admits(row) or "alone", median_ns=_timing_of(row).median_ns)


def tell_sure(cell: Cell, shipped: str, beaten: Sequence[Rival], open_: Sequence[Rival]) -> Sure:
    """Return how well founded a choice is, and what would distinguish it from all that are open.

    Args:
        beaten: the eligible ones that are slower than what is shipped, the closest first.
        open_: those that may be as fast; ties only if no other is open.
    """
    holds, closest = cell.control_holds, next(iter(beaten), None)
    sure = Sure(restarts=cell.restarts, control_holds=holds, slower=len(beaten), closest=closest)
    found = {one.arm: one.ratio for one in open_ if one.ratio and one.ratio.verdict is Verdict.CANT_TELL}
    if not found:
        return sure
    nearest = min(found, key=lambda arm: abs(math.log(found[arm].value)))
    needed = {arm: cell.restarts_needed(arm, shipped) for arm in found}
    hardest = max(found, key=lambda arm: needed[arm] or math.inf)
    change: dict[str, Any] = {"nearest": nearest, "restarts_needed": needed[hardest]}
    # builds and first restarts of what wasn't tried come first; and a withheld verdict needs more than restarts
    late = cell.goes_on and any(group.cause is NotRunKind.NOT_REACHED for group in _group_not_raced(cell))
    waits = late or any(ratio.reason for ratio in found.values())
    seconds = None if waits else seconds_to_settle(cell, found[hardest].restarts, needed[hardest])
    if seconds is not None:
        racing = [shipped, *(one.arm for one in open_ if one.ratio is None or one.arm in found)]
        told_s = seconds if seconds < 60 else 60.0 * math.ceil(seconds / 60)  # as the command has it
        change |= {"seconds_needed": told_s, "command": command_to_settle(cell, racing, seconds)}
    return sure.model_copy(update=change)


def _list_held_back(
    cell: Cell, shipped: Row, sound: Sequence[Row], rivals: Mapping[str, Ratio | None]
) -> Iterator[WouldChange]:
    """List the rows that a looser limit on the error would ship, the fastest first, with what accepts its error."""
    if not admits(shipped):
        return
    by_arm = {row.arm: row for row in sound if not admits(row)}
    held = sorted((Rival(arm=arm, ratio=rivals.get(arm)) for arm in by_arm), key=_ratio_value)
    for place, row in enumerate(by_arm[one.arm] for one in held if is_faster(one.ratio)):
        yield describe_refused(cell, row, rivals[row.arm], [shipped.arm, row.arm], is_first=not place)


def is_faster(ratio: Ratio | None) -> bool:
    """Tell whether a row is significantly faster, or looks faster by more than is indifferent."""
    if ratio is None or ratio.reason:
        return False
    looks_faster = ratio.verdict is Verdict.CANT_TELL and ratio.value < 1 / (1 + INDIFFERENT)
    return ratio.verdict is Verdict.FASTER or looks_faster


def _group_not_raced(cell: Cell) -> tuple[NotRaced, ...]:
    """Return arms without a time, by reason; a target that has one in another setting is none of them.

    The fix of one whose outputs were refused is to find the layer.
    """
    ran = {family(row.arm) for row in cell.rows if row.group == cell.group and row.end_to_end}
    why: dict[tuple[NotRunKind, str, str | None], list[str]] = {}
    for row in cell.rows:
        if row.outcome != "measured" and not has_played(row) and (not row.setting or family(row.arm) not in ran):
            is_refused = row.fidelity is not None and row.fidelity.standing == "refused"
            fix = command_to_explain(cell, row) if is_refused else row.fix
            why.setdefault((row.cause or NotRunKind.UNAVAILABLE, row.reason or "", fix), []).append(row.arm)
    return tuple(
        NotRaced(arms=tuple(arms), cause=cause, reason=reason, fix=fix or None)
        for (cause, reason, fix), arms in why.items()
    )


def _timing_of(row: Row) -> Timing:
    assert row.end_to_end is not None, "only measured rows have a time"
    return row.end_to_end


def _is_slower(ratio: Ratio | None) -> bool:
    return ratio is not None and ratio.verdict is Verdict.SLOWER


def _ratio_value(one: Rival) -> float:
    return one.ratio.value if one.ratio else float("inf")
