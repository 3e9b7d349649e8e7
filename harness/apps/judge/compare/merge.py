"""Merge runs of several machines into one document: what to ship everywhere, and which rankings hold. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path

from shootout.apps.judge.analysis import Analysed, analyse_cells
from shootout.apps.judge.cell import Cell
from shootout.apps.judge.choice import find_fault
from shootout.apps.judge.compare.document import (
    ArmInPlace,
    Everywhere,
    Fate,
    MergedCell,
    MergedDocument,
    MergedTarget,
    Pair,
    Place,
    PlaceAnswer,
    PlacedRow,
    Regret,
)
from shootout.apps.judge.compare.matching import (
    EXPORT,
    METRIC,
    SHARED,
    Asked,
    find_differing,
    key_of,
    read_asked,
    refuse_same,
    tell_differing,
    tell_strange,
)
from shootout.apps.judge.compare.merged import expand_merged
from shootout.core.constants import INDIFFERENT
from shootout.core.errors import Undecided, UsageError, unknown
from shootout.core.stats.verdicts import Verdict
from shootout.tell.document import Answer, Ratio, Row, ratio_of
from shootout.tell.machines import machine_of, name_machines
from shootout.tell.raced import find_named
from shootout.tell.study_options import DEFAULT

ALONE = "only one machine"

_FILES = frozenset(SHARED) - {METRIC}

_ORDER = {Fate.FLIPS: 0, Fate.FADES: 1, Fate.HOLDS: 2, Fate.UNKNOWN: 3}


def merge_runs(folders: Iterable[Path]) -> MergedDocument:
    """Return the runs in these folders as one document; a merged folder stands for its runs.

    Raises:
        UsageError: a folder holds no run, one comes twice, or they ask different things; says which.
    """
    return merge([analyse_cells(folder) for folder in expand_merged(folders)])


def merge(runs: Sequence[Analysed]) -> MergedDocument:
    """Merge runs into one document, each a column.

    Raises:
        UsageError: one comes twice, or they ask different things; says which.
    """
    refuse_same(runs)
    names = name_places(runs)
    found = match_sites([site for name, run in zip(names, runs, strict=True) for site in find_sites(name, run)])
    _refuse_unmatched(runs, found)
    return MergedDocument(
        places=tuple(map(place_of, names, runs)),
        cells=tuple(merge_cell(one) for one in found),
        rows=tuple(_place_rows(names, runs)),
        warnings=tuple(_warn_differences(found)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CellInPlace:
    """A cell of a run in its place."""

    place: str
    run: Analysed
    cell: Cell
    answer: Answer
    asked: Asked

    @property
    def rows(self) -> dict[str, Row]:
        """Return them by arm."""
        return {row.arm: row for row in self.cell.rows if row.group == self.cell.group}

    @property
    def scenario(self) -> str:
        """Return what was measured of the model."""
        return self.run.groups[self.cell.group].record.arms[0].scenario

    @property
    def threads(self) -> tuple[int, ...]:
        """Return all that its arms ran on."""
        return tuple(sorted({row.threads for row in self.rows.values()}))

    @property
    def key(self) -> Hashable:
        """Return the same for all that ask the same, but for threads."""
        return key_of(self.asked), self.scenario


def find_group(runs: Sequence[Analysed], group: str | None = None) -> list[CellInPlace]:
    """Return one group in all places that measured it.

    Args:
        group: its name in one of them, or the beginning of that name; needed if there are several groups.

    Raises:
        UsageError: there is no such group, or there are several; names them.
        Undecided: nothing was measured.
    """
    names = name_places(runs)
    found = match_sites([site for name, run in zip(names, runs, strict=True) for site in find_sites(name, run)])
    if not found:
        raise Undecided("these runs have no answer: nothing was measured")
    if group is not None:
        known = {site.cell.group for sites in found for site in sites}
        asked = find_named(known, group)
        found = [sites for sites in found if any(site.cell.group in asked for site in sites)]
        if not found:
            raise unknown("group", group, known)
    if len(found) > 1:
        raise UsageError("the runs have an answer for each of their groups", [sites[0].cell.group for sites in found])
    return found[0]


def find_sites(place: str, run: Analysed) -> list[CellInPlace]:
    """Return a run's cells whose figures count."""
    return [
        CellInPlace(place=place, run=run, cell=cell, answer=answer, asked=read_asked(run, cell))
        for answer in run.document.answer
        for cell in [run.cells[answer.group]]
    ]


def match_sites(sites: Sequence[CellInPlace]) -> list[list[CellInPlace]]:
    """Return the sites of the same question, in their order; threads count if one run has it with several."""
    often = Counter((one.place, one.key) for one in sites)
    several = {key for (_, key), count in often.items() if count > 1}
    found: dict[Hashable, list[CellInPlace]] = defaultdict(list)
    for one in sites:
        threads = tuple(sorted({row.threads for row in one.cell.rows})) if one.key in several else ()
        found[one.key, threads].append(one)
    return [*found.values()]


def name_places(runs: Sequence[Analysed]) -> list[str]:
    """Return what each is called: by its machine; with the run's folder where a machine has several."""
    machines = [machine_of(run.document.environment) for run in runs]
    names = name_machines(machines)
    often = Counter(machines)
    folders = Counter((machine, Path(run.document.run).name) for machine, run in zip(machines, runs, strict=True))
    told = []
    for machine, run in zip(machines, runs, strict=True):
        folder = Path(run.document.run)
        word = folder.name if folders[machine, folder.name] == 1 else str(folder)
        told.append(names[machine] + (f", {word}" if often[machine] > 1 else ""))
    return told


def place_of(name: str, run: Analysed) -> Place:
    """Return a run as a column."""
    return Place(
        name=name,
        machine=machine_of(run.document.environment).key,
        run=run.document.run,
        study=run.facts.study,
        created=run.facts.created,
        complete=run.document.complete,
        environment=run.document.environment,
    )


def _place_rows(names: Sequence[str], runs: Sequence[Analysed]) -> Iterator[PlacedRow]:
    for name, run in zip(names, runs, strict=True):
        key = machine_of(run.document.environment).key
        for row in run.document.rows:
            yield PlacedRow.model_construct(None, **dict(row), place=name, machine=key, run=run.document.run)


def _refuse_unmatched(runs: Sequence[Analysed], found: Sequence[Sequence[CellInPlace]]) -> None:
    """Stop at runs that have nothing in common, unless all are parts of one study, given the same files.

    Raises:
        UsageError: two have not; names the fields that differ.
    """
    studies = {run.facts.study for run in runs}
    files = {tuple(value for name, value in site.asked.items() if name in _FILES) for some in found for site in some}
    if len(studies) == 1 and studies != {DEFAULT} and len(files) < 2:
        return
    sites = [site for some in found for site in some]
    shared = {id(site.run) for some in found for site in some if len(some) > 1}
    for run in runs:
        mine, others = ([one for one in sites if (one.run is run) == own] for own in (True, False))
        if mine and others and id(run) not in shared:
            one, other = min(product(mine, others), key=lambda pair: len(find_differing(pair[0].asked, pair[1].asked)))
            told = tell_apart(one, other)
            raise UsageError(f"{run.document.run} and {other.run.document.run} can't be merged: {told}")


def tell_apart(one: CellInPlace, other: CellInPlace) -> str:
    """Return why two don't ask the same."""
    if told := tell_strange(one.asked, other.asked):
        return "; ".join(told)
    if one.scenario != other.scenario:
        return f"scenario differs: {one.scenario} and {other.scenario}"
    return tell_threads(one, other)


def tell_threads(one: CellInPlace, other: CellInPlace) -> str:
    """Return how many threads either has."""
    return "threads differs: " + " and ".join(", ".join(map(str, site.threads)) for site in (one, other))


def _warn_differences(found: Sequence[Sequence[CellInPlace]]) -> Iterator[str]:
    for sites in found:
        yield from warn_exports(sites)
        if other := next((one for one in sites if one.threads != sites[0].threads), None):
            told = tell_threads(sites[0], other)
            yield f"{sites[0].cell.group}, {sites[0].place} and {other.place}: {told}; what flips may be due to that"


def warn_exports(sites: Sequence[CellInPlace]) -> Iterator[str]:
    """Warn of each two sites of a question whose exports differ."""
    for one, other in combinations(sites, 2):
        if EXPORT in find_differing(one.asked, other.asked):
            told = tell_differing(EXPORT, one.asked, other.asked)
            yield f"{one.cell.group}, {one.place} and {other.place}: {told}"


def merge_cell(sites: Sequence[CellInPlace]) -> MergedCell:
    """Return one question in all its places."""
    arms = list(dict.fromkeys(arm for site in sites for arm in site.rows))
    worst = {arm: found for arm in arms if (found := _find_worst(arm, sites))}
    everywhere = _choose_everywhere(worst, sites) if len(sites) > 1 else None
    first = sites[0].cell.group
    return MergedCell(
        group=first,
        places=tuple(site.place for site in sites),
        everywhere=everywhere,
        reason=None if everywhere else _why_none(sites),
        ships=tuple(map(shipped_of, sites)),
        targets=tuple(sorted((_merge_target(arm, sites, worst) for arm in arms), key=_target_order)),
        pairs=tuple(find_pairs({site.place: site.cell for site in sites})),
    )


def shipped_of(site: CellInPlace) -> PlaceAnswer:
    """Return what a place's own answer ships."""
    ship = site.answer.ship
    return PlaceAnswer(
        place=site.place,
        arm=ship.arm if ship else None,
        median_ns=ship.median_ns if ship else None,
        tied=tuple(one.arm for one in site.answer.tied),
        unsettled=tuple(one.arm for one in site.answer.unsettled),
        reason=site.answer.reason,
    )


def _merge_target(arm: str, sites: Sequence[CellInPlace], worst: Mapping[str, _Worst]) -> MergedTarget:
    found = worst.get(arm)
    return MergedTarget(
        arm=arm, at=tuple(_time_in_place(arm, site) for site in sites), worst=found.regret.value if found else None
    )


def _target_order(target: MergedTarget) -> tuple[bool, float, int, float]:
    """Sort arms that may be shipped everywhere first, then those with the most times, and by the lowest of them."""
    times = [one.median_ns for one in target.at if one.median_ns is not None]
    return target.worst is None, target.worst or 0.0, -len(times), min(times, default=float("inf"))


def _time_in_place(arm: str, site: CellInPlace) -> ArmInPlace:
    row = site.rows.get(arm)
    if row is None:
        return ArmInPlace(place=site.place, outcome=None)
    timing = row.end_to_end
    reason = find_fault(site.cell, row) if timing else row.reason
    if timing is None:
        return ArmInPlace(place=site.place, outcome=row.outcome, reason=reason)
    return ArmInPlace(
        place=site.place,
        outcome=row.outcome,
        reason=reason,
        median_ns=timing.median_ns,
        low_ns=timing.low_ns,
        high_ns=timing.high_ns,
        ratio=_ratio_to_shipped(arm, site),
    )


def _ratio_to_shipped(arm: str, site: CellInPlace) -> Ratio | None:
    """Return its time ÷ that of what the place ships."""
    ship = site.answer.ship
    return site.cell.ratio(arm, ship.arm) if ship and ship.arm != arm else None


def _may_ship(arm: str, site: CellInPlace) -> bool:
    """Tell whether a place ships it, or may: it is sound, and keeps the model as well as what is shipped."""
    if site.answer.ship and site.answer.ship.arm == arm:
        return True
    sound = {one.arm: one for one in site.rows.values() if one.end_to_end and not find_fault(site.cell, one)}
    if arm not in sound:
        return False
    if any(site.cell.admits(one) for one in sound.values()):
        return site.cell.admits(sound[arm]) is not None
    return sound[arm].is_judged


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worst:
    """What an arm costs where it costs most; `sites` are where it measured so."""

    regret: Regret
    sites: tuple[CellInPlace, ...]


def _find_worst(arm: str, sites: Sequence[CellInPlace]) -> _Worst | None:
    """Return None if some place may not ship it, or doesn't know how it compares."""
    found: list[tuple[CellInPlace, Regret]] = []
    for site in sites:
        if site.answer.ship is None or not _may_ship(arm, site):
            return None
        if site.answer.ship.arm == arm:
            found.append((site, Regret(value=1.0, low=1.0, high=1.0)))
        elif ratio := _ratio_to_shipped(arm, site):
            low, high = ratio.ends
            found.append((site, Regret(value=ratio.value, low=low, high=high)))
        else:
            return None
    value = max(one.value for _, one in found)
    lows, highs = [one.low for _, one in found if one.low is not None], [one.high for _, one in found]
    known = [high for high in highs if high is not None]
    regret = Regret(value=value, low=max(lows, default=None), high=max(known) if len(known) == len(highs) else None)
    return _Worst(regret=regret, sites=tuple(site for site, one in found if one.value == value))


def _choose_everywhere(worst: Mapping[str, _Worst], sites: Sequence[CellInPlace]) -> Everywhere | None:
    if not worst:
        return None
    arm = min(worst, key=lambda one: worst[one].regret.value)
    mine = worst[arm]
    is_own = all(site.answer.ship and site.answer.ship.arm == arm for site in sites)
    others = [one for one in worst if one != arm and not _costs_more(one, worst[one], arm, mine)]
    others.sort(key=lambda one: worst[one].regret.value)
    near = (1 + INDIFFERENT) * mine.regret.value
    return Everywhere(
        arm=arm,
        place=None if is_own else mine.sites[0].place,
        ratio=None if is_own else mine.regret,
        tied=tuple(one for one in others if worst[one].regret.value <= near),
        unsettled=tuple(one for one in others if worst[one].regret.value > near),
        reason=next((f"{site.place}: {site.answer.reason}" for site in sites if site.answer.reason), None),
    )


def _costs_more(other: str, its: _Worst, arm: str, mine: _Worst) -> bool:
    """Tell whether an arm is known to cost more at its worst: it is slower if the best one's worst is, or its interval
    lies above.
    """
    ratios = [site.cell.ratio(other, arm) for site in mine.sites]
    if any(ratio and ratio.verdict is Verdict.SLOWER for ratio in ratios):
        return True
    return its.regret.low is not None and mine.regret.high is not None and its.regret.low > mine.regret.high


def _why_none(sites: Sequence[CellInPlace]) -> str:
    if len(sites) == 1:
        return ALONE
    without = [site for site in sites if site.answer.ship is None]
    if without:
        return f"no answer on {without[0].place}: {without[0].answer.reason}"
    return "no target was measured in all places that may be shipped in each"


def find_pairs(cells: Mapping[str, Cell]) -> list[Pair]:
    """Return every two arms that were timed in two places or more, flips first, the faster of the two first.

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
        ratios = _compare_in_places(both, a, b, unfit)
        told = next((one for one in ratios.values() if one.verdict is not Verdict.CANT_TELL), None)
        if len(ratios) > 1:
            turned = (told or next(iter(ratios.values()))).value > 1
            first, second = (b, a) if turned else (a, b)
            ratios = _compare_in_places(both, b, a, unfit) if turned else ratios
            verdicts = [ratios[place].verdict if place in ratios else Verdict.CANT_TELL for place in cells]
            found.append(Pair(a=first, b=second, fate=find_fate(verdicts), ratios=ratios))
    return sorted(found, key=lambda one: _ORDER[one.fate])


def find_fate(verdicts: Iterable[Verdict]) -> Fate:
    """Return what becomes of a verdict, from what it is in each place."""
    seen = {*verdicts}
    if {Verdict.FASTER, Verdict.SLOWER} <= seen:
        return Fate.FLIPS
    if Verdict.CANT_TELL in seen:
        return Fate.UNKNOWN
    return Fate.HOLDS if len(seen) == 1 else Fate.FADES


def _compare_in_places(
    cells: Mapping[str, Cell], a: str, b: str, unfit: Mapping[str, Mapping[str, str]]
) -> dict[str, Ratio]:
    """Return the first one's time ÷ the other's in each place where they shared a restart."""
    found = {place: (cell, cell.compare(a, b)) for place, cell in cells.items()}
    return {
        place: ratio_of(one, cell.unvouched or unfit[place].get(a) or unfit[place].get(b))
        for place, (cell, one) in found.items()
        if one
    }
