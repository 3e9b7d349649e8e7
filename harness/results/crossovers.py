"""Where one arm stops winning and another begins: brackets between verdicts, never a number out of a fit. Pure.

A verdict here is that of an arm `a` against an arm `b` at one size: `faster` means that `a` wins. The pair crosses
between two neighboring sizes with opposite verdicts; sizes in between without one (`same`, or undecided) stay inside.
Where to look next, a fit of a + b·n for each arm proposes; nothing else is done with it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

import numpy as np

from shootout.contract import Scenario, Value
from shootout.messages import Scope
from shootout.results.group import Group, against
from shootout.results.vetoes import withheld
from shootout.stats.evidence import min_restarts
from shootout.stats.leaders import time_ns
from shootout.stats.verdicts import Comparison, Verdict
from shootout.study.group import GroupRecord, Pair, fixed_of, size_of

OCTAVE = 2.0
"""A bracket no wider than this is narrow enough."""
EDGE = 2.0**0.5
"""Nor is one divided further whose sides lie this near to a region where no verdict is to be had."""
Times = tuple[int, float, float]
"""A size and both arms' median times there, in ns."""
ASIDE = 2.0**0.4
"""So far beside the proposed crossover: there a verdict is cheap, and two of them make a bracket within an octave."""
MARGIN = 1 / 8
"""At least this share of the bracket's logarithm is cut off, so that wrong proposals can't go on for ever."""
CHANCES = 5
"""So many restarts beyond the fewest, before the estimate of what a verdict takes is believed."""
HOPELESS = 2
"""A verdict that needs so many times the limit is given up: another size is the better place for the time."""
Key = tuple[str, Scenario, tuple[tuple[str, Value], ...]]
"""The facts that separate one line of groups along the axis from another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """What is known of a pair at one size.

    Attributes:
        verdict: of `a` against `b`.
        ratio: a's time ÷ b's; None where they never met.
        needed: for `can't tell`, restarts in all that a verdict would take; None if unknown.
        open: whether further restarts may still be played.
        restarts: both have played.
        a_ns: median time of `a`; None where it was never measured. `b_ns` likewise.
        reason: why no verdict may be given, whatever the figures say.
    """

    size: int
    verdict: Verdict
    ratio: float | None = None
    needed: int | None = None
    open: bool = False
    restarts: int = 0
    a_ns: float | None = None
    b_ns: float | None = None
    reason: str | None = None

    @property
    def wins(self) -> bool:
        """Tell whether either of the two wins here."""
        return self.verdict in (Verdict.FASTER, Verdict.SLOWER)


class Kind(StrEnum):
    """What a search for a crossover ends with."""

    BRACKET = "bracket"
    NONE = "no crossover in range"
    CANT_TELL = "can't tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One crossing of a pair, or why there is none.

    Attributes:
        low: the largest size with the verdict `below`; for "no crossover" the smallest size measured.
        high: the smallest size above it with the verdict `above`; for "no crossover" the largest size measured.
        reason: what lies inside the bracket, or why it can't be told.
        needed: by size without a verdict, the restarts in all that it would take; None if unknown.
    """

    kind: Kind
    low: int | None = None
    high: int | None = None
    below: Verdict | None = None
    above: Verdict | None = None
    reason: str | None = None
    needed: dict[int, int | None] = field(default_factory=dict)


def brackets(points: Sequence[At]) -> list[tuple[At, At]]:
    """Return the neighboring winners that differ, by rising size; `points` must be sorted by size."""
    winners = [point for point in points if point.wins]
    return [(low, high) for low, high in pairwise(winners) if low.verdict is not high.verdict]


def outcomes(points: Sequence[At]) -> list[Outcome]:
    """Return what may be said of the pair: every bracket, else that there is none, else what a verdict would take."""
    if found := brackets(points):
        return [_bracket(points, low, high) for low, high in found]
    missing = [point for point in points if point.verdict is Verdict.CANT_TELL]
    if missing or not points:
        needed = {point.size: point.needed for point in missing}
        return [Outcome(kind=Kind.CANT_TELL, reason=_why(missing), needed=needed)]
    first, last = points[0], points[-1]
    return [Outcome(kind=Kind.NONE, low=first.size, high=last.size, below=first.verdict, above=last.verdict)]


def _bracket(points: Sequence[At], low: At, high: At) -> Outcome:
    inside = [point for point in points if low.size < point.size < high.size]
    missing = [point for point in inside if point.verdict is Verdict.CANT_TELL]
    same = [str(point.size) for point in inside if point.verdict is Verdict.SAME]
    parts = [f"the same at {', '.join(same)}"] if same else []
    return Outcome(
        kind=Kind.BRACKET,
        low=low.size,
        high=high.size,
        below=low.verdict,
        above=high.verdict,
        reason="; ".join([*parts, *filter(None, [_why(missing)])]) or None,
        needed={point.size: point.needed for point in missing},
    )


def _why(missing: Sequence[At]) -> str | None:
    """Write `no verdict at 4, 8: the control …`."""
    if not missing:
        return None
    reasons = "; ".join(sorted({point.reason for point in missing if point.reason}))
    return f"no verdict at {', '.join(str(point.size) for point in missing)}" + (f": {reasons}" if reasons else "")


def wanted(points: Sequence[At]) -> list[At]:
    """Return the sizes whose verdict still changes the answer.

    All of them while there is no bracket; then only those inside one that is wider than an octave.
    """
    found = brackets(points)
    wide = [(low.size, high.size) for low, high in found if not _narrow(low, high)]
    return [one for one in points if one.open and (not found or any(low < one.size < high for low, high in wide))]


def next_sizes(points: Sequence[At], taken: Collection[int] = ()) -> list[tuple[int, ...]]:
    """Return, for each bracket that must be narrowed, sizes that were not raced yet, the most promising first.

    Empty where every bracket is narrow, can't be divided further, or still has a size at work inside.

    Args:
        taken: sizes that were raced without this pair; they are named only where there is no other.
    """
    found = [_divided(points, low, high) for low, high in brackets(points) if not _narrow(low, high)]
    return [tuple(size for size in sizes if size not in taken) or sizes for sizes in found if sizes]


def _narrow(low: At, high: At) -> bool:
    return high.size <= OCTAVE * low.size


def _divided(points: Sequence[At], low: At, high: At) -> tuple[int, ...]:
    inside = [point for point in points if low.size < point.size < high.size]
    if any(point.open for point in inside):
        return ()
    if not inside:
        return round_sizes(low.size, high.size, aim(low.size, high.size, _times(points, low, high)))
    gaps = [(low.size, inside[0].size), (inside[-1].size, high.size)]
    for small, large in sorted(gaps, key=lambda gap: gap[0] / gap[1]):
        if large > EDGE * small and (found := round_sizes(small, large, (small * large) ** 0.5)):
            return found
    return ()


def _times(points: Sequence[At], low: At, high: At) -> list[Times]:
    """Return the medians at the bracket's two sides and at one neighbor of each: far away, the line is another one."""
    at = [index for index, point in enumerate(points) if point.size in (low.size, high.size)]
    near = points[max(at[0] - 1, 0) : at[-1] + 2]
    return [(one.size, one.a_ns, one.b_ns) for one in near if one.a_ns is not None and one.b_ns is not None]


def line(sizes: Sequence[int], times: Sequence[float]) -> tuple[float, float]:
    """Fit a, b ≥ 0 of time = a + b·size with the least squares of the relative error, which is nearly that of the log.

    Args:
        sizes: at least one, ≥ 1.
        times: as many, > 0, any unit; a has that unit, b that unit per size.
    """
    n, t = np.array(sizes, dtype=float), np.array(times, dtype=float)
    constant, growing = 1 / t, n / t
    a, b = (float(value) for value in np.linalg.lstsq(np.column_stack([constant, growing]), np.ones(n.size))[0])
    if a >= 0 and b >= 0:
        return a, b
    alone = [float(column.sum() / (column @ column)) for column in (constant, growing)]  # one of the two is 0 then
    errors = [float(np.sum((part * column - 1) ** 2)) for part, column in zip(alone, (constant, growing), strict=True)]
    return (alone[0], 0.0) if errors[0] <= errors[1] else (0.0, alone[1])


def crossing(times: Sequence[Times]) -> float | None:
    """Return the size at which the two fitted lines meet; None where they don't."""
    sizes = [size for size, _, _ in times]
    if len(sizes) < 2:
        return None
    first, second = (line(sizes, [one[index] for one in times]) for index in (1, 2))
    slope = second[1] - first[1]
    return (first[0] - second[0]) / slope if slope else None


def aim(low: int, high: int, times: Sequence[Times]) -> float:
    """Return the size to race inside the bracket: beside the proposed crossover, on the side that cuts off more.

    Where the fit proposes nothing inside the bracket: its geometric midpoint.
    """
    found = crossing(times)
    if found is None or not low < found < high:
        return math.sqrt(low * high)
    below, above = found / ASIDE, found * ASIDE
    chosen = below if below / low > high / above else above
    width = math.log(high / low)
    return low * math.exp(min(max(math.log(chosen / low), MARGIN * width), (1 - MARGIN) * width))


def round_sizes(low: int, high: int, target: float) -> tuple[int, ...]:
    """Return the round sizes strictly between, the nearest to `target` first.

    Round means three significant bits: 1 … 8, 10, 12, 14, 16, 20 …. Different pairs then meet at the same sizes, and no
    size is odd in a way that kernels made for multiples of 8 would feel.
    """
    steps = {number << shift for shift in range(high.bit_length()) for number in range(1, 8)}
    inside = sorted(size for size in steps if low < size < high)
    return tuple(sorted(inside, key=lambda size: abs(math.log(size / target))))


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeSweep:
    """One pair along the axis.

    Attributes:
        fixed: the parameters, batch and threads that stay the same.
        groups: by size, rising; those that don't ask for this pair are left out.
    """

    model: str
    scenario: Scenario
    fixed: Mapping[str, Value]
    pair: Pair
    groups: Mapping[int, GroupRecord]


def key_of(record: GroupRecord, axis: str) -> Key:
    """Return the line that a group lies on."""
    first = record.arms[0]
    return first.model, first.scenario, tuple(sorted(fixed_of(first, axis).items()))


def sweeps(records: Iterable[GroupRecord], axis: str) -> list[SizeSweep]:
    """Return all sweeps of two sizes or more, in the order of the records."""
    found: dict[tuple[Key, Pair], dict[int, GroupRecord]] = {}
    for record in records:
        for pair in record.pairs:
            along = found.setdefault((key_of(record, axis), pair), {})
            along[size_of(record.arms[0], axis)] = record
    return [
        SizeSweep(model=model, scenario=scenario, fixed=dict(fixed), pair=pair, groups=dict(sorted(along.items())))
        for ((model, scenario, fixed), pair), along in found.items()
        if len(along) > 1
    ]


def at(group: Group, size: int, pair: Pair, scope: Scope) -> At:
    """Return what is known of a pair in one group, and whether more restarts could tell more."""
    for label in pair:
        if setback := group.setbacks.get(label):
            return At(size=size, verdict=Verdict.CANT_TELL, reason=f"{label}: {setback.reason}")
    blocks = (group.blocks_of(scope, label) for label in pair)
    a_ns, b_ns = (time_ns(one) if one else None for one in blocks)
    found = against(group, scope, *pair)
    if found is None:
        least = min_restarts(group.rules.comparisons)
        more = _goes_on(group)
        return At(size=size, verdict=Verdict.CANT_TELL, needed=least, open=more, a_ns=a_ns, b_ns=b_ns)
    why = withheld(group, *pair)
    verdict = Verdict.CANT_TELL if why else found.verdict
    return At(
        size=size,
        verdict=verdict,
        ratio=found.value,
        needed=found.restarts_needed,
        open=verdict is Verdict.CANT_TELL and _goes_on(group) and (bool(why) or not _hopeless(found, group)),
        restarts=found.restarts,
        a_ns=a_ns,
        b_ns=b_ns,
        reason=why,
    )


def _goes_on(group: Group) -> bool:
    """Tell whether further restarts may be played: below the limit, with a baseline and its copy."""
    out = {group.rules.baseline, group.rules.control} & set(group.setbacks)
    return not out and group.next_restart < group.rules.max_restarts


def _hopeless(found: Comparison, group: Group) -> bool:
    if found.restarts < min_restarts(group.rules.comparisons) + CHANCES:
        return False
    return found.restarts_needed is None or found.restarts_needed > HOPELESS * group.rules.max_restarts
