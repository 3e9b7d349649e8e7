"""Tell the answer of several groups: what to ship everywhere, or a line for each group; then what holds for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.text import Text

from shootout.core.contract import short
from shootout.core.errors import FAILURES
from shootout.core.exported.request import name_model
from shootout.core.scenario import find_scenario
from shootout.core.units import counted, duration
from shootout.tell import reproduce
from shootout.tell.answer import (
    OUTSIDE,
    UNPROVEN,
    choose_label,
    is_unproven,
    leads,
    mark_reference,
    name_precision,
    next_ships,
    tell_answer,
    tell_machine,
    tell_next,
    tell_threads_beside,
)
from shootout.tell.columns import Cell, choose_unit, fits, make_table, write_time
from shootout.tell.document import Answer, Crossover, Document, Rival, Row
from shootout.tell.ratios import inverse, tell_ratio
from shootout.tell.report import NAMED, NARROWEST, WIDEST, Command, Line, Table, fold, gather, write_lines
from shootout.tell.wording import BUSY, BUSY_SHARE, describe_noise, tell_controls

SHOWN_GROUPS = 24
TIME = "time"
EXPLAIN = "layer by layer:"
GROUP = "group"
"""Stands in place of axes if these don't distinguish the groups."""


def locate_groups(first: Mapping[str, Row]) -> dict[str, dict[str, str]]:
    """Return each group's place on the axes along which groups differ; if places aren't unique, its name.

    Args:
        first: a row of each group, by the group's name.
    """
    places = {group: _place_row(row) for group, row in first.items()}
    every = dict.fromkeys(axis for place in places.values() for axis in place)
    axes = [axis for axis in every if len({place[axis] for place in places.values() if axis in place}) > 1]
    found = {group: {axis: place.get(axis, "") for axis in axes} for group, place in places.items()}
    unique = len({tuple(where.values()) for where in found.values()}) == len(found)
    return found if unique else {group: {GROUP: group} for group in places}


def _place_row(row: Row) -> dict[str, str]:
    """Return the place of a row's group on all axes."""
    batch = {} if find_scenario(row.scenario).selects else {"batch": row.batch}  # its setting's
    place = {**row.parameters, **batch, "threads": row.threads or "default", "scenario": row.scenario}
    return {"model": name_model(row.model), **{axis: str(value) for axis, value in place.items()}}


def name_cell(where: Mapping[str, str]) -> str:
    """Write the place of a group: `batch=16, threads=2`."""
    return where.get(GROUP) or ", ".join(f"{axis}={value}" for axis, value in where.items() if value)


def render_answers(document: Document, width: int, *, full: bool = False) -> list[RenderableType]:
    """Render what to ship, in so many columns; a run without an answer shows nothing.

    Args:
        full: what stands behind the answer too.
    """
    narrow = max(min(width, WIDEST), NARROWEST)
    if len(document.answer) == 1:
        (answer,) = document.answer
        lines = [*tell_answer(answer, document.rows_of(answer.group), document)]
        return [*write_lines([*lines, *(tell_more(document) if full else ())], narrow), Text()]
    if not document.answer:
        return []
    lines = [*tell_answers(document), *(tell_more(document) if full else ())]
    return [*write_lines(lines[:2], narrow), *_render_grid(document, width), *write_lines(lines[2:], narrow), Text()]


def tell_answers(document: Document) -> Iterator[Line]:
    """Tell the answer of several groups; the second line is what they are of."""
    answers, where = document.answer, _locate_answers(document)
    yield _tell_ship(answers, [*dict.fromkeys(axis for place in where.values() for axis in place)])
    yield Line("", [*_list_title_parts(document), f"saved in {reproduce.quote([document.run])}"])
    yield Line("Sure", [*_tell_sure(answers)])
    yield Line("Open", [*_tell_open(answers, where)])
    yield Line("Changes", [_tell_crossover(one, document) for one in document.crossovers if one.ships])
    yield Line("Front", [*_tell_front(document)])
    yield Line("Noise", [*_tell_noise(document)])
    yield from _tell_lower_precision(answers, where)
    yield _tell_next(document, where)


def may_ship(answer: Answer) -> bool:
    """Return whether it is decided what to ship in a group."""
    return answer.ship is not None and choose_label(answer) == "Ship"


def _tell_ship(answers: Sequence[Answer], axes: Sequence[str]) -> Line:
    """Tell what to ship in all groups, or in how many each target ships or leads."""
    counts = Counter(answer.ship.arm for answer in answers if answer.ship)
    groups = counted(len(answers), "group")
    if not counts:
        return Line("Ship", [*dict.fromkeys(answer.reason or "" for answer in answers)], subject="no answer")
    if len(counts) == 1 and all(map(may_ship, answers)):
        return Line("Ship", [f"in each of the {groups}"], subject=f"{next(iter(counts))} everywhere")
    words = {choose_label(answer) for answer in answers if answer.ship}
    parts = fold((f"{short(arm)} in {count}" for arm, count in counts.most_common()), NAMED)
    parts[0] += f" of {groups}"
    parts += [UNPROVEN] if any(map(is_unproven, answers)) else []
    weakest = next(word for word in ("Leads", "Fastest", "Ship") if word in words)
    return Line(weakest, parts, subject=f"by {' and '.join(axes)}")


def _list_title_parts(document: Document) -> list[str]:
    """List what all groups have in common: model, inputs, batch and threads; then the machine."""
    names = [OUTSIDE.split(answer.group) for answer in document.answer]
    shared = [part for part in names[0] if all(part in parts for parts in names)]
    models = {parts[0].partition(" (")[0] for parts in names}
    if len(models) == 1 and names[0][0] not in shared:
        shared.insert(0, *models)
    inputs = {answer.inputs for answer in document.answer if answer.inputs}
    shared[1:1] = inputs if len(inputs) == 1 else ()
    rows = [row for answer in document.answer for row in document.rows_of(answer.group)]
    shared[:1] = [mark_reference(one, rows) for one in shared[:1]]
    return [*shared, *tell_threads_beside(shared, rows), *tell_machine(document.environment)]


def _tell_sure(answers: Sequence[Answer]) -> Iterator[str]:
    """Tell in how many groups the choice is known to be the fastest, or one of equals."""
    decided = [answer for answer in answers if may_ship(answer)]
    if clear := sum(one.sure.slower == len(one.eligible) - 1 > 0 for one in decided):
        which = "each" if clear == len(answers) else f"{clear}"
        of = f"{which} of the {counted(len(answers), 'group')}"
        yield f"the fastest that may be shipped in {of}, 95 % for all of a group together"
    if tied := sum(bool(one.tied) for one in decided):
        yield f"tied with others in {counted(tied, 'group')}"


def _tell_open(answers: Sequence[Answer], where: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Tell in which groups nothing is decided and why; a reason that some share comes once."""
    groups: dict[str, list[str]] = {}
    for answer in answers:
        if leads(answer) or not answer.ship:
            rivals = ", ".join(fold((short(rival.arm) for rival in answer.unsettled), NAMED))
            why = answer.reason or f"{rivals} not ruled out"
            groups.setdefault(why, []).append(name_cell(where[answer.group]))
    for why, places in groups.items():
        yield f"{'; '.join(fold(places, NAMED))}: {why}"


def _tell_noise(document: Document) -> Iterator[str]:
    """Tell how noisy the worst group was, and whether that is too much for these answers."""
    answers = [answer for answer in document.answer if answer.ship]
    groups = [group for group in document.groups if any(answer.group == group.name for answer in document.answer)]
    if any(answer.sure.control_holds is False for answer in document.answer):
        yield tell_controls(groups)
    if not answers:
        return
    open_ = [answer for answer in answers if leads(answer)]
    allows = f"enough for these {'choices' if any(answer.tied for answer in answers) else 'winners'}"
    if open_:
        allows = f"too few restarts yet for {len(open_)} of {counted(len(document.answer), 'group')}"
    yield f"{describe_noise(groups)}: {allows}"
    if max(group.void_share for group in groups) > BUSY_SHARE:
        yield BUSY


def _tell_front(document: Document) -> Iterator[str]:
    """Tell the targets of several models that nothing beats in score and time together, the fastest first."""
    points = sorted(document.pareto, key=lambda point: point.median_ns)
    told = (
        f"{short(one.arm)} ({one.group}): {duration(one.median_ns)}, {one.metric} {one.score:.4g}" for one in points
    )
    yield from fold(told, NAMED)


def _tell_lower_precision(answers: Sequence[Answer], where: Mapping[str, Mapping[str, str]]) -> Iterator[Line]:
    """Tell the lower precision that is held back in most groups, by how much it is faster where that is most."""
    held = gather((change.arm, (answer, change)) for answer in answers for change in answer.would_change[:1])
    if not held:
        return
    arm, found = max(held.items(), key=lambda item: len(item[1]))
    answer, most = min(found, key=lambda one: one[1].ratio.value if one[1].ratio else 1.0)
    than = short(answer.ship.arm) if answer.ship else ""
    ratio = f": at {name_cell(where[answer.group])} {tell_ratio(most.ratio, than)}" if most.ratio else ""
    others = [f"{len(held) - 1} more with --full"] if len(held) > 1 else []
    told = f"{short(arm)} measured faster in {len(found)} of {counted(len(answers), 'group')}{ratio}"
    yield Line(name_precision(arm), [told, f"held back: {most.why}", *others])


def _tell_next(document: Document, where: Mapping[str, Mapping[str, str]]) -> Line:
    """Tell the one command that comes next: what goes on or races what is open, else what ships the first group's."""

    def rank(one: Answer) -> tuple[bool, ...]:
        ships = next_ships(one, document.rows_of(one.group))
        is_open = leads(one) and one.next is not None
        return one.next is None, not one.goes_on, not is_open, not ships, not may_ship(one), bool(one.no_folder)

    first = min(document.answer, key=rank)
    line = tell_next(first, document.rows_of(first.group))
    if first.goes_on or not line.commands:
        return line
    does = ": ".join(filter(None, [f"for {name_cell(where[first.group])}", line.commands[0].remark]))
    does += "; --group names another" if choose_label(first) == "Ship" else ""
    return replace(line, commands=[replace(line.commands[0], remark=does)])


def tell_more(document: Document) -> Iterator[Line]:
    """Tell with `--full` what races two targets where their lead changes, and what finds a refused layer."""
    first = sorted(document.crossovers, key=lambda one: not one.ships)
    commands = [Command(text=text) for text in dict.fromkeys(one.between for one in first if one.between)]
    yield Line("Between", ["the sizes between which the lead changes"] if commands else (), commands[:NAMED])
    causes = [group for answer in document.answer for group in answer.not_raced if group.cause in FAILURES]
    fixes = dict.fromkeys(group.fix for group in causes if group.fix)
    yield Line("", commands=[Command(label=EXPLAIN, text=fix) for fix in [*fixes][:1]])


def _locate_answers(document: Document) -> dict[str, dict[str, str]]:
    return locate_groups({answer.group: document.rows_of(answer.group)[0] for answer in document.answer})


def name_groups(document: Document) -> dict[str, str]:
    """Return a short name of each group with an answer, by its own: its place on the axes along which groups differ."""
    return {group: name_cell(where) or group for group, where in _locate_answers(document).items()}


def tabulate_answers(document: Document) -> Table:
    """Tabulate where each group is, and what to ship there."""
    where = _locate_answers(document)
    axes = [*dict.fromkeys(axis for place in where.values() for axis in place)]
    rows = [[*(where[one.group].get(axis, "") for axis in axes), *_fill_cells(one)] for one in document.answer]
    headers = [*axes, "", "target", TIME, "compared"]
    return Table(title="What to ship in each group", headers=headers, rows=rows, left={*headers} - {TIME})


def _fill_cells(answer: Answer) -> tuple[Cell, Cell, Cell, Cell]:
    """Return the first word of the answer, the target, its time, and how it compares."""
    if answer.ship is None:
        return Text("no answer", style="yellow"), "", "", answer.reason or ""
    rivals = ", ".join(fold((short(rival.arm) for rival in answer.tied), NAMED))
    tied = f"tied with {rivals}" if rivals and not leads(answer) else ""
    label = Text(choose_label(answer), style="bold" if may_ship(answer) else "yellow")
    time = write_time(answer.ship.median_ns, choose_unit(answer.ship.median_ns))
    alone = "nothing compared" if answer.alone else ""
    compared = tied or _compare(answer.otherwise) or _compare(answer.sure.closest) or alone
    return label, short(answer.ship.arm), time, compared


def _compare(rival: Rival | None) -> str:
    """Compare what is shipped with the usual choice or the second."""
    return tell_ratio(inverse(rival.ratio), short(rival.arm)) if rival and rival.ratio else ""


def _render_grid(document: Document, width: int) -> Iterator[RenderableType]:
    """Render a table of what to ship, a line for each of the first groups; in a narrow terminal a paragraph each."""
    table, where = tabulate_answers(document), _locate_answers(document)
    shown = table.rows[:SHOWN_GROUPS]
    lines = [dict(zip(table.headers, row, strict=True)) for row in shown]
    drawn = make_table(table.headers, lines, left=table.left)
    if fits(drawn, width):
        yield drawn
    else:
        for answer, row in zip(document.answer, shown, strict=False):
            word, *told = filter(None, map(str, row[-4:]))
            yield from write_lines([Line(word, told, subject=name_cell(where[answer.group]))], width)
    if len(table.rows) > SHOWN_GROUPS:
        yield Text(f"and {counted(len(table.rows) - SHOWN_GROUPS, 'group')} more, which --json has")


def _tell_crossover(one: Crossover, document: Document) -> str:
    """Tell up to which size one target is faster, and from which the other, and where that is on the other axes."""
    axes = {axis for place in _locate_answers(document).values() for axis in place} - {one.axis}
    place = {"model": name_model(one.model), **one.fixed, "scenario": one.scenario}
    fixed = name_cell({axis: str(value or "default") for axis, value in place.items() if axis in axes})
    copies = " without copies" if one.scope == "compute" else ""
    told = f"{short(one.below)} up to {one.axis} {one.low}, {short(one.above)} from {one.high} on{copies}"
    return f"{fixed}: {told}" if fixed else told
