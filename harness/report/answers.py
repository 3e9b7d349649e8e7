"""The answers of a whole document: one cell as a screen, several as a line each, and where the answer changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from shootout.contract import Value
from shootout.report.answer import SO_FAR, error_of_ship, screen, tell_not_raced, tell_step, told_change
from shootout.report.figures import Cell, fits, known, make_table
from shootout.report.lines import NAMED, fold, labelled
from shootout.results.answer import Answer
from shootout.results.document import Document, Row
from shootout.study.group import name_model, short
from shootout.units import counted, duration, size

WIDEST = 100
"""Columns; longer lines are harder to read than more of them."""
NARROWEST = 40
SHOWN_CELLS = 24
SHIP = ("ship", "time", "ratio", "size", "accuracy", "error", "not distinguished")
NAMES = {"ratio": "ratio ", "accuracy": "accuracy ", "error": "error ", "not distinguished": "not distinguished from "}
"""How these begin where there are no columns."""
Place = Mapping[str, Value]
"""Where a cell lies: axis → value."""


def render(document: Document, width: int) -> list[RenderableType]:
    """What to ship, in so many columns; nothing of a run without a cell."""
    narrow = max(min(width, WIDEST), NARROWEST)
    rows = {answer.group: [row for row in document.rows if row.group == answer.group] for answer in document.answer}
    if len(document.answer) == 1:
        (answer,) = document.answer
        return [*screen(answer, rows[answer.group], document, narrow), Text()]
    return [*_grid(document, rows, width, narrow), Text()] if document.answer else []


def _grid(document: Document, rows: Mapping[str, Sequence[Row]], width: int, narrow: int) -> Iterator[RenderableType]:
    """A line a cell: what to ship, and what isn't distinguished from it; then what is to be said of all."""
    places = {answer.group: _place(rows[answer.group][0]) for answer in document.answer}
    axes = varied(list(places.values()))
    where = _where(places, axes)
    yield Text(f"What to ship, in {len(places)} cells{_baseline(document)}", style="bold")
    yield from _cells(document.answer[:SHOWN_CELLS], rows, where, width)
    if len(document.answer) > SHOWN_CELLS:
        yield Text(f"and {counted(len(document.answer) - SHOWN_CELLS, 'cell')} more, which --json has")
    without = [answer for answer in document.answer if not answer.ship]
    yield from labelled("No answer", _reasons(without, where), narrow)
    yield from labelled("So far", _reasons([answer for answer in document.answer if answer.ship], where), narrow)
    for axis in axes:
        yield from labelled(f"Changes by {axis}", _changes(axis, document.answer, places), narrow)
    for answer in document.answer:
        yield from labelled(f"Smaller, {_told(where[answer.group])}:", map(tell_step, answer.smaller), narrow)
    yield from labelled("Sure?", [_sure(document)], narrow)
    yield from labelled("Not raced", tell_not_raced(document.answer, document.rows), narrow)
    yield from labelled("Would change it", _looser(document.answer), narrow)


def _baseline(document: Document) -> str:
    """What the ratios are to, where that is the same in all cells."""
    cells = {answer.group for answer in document.answer}
    found = {one.baseline for one in document.groups if one.name in cells}
    baseline = found.pop() if len(found) == 1 else None
    return f"; ratios are to {short(baseline)}" if baseline else ""


def _where(places: Mapping[str, Place], axes: Sequence[str]) -> dict[str, dict[str, str]]:
    """What tells each cell from the others: its place on the axes, or its name where that doesn't."""
    found = {group: {axis: _at(place, axis) for axis in axes} for group, place in places.items()}
    unique = len({tuple(one.values()) for one in found.values()}) == len(found)
    return found if unique else {group: {"cell": group} for group in places}


def _at(place: Place, axis: str) -> str:
    value = str(place.get(axis, ""))
    return name_model(value) if axis == "model" else value


def _told(where: Mapping[str, str]) -> str:
    return where.get("cell") or ", ".join(f"{axis}={value}" for axis, value in where.items() if value)


def _cells(
    answers: Sequence[Answer], rows: Mapping[str, Sequence[Row]], where: Mapping[str, Mapping[str, str]], width: int
) -> Iterator[RenderableType]:
    """A table where it fits, else a paragraph each."""
    lines: list[dict[str, Cell]] = [{**where[one.group], **_cell(one, rows[one.group])} for one in answers]
    headers = [name for name in lines[0] if any(str(line[name]) for line in lines)]
    table = make_table(headers, lines, left=set(headers) - {"time", "size"})
    if fits(table, width):
        yield table
        return
    for answer, line in zip(answers, lines, strict=True):
        told = [(name, str(line[name])) for name in SHIP if str(line[name])]
        items = (f"{NAMES.get(name, '')}{text}" for name, text in told)
        yield from labelled(f"{_told(where[answer.group])}:", items, width)


def _cell(answer: Answer, rows: Sequence[Row]) -> dict[str, Cell]:
    ship = answer.ship
    if ship is None:
        return dict.fromkeys(SHIP, "") | {"ship": Text("no answer", style="yellow")}
    figures = (
        f"{short(ship.arm)}{SO_FAR if answer.reason else ''}",
        duration(ship.median_ns),
        known(ship.ratio) if ship.ratio else "1",
        size(ship.artifact_bytes) if answer.smaller and ship.artifact_bytes else "",
        told_change(ship.accuracy_change).strip(" ()") if ship.admitted == "accuracy" else "",
        error_of_ship(ship, next(row for row in rows if row.arm == ship.arm)),
        ", ".join(fold((short(one.arm) for one in (*answer.tied, *answer.unsettled)), NAMED)),
    )
    return dict(zip(SHIP, figures, strict=True))


def _reasons(answers: Sequence[Answer], where: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Why there is no answer, or none that a verdict stands behind, and where."""
    cells: dict[str, list[str]] = {}
    for answer in answers:
        if answer.reason:
            cells.setdefault(answer.reason, []).append(_told(where[answer.group]))
    for reason, groups in cells.items():
        yield f"{'; '.join(fold(groups, NAMED))}: {reason}"


def _place(row: Row) -> Place:
    cell: dict[str, Value] = {"batch": row.batch, "threads": row.threads, "scenario": row.scenario}
    return {"model": row.model, **row.parameters, **cell}


def varied(places: Sequence[Place]) -> list[str]:
    """The axes along which some places differ, in their order."""
    axes = dict.fromkeys(axis for place in places for axis in place)
    return [axis for axis in axes if len({place[axis] for place in places if axis in place}) > 1]


def _changes(axis: str, answers: Sequence[Answer], places: Mapping[str, Place]) -> Iterator[str]:
    """Along one axis, all else the same: what to ship from which size on, while it may be."""
    along: dict[tuple[tuple[str, Value], ...], list[tuple[int, Answer]]] = {}
    for answer in answers:
        place = dict(places[answer.group])
        at = place.pop(axis, None)
        if isinstance(at, int) and not isinstance(at, bool):
            along.setdefault(tuple(place.items()), []).append((at, answer))
    for cells in along.values():
        stretches: list[tuple[str, int]] = []
        for at, answer in sorted(cells, key=lambda cell: cell[0]):
            if answer.ship and not (stretches and stretches[-1][0] in _may_be(answer)):
                stretches.append((answer.ship.arm, at))
        if len(stretches) > 1:
            yield ", ".join(f"{short(arm)} from {at} on" for arm, at in stretches)


def _may_be(answer: Answer) -> set[str]:
    """The arms that aren't known to be slower than the best."""
    return {one.arm for one in (*answer.tied, *answer.unsettled)} | ({answer.ship.arm} if answer.ship else set())


def _sure(document: Document) -> str:
    counts = sorted({answer.sure.restarts for answer in document.answer})
    controls = [answer.sure.control_holds for answer in document.answer]
    broken, held = controls.count(False), controls.count(True)
    told = f", the control passed in {counted(held, 'cell')}" if held else ""
    if broken:
        told = f", the control FAILED in {counted(broken, 'cell')}"
    elif held == len(controls):
        told = ", controls passed"
    many = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    return f"{many} restart{'' if counts == [1] else 's'}{told}."


def _looser(answers: Sequence[Answer]) -> Iterator[str]:
    """The fastest arms of a larger error, where that is faster, and in how many cells."""
    cells: dict[str, int] = {}
    for answer in answers:
        if arm := next((one.arm for one in answer.would_change if one.when == "looser"), None):
            cells[arm] = cells.get(arm, 0) + 1
    if cells:
        arms = (f"{short(arm)} in {counted(count, 'cell')}" for arm, count in cells.items())
        yield f"a looser error limit ({', '.join(fold(arms, NAMED))})"
