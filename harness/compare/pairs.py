"""Which rankings hold from place to place: each pair's verdict here beside its verdict there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations

from shootout.compare.document import Fate, Pair
from shootout.results.cells import Cell
from shootout.results.choice import find_fault
from shootout.results.comparisons import Ratio, ratio_of
from shootout.stats.verdicts import Verdict

_ORDER = {Fate.FLIPS: 0, Fate.FADES: 1, Fate.HOLDS: 2, Fate.UNKNOWN: 3}


def find_pairs(cells: Mapping[str, Cell]) -> list[Pair]:
    """Every two arms that two places or more have a time of, flips first, the faster of the two before the other.

    Args:
        cells: by place; each verdict errs with the α that its own run gave it.
    """
    timed = {
        place: [row.arm for row in cell.rows if row.end_to_end and row.group == cell.group]
        for place, cell in cells.items()
    }
    unfit = {
        place: {row.arm: why for row in cell.rows if row.end_to_end and (why := find_fault(cell, row))}
        for place, cell in cells.items()
    }
    found = []
    for a, b in combinations(dict.fromkeys(arm for some in timed.values() for arm in some), 2):
        both = {place: cell for place, cell in cells.items() if {a, b} <= set(timed[place])}
        if len(both) < 2:
            continue
        ratios = _compare(both, a, b, unfit)
        told = next((one for one in ratios.values() if one.verdict is not Verdict.CANT_TELL), None)
        if len(ratios) > 1:
            turned = (told or next(iter(ratios.values()))).value > 1
            first, second = (b, a) if turned else (a, b)
            ratios = _compare(both, b, a, unfit) if turned else ratios
            verdicts = [ratios[place].verdict if place in ratios else Verdict.CANT_TELL for place in cells]
            found.append(Pair(a=first, b=second, fate=find_fate(verdicts), ratios=ratios))
    return sorted(found, key=lambda one: _ORDER[one.fate])


def find_fate(verdicts: Iterable[Verdict]) -> Fate:
    """What becomes of a verdict, from what it is in each place."""
    seen = {*verdicts}
    if {Verdict.FASTER, Verdict.SLOWER} <= seen:
        return Fate.FLIPS
    if Verdict.CANT_TELL in seen:
        return Fate.UNKNOWN
    return Fate.HOLDS if len(seen) == 1 else Fate.FADES


def _compare(cells: Mapping[str, Cell], a: str, b: str, unfit: Mapping[str, Mapping[str, str]]) -> dict[str, Ratio]:
    """The first one's time ÷ the other's in each place where they shared a restart."""
    found = {place: (cell, cell.compare(a, b)) for place, cell in cells.items()}
    return {
        place: ratio_of(one, cell.unvouched or unfit[place].get(a) or unfit[place].get(b))
        for place, (cell, one) in found.items()
        if one
    }
