"""Which arm of a cell to ship, by rule. Pure; docs/measurement.md has the rule in words.

An arm *keeps* the model where it is plain FP32, or where its accuracy is known (in pairs with a plain FP32 arm's, on
the labeled split) to have lost less than `MARGIN`. The choice is among those that do: a faster one that isn't known to
is named instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from shootout.apps.judge.cell import Cell, is_plain, quality_of
from shootout.apps.judge.next_steps import (
    command_to_explain,
    command_to_mix,
    command_to_settle,
    describe_refused,
    find_next,
    go_on,
    has_played,
    measure_again,
    race_elsewhere,
    why_no_folder,
    why_unknown,
)
from shootout.backends import USUAL
from shootout.core.constants import INDIFFERENT
from shootout.core.contract import Array, NotRunKind, family
from shootout.core.stats.leaders import Compare, Leaders, find_leaders
from shootout.core.stats.verdicts import Comparison, Verdict
from shootout.core.units import counted
from shootout.tell import registered
from shootout.tell.document import (
    Answer,
    Chosen,
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
)


def is_near(ratio: Ratio | None) -> bool:
    """Tell whether the ratio measured is within the indifference, whatever its interval."""
    return ratio is not None and 1 / (1 + INDIFFERENT) <= ratio.value <= 1 + INDIFFERENT


UNJUDGED = "no target's error could be checked against its error bound: random inputs are too insensitive here"


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
    more = go_on(cell)
    unsound = [Passed(arm=arm, because="unsound", against=None, ratio=None, reason=why) for arm, why in told_of.items()]
    if not any(row.outcome == "measured" for row in measured):
        return Answer(**told, ship=None, reason="nothing was timed", sure=sure, passed=tuple(unsound), next=more)
    if cell.unvouched and cell.control_holds is False:
        return Answer(**told, ship=None, reason=cell.unvouched, sure=sure, next=measure_again(cell))
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
        more = go_on(cell)
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
        next=find_next(cell, shipped, instead, is_over=is_over),
        no_folder=no_folder,
        instead=instead,
        elsewhere=race_elsewhere(cell, shipped) if is_over else None,
    )


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
    reason = why_unknown(cell, row) if because == "accuracy" else None
    return Passed(arm=row.arm, because=because, against=shipped.arm, ratio=ratio, reason=reason, **quality_of(row))


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
    command = command_to_settle(cell, shipped, row, found[arm].restarts, needed)
    return sure.model_copy(update={"nearest": arm, "restarts_needed": needed, "command": command})


def _changes_by_error_limit(
    cell: Cell, shipped: Row, sound: Sequence[Row], rivals: Mapping[str, Ratio | None]
) -> Iterable[WouldChange]:
    """Yield the rows that would be shipped under a looser or a tighter limit on the error."""
    plain = [row for row in sound if is_plain(row)]
    if cell.admits(shipped) == "metric" and plain:
        row, _, _ = _choose_leader(cell, plain)
        yield WouldChange(when="tighter", arm=row.arm, ratio=rivals[row.arm], **quality_of(row))
    if cell.admits(shipped):
        others = [row for row in sound if not cell.admits(row) and is_faster(rivals.get(row.arm))]
        for row in sorted(others, key=lambda row: _ratio_value(Rival(arm=row.arm, ratio=rivals[row.arm]))):
            yield describe_refused(cell, row, rivals[row.arm], [shipped.arm, row.arm])


def is_faster(ratio: Ratio | None) -> bool:
    """Tell whether a row is significantly faster, or looks faster by more than is indifferent."""
    if ratio is None or ratio.reason:
        return False
    return ratio.verdict is Verdict.FASTER or (
        ratio.verdict is Verdict.CANT_TELL and ratio.value < 1 / (1 + INDIFFERENT)
    )


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
            steps.append(SmallerStep(arm=row.arm, artifact_bytes=least, ratio=rivals[row.arm], **quality_of(row)))
    return tuple(steps)


def _list_no_gains(cell: Cell, sound: Sequence[Row]) -> Iterator[NoGain]:
    """List the rows that are known not to be faster than their own backend's FP32, the fastest first."""
    for row in sorted(sound, key=lambda row: _timing_of(row).median_ns):
        if row.why and row.why.ratio.verdict in (Verdict.SLOWER, Verdict.SAME):
            yield NoGain(arm=row.arm, why=row.why, explain=command_to_explain(cell, row))


def _group_not_raced(cell: Cell, measured: Sequence[Row]) -> tuple[NotRaced, ...]:
    """Return arms without a time, by reason; a target that has one in another setting is none of them.

    The fix of one whose outputs were refused is to find the layer.
    """
    ran = {family(row.arm) for row in measured}
    why: dict[tuple[NotRunKind, str, str | None, str | None], list[str]] = {}
    for row in cell.rows:
        if row.outcome != "measured" and not has_played(row) and (not row.setting or family(row.arm) not in ran):
            is_refused = row.fidelity is not None and row.fidelity.standing == "refused"
            fix = command_to_explain(cell, row) if is_refused else row.fix
            mix = command_to_mix(cell, row) if is_refused and cell.is_scored else None
            why.setdefault((row.cause or NotRunKind.UNAVAILABLE, row.reason or "", fix, mix), []).append(row.arm)
    return tuple(
        NotRaced(arms=tuple(arms), cause=cause, reason=reason, fix=fix or None, mix=mix)
        for (cause, reason, fix, mix), arms in why.items()
    )


def _timing_of(row: Row) -> Timing:
    assert row.end_to_end is not None, "only measured rows have a time"
    return row.end_to_end


def _is_slower(ratio: Ratio | None) -> bool:
    return ratio is not None and ratio.verdict is Verdict.SLOWER


def _ratio_value(one: Rival | Passed) -> float:
    return one.ratio.value if one.ratio else float("inf")
