"""Runs of several machines → one document: what to ship everywhere, and which rankings hold. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path

from shootout.compare.asked import (
    EXPORT,
    Asked,
    find_differing,
    key_of,
    read_asked,
    refuse_same,
    tell_differing,
    tell_strange,
)
from shootout.compare.document import (
    At,
    Everywhere,
    MergedCell,
    MergedDocument,
    Place,
    PlacedRow,
    Shipped,
    Target,
)
from shootout.compare.machines import machine_of, name_machines
from shootout.compare.pairs import find_pairs
from shootout.constants import INDIFFERENT
from shootout.errors import UsageError
from shootout.journal.merged import expand_merged
from shootout.results.analysis import Analysed, analyse_cells
from shootout.results.answer import Answer
from shootout.results.cells import Cell, is_judged
from shootout.results.choice import find_fault
from shootout.results.comparisons import Ratio
from shootout.results.document import Row
from shootout.study.selection import DEFAULT

ALONE = "only one machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cell of a run in its place."""

    place: str
    run: Analysed
    cell: Cell
    answer: Answer
    asked: Asked

    @property
    def rows(self) -> dict[str, Row]:
        """By arm."""
        return {row.arm: row for row in self.cell.rows if row.group == self.cell.group}


def merge_runs(folders: Iterable[Path]) -> MergedDocument:
    """The runs in these folders as one document; a merged folder stands for its runs.

    Raises:
        UsageError: a folder holds no run, one comes twice, or they ask different things; says which.
    """
    return merge([analyse_cells(folder) for folder in expand_merged(folders)])


def merge(runs: Sequence[Analysed]) -> MergedDocument:
    """Runs as one document, each a column.

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
        rows=tuple(_rows(names, runs)),
        warnings=tuple(_warn(found)),
    )


def find_sites(place: str, run: Analysed) -> list[Site]:
    """A run's cells whose figures count."""
    return [
        Site(place=place, run=run, cell=cell, answer=answer, asked=read_asked(run, cell))
        for answer in run.document.answer
        for cell in [run.cells[answer.group]]
    ]


def match_sites(sites: Sequence[Site]) -> list[list[Site]]:
    """The sites that ask the same, in their order; threads count where one run asks it with several."""
    keys: list[Hashable] = [(key_of(one.asked), _scenario(one)) for one in sites]
    often = Counter((one.place, key) for one, key in zip(sites, keys, strict=True))
    several = {key for (_, key), count in often.items() if count > 1}
    found: dict[Hashable, list[Site]] = defaultdict(list)
    for one, key in zip(sites, keys, strict=True):
        threads = tuple(sorted({row.threads for row in one.cell.rows})) if key in several else ()
        found[key, threads].append(one)
    return [*found.values()]


def merge_cell(sites: Sequence[Site]) -> MergedCell:
    """One question in all its places."""
    arms = list(dict.fromkeys(arm for site in sites for arm in site.rows))
    worst = {arm: found for arm in arms if (found := _worst(arm, sites))}
    everywhere = _everywhere(worst) if len(sites) > 1 else None
    first = sites[0].cell.group
    return MergedCell(
        group=first,
        places=tuple(site.place for site in sites),
        everywhere=everywhere,
        reason=None if everywhere else _why_none(sites),
        ships=tuple(map(shipped_of, sites)),
        targets=tuple(sorted((_target(arm, sites, worst) for arm in arms), key=_order)),
        pairs=tuple(find_pairs({site.place: site.cell for site in sites})),
    )


def _scenario(site: Site) -> str:
    return site.run.groups[site.cell.group].record.arms[0].scenario


def name_places(runs: Sequence[Analysed]) -> list[str]:
    """What each is called: by its machine; with the run's folder where a machine has several."""
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
    """A run as a column."""
    return Place(
        name=name,
        machine=machine_of(run.document.environment).key,
        run=run.document.run,
        study=run.header.study,
        created=run.header.created,
        complete=run.document.complete,
        environment=run.document.environment,
    )


def _rows(names: Sequence[str], runs: Sequence[Analysed]) -> Iterator[PlacedRow]:
    for name, run in zip(names, runs, strict=True):
        key = machine_of(run.document.environment).key
        for row in run.document.rows:
            yield PlacedRow.model_construct(None, **dict(row), place=name, machine=key, run=run.document.run)


def _refuse_unmatched(runs: Sequence[Analysed], found: Sequence[Sequence[Site]]) -> None:
    """Stop at runs that have nothing in common, unless all are parts of one study that has several cells.

    Raises:
        UsageError: two have not; names the fields that differ.
    """
    studies = {run.header.study for run in runs}
    if len(studies) == 1 and studies != {DEFAULT}:
        return
    sites = [site for some in found for site in some]
    shared = {id(site.run) for some in found for site in some if len(some) > 1}
    for run in runs:
        mine, others = ([one for one in sites if (one.run is run) == own] for own in (True, False))
        if mine and others and id(run) not in shared:
            one, other = min(product(mine, others), key=lambda pair: len(find_differing(pair[0].asked, pair[1].asked)))
            told = "; ".join(tell_strange(one.asked, other.asked)) or "one of them is under requests, or a throughput"
            raise UsageError(f"{run.document.run} and {other.run.document.run} can't be put together: {told}")


def _warn(found: Sequence[Sequence[Site]]) -> Iterator[str]:
    for sites in found:
        for one, other in combinations(sites, 2):
            if EXPORT in find_differing(one.asked, other.asked):
                told = tell_differing(EXPORT, one.asked, other.asked)
                yield f"{one.cell.group}, {one.place} and {other.place}: {told}"


def shipped_of(site: Site) -> Shipped:
    """What a place's own answer ships."""
    ship = site.answer.ship
    return Shipped(
        place=site.place,
        arm=ship.arm if ship else None,
        median_ns=ship.median_ns if ship else None,
        tied=tuple(one.arm for one in (*site.answer.tied, *site.answer.unsettled)),
        reason=site.answer.reason,
    )


def _target(arm: str, sites: Sequence[Site], worst: Mapping[str, tuple[float, Site]]) -> Target:
    return Target(arm=arm, at=tuple(_at(arm, site) for site in sites), worst=worst[arm][0] if arm in worst else None)


def _order(target: Target) -> tuple[bool, float, int, float]:
    """Who may be shipped everywhere first, then who has the most times, and by the lowest of them."""
    times = [one.median_ns for one in target.at if one.median_ns is not None]
    return target.worst is None, target.worst or 0.0, -len(times), min(times, default=float("inf"))


def _at(arm: str, site: Site) -> At:
    row = site.rows.get(arm)
    if row is None:
        return At(place=site.place, outcome=None)
    timing = row.end_to_end
    reason = find_fault(site.cell, row) if timing else row.reason
    if timing is None:
        return At(place=site.place, outcome=row.outcome, reason=reason)
    return At(
        place=site.place,
        outcome=row.outcome,
        reason=reason,
        median_ns=timing.median_ns,
        low_ns=timing.low_ns,
        high_ns=timing.high_ns,
        ratio=_ratio(arm, site),
    )


def _ratio(arm: str, site: Site) -> Ratio | None:
    """Its time ÷ that of what the place ships."""
    ship = site.answer.ship
    return site.cell.ratio(arm, ship.arm) if ship and ship.arm != arm else None


def _may_ship(arm: str, site: Site) -> bool:
    """Whether a place may ship it: it was measured soundly, and is as well known to keep the model as what it ships."""
    row = site.rows.get(arm)
    if row is None or row.end_to_end is None or find_fault(site.cell, row):
        return False
    if any(site.cell.admits(one) for one in site.rows.values() if one.end_to_end):
        return site.cell.admits(row) is not None
    return is_judged(row)


def _worst(arm: str, sites: Sequence[Site]) -> tuple[float, Site] | None:
    """Its highest ratio, and where; None where some place may not ship it, or doesn't know how it compares."""
    found = []
    for site in sites:
        ship = site.answer.ship
        if ship is None or not _may_ship(arm, site):
            return None
        ratio = _ratio(arm, site)
        if ratio is None and ship.arm != arm:
            return None
        found.append((ratio.value if ratio else 1.0, site))
    return max(found, key=lambda one: one[0])


def _everywhere(worst: Mapping[str, tuple[float, Site]]) -> Everywhere | None:
    if not worst:
        return None
    arm = min(worst, key=lambda one: worst[one][0])
    value, site = worst[arm]
    near = sorted(one for one in worst if one != arm and worst[one][0] <= value * (1 + INDIFFERENT))
    ratio = _ratio(arm, site)
    return Everywhere(arm=arm, place=site.place if ratio else None, ratio=ratio, near=tuple(near))


def _why_none(sites: Sequence[Site]) -> str:
    if len(sites) == 1:
        return ALONE
    without = [site for site in sites if site.answer.ship is None]
    if without:
        return f"no answer on {without[0].place}: {without[0].answer.reason}"
    return "no target was measured in all places that may be shipped in each"
