"""Tell the answer of several groups: what to ship everywhere, or a line for each group; then what holds for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from shootout.core.contract import Value, short
from shootout.core.exported.request import name_model
from shootout.core.scenario import find_scenario
from shootout.core.stats.verdicts import Verdict
from shootout.core.units import counted, duration
from shootout.tell import reproduce
from shootout.tell.answer import (
    MARKS,
    OUTSIDE,
    UNPROVEN,
    choose_label,
    find_faster,
    is_unproven,
    leads,
    name_precision,
    next_ships,
    remark_next,
    tell_against_usual,
    tell_answer,
    tell_machine,
    tell_next,
    tell_no_folder,
    tell_threads_beside,
)
from shootout.tell.columns import Cell, choose_unit, fits, make_table, write_time
from shootout.tell.details import tell_details
from shootout.tell.document import Answer, Crossover, Document, Rival, Row, WouldChange
from shootout.tell.ratios import WIDE, inverse, tell_direction, tell_ratio
from shootout.tell.report import Command, Line
from shootout.tell.screen import NAMED, NARROWEST, WIDEST, fold, write_lines
from shootout.tell.wording import BUSY, BUSY_SHARE, describe_noise, tell_controls

SHOWN_GROUPS = 24
DECIDED, TARGET, TIME, COMPARED = ":decided", ":target", ":time", ":compared"
"""The columns behind those of the axes, by names that no axis has; the first tells whether to ship."""
GROUP = "group"
"""Stands in place of axes if these don't distinguish the groups."""
Place = Mapping[str, Value]
"""The place of a cell: axis → value."""


def place_row(row: Row) -> Place:
    """Return the place of a row's group on all axes."""
    cell: dict[str, Value] = {"threads": row.threads or "default", "scenario": row.scenario}
    batch: dict[str, Value] = {} if find_scenario(row.scenario).selects else {"batch": row.batch}  # its setting's
    return {"model": row.model, **row.parameters, **batch, **cell}


def locate_groups(first: Mapping[str, Row]) -> dict[str, dict[str, str]]:
    """Return each group's place on the axes along which groups differ; if places aren't unique, its name.

    Args:
        first: a row of each group, by the group's name.
    """
    places = {group: place_row(row) for group, row in first.items()}
    every = dict.fromkeys(axis for place in places.values() for axis in place)
    axes = [axis for axis in every if len({place[axis] for place in places.values() if axis in place}) > 1]
    found = {group: {axis: name_value(place, axis) for axis in axes} for group, place in places.items()}
    unique = len({tuple(where.values()) for where in found.values()}) == len(found)
    return found if unique else {group: {GROUP: group} for group in places}


def name_value(place: Place, axis: str) -> str:
    """Write a place on one axis."""
    value = str(place.get(axis, ""))
    return name_model(value) if axis == "model" else value


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
        return [*write_lines([*lines, *(tell_details(answer) if full else ())], narrow), Text()]
    if not document.answer:
        return []
    lines = [*tell_answers(document), *([tell_between(document)] if full else [])]
    return [*write_lines(lines[:2], narrow), *_render_grid(document, width), *write_lines(lines[2:], narrow), Text()]


def tell_answers(document: Document) -> Iterator[Line]:
    """Tell the answer of several groups; the second line is what they are of."""
    answers, where = document.answer, _locate_answers(document)
    yield _tell_ship(answers, where)
    yield Line("", [*_list_title_parts(document), f"saved in {reproduce.quote([document.run])}"])
    yield Line("Sure", [*_tell_sure(answers, where)])
    yield Line("Open", [*_tell_open(answers, where)])
    yield Line("Changes", [_tell_crossover(one, document) for one in document.crossovers if one.ships])
    yield Line("Front", [*_tell_front(document)])
    yield Line("Noise", [*_tell_noise(document)])
    yield from _tell_lower_precision(answers, where)
    yield _tell_next(document, where)


def ships_everywhere(answers: Sequence[Answer]) -> bool:
    """Return whether the same target may be shipped in each group."""
    ships = {answer.ship.arm if answer.ship else None for answer in answers}
    return len(ships) == 1 and all(map(may_ship, answers))


def may_ship(answer: Answer) -> bool:
    """Return whether it is decided what to ship in a group."""
    return answer.ship is not None and choose_label(answer) == "Ship"


def _tell_ship(answers: Sequence[Answer], where: Mapping[str, Mapping[str, str]]) -> Line:
    """Tell what to ship in all groups, or how often each target ships or leads."""
    labels = [(answer.ship.arm, choose_label(answer)) for answer in answers if answer.ship]
    if ships_everywhere(answers):
        against = [
            (one.otherwise.ratio.value, number, one.otherwise.arm)
            for number, one in enumerate(answers)
            if one.otherwise and one.otherwise.ratio and one.otherwise.ratio.verdict is Verdict.SLOWER
        ]
        least = [answers[number] for _, number, _ in sorted(against)[:1]]
        is_same = len(against) == len(answers) and len({arm for _, _, arm in against}) == 1
        more = ", no less in the other groups" if is_same else ""
        told = [f"{tell_against_usual(one)} at {name_cell(where[one.group])}{more}" for one in least]
        each = f"in each of the {counted(len(answers), 'group')}"
        return Line("Ship", told or [each], subject=f"{labels[0][0]} everywhere")
    if not labels:
        return Line("Ship", [*dict.fromkeys(answer.reason or "" for answer in answers)], subject="no answer")
    words = {label for _, label in labels}
    weakest = next(word for word in ("Leads", "Fastest", "Ship") if word in words)
    *most, last = dict.fromkeys(axis for place in where.values() for axis in place)
    axes = " and ".join([", ".join(most), last] if most else [last])
    unproven = sum(map(is_unproven, answers))
    where_unproven = f" in {counted(unproven, 'group')}" if unproven < len(labels) else ""
    parts = fold(_count_labels(labels, len(answers)), NAMED)
    parts += [f"{UNPROVEN}{where_unproven}"] if unproven else []
    return Line(weakest, parts, subject=f"by {axes}")


def _count_labels(labels: Sequence[tuple[str, str]], groups: int) -> Iterator[str]:
    """Tell in how many groups each target ships, leads or is the fastest; a word that all share is left out.

    Args:
        labels: the arm of each group with an answer, and the word that this begins with.
        groups: with an answer or without.
    """
    by_arm: dict[str, Counter[str]] = {}
    for arm, label in labels:
        by_arm.setdefault(arm, Counter())[label] += 1
    is_shared = len({label for _, label in labels}) == 1
    of = f" of {counted(groups, 'group')}"
    for arm, counts in sorted(by_arm.items(), key=lambda item: -item[1].total()):
        told = [f"{'' if is_shared else f'{MARKS[label]} '}in {counts[label]}" for label in MARKS if label in counts]
        told[0], of = told[0] + of, ""
        yield f"{short(arm)} {', '.join(told)}"


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
    return [*shared, *tell_threads_beside(shared, rows), *tell_machine(document.environment)]


def _tell_sure(answers: Sequence[Answer], where: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Tell in how many groups the choice is known to be the fastest, or one of equals, and how close the second is."""
    decided = [answer for answer in answers if may_ship(answer)]
    clear = [one for one in decided if one.sure.slower == len(one.eligible) - 1 > 0]
    tied, alone = (sum(map(bool, found)) for found in ((one.tied for one in decided), (one.alone for one in decided)))
    if clear:
        which = "each" if len(clear) == len(answers) else f"{len(clear)}"
        of = f"{which} of the {counted(len(answers), 'group')}"
        yield f"the fastest that may be shipped in {of}, 95 % for all of a group together"
    if ships_everywhere(answers):
        yield from _tell_second(answers, where)
    if tied:
        yield f"tied with others in {counted(tied, 'group')}"
    if lone := sum(len(one.eligible) == 1 and not one.alone for one in decided):
        yield f"no other target may be shipped in {counted(lone, 'group')}"
    if alone:
        yield f"nothing was compared in {counted(alone, 'group')}"


def _tell_second(answers: Sequence[Answer], where: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Name the second of what ships everywhere, in the group where it is closest; nothing if it was compared above."""
    apart = [
        (one, rival, rival.ratio) for one in answers if (rival := one.sure.closest) and rival.ratio and not one.tied
    ]
    for answer, rival, ratio in sorted(apart, key=lambda found: found[2].value)[:1]:
        if answer.otherwise is None or rival.arm != answer.otherwise.arm:
            yield f"the closest second is {short(rival.arm)}, {tell_ratio(ratio)} at {name_cell(where[answer.group])}"


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
    held: dict[str, list[tuple[Answer, WouldChange]]] = {}
    for answer in answers:
        for change in find_faster(answer)[:1]:
            held.setdefault(change.arm, []).append((answer, change))
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
    answers = document.answer
    for answer in answers:
        if answer.goes_on and answer.next:
            return Line("Next", commands=[Command(text=answer.next, remark="goes on where this stopped")])
    ships = {answer.group: next_ships(answer, document.rows_of(answer.group)) for answer in answers}

    def rank(one: Answer) -> tuple[bool, ...]:
        is_open = leads(one) and one.next is not None
        return not is_open, not ships[one.group], not may_ship(one), bool(one.no_folder)

    by_use = sorted(answers, key=rank)
    first = next((one for one in by_use if one.next), by_use[0])
    rows = document.rows_of(first.group)
    if first.next is None:
        told = [*dict.fromkeys(line for one in answers for line in tell_no_folder(one))]
        return Line("Next", told) if told else tell_next(first, rows)
    place = f"for {name_cell(where[first.group])}"
    does = remark_next(first, rows)
    if ships[first.group]:
        place, does = place + ("; --group names another" if sum(ships.values()) > 1 else ""), ""
    return Line(
        "Next", tell_no_folder(first), [Command(text=first.next, remark=": ".join(filter(None, [place, does])))]
    )


def tell_between(document: Document) -> Line:
    """Tell with `--full` what races two targets at the sizes between which their lead changes."""
    first = sorted(document.crossovers, key=lambda one: not one.ships)
    commands = [Command(text=text) for text in dict.fromkeys(one.between for one in first if one.between)]
    return Line("Between", ["the sizes between which the lead changes"] if commands else (), commands[:NAMED])


def tell_group_details(answer: Answer) -> Iterator[Line]:
    """Tell with `--full` what stands behind the answer of one group of several, and its own next command."""
    yield from tell_details(answer)
    yield Line("Next", tell_no_folder(answer), [Command(text=answer.next)] if answer.next else ())


def _locate_answers(document: Document) -> dict[str, dict[str, str]]:
    return locate_groups({answer.group: document.rows_of(answer.group)[0] for answer in document.answer})


def name_groups(document: Document) -> dict[str, str]:
    """Return a short name of each group with an answer, by its own: its place on the axes along which groups differ."""
    return {group: name_cell(where) or group for group, where in _locate_answers(document).items()}


def tabulate_answers(document: Document) -> tuple[list[str], list[dict[str, Cell]]]:
    """Return the headers that have a figure, and a line for each group: where it is, what to ship there."""
    where = _locate_answers(document)
    lines: list[dict[str, Cell]] = [{**where[answer.group], **_fill_cells(answer)} for answer in document.answer]
    return [name for name in lines[0] if any(str(line[name]) for line in lines)], lines


def name_time(scenarios: Iterable[str]) -> str:
    """Name what a time of these scenarios is."""
    found = [find_scenario(name) for name in {*scenarios}]
    if any(scenario.varies for scenario in found):
        return "mean time"
    return "median" if all(scenario.is_one_call or scenario.trains for scenario in found) else "time"


def title_answers(document: Document) -> dict[str, str]:
    """Return the titles of the columns that tell what to ship."""
    time = name_time(row.scenario for row in document.rows)
    return {DECIDED: "", TARGET: "target", TIME: time, COMPARED: "compared"}


def _fill_cells(answer: Answer) -> dict[str, Cell]:
    if answer.ship is None:
        return {DECIDED: Text("no answer", style="yellow"), TARGET: "", TIME: "", COMPARED: answer.reason or ""}
    rivals = ", ".join(fold((short(rival.arm) for rival in answer.tied), NAMED))
    tied = f"tied with {rivals}" if rivals and not leads(answer) else ""
    return {
        DECIDED: Text(choose_label(answer), style="bold" if may_ship(answer) else "yellow"),
        TARGET: short(answer.ship.arm),
        TIME: write_time(answer.ship.median_ns, choose_unit(answer.ship.median_ns)),
        COMPARED: tied or _compare(answer.otherwise) or _compare(answer.sure.closest),
    }


def _compare(rival: Rival | None) -> str:
    """Compare what is shipped with the usual choice or the second; why that is open is told below all groups."""
    if rival is None or rival.ratio is None:
        return ""
    ratio, name = inverse(rival.ratio), short(rival.arm)
    if ratio.verdict is Verdict.CANT_TELL:
        return f"about {tell_direction(ratio.value, spread=2 * WIDE)} than {name}, open"
    return tell_ratio(ratio, name)


def _render_grid(document: Document, width: int) -> Iterator[RenderableType]:
    """Render a table of what to ship, a line for each of the first groups; in a narrow terminal a paragraph each."""
    headers, lines = tabulate_answers(document)
    shown, titles = lines[:SHOWN_GROUPS], title_answers(document)
    table = make_table(headers, shown, left={*headers} - {TIME}, titles=titles)
    if fits(table, width):
        yield table
    else:
        for line in shown:
            place = name_cell({name: str(text) for name, text in line.items() if name not in titles})
            word, *told = (str(line[name]) for name in titles if str(line[name]))
            yield from write_lines([Line(word, told, subject=place)], width)
    if len(lines) > SHOWN_GROUPS:
        yield Text(f"and {counted(len(lines) - SHOWN_GROUPS, 'group')} more, which --json has")


def _tell_crossover(one: Crossover, document: Document) -> str:
    """Tell up to which size one target is faster, and from which the other, and where that is on the other axes."""
    axes = dict.fromkeys(axis for place in _locate_answers(document).values() for axis in place)
    place: Place = {"model": one.model, **one.fixed, "threads": one.fixed.get("threads") or "default"}
    place = {**place, "scenario": one.scenario}
    fixed = name_cell({axis: name_value(place, axis) for axis in axes if axis != one.axis})
    copies = " without copies" if one.scope == "compute" else ""
    told = f"{short(one.below)} up to {one.axis} {one.low}, {short(one.above)} from {one.high} on{copies}"
    return f"{fixed}: {told}" if fixed else told
