"""Write the first screen of several groups: a line for each, then what holds for all of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.console import RenderableType
from rich.text import Text

from shootout.core.contract import Value, short
from shootout.core.exported.request import name_model
from shootout.core.scenario import find_scenario
from shootout.core.units import counted, duration, size
from shootout.tell.answer import (
    find_faster,
    list_ways_out,
    name_reference,
    qualify,
    tell_against_usual,
    tell_answer,
    tell_choice,
    tell_error_of_ship,
    tell_machine,
    tell_no_folder,
    tell_race,
    tell_same_classes,
)
from shootout.tell.columns import Cell, choose_unit, fits, make_table, stack_tables, write_figure
from shootout.tell.compared import REFUSED, SHIPS, Compared
from shootout.tell.details import tell_details, tell_step
from shootout.tell.document import Answer, Crossover, Document, Row, WouldChange
from shootout.tell.ratios import inverse, tell_ratio
from shootout.tell.report import Command, Line
from shootout.tell.screen import NAMED, NARROWEST, WIDEST, bold, fold, labeled, write_lines
from shootout.tell.skipped import SHOWN_REASONS
from shootout.tell.wording import tell_metric

FASTER, MOST_FASTER = "Faster, not shipped", 4
"""Label of what is faster and may not be shipped; and how many of these are named."""
CHANGES_BY, FASTER_BY = "Changes by ", "Faster by "
"""Labels of what to ship along an axis, and of which of two is faster."""
SURE = "Sure"
BETWEEN = "the sizes between:"
SHOWN_CELLS = 24
REASON = "reason"
"""The column without a title: why a target may not be shipped."""
OPEN = "?"
"""The mark of a target that isn't distinguished from what ships."""
SHIP = ("ship", "time", "compared", "size", "metric", "error", "tied", "chosen by", "unsure")
TIED, UNSURE = "tied with ", "not significantly slower: "
"""Before the names of targets that may be equally good, and of those that measured slower without a verdict."""
NAMES = {"error": "error ", "tied": TIED, "chosen by": "chosen by ", "unsure": UNSURE}
"""Prefixes of the figures if there are no columns."""
Place = Mapping[str, Value]
"""The place of a cell: axis → value."""


def render_answers(document: Document, width: int, *, full: bool = False) -> list[RenderableType]:
    """Render what to ship, in so many columns; a run without an answer shows nothing.

    Args:
        full: what stands behind one group's answer too.
    """
    narrow = max(min(width, WIDEST), NARROWEST)
    if len(document.answer) == 1:
        (answer,) = document.answer
        lines = [*tell_answer(answer, document.rows_of(answer.group), document)]
        return [*write_lines([*lines, *(tell_details(answer) if full else ())], narrow), Text()]
    return [*_render_grid(document, width, narrow), Text()] if document.answer else []


def _render_grid(document: Document, width: int, narrow: int) -> Iterator[RenderableType]:
    """Render a line for each group: what to ship, and what may be equally fast; then what holds for all groups."""
    answers = document.answer
    head = " · ".join([f"What to ship, in {len(answers)} groups", *tell_machine(document.environment)])
    yield Text(head, style="bold")
    yield from _render_cells(document, width)
    if len(answers) > SHOWN_CELLS:
        yield Text(f"and {counted(len(answers) - SHOWN_CELLS, 'group')} more, which --json has")
    yield from write_support_of_all(document, narrow)


def write_support_of_all(document: Document, narrow: int) -> Iterator[Text]:
    """Write what holds for all groups of a run together."""
    answers = document.answer
    of_all = tell_all_groups(document)
    for label, items in of_all:
        if label == SURE:
            yield from write_lines([Line("", commands=[*list_ways_between(document)])], narrow)
        yield from labeled(label, items, narrow)
    yield from _write_faster_of_all(answers, narrow)
    told = [*dict.fromkeys(line for answer in answers for line in tell_no_folder(answer)[:1])]
    for number, line in enumerate(told):
        yield from labeled("" if number else "Next", [line], narrow)
    commands = [Command(text=command) for command in list_next(answers)]
    yield from write_lines([Line("" if told else "Next", commands=commands)], narrow)


def tell_all_groups(document: Document) -> Iterator[tuple[str, list[str]]]:
    """Tell what holds for all groups together: labels, and the items of each."""
    answers, (places, axes, where) = document.answer, _place_answers(document)
    without = [answer for answer in answers if not answer.ship]
    yield "No answer", list(_tell_reasons(without, where))
    yield "So far", list(_tell_reasons([answer for answer in answers if answer.ship], where))
    for axis in axes:
        mine = [one for one in _drop_repeated(document.crossovers) if one.axis == axis]
        yield f"{CHANGES_BY}{axis}", [_tell_crossover(one, axes) for one in mine if one.ships]
        yield f"{FASTER_BY}{axis}", [_tell_crossover(one, axes) for one in mine if not one.ships]
    for answer in answers:
        yield f"Smaller, {_name_cell(where[answer.group])}:", list(map(tell_step, answer.smaller))
    yield SURE, list(tell_race([group for group in document.groups if group.name in places]))


def _place_answers(document: Document) -> tuple[dict[str, Place], list[str], dict[str, dict[str, str]]]:
    """Return the place of each group, the axes along which they differ, and the place in words; by group's name."""
    places = {answer.group: _place_row(document.rows_of(answer.group)[0]) for answer in document.answer}
    axes = varied(list(places.values()))
    return places, axes, _locate_cells(places, axes)


def _locate_cells(places: Mapping[str, Place], axes: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return each cell's place on the axes; if places aren't unique, its name."""
    found = {group: {axis: _name_value(place, axis) for axis in axes} for group, place in places.items()}
    unique = len({tuple(where.values()) for where in found.values()}) == len(found)
    return found if unique else {group: {"cell": group} for group in places}


def _name_value(place: Place, axis: str) -> str:
    value = str(place.get(axis, ""))
    return name_model(value) if axis == "model" else value


def _name_cell(where: Mapping[str, str]) -> str:
    return where.get("cell") or ", ".join(f"{axis}={value}" for axis, value in where.items() if value)


def tabulate_answers(document: Document) -> tuple[list[str], list[dict[str, Cell]]]:
    """Return the headers that have a figure, and a line for each group: where it is, what to ship there."""
    _, _, where = _place_answers(document)
    lines: list[dict[str, Cell]] = [
        {**where[answer.group], **_fill_cells(answer, document.rows_of(answer.group))} for answer in document.answer
    ]
    return [name for name in lines[0] if any(str(line[name]) for line in lines)], lines


def _render_cells(document: Document, width: int) -> Iterator[RenderableType]:
    """Render a table if it fits, else a paragraph each."""
    headers, every = tabulate_answers(document)
    lines = every[:SHOWN_CELLS]
    table = make_table(headers, lines, left=set(headers) - {"time", "size"})
    if fits(table, width):
        yield table
        return
    for line in lines:
        told = [(name, str(line[name])) for name in SHIP if str(line[name])]
        items = (f"{NAMES.get(name, '')}{text}" for name, text in told)
        place = {name: str(text) for name, text in line.items() if name not in SHIP}
        yield from labeled(f"{_name_cell(place)}:", items, width)


def _fill_cells(answer: Answer, rows: Sequence[Row]) -> dict[str, Cell]:
    ship = answer.ship
    if ship is None:
        return dict.fromkeys(SHIP, "") | {"ship": Text("no answer", style="yellow")}
    row = next(row for row in rows if row.arm == ship.arm)
    figures = (
        f"{short(ship.arm)}{qualify(answer)}",
        duration(ship.median_ns),
        tell_against_usual(answer, briefly=True) or _tell_against_closest(answer),
        size(ship.artifact_bytes) if answer.smaller and ship.artifact_bytes else "",
        tell_metric(ship.metric)
        if ship.admitted == "metric" and ship.metric
        else tell_same_classes(row, rows)
        if name_reference(rows)
        else "",
        tell_error_of_ship(ship, row),
        ", ".join(fold((short(rival.arm) for rival in answer.tied), NAMED)),
        tell_choice(answer.chosen_by),
        ", ".join(fold((short(rival.arm) for rival in answer.unsettled), NAMED)),
    )
    return dict(zip(SHIP, figures, strict=True))


def _tell_against_closest(answer: Answer) -> str:
    """Compare what is shipped, if it is what most would take, with the closest that is slower."""
    closest = answer.sure.closest
    return tell_ratio(inverse(closest.ratio), short(closest.arm)) if closest and closest.ratio else ""


def _tell_reasons(answers: Sequence[Answer], where: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Tell why there is no answer, or no verdict for it, and in which cells."""
    cells: dict[str, list[str]] = {}
    for answer in answers:
        if answer.reason:
            cells.setdefault(answer.reason, []).append(_name_cell(where[answer.group]))
    for reason, groups in cells.items():
        yield f"{'; '.join(fold(groups, NAMED))}: {reason}"


def _place_row(row: Row) -> Place:
    cell: dict[str, Value] = {"threads": row.threads or "default", "scenario": row.scenario}
    batch: dict[str, Value] = {} if find_scenario(row.scenario).selects else {"batch": row.batch}  # its setting's
    return {"model": row.model, **row.parameters, **batch, **cell}


def varied(places: Sequence[Place]) -> list[str]:
    """Return the axes along which some places differ, in their order."""
    axes = dict.fromkeys(axis for place in places for axis in place)
    return [axis for axis in axes if len({place[axis] for place in places if axis in place}) > 1]


def _drop_repeated(crossovers: Iterable[Crossover]) -> Iterator[Crossover]:
    """Drop those of `compute` that lie between the same sizes as end to end."""
    seen = list[Crossover]()
    for one in crossovers:
        alike = one.model_copy(update={"scope": "", "ships": False})
        if alike not in seen:
            yield one
        seen.append(alike)


def _tell_crossover(one: Crossover, axes: Sequence[str]) -> str:
    """Tell up to which size one target is faster, and from which the other.

    Args:
        axes: along which the groups differ; where it is on the others is told.
    """
    place: Place = {"model": one.model, **one.fixed, "threads": one.fixed.get("threads") or "default"}
    fixed = _name_cell(
        {axis: _name_value({**place, "scenario": one.scenario}, axis) for axis in axes if axis != one.axis}
    )
    copies = " without copies" if one.scope == "compute" else ""
    told = f"{short(one.below)} up to {one.low}, {short(one.above)} from {one.high} on{copies}"
    return f"{fixed}: {told}" if fixed else told


def list_ways_between(document: Document) -> Iterator[Command]:
    """List what to type to race two targets at the sizes between which their lead changes; the first few."""
    first = sorted(document.crossovers, key=lambda one: not one.ships)
    commands = dict.fromkeys(one.between for one in first if one.between)
    for number, command in enumerate([*commands][:NAMED]):
        yield Command(label="" if number else BETWEEN, text=command)


def _write_faster_of_all(answers: Sequence[Answer], width: int) -> Iterator[Text]:
    """Name the targets that are faster than what is shipped, and in how many groups; one command for the first."""
    lines = tell_faster_of_all(answers)
    if not lines:
        return
    yield bold(FASTER, len(FASTER))
    for line in lines:
        yield from labeled("", [line], width)
    held = next(change for answer in answers for change in find_faster(answer))
    yield from write_lines([Line("", commands=[*list_ways_out(held)])], width)


def tell_faster_of_all(answers: Sequence[Answer]) -> list[str]:
    """Name the targets that are faster than what is shipped, in how many groups, and why they may not be shipped."""
    groups: dict[str, list[WouldChange]] = {}
    for answer in answers:
        for change in find_faster(answer)[:1]:
            groups.setdefault(change.arm, []).append(change)
    why: dict[str, list[str]] = {}
    for arm, some in groups.items():
        why.setdefault(some[0].why or "", []).append(f"{short(arm)} in {counted(len(some), 'group')}")
    return [f"{', '.join(fold(arms, MOST_FASTER))}: {reason}" for reason, arms in why.items()]


_NUMBERED = re.compile(r"(?<= -o model-)\d+$")
"""The number at the end of a folder's name in a command."""


def list_next(answers: Iterable[Answer]) -> list[str]:
    """List the commands that come next of the first groups, each with a folder of its own."""
    commands = [*dict.fromkeys(answer.next for answer in answers if answer.next)][:SHOWN_REASONS]
    return [_count_up(command, number) for number, command in enumerate(commands)]


def _count_up(command: str, by: int) -> str:
    return _NUMBERED.sub(lambda found: str(int(found[0]) + by), command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Groups that differ along one axis, whose times share a table.

    Attributes:
        fixed: the place on the other axes along which groups differ, for people; "" if there is none.
        groups: the groups by their place on the axis.
    """

    axis: str
    fixed: str
    groups: dict[str, Compared]

    @property
    def unit(self) -> str:
        """Return the unit of all times: that of the fastest that ships."""
        rows = [(found, row) for found in self.groups.values() for row in found.rows if row.end_to_end]
        times = [found.time_ns(row) for found, row in rows]
        ships = [found.time_ns(row) for found, row in rows if row.arm == found.ship]
        return choose_unit(min(ships or times, default=1e6), times)

    def order_arms(self) -> list[str]:
        """Return all targets by their times over those of what ships; those that may ship nowhere come last."""
        apart: dict[str, list[float]] = {}
        refused: dict[str, bool] = {}
        for found in self.groups.values():
            times = {row.arm: found.time_ns(row) for row in found.rows if row.end_to_end}
            reference = times.get(found.reference or "", min(times.values(), default=1.0))
            for row in found.rows:
                apart.setdefault(row.arm, []).extend([math.log(times[row.arm] / reference)] if row.arm in times else [])
                refused[row.arm] = refused.get(row.arm, True) and found.is_refused(row)
        return sorted(apart, key=lambda arm: (refused[arm], fmean(apart[arm]) if apart[arm] else math.inf))


def find_sweeps(groups: Sequence[Compared]) -> list[Sweep]:
    """Put groups into tables along the axis on which they have most places."""
    places = {found.summary.name: _place_row(found.rows[0]) for found in groups if found.rows}
    axes = varied(list(places.values()))
    where = _locate_cells(places, axes)
    counts = {axis: len({str(place.get(axis)) for place in places.values()}) for axis in axes}
    axis = max(axes, key=lambda name: (counts[name], name not in ("model", "scenario")), default="cell")
    tables: dict[str, dict[str, Compared]] = {}
    for found in groups:
        if mine := dict(where.get(found.summary.name, {})):
            at = mine.pop(axis, "") or mine.pop("cell", "")
            tables.setdefault(_name_cell(mine), {})[at] = found
    return [Sweep(axis=axis, fixed=fixed, groups=columns) for fixed, columns in tables.items()]


def render_sweeps(groups: Sequence[Compared], width: int) -> list[RenderableType]:
    """Render the times of several groups, a column each, in as many tables as `width` (letters) needs."""
    parts: list[RenderableType] = []
    for sweep in find_sweeps(groups):
        unit = sweep.unit
        first = f"{sweep.axis} ({unit})"
        lines: list[dict[str, Cell]] = []
        for arm in sweep.order_arms():
            cells = {at: _fill_time(found, arm, unit) for at, found in sweep.groups.items()}
            rows = ((found, row) for found in sweep.groups.values() for row in found.rows if row.arm == arm)
            reasons = dict.fromkeys(filter(None, (found.tell_refusal(row) for found, row in rows)))
            lines.append({first: short(arm), **cells, REASON: ", ".join(reasons)})
        headers = [first, *sweep.groups, *([REASON] if any(line[REASON] for line in lines) else [])]
        parts += [Text(sweep.fixed, style="bold")] if sweep.fixed else []
        parts += stack_tables(headers, lines, width, left=[first, REASON], titles={REASON: ""})
    return parts


def tell_marks(groups: Sequence[Compared]) -> Iterator[str]:
    """Explain the marks that stand in the tables of several groups."""
    yield f"{SHIPS}: ships or leads."
    if any(answer.tied or answer.unsettled for found in groups if (answer := found.answer)):
        yield f"{OPEN}: not distinguished from it."
    if any(found.is_refused(row) for found in groups for row in found.rows):
        yield f"{REFUSED}: not shipped by default."


def _fill_time(found: Compared, arm: str, unit: str) -> Cell:
    """Write a target's time in one group, with its mark."""
    row = next((row for row in found.rows if row.arm == arm), None)
    if row is None or row.end_to_end is None:
        return Text("failed" if row and row.outcome == "failed" else "-", style="dim")
    figure = write_figure(found.time_ns(row), unit) or found.write_time(row)
    rivals = (*found.answer.tied, *found.answer.unsettled) if found.answer else ()
    if arm == found.ship:
        return Text(f"{SHIPS}{figure}", style="green" if row.is_judged else "yellow")
    if found.is_refused(row):
        return Text(f"{REFUSED}{figure}", style="dim")
    return f"{OPEN}{figure}" if arm in {rival.arm for rival in rivals} else figure
