"""Accuracy against time: the rows that no other row beats in both. Pure.

A row is beaten by one that is faster beyond doubt and at least as accurate. Beyond doubt: arms that raced each other
are compared by the intervals of their ratios, all others by the intervals of their medians; where those overlap, it is
a tie, and no place of its own: the faster median has the place, the others are named beside it. As accurate: right on
as many rows of the same split, or (paired, row by row) not worse by more than `MARGIN`, or one image that flips would
keep a row on the front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shootout.constants import BIAS_FLOOR
from shootout.contract import Scenario
from shootout.results.comparisons import Ratio
from shootout.results.document import FrontRow, GroupSummary, Row
from shootout.stats.paired import change

MARGIN = 0.01
"""A loss of accuracy that the interval keeps below one point counts as none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A row with an accuracy and a time.

    Attributes:
        group: arms of one group raced each other.
        right: "1" for each row of the report split that was classified rightly; "" where that isn't known.
        times: the interval of its median, ns.
        ratios: the interval of its ratio to its group's baseline, (1, 1) for the baseline itself; None while an end
            of it is infinite, or where verdicts are withheld.
    """

    group: str
    arm: str
    accuracy: float
    right: str
    median_ns: float
    times: tuple[float, float]
    ratios: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Place:
    """A place on the front: who has it, and who is measured slower and no better, but isn't known to be."""

    holder: Candidate
    ties: list[Candidate]


def front(candidates: Sequence[Candidate]) -> list[Place]:
    """The places that no other candidate beats, the fastest first."""
    kept = [one for one in candidates if not any(beats(other, one) for other in candidates)]
    places: list[Place] = []
    for one in sorted(kept, key=lambda one: one.median_ns):
        as_good = next((place for place in reversed(places) if is_as_accurate(place.holder, one)), None)
        if as_good:
            as_good.ties.append(one)
        else:
            places.append(Place(one, []))
    return places


def beats(one: Candidate, other: Candidate) -> bool:
    """Whether `one` is faster beyond doubt, and at least as accurate."""
    return is_faster(one, other) and is_as_accurate(one, other)


def is_faster(one: Candidate, other: Candidate) -> bool:
    """Whether the intervals are apart, by more than the harness's own bias."""
    if one.group == other.group:
        return bool(one.ratios and other.ratios) and _below(one.ratios, other.ratios)
    return _below(one.times, other.times)


def is_as_accurate(one: Candidate, other: Candidate) -> bool:
    """Whether `one` is right as often, or has lost less than MARGIN of the rows for sure."""
    if one.accuracy >= other.accuracy:
        return True
    if not one.right or len(one.right) != len(other.right):
        return False
    return change(other.right, one.right).low > -MARGIN


def fronts(
    summaries: Sequence[GroupSummary], rows: Sequence[Row], right: Mapping[tuple[str, str], str]
) -> tuple[FrontRow, ...]:
    """The fronts of a run: one for each batch size and thread count at which several models have an accuracy.

    Args:
        summaries: the document's groups.
        rows: of the document.
        right: by group and arm, which rows of the report split were right.
    """
    baselines = {(one.name, one.baseline) for one in summaries}
    kinds: dict[tuple[int, int], list[Candidate]] = {}
    for row in rows:
        place = (row.group, row.arm)
        if one := _candidate(row, right.get(place, ""), is_baseline=place in baselines):
            kinds.setdefault((row.batch, row.threads), []).append(one)
    several = [found for found in kinds.values() if len({one.group for one in found}) > 1]
    return tuple(
        FrontRow(
            group=one.group,
            arm=one.arm,
            accuracy=one.accuracy,
            median_ns=one.median_ns,
            of=len(found),
            ties=tuple(tie.arm if tie.group == one.group else f"{tie.arm} ({tie.group})" for tie in place.ties),
        )
        for found in several
        for place in front(found)
        for one in [place.holder]
    )


def _below(one: tuple[float, float] | None, other: tuple[float, float] | None) -> bool:
    return one is not None and other is not None and one[1] * (1 + BIAS_FLOOR) < other[0]


def _candidate(row: Row, right: str, *, is_baseline: bool) -> Candidate | None:
    timing, accuracy = row.end_to_end, row.fidelity.accuracy if row.fidelity else None
    if timing is None or accuracy is None or row.outcome != "measured" or row.scenario != Scenario.LATENCY:
        return None
    return Candidate(
        group=row.group,
        arm=row.arm,
        accuracy=accuracy,
        right=right,
        median_ns=timing.median_ns,
        times=(timing.low_ns, timing.high_ns),
        ratios=(1.0, 1.0) if is_baseline else _ratios(timing.ratio),
    )


def _ratios(ratio: Ratio | None) -> tuple[float, float] | None:
    if ratio is None or ratio.reason or ratio.low is None or ratio.high is None:
        return None
    return ratio.low, ratio.high
