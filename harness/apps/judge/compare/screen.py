"""Write two runs compared, or several merged: what changed between them first, then what may be concluded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from shootout.apps.judge.compare.compare import NONE
from shootout.apps.judge.compare.document import (
    ArmInPlace,
    ComparedDocument,
    Fate,
    MergedCell,
    MergedDocument,
    MergedTarget,
    Moved,
    Pair,
    Place,
    PlaceAnswer,
    Regret,
    RunChange,
    SessionComparison,
)
from shootout.core.contract import short
from shootout.core.units import counted, duration
from shootout.tell.answer import (
    SHOWN,
    SO_FAR,
    tell_machine,
    write_head,
)
from shootout.tell.columns import Cell, against, fits, make_table, stack_tables
from shootout.tell.grid import TIED, UNSURE
from shootout.tell.ratios import LEAST_SHOWN, tell_direction, tell_ends, tell_ratio
from shootout.tell.screen import INDENT, NARROWEST, WIDEST, fold, labeled, name_targets, typed
from shootout.tell.skipped import LONGEST_REASON, SHOWN_REASONS

READING = "(a to b): holds for all rows of that place together at 95 %; sure if it excludes 1."
SHOWN_CELLS = 24
_SO_FAR = ", so far"
NO_WORSE = "within 0.1 %"
"""In place of a ratio that four digits show as 1."""
FATES = {Fate.HOLDS: "hold", Fate.FLIPS: "flip", Fate.FADES: "fade", Fate.UNKNOWN: "unknown"}


def render_merged(document: MergedDocument, width: int, *, full: bool) -> list[RenderableType]:
    """Render the whole screen in so many columns; `full`: with every group and every pair."""
    narrow = max(min(width, WIDEST), NARROWEST)
    parts: list[RenderableType] = []
    if len(document.cells) > 1:
        parts += [
            Text(f"What to ship, in {len(document.cells)} groups", style="bold"),
            *_render_grid(document, width),
            Text(),
        ]
    for cell in document.cells if full or len(document.cells) == 1 else ():
        parts += [*render_cell(cell, width, narrow, full=full), Text()]
    for place in document.places:
        if not place.complete:
            parts.append(Text(f"{place.name}: its run is unfinished", style="yellow"))
    return [*parts, *(Text(f"warning: {warning}", style="yellow") for warning in document.warnings)]


def _render_grid(document: MergedDocument, width: int) -> Iterator[RenderableType]:
    """Render a line a cell: what to ship everywhere, and in each place."""
    places = [place.name for place in document.places]
    lines: list[dict[str, Cell]] = []
    for cell in document.cells[:SHOWN_CELLS]:
        ships = {answer.place: short(answer.arm) if answer.arm else "no answer" for answer in cell.ships}
        everywhere = cell.everywhere
        lines.append(
            {
                "group": cell.group,
                "everywhere": short(everywhere.arm) + (_SO_FAR if everywhere.reason else "") if everywhere else "-",
                "at worst": (_tell_regret(everywhere.ratio) if everywhere.ratio else "best in all")
                if everywhere
                else "",
                **{place: ships.get(place, "-") for place in places},
            }
        )
    yield from stack_tables([*lines[0]], lines, width, left=set(lines[0]))
    if len(document.cells) > SHOWN_CELLS:
        yield Text(f"and {counted(len(document.cells) - SHOWN_CELLS, 'group')} more, which --json has")


def render_cell(cell: MergedCell, width: int, narrow: int, *, full: bool) -> Iterator[RenderableType]:
    """Render one question in all its places."""
    everywhere = cell.everywhere
    words = f"no one target everywhere: {cell.reason}"
    if everywhere:
        words = f"{everywhere.arm} everywhere{_SO_FAR if everywhere.reason else ''}"
    title = f"{' · '.join(cell.group.split(', '))} · {counted(len(cell.places), 'place')}"
    yield from write_head(words, title, narrow)
    yield from labeled("", _tell_worst(cell), narrow)
    yield from labeled("Best", tell_best(cell.ships), narrow)
    letters = letter_places(cell.places)
    for fate, word in ((Fate.FLIPS, "Flips"), (Fate.FADES, "Fades")):
        told = (tell_pair(pair, letters) for pair in cell.pairs if pair.fate is fate)
        yield from labeled(word, fold(told, SHOWN), narrow)
    yield from labeled("Pairs", _count_fates(cell), narrow)
    yield from labeled("Not everywhere", _tell_missing(cell), narrow)
    yield from labeled("Skipped", fold(_list_skipped(cell), SHOWN_REASONS), narrow)
    yield from _tabulate_targets(cell, width, full=full)
    if full:
        for pair in cell.pairs:
            yield Text(f"  {pair.fate}: {tell_pair(pair, letters)}")


def _tell_worst(cell: MergedCell) -> Iterator[str]:
    """Tell how much slower the one target is in the place in which it is slowest."""
    everywhere = cell.everywhere
    if everywhere is None:
        return
    if everywhere.ratio is None:
        yield "what every place ships by itself"
    elif everywhere.ratio.value <= 1:
        high = everywhere.ratio.high
        may_be = f"; it may be up to {tell_direction(high, spread=2 * high)}" if high and high > 1 else ""
        yield f"no place's own best measured faster{may_be}"
    else:
        told = _tell_regret(everywhere.ratio, "a place's own best")
        yield f"at worst {told}, on {everywhere.place}"
    yield from _tell_others(everywhere.tied, everywhere.unsettled, SHOWN)
    if everywhere.reason:
        yield everywhere.reason


def _tell_regret(ratio: Regret | None, best: str = "") -> str:
    """Write how much slower than the best of a place: `1.2x slower (1.1 to 1.3)`, or `within 0.1 %`.

    Args:
        best: the name of the best; "" if a header names it.
    """
    if ratio is None:
        return "best in all"
    told = _tell_factor_of(ratio.value, ratio.low, ratio.high)
    if told == NO_WORSE:
        return f"{told} of {best}" if best else told
    return f"{told}{f' than {best}' if best else ''}{tell_ends(ratio.low, ratio.high)}"


def _tell_factor_of(value: float, low: float | None, high: float | None) -> str:
    if abs(value - 1) < LEAST_SHOWN:
        return NO_WORSE
    return tell_direction(value, spread=high / low if low and high else 1.0)


def tell_best(ships: Sequence[PlaceAnswer], *, named: bool = True) -> Iterator[str]:
    """Name what each place ships by itself, by the place's letter and, if `named`, its name."""
    letters = letter_places([answer.place for answer in ships])
    for answer in ships:
        place = f"{letters[answer.place]}{f' {answer.place}' if named else ''}"
        if answer.arm is None or answer.median_ns is None:
            yield f"{place}: no answer: {answer.reason}"
            continue
        name = f"{place}: {short(answer.arm)}{SO_FAR if answer.reason else ''}"
        yield ", ".join([name, duration(answer.median_ns), *_tell_others(answer.tied, answer.unsettled, 2)])


def _tell_others(tied: Sequence[str], unsettled: Sequence[str], shown: int) -> Iterator[str]:
    """Name the targets that may be equally good, then those that measured worse but not significantly."""
    if tied:
        yield f"{TIED}{', '.join(fold(map(short, tied), shown))}"
    if unsettled:
        yield f"{UNSURE}{', '.join(fold(map(short, unsettled), shown))}"


def tell_pair(pair: Pair, letters: Mapping[str, str]) -> str:
    """Compare a pair in each place: `a against b: 1.3x faster (1.1 to 1.4) on A, 1.3x slower (1.1 to 1.5) on B`."""
    told = ", ".join(f"{tell_ratio(ratio)} on {letters[place]}" for place, ratio in pair.ratios.items())
    return f"{short(pair.a)} against {short(pair.b)}: {told}"


def _count_fates(cell: MergedCell) -> Iterator[str]:
    if cell.pairs:
        found = Counter(pair.fate for pair in cell.pairs)
        yield ", ".join(f"{found[fate]} {word}" for fate, word in FATES.items() if found[fate])


def _tell_missing(cell: MergedCell) -> Iterator[str]:
    """Name arms that may be the best of one place and have no time in another."""
    best = {answer.arm for answer in cell.ships}
    for target in cell.targets:
        for result in target.at if target.arm in best else ():
            if result.median_ns is None:
                yield f"{short(target.arm)} on {result.place} ({result.reason or 'not asked for'})"


def _list_skipped(cell: MergedCell) -> Iterator[str]:
    """Name arms without a time in any place, by reason."""
    why: dict[str, list[str]] = {}
    for target in cell.targets:
        if all(result.median_ns is None for result in target.at):
            why.setdefault(next((result.reason for result in target.at if result.reason), ""), []).append(target.arm)
    for reason, arms in why.items():
        yield f"{name_targets(arms)}: {reason if len(reason) <= LONGEST_REASON else '--json says why'}"


def _tabulate_targets(cell: MergedCell, width: int, *, full: bool) -> Iterator[RenderableType]:
    """Tabulate target × place: time, and time ÷ that of what the place ships.

    Unless `full`, targets with a time in one place alone have a line only if a place ships them.
    """
    letters = letter_places(cell.places)
    ships = {answer.place: answer.arm for answer in cell.ships}
    best_ns = {answer.place: answer.median_ns for answer in cell.ships}
    timed = [(target, sum(at.median_ns is not None for at in target.at)) for target in cell.targets]
    least = 1 if full or len(cell.places) == 1 else 2
    lines: list[dict[str, Cell]] = []
    for target in (one for one, count in timed if count >= least or (count and one.arm in ships.values())):
        line: dict[str, Cell] = {"target": short(target.arm)}
        for result in target.at:
            letter = letters[result.place]
            line |= {
                letter: _tell_time(result, best_ns[result.place]),
                f"against {letter}'s best": _compare_to_best(result, is_shipped=ships[result.place] == target.arm),
            }
        if len(cell.places) > 1:
            line["at worst"] = _tell_worst_place(target)
        lines.append(line)
    if lines:
        flush = [name for name in lines[0] if name not in letters.values()]
        first = _choose_first([*lines[0]][:3], lines, width)
        yield from stack_tables([*lines[0]], lines, width, first=first, left=flush)
        yield Text(READING, style="dim")
    if hidden := sum(0 < count < least and target.arm not in ships.values() for target, count in timed):
        yield Text(f"{counted(hidden, 'target')} more with a time in one place alone: --full", style="dim")


def _choose_first(headers: Sequence[str], lines: Sequence[Mapping[str, Cell]], width: int) -> Sequence[str]:
    """Return as many of these headers as fit in one table, two at least: none of its names is then broken."""
    counts = range(len(headers), 2, -1)
    return headers[: next((count for count in counts if fits(make_table(headers[:count], lines), width)), 2)]


def _tell_worst_place(target: MergedTarget) -> str:
    """Write how much slower a target is in the place in which it is slowest, in digits that its interval bears."""
    if target.worst is None:
        return ""
    ends = next((at.ratio.ends for at in target.at if at.ratio and at.ratio.value == target.worst), (None, None))
    return _tell_factor_of(target.worst, *ends)


def letter_places(places: Sequence[str]) -> dict[str, str]:
    """Give each place a short name: A, B, …"""
    return {place: f"{chr(ord('A') + index % 26)}{index // 26 or ''}" for index, place in enumerate(places)}


def _tell_time(result: ArmInPlace, best_ns: float | None) -> Cell:
    """Write a time: that of what the place ships × the ratio to it, so that the two agree."""
    if result.median_ns is None:
        return Text("-" if result.outcome is None else str(result.outcome), style="dim")
    return duration(best_ns * result.ratio.value if best_ns and result.ratio else result.median_ns)


def _compare_to_best(result: ArmInPlace, *, is_shipped: bool) -> Cell:
    if is_shipped:
        return Text("best", style="bold")
    return against(result.ratio) if result.ratio else ""


_TITLES = {
    1: "One machine, two sessions: each target relative to one that is unchanged",
    2: "Two machines: which answers hold and which flip; the machines themselves are not ranked",
}
_MANY = 20
"""The number of changes that are shown."""
_LONGEST = 40
"""Most letters of a changed value; --json has it whole."""


def render_compared(document: ComparedDocument, width: int, *, full: bool) -> list[RenderableType]:
    """Render the whole screen in so many columns."""
    narrow = max(min(width, WIDEST), NARROWEST)
    parts: list[RenderableType] = [Text(_TITLES[document.level], style="bold")]
    parts += labeled("A", _tell_place(document.a), narrow)
    parts += labeled("B", _tell_place(document.b), narrow)
    parts += labeled("Changed", _tell_changes(document.changes, full=full), narrow)
    parts.append(Text())
    for session in document.sessions:
        parts += [*_render_session(session, width, narrow), Text()]
    moved = [move for session in document.sessions for move in session.moved]
    if moved:
        parts += [*labeled("B against A", _explain_floors(moved), narrow), Text()]
    for cell in document.cells:
        parts += [*render_cell(cell, width, narrow, full=full), Text()]
    if document.settle:
        parts += labeled("Next", [typed(document.settle, narrow - INDENT)], narrow)
        parts += [Text(f"{' ' * INDENT}PATH: an interpreter that has the other version"), Text()]
    for name, groups in (("A", document.only_a), ("B", document.only_b)):
        parts += labeled(f"Only in {name}", fold(groups, SHOWN), narrow)
    return [*parts, *(Text(f"warning: {warning}", style="yellow") for warning in document.warnings)]


def _tell_place(place: Place) -> Iterator[str]:
    yield place.run
    yield place.created.replace("T", " ")[:16]
    yield from tell_machine(place.environment)
    if not place.complete:
        yield "unfinished"


def _tell_changes(changes: Sequence[RunChange], *, full: bool) -> Iterator[str]:
    """Tell changes of what both runs have, then what only one has."""
    if not changes:
        yield "nothing in versions, system, processor and options"
    shown = len(changes) if full else _MANY
    yield from fold((tell_change(change) for change in changes if NONE not in (change.a, change.b)), shown)
    for name, only in (
        ("A", [change for change in changes if change.b == NONE]),
        ("B", [change for change in changes if change.a == NONE]),
    ):
        if only:
            yield f"only in {name}: {', '.join(fold((change.what for change in only), shown if full else SHOWN))}"


def tell_change(change: RunChange) -> str:
    """Tell one change: `onnxruntime 1.22 → 1.23`."""
    return f"{change.what} {_shorten_value(change.a)} → {_shorten_value(change.b)}"


def _shorten_value(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _render_session(session: SessionComparison, width: int, narrow: int) -> Iterator[RenderableType]:
    yield Text(session.group, style="bold")
    yield from labeled("Ships", tell_best(session.ships, named=False), narrow)
    lines = [_tabulate_move(move) for move in session.moved]
    if lines:
        headers = [name for name in lines[0] if any(str(line[name]) for line in lines)]
        flush = {"target", "B against A", "relative to", "changed"}
        yield from stack_tables(headers, lines, width, first=_choose_first(headers[:4], lines, width), left=flush)
    else:
        yield Text("no target has a time in both")
    for name, arms in (("A", session.only_a), ("B", session.only_b)):
        yield from labeled(f"Only in {name}", fold(map(short, arms), SHOWN), narrow)
    yield from labeled("No verdict", _tell_reasons(session.moved), narrow)


def _tabulate_move(move: Moved) -> dict[str, Cell]:
    return {
        "target": short(move.arm),
        "A": duration(move.a_ns),
        "B": duration(move.b_ns),
        "B against A": against(move.ratio) if move.ratio else "",
        "relative to": short(move.control) if move.control else "",
        "floor": f"{100 * move.floor:.1f} %" if move.floor else "",
        "changed": ", ".join(fold(map(tell_change, move.changes), 2)),
    }


def _explain_floors(moved: Sequence[Moved]) -> Iterator[str]:
    """Explain the ratios and their floors."""
    if not any(move.ratio for move in moved):
        return
    yield "each target's time relative to that of an unchanged target, in B against A"
    yield "(a to b): holds for all rows together at 95 %, from the restarts of both sessions and the floor"
    yield "floor: how far the two move apart between sessions if nothing changed"
    learned = sorted({move.sessions for move in moved if move.sessions})
    if learned:
        yield f"floors learned from {' to '.join(map(str, dict.fromkeys((learned[0], learned[-1]))))} earlier sessions"
    if any(move.ratio and not move.sessions for move in moved):
        yield (
            "a floor of 10 % is assumed: fewer than 5 earlier runs of the same lie next to these two; pass others with "
            "--history"
        )


def _tell_reasons(moved: Sequence[Moved]) -> Iterator[str]:
    why: dict[str, list[str]] = {}
    for move in moved:
        if move.reason:
            why.setdefault(move.reason, []).append(short(move.arm))
    for reason, arms in why.items():
        yield f"{', '.join(fold(arms, SHOWN))}: {reason}"
