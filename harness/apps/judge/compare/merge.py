"""Merge runs of several machines into one document: what to ship everywhere, and which rankings hold. Pure.

Runs are put together if they ask the same of one model, and none is given twice.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from shootout.apps.judge.analysis import Analysed, analyse_cells
from shootout.apps.judge.cell import Cell
from shootout.apps.judge.compare.merged import expand_merged
from shootout.apps.judge.leader import find_fault
from shootout.core.errors import UsageError
from shootout.core.exported.request import name_model
from shootout.core.scenario import scenario_of
from shootout.core.stats.verdicts import Verdict, judge
from shootout.core.units import counted
from shootout.tell.document import Answer, Part, Ratio, Row
from shootout.tell.machines import machine_of, name_machines
from shootout.tell.ratios import inverse
from shootout.tell.study_options import DEFAULT

SCHEMA = "shootout.merged-document/4"
Fate = Literal["flips", "holds", "unknown"]
"""A pair's verdicts from one place to another: faster here and slower there; the same verdict
everywhere; or somewhere another verdict, none, or no time of both.
"""


class Place(Part):
    """A run on a machine: a column.

    Attributes:
        name: of the machine; with its key, or the run's folder, where that tells it from another place.
        complete: whether the run came to its end with every verdict.
    """

    name: str
    machine: str
    run: str
    study: str
    created: str
    complete: bool
    environment: dict[str, Any]


class PlacedRow(Row):
    """A row, and where it was measured."""

    place: str
    machine: str
    run: str


class Everywhere(Part):
    """The one arm to ship in all places: its time ÷ that of what each place ships is least where it is highest.

    Attributes:
        place: where that is, as measured, and `ratio` how much; null where it is what every place ships.
        unsettled: others that aren't known to cost more.
        reason: why it is the best so far only: a place's own answer is.
    """

    arm: str
    place: str | None = None
    ratio: Ratio | None = None
    unsettled: tuple[str, ...] = ()
    reason: str | None = None


class Pair(Part):
    """Hold how two arms compare in each place that has a time of both: the first one's time ÷ the other's."""

    a: str
    b: str
    fate: Fate
    ratios: dict[str, Ratio]


class MergedCell(Part):
    """One question: the same model with the same inputs at one size.

    Attributes:
        group: as the first place names it.
        answers: of each place that asked it, by the place; its `group` is that of the place's rows.
        reason: why there is no `everywhere`.
        worst: of each arm that may be shipped everywhere, its time ÷ that of what a place ships, where that is
            highest; each end is the highest of all places' ends, and `high` null where some place knows none.
    """

    group: str
    answers: dict[str, Answer]
    everywhere: Everywhere | None = None
    reason: str | None = None
    worst: dict[str, Ratio]
    pairs: tuple[Pair, ...]


class MergedDocument(Part):
    """Runs of several machines; a row's `end_to_end.ship_ratio` is to what its place ships."""

    format: str = Field(default=SCHEMA, serialization_alias="schema")
    places: tuple[Place, ...]
    cells: tuple[MergedCell, ...]
    rows: tuple[PlacedRow, ...]
    warnings: tuple[str, ...] = ()

    def rows_of(self, cell: MergedCell) -> dict[str, dict[str, PlacedRow]]:
        """Return the rows of a question by place and arm."""
        found: dict[str, dict[str, PlacedRow]] = {place: {} for place in cell.answers}
        for row in self.rows:
            if row.place in found and row.group == cell.answers[row.place].group:
                found[row.place][row.arm] = row
        return found

    def __repr__(self) -> str:
        """Say how much is in it."""
        return f"<MergedDocument: {counted(len(self.cells), 'cell')} in {counted(len(self.places), 'place')}>"


ALONE = "only one machine"

Asked = Mapping[str, Any]
"""The facts that must be the same in all runs, by the names that people know."""
METRIC = "--metric"
SHARED = {
    f"--{name.replace('_', '-')}": name
    for name in ("inputs", "read", "labels", "truth", "rows_by", "calibration", "weights", "metric")
}
"""The options that two runs must have been given alike, by the options that people know: the fields of `Study`.

A run without a metric has no scores that could be another's.
"""
MODEL, EXPORT, OPERATIONS, THREADS = "model", "export", "operations", "threads"
_SETS = (EXPORT, OPERATIONS, THREADS)
"""The facts of which each run may have several, so that one in common is enough."""
_LOOSE = (METRIC, *_SETS)
"""The facts that needn't be known of both runs."""


def read_asked(run: Analysed, cell: Cell) -> Asked:
    """Return what a cell of a run asked."""
    found = run.groups[cell.group]
    arm = found.record.arms[0]
    given = run.facts.given
    trains = "train-step" if scenario_of(arm).trains else "inference"
    files = {name: Path(given[field]).name if field in given else None for name, field in SHARED.items()}
    batch = min(one.batch for one in found.record.arms)
    counts = {one.work.flops for one in found.prepared.values() if one.work}
    return {MODEL: name_model(arm.model), "scenario": trains, "batch": batch, **arm.parameters, **files} | {
        OPERATIONS: {one for one in counts if one is not None},
        EXPORT: {one.exported for one in found.prepared.values() if one.exported},
    }


def key_of(asked: Asked) -> Hashable:
    """Return the same for all that ask the same, as far as a key can tell: without what needn't be known of both."""
    return tuple((name, value) for name, value in asked.items() if name not in _LOOSE)


def find_differing(one: Asked, other: Asked) -> tuple[str, ...]:
    """Return the fields in which two differ."""

    def differ(name: str) -> bool:
        first, second = one.get(name), other.get(name)
        if name in _LOOSE:
            return bool(first and second and (not first & second if name in _SETS else first != second))
        return bool(first != second)

    return tuple(filter(differ, dict.fromkeys([*one, *other])))


def tell_differing(name: str, one: Asked, other: Asked) -> str:
    """Return a field that differs, with both values."""
    if name == EXPORT:
        return "their exports differ, in weights, data, exporter, or only in the precisions or the time for them"
    first, second = (
        ", ".join(map(str, sorted(found))) if isinstance(found, set) else found
        for found in (one.get(name), other.get(name))
    )
    return f"{name.lstrip('-')} differs: {first} and {second}"


def tell_strange(one: Asked, other: Asked) -> list[str]:
    """Return the fields that make two another question, with their values; another exporter alone doesn't."""
    differing = [name for name in find_differing(one, other) if name != EXPORT]
    if MODEL in differing:  # its parameters are others, too
        return [tell_differing(MODEL, one, other)]
    return [tell_differing(name, one, other) for name in differing]


def tell_apart(one: Asked, other: Asked) -> str:
    """Return why two that a key tells apart don't ask the same."""
    return "; ".join(tell_strange(one, other)) or tell_differing(THREADS, one, other)


def refuse_strangers(asked: Sequence[tuple[Analysed, Asked]]) -> None:
    """Stop at cells that ask different things.

    Raises:
        UsageError: two of them do; names the runs and the field.
    """
    for (first_run, first), (run, one) in combinations(asked, 2):
        differing = next(iter(find_differing(first, one)), None)
        if differing is None:
            continue
        name = run.document.run
        if run is first_run:
            raise UsageError(f"{name} has several groups", run.cells)
        told = tell_differing(differing, first, one)
        raise UsageError(f"{first_run.document.run} and {name} can't be merged: {told}")


def is_same(one: Analysed, other: Analysed) -> bool:
    """Tell whether two are one run, in whatever form: they began alike, and so did what they measured.

    Two nodes of one image may begin in the same second; where neither has a figure, they are two all the same.
    """
    if one.document.run == other.document.run:
        return True
    # no restart takes as long as another, to the last digit
    first, second = (
        (
            next((line.wall_s for group in run.groups.values() for line in group.rounds), None),
            (run.facts.created, run.facts.identity, run.document.environment.get("machine")),
        )
        for run in (one, other)
    )
    return first[0] is not None and first == second


_FILES = frozenset(SHARED) - {METRIC}


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
    for one, other in combinations(runs, 2):
        if is_same(one, other):
            raise UsageError(f"{one.document.run} and {other.document.run} are the same run: name it once")
    names = name_places(runs)
    found = match_sites([site for name, run in zip(names, runs, strict=True) for site in find_sites(name, run)])
    _refuse_unmatched(runs, found)
    return merge_sites(names, runs, found)


def merge_sites(
    names: Sequence[str], runs: Sequence[Analysed], found: Sequence[Sequence[CellInPlace]]
) -> MergedDocument:
    """Return runs as one document.

    Args:
        names: of the runs' places.
        found: the sites of each question.
    """
    return MergedDocument(
        places=tuple(map(place_of, names, runs)),
        cells=tuple(merge_cell(one) for one in found),
        rows=tuple(_place_rows(names, runs)),
        warnings=tuple(_warn_differences(found)),
    )


@dataclass(frozen=True, kw_only=True)
class CellInPlace:
    """A cell of a run in its place."""

    place: str
    run: Analysed
    cell: Cell
    answer: Answer
    asked: Asked

    @cached_property
    def rows(self) -> dict[str, Row]:
        """Return them by arm."""
        return {row.arm: row for row in self.run.document.rows_of(self.cell.group)}


def find_sites(place: str, run: Analysed) -> list[CellInPlace]:
    """Return a run's cells whose figures count."""
    found = []
    for answer in run.document.answer:
        cell = run.cells[answer.group]
        scenario = run.groups[answer.group].record.arms[0].scenario
        threads = {row.threads for row in run.document.rows_of(answer.group)}
        asked = {**read_asked(run, cell), "scenario": scenario, THREADS: threads}
        found.append(CellInPlace(place=place, run=run, cell=cell, answer=answer, asked=asked))
    return found


def match_sites(sites: Sequence[CellInPlace]) -> list[list[CellInPlace]]:
    """Return the sites of the same question, in their order; threads count if one run has it with several."""
    often = Counter((one.place, key_of(one.asked)) for one in sites)
    several = {key for (_, key), count in often.items() if count > 1}
    found: dict[Hashable, list[CellInPlace]] = defaultdict(list)
    for one in sites:
        key = key_of(one.asked)
        found[key, frozenset(one.asked[THREADS]) if key in several else None].append(one)
    return [*found.values()]


def name_places(runs: Sequence[Analysed]) -> list[str]:
    """Return what each is called: by its machine; with the run's folder where a machine has several."""
    machines = [machine_of(run.document.environment) for run in runs]
    names, often = name_machines(machines), Counter(machines)
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
            told = tell_apart(one.asked, other.asked)
            raise UsageError(f"{run.document.run} and {other.run.document.run} can't be merged: {told}")


def _warn_differences(found: Sequence[Sequence[CellInPlace]]) -> Iterator[str]:
    for sites in found:
        yield from warn_exports(sites)
        first = sites[0].asked
        if other := next((one for one in sites if one.asked[THREADS] != first[THREADS]), None):
            told = tell_differing(THREADS, first, other.asked)
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
    return MergedCell(
        group=sites[0].cell.group,
        answers={site.place: site.answer for site in sites},
        everywhere=everywhere,
        reason=None if everywhere else _why_none(sites),
        worst={arm: ratio for arm, (ratio, _) in worst.items()},
        pairs=tuple(find_pairs(sites)),
    )


_Worst = tuple[Ratio, Sequence[CellInPlace]]
"""An arm's time ÷ that of what a place ships where that is highest, and the sites where it measured so."""


def _find_worst(arm: str, sites: Sequence[CellInPlace]) -> _Worst | None:
    """Return None if some place may not ship it, or doesn't know how it compares."""
    found = [_compare_to_shipped(arm, site) for site in sites]
    ratios = [ratio for ratio in found if ratio]
    if len(ratios) < len(sites):
        return None
    worst = max(ratios, key=lambda one: one.value)
    lows, highs = [one.low for one in ratios if one.low is not None], [one.high for one in ratios if one.high]
    low, high = max(lows, default=None), max(highs) if len(highs) == len(ratios) else None
    verdict = judge(math.log(low) if low else -math.inf, math.log(high) if high else math.inf, bias_floor=0.0)
    where = [site for site, one in zip(sites, ratios, strict=True) if one.value == worst.value]
    return replace(worst, low=low, high=high, verdict=verdict), where


def _compare_to_shipped(arm: str, site: CellInPlace) -> Ratio | None:
    """Return its time ÷ that of what the place ships; None if that isn't known, or the place may not ship it."""
    if site.answer.ship is None or arm not in site.answer.eligible:
        return None
    if site.answer.ship.arm == arm:
        return Ratio(value=1.0, low=1.0, high=1.0, verdict=Verdict.SAME, restarts_needed=None, sd=None)
    timing = site.rows[arm].end_to_end
    return timing.ship_ratio if timing else None


def _choose_everywhere(worst: Mapping[str, _Worst], sites: Sequence[CellInPlace]) -> Everywhere | None:
    if not worst:
        return None
    order = sorted(worst, key=lambda one: worst[one][0].value)
    arm, (ratio, where) = order[0], worst[order[0]]
    is_own = all(site.answer.ship and site.answer.ship.arm == arm for site in sites)
    others = [one for one in order[1:] if not _costs_more(one, arm, worst)]
    return Everywhere(
        arm=arm,
        place=None if is_own else where[0].place,
        ratio=None if is_own else ratio,
        unsettled=tuple(others),
        reason=next((f"{site.place}: {site.answer.reason}" for site in sites if site.answer.reason), None),
    )


def _costs_more(other: str, arm: str, worst: Mapping[str, _Worst]) -> bool:
    """Tell whether an arm is known to cost more at its worst: it is slower if the best one's worst is, or its interval
    lies above.
    """
    (its, _), (mine, where) = worst[other], worst[arm]
    if any(ratio and ratio.verdict is Verdict.SLOWER for ratio in (site.cell.ratio(other, arm) for site in where)):
        return True
    return its.low is not None and mine.high is not None and its.low > mine.high


def _why_none(sites: Sequence[CellInPlace]) -> str:
    if len(sites) == 1:
        return ALONE
    if without := next((site for site in sites if site.answer.ship is None), None):
        return f"no answer on {without.place}: {without.answer.reason}"
    return "no target was measured in all places that may be shipped in each"


def find_pairs(sites: Sequence[CellInPlace]) -> list[Pair]:
    """Return every two arms that were timed in two places or more, flips first, the faster of the two first.

    Each verdict errs with the α that its own run gave it.
    """
    timed = {site.place: {arm: row for arm, row in site.rows.items() if row.end_to_end} for site in sites}
    found = []
    for a, b in combinations(dict.fromkeys(arm for rows in timed.values() for arm in rows), 2):
        both = [site for site in sites if {a, b} <= timed[site.place].keys()]
        ratios = {site.place: ratio for site in both if (ratio := _compare_sound(site, a, b))}
        if len(ratios) < 2:
            continue
        verdicts = [ratios[site.place].verdict if site.place in ratios else Verdict.CANT_TELL for site in sites]
        told = next((one for one in ratios.values() if one.decided), next(iter(ratios.values())))
        if told.value > 1:
            a, b, ratios = b, a, {place: inverse(ratio) for place, ratio in ratios.items()}
        found.append(Pair(a=a, b=b, fate=find_fate(verdicts), ratios=ratios))
    return sorted(found, key=lambda one: ("flips", "holds", "unknown").index(one.fate))


def _compare_sound(site: CellInPlace, a: str, b: str) -> Ratio | None:
    """Return one arm's time ÷ another's, without a verdict if either may not be shipped for its time."""
    ratio = site.cell.ratio(a, b)
    why = next((why for arm in (a, b) if (why := find_fault(site.cell, site.rows[arm]))), None)
    return replace(ratio, verdict=Verdict.CANT_TELL, reason=ratio.reason or why) if ratio and why else ratio


def find_fate(verdicts: Iterable[Verdict]) -> Fate:
    """Return what becomes of a verdict, from what it is in each place."""
    seen = {*verdicts}
    if {Verdict.FASTER, Verdict.SLOWER} <= seen:
        return "flips"
    return "holds" if len(seen) == 1 and Verdict.CANT_TELL not in seen else "unknown"
