"""Open a page or a summary: a headline in words, what it is about, and what supports it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shootout.page.sources import PolicyAnswer
from shootout.report import answer as words
from shootout.report import decision as decided
from shootout.report.screen import ANY_WIDTH
from shootout.results.document import Answer, Document, MixAnswer
from shootout.study.group import name_model
from shootout.units import counted, size


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of text, the command that follows it, and a remark behind that."""

    text: str = ""
    command: str = ""
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Support a headline by a label and its lines."""

    label: str
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The opening of a page.

    Attributes:
        title: the answer in a sentence.
        where: the model, what a call gets, and the machine.
        facts: the figures of what is shipped.
        when: the date, and the version that measured.
    """

    title: str
    where: str
    facts: str = ""
    when: str = ""
    points: Sequence[Point] = ()


def tell_headline(document: Document) -> Headline:
    """Tell a run's answer: that of its mix of sizes, if one was asked for; further mixes follow as points."""
    if document.mix:
        return _tell_mixes(document)
    if len(document.answer) == 1:
        return _tell_one_group(document.answer[0], document)
    if document.answer:
        return _tell_groups(document)
    return Headline(
        title="No answer: nothing was measured",
        where=" · ".join(words.tell_machine(document.environment)),
        when=_tell_date(document.environment),
    )


def tell_decision(answer: PolicyAnswer) -> Headline:
    """Tell what a policy decides."""
    decision, question = answer.decision, answer.question
    parts = dict(decided.tell_parts(decision, question))
    facts = parts.get("", [])
    if decision.chosen:
        title = f"Ship {decision.chosen}: it meets every limit"
    else:
        title, facts = ": ".join([decided.tell_outcome(decision).capitalize(), *facts]), []
    notes = [f"note: {note}" for note in decided.list_notes_on_rows(decision, question)]
    warnings = [f"warning: {warning}" for warning in decision.warnings]
    dates = {_tell_date(document.environment) for document in question.documents}
    points = [
        _make_point(label, _join_trust(label, items), are_commands=label == decided.NEXT)
        if label != decided.BETTER[decision.policy.objective]
        else _tell_better(label, items, decided.list_ways_out(decision, question))
        for label, items in parts.items()
        if label
    ]
    return Headline(
        title=title,
        where=" · ".join(decided.list_title_parts(decision, question)),
        facts=" · ".join(facts),
        when=dates.pop() if len(dates) == 1 else "",
        points=[*points, *_keep_points([_make_point("Notes", [*notes, *warnings])])],
    )


def _tell_mixes(document: Document) -> Headline:
    """Tell the first mix's answer, then the others', and what to ship at each size by itself."""
    first, *others = (_tell_one_group(mix.answer, document, mix) for mix in document.mix)
    by_size = {label: items for label, items in words.tell_all_groups(document) if items and label != words.SURE}
    more = [
        *(_make_point(other.where, [other.title, other.facts]) for other in others),
        *(_make_point(label.rstrip(":"), items) for label, items in by_size.items()),
    ]
    return replace(first, points=[*first.points, *_keep_points(more)])


def _tell_one_group(answer: Answer, document: Document, mix: MixAnswer | None = None) -> Headline:
    rows = document.rows_of(answer.group)
    against = words.tell_against_usual(answer)
    sure = (" · ".join(items) for items in words.tell_trust(answer, rows, document, ANY_WIDTH) if items)
    return Headline(
        title=_tell_choice(answer, against),
        where=words.write_title(answer, rows, document.environment),
        facts=" · ".join(fact for fact in words.tell_figures(answer, rows, mix) if fact != against),
        when=_tell_date(document.environment),
        points=_keep_points(
            [
                _make_point(words.ROUTER, words.tell_router(mix)),
                _make_point(words.SURE, sure, command=answer.sure.command),
                _make_point("Tied", words.tell_ties(answer)),
                _make_point("Unsure", words.tell_unsettled(answer)),
                _tell_faster([answer], words.tell_faster(answer)),
                _tell_better(words.NO_GAIN, words.tell_no_gains(answer), words.list_ways_in(answer.no_gain)),
                _make_point("Not", words.tell_unsound(answer)),
                _make_point("Smaller", map(words.tell_step, answer.smaller)),
                _make_point("Changes", words.tell_changes(answer.would_change)),
                _tell_better("Skipped", words.tell_skipped([answer], [document]), words.list_ways_in_refused(answer)),
                _make_point("Mix", words.tell_mix(mix)),
                _make_next([answer]),
            ]
        ),
    )


def _tell_choice(answer: Answer, against: str) -> str:
    """Say what to ship, in a sentence."""
    if answer.ship is None:
        return f"No answer: {answer.reason}"
    if words.is_unproven(answer):
        return f"{answer.ship.arm} is the fastest{words.UNPROVEN}"
    if answer.reason:
        return f"{answer.ship.arm} is the fastest so far: {answer.reason}"
    if answer.alone:
        return f"{answer.ship.arm} is the only target that was measured: nothing was compared"
    return f"Ship {answer.ship.arm}{f': {against}' if against else ''}"


def _tell_groups(document: Document) -> Headline:
    answers = document.answer
    ships = {answer.ship.arm if answer.ship and not words.qualify(answer) else None for answer in answers}
    arm = ships.pop() if len(ships) == 1 else None
    models = {name_model(row.model) for row in document.rows}
    told = {label: items for label, items in words.tell_all_groups(document) if items}
    changes = [label for label in told if label.startswith(words.CHANGES_BY)]
    title = f"Ship {arm} in all {len(answers)} groups" if arm else f"What to ship, in {len(answers)} groups"
    if len(changes) == len(told[changes[0]]) == 1 if changes else False:
        title = f"By {changes[0].removeprefix(words.CHANGES_BY)}: ship {told.pop(changes[0])[0]}"
    return Headline(
        title=title,
        where=" · ".join([*(models if len(models) == 1 else ()), *words.tell_machine(document.environment)]),
        when=_tell_date(document.environment),
        points=_keep_points(
            [
                *(_make_point(label.rstrip(":"), _join_trust(label, items)) for label, items in told.items()),
                _tell_faster(answers, words.tell_faster_of_all(answers)),
                _make_point("Skipped", words.tell_skipped(answers, [document])),
                _make_next(answers),
            ]
        ),
    )


def _tell_faster(answers: Sequence[Answer], lines: Iterable[str]) -> Point:
    """Tell what is faster and may not be shipped, and what to type to ship it."""
    faster = [change for answer in answers for change in words.find_faster(answer)]
    return _tell_better(words.FASTER, lines, words.list_ways_out(faster if len(answers) == 1 else faster[:1]))


def _tell_better(label: str, lines: Iterable[str], ways: Iterable[words.WayOut]) -> Point:
    told = [Line(text=text) for text in lines]
    commands = [Line(text=way.label, command=way.command, remark=way.remark) for way in ways]
    return Point(label=label, lines=[*told, *commands])


def _make_next(answers: Sequence[Answer]) -> Point:
    """Tell what comes next: what can't be put into a folder, and the commands."""
    parts = 1 if len(answers) > 1 else None
    told = [*dict.fromkeys(line for answer in answers for line in words.tell_no_folder(answer)[:parts])]
    commands = [Line(command=command) for command in words.list_next(answers)]
    return Point(label="Next", lines=[*(Line(text=text) for text in told), *commands])


def _make_point(label: str, items: Iterable[str], *, command: str | None = None, are_commands: bool = False) -> Point:
    """Make a point of a label's items, a line each; a `command` at the end of an item becomes its line's."""
    lines = []
    for item in items:
        text = item.replace("\xa0", " ")  # what keeps words together on a terminal
        if are_commands:
            lines.append(Line(command=text))
        elif command and text.endswith(command):
            lines.append(Line(text=text.removesuffix(command).rstrip(), command=command))
        else:
            lines.append(Line(text=text))
    return Point(label=label, lines=lines)


def _join_trust(label: str, items: Sequence[str]) -> Sequence[str]:
    """Return the short items of how it was measured in one line."""
    return [" · ".join(items)] if label == words.SURE else items


def _keep_points(points: Iterable[Point]) -> list[Point]:
    return [point for point in points if point.lines]


def _tell_date(environment: Mapping[str, Any]) -> str:
    """Write `Measured on 2026-11-26 with shootout VERSION`, as far as the run tells."""
    date = str(environment.get("date_utc", ""))[:10]
    version = _find_version(environment)
    told = [*([f"on {date}"] if date else []), *([f"with shootout {version}"] if version else [])]
    return f"Measured {' '.join(told)}" if told else ""


def _find_version(environment: Mapping[str, Any]) -> str:
    facts = environment.get("shootout")
    return str(facts.get("version", "")) if isinstance(facts, Mapping) else ""


def list_setup(document: Document) -> Iterator[tuple[str, str]]:
    """List what of the machine and the software a reader asks for first: name and value."""
    known = document.environment
    system, memory, python, own = (
        facts if isinstance(facts := known.get(name), Mapping) else {}
        for name in ("os", "memory", "python", "shootout")
    )
    libraries = {
        f"{row.executed.get('library', '')} {row.executed.get('version', '')}".strip(): None
        for row in document.rows
        if row.executed
    }
    yield "machine", " · ".join(words.tell_machine(known))
    total = memory.get("total_bytes")
    yield "memory", size(total) if isinstance(total, int) else ""
    yield "system", ", ".join(str(part) for part in (system.get("name"), system.get("kernel")) if part)
    yield "Python", str(python.get("version", ""))
    yield "shootout", ", commit ".join(str(part)[:12] for part in (own.get("version"), own.get("commit")) if part)
    yield "ran with", ", ".join(libraries)
    yield "measured", str(known.get("date_utc", "")).replace("T", " ").replace("+00:00", " UTC")
    yield "took", counted(round(document.wall_s), "second") if document.wall_s else ""
