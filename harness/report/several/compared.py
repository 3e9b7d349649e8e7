"""Two runs compared, as people read it: what changed between them first, then what may be said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from shootout.compare.compare import NONE
from shootout.compare.document import Change, ComparedDocument, Moved, Place, Session
from shootout.report.answer import SHOWN, tell_machine
from shootout.report.answers import NARROWEST, WIDEST
from shootout.report.figures import Cell, judged, stack_tables
from shootout.report.lines import INDENT, fold, labelled, typed
from shootout.report.several.merged import render_cell, tell_best
from shootout.study.group import short
from shootout.units import duration

_TITLES = {
    1: "One machine, two sessions: each time beside an arm that is the same in both",
    2: "Two machines: what holds and what flips; neither is called slower",
}
_MANY = 20
"""So many changes are shown."""
_LONGEST = 40
"""Letters of a changed value; --json has it whole."""


def render(document: ComparedDocument, width: int, *, full: bool) -> list[RenderableType]:
    """The whole screen, in so many columns."""
    narrow = max(min(width, WIDEST), NARROWEST)
    parts: list[RenderableType] = [Text(_TITLES[document.level], style="bold")]
    parts += labelled("A    ", _place(document.a), narrow)
    parts += labelled("B    ", _place(document.b), narrow)
    parts += labelled("Changed", _changes(document.changes, full=full), narrow)
    parts.append(Text())
    for session in document.sessions:
        parts += [*_session(session, width, narrow), Text()]
    moved = [one for session in document.sessions for one in session.moved]
    if moved:
        parts += [*labelled("B ÷ A", _floors(moved), narrow), Text()]
    for cell in document.cells:
        parts += [*render_cell(cell, width, narrow, full=full), Text()]
    if document.settle:
        parts += labelled("Race them", [typed(document.settle, narrow - INDENT)], narrow)
        parts += [Text("      PATH: an interpreter that has the other version"), Text()]
    for name, groups in (("A", document.only_a), ("B", document.only_b)):
        parts += labelled(f"Only in {name}", fold(groups, SHOWN), narrow)
    return [*parts, *(Text(f"warning: {one}", style="yellow") for one in document.warnings)]


def _place(place: Place) -> Iterator[str]:
    yield place.run
    yield place.created.replace("T", " ")[:16]
    yield from tell_machine(place.environment)
    if not place.complete:
        yield "not over"


def _changes(changes: Sequence[Change], *, full: bool) -> Iterator[str]:
    """What both tell of, then what only one does."""
    if not changes:
        yield "nothing that the runs tell of: versions, system, processor, options"
    shown = len(changes) if full else _MANY
    yield from fold((tell_change(one) for one in changes if NONE not in (one.a, one.b)), shown)
    for name, only in (
        ("A", [one for one in changes if one.b == NONE]),
        ("B", [one for one in changes if one.a == NONE]),
    ):
        if only:
            yield f"only in {name}: {', '.join(fold((one.what for one in only), shown if full else SHOWN))}"


def tell_change(one: Change) -> str:
    """`onnxruntime 1.22 → 1.23`."""
    return f"{one.what} {_cut(one.a)} → {_cut(one.b)}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _session(session: Session, width: int, narrow: int) -> Iterator[RenderableType]:
    yield Text(session.group, style="bold")
    yield from labelled("Ships", tell_best(session.ships, named=False), narrow)
    lines = [_line(one) for one in session.moved]
    if lines:
        headers = [name for name in lines[0] if any(str(one[name]) for one in lines)]
        yield from stack_tables(headers, lines, width, first=headers[:4], left={"target", "against", "changed"})
    else:
        yield Text("no target has a time in both")
    for name, arms in (("A", session.only_a), ("B", session.only_b)):
        yield from labelled(f"Only in {name}", fold(map(short, arms), SHOWN), narrow)
    yield from labelled("No verdict", _reasons(session.moved), narrow)


def _line(one: Moved) -> dict[str, Cell]:
    return {
        "target": short(one.arm),
        "A": duration(one.a_ns),
        "B": duration(one.b_ns),
        "B ÷ A": judged(one.ratio) if one.ratio else "",
        "against": short(one.control) if one.control else "",
        "floor": f"±{one.floor:.1%}" if one.floor else "",
        "changed": ", ".join(fold(map(tell_change, one.changes), 2)),
    }


def _floors(moved: Sequence[Moved]) -> Iterator[str]:
    """What stands behind the ratios."""
    if not any(one.ratio for one in moved):
        return
    yield "time ÷ that of `against`, in B ÷ in A; widened by how far sessions differ though nothing changed (floor)"
    learnt = sorted({one.sessions for one in moved if one.sessions})
    if learnt:
        yield f"floors learnt from {' to '.join(map(str, dict.fromkeys((learnt[0], learnt[-1]))))} earlier sessions"
    if any(one.ratio and not one.sessions for one in moved):
        known = "give earlier runs with --history, 5 or more"
        yield f"±10 % where nothing is known of earlier sessions, and no α stands behind it: {known}"


def _reasons(moved: Sequence[Moved]) -> Iterator[str]:
    why: dict[str, list[str]] = {}
    for one in moved:
        if one.reason:
            why.setdefault(one.reason, []).append(short(one.arm))
    for reason, arms in why.items():
        yield f"{', '.join(fold(arms, SHOWN))}: {reason}"
