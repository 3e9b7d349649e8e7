"""Write two runs compared, or several merged: the answer first, at most ten lines, then a table for each group."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import get_args

from rich.console import RenderableType
from rich.text import Text

from shootout.apps.judge.compare.compare import NONE, ComparedDocument, Moved, RunChange, SessionComparison
from shootout.apps.judge.compare.merge import Fate, MergedCell, MergedDocument, Pair, Place, PlacedRow
from shootout.core.contract import short
from shootout.core.stats.verdicts import Verdict
from shootout.core.units import counted, duration
from shootout.tell.answer import qualify, tell_machine
from shootout.tell.columns import Cell, against, choose_unit, stack_tables, write_time
from shootout.tell.document import Answer
from shootout.tell.ratios import WIDE, tell_direction, tell_ratio
from shootout.tell.report import NARROWEST, WIDEST, Command, Line, fold, write_lines

SHOWN, LONGEST = 8, 24
"""The number of names and of changes that are shown, and of letters of a changed value; --json has all."""
READING = "(a to b): holds for all rows of that place together at 95 %; sure if it excludes 1."
MOVED = (
    "B against A: each target's time ÷ that of an unchanged target, in B against A. "
    "(a to b): holds for all rows together at 95 %. floor: how far the two move apart between sessions if nothing "
    "changed."
)
LEVELS = {
    1: "One machine, two sessions: each target relative to one that is unchanged",
    2: "Two machines: which answers hold and which flip; the machines themselves are not ranked",
}
"""The sentence on what may be compared, by the level of a comparison."""
_TOLD = {Verdict.SLOWER: "Slower", Verdict.FASTER: "Faster", Verdict.SAME: "Same"}


def render_merged(document: MergedDocument, width: int, *, full: bool) -> list[RenderableType]:
    """Render the whole screen in so many columns; `full`: with every group and every pair."""
    narrow = max(min(width, WIDEST), NARROWEST)
    parts: list[RenderableType] = []
    if len(document.cells) > 1:
        parts += [Text(f"What to ship, in {len(document.cells)} groups", style="bold")]
        lines = [_tabulate_group(cell, document.places) for cell in document.cells]
        parts += [*stack_tables([*lines[0]], lines, width, left=set(lines[0])), Text()]
    for cell in document.cells if full or len(document.cells) == 1 else ():
        rows = document.rows_of(cell)
        parts += [*write_lines(tell_cell(cell), narrow), *_tabulate_cell(cell, rows, width)]
        if full:
            letters = letter_places(rows)
            parts += [Text(f"  {pair.fate}: {tell_pair(pair, letters)}") for pair in cell.pairs]
        parts.append(Text())
    unfinished = [f"{place.name}: its run is unfinished" for place in document.places if not place.complete]
    return [*parts, *_warn([*unfinished, *document.warnings])]


def _warn(warnings: Iterable[str]) -> Iterator[Text]:
    return (Text(f"warning: {warning}", style="yellow") for warning in warnings)


def _tabulate_group(cell: MergedCell, places: Sequence[Place]) -> dict[str, Cell]:
    """Tell what to ship everywhere, and in each place."""
    ships = {place: short(one.ship.arm) if one.ship else "no answer" for place, one in cell.answers.items()}
    found = cell.everywhere
    everywhere = f"{short(found.arm)}{', so far' if found.reason else ''}" if found else "-"
    worst = "" if found is None else tell_ratio(found.ratio) if found.ratio else "best in all"
    mine = {place.name: ships.get(place.name, "-") for place in places}
    return {"group": cell.group, "everywhere": everywhere, "at worst": worst, **mine}


def tell_cell(cell: MergedCell) -> Iterator[Line]:
    """Tell one question in all its places."""
    found, letters = cell.everywhere, letter_places(cell.answers)
    if found:
        told = ["what every place ships by itself"]
        if found.ratio:
            told = [f"at worst {tell_ratio(found.ratio, 'the best of a place')}, on {found.place}"]
        told += [found.reason] if found.reason else []
        yield Line("Leads" if found.reason else "Ship", told, subject=f"{found.arm} everywhere")
    else:
        yield Line("Open", [f"no one target everywhere: {cell.reason}"])
    yield Line("", [*cell.group.split(", "), counted(len(cell.answers), "place")])
    if found and found.unsettled:
        yield Line("Open", [f"not significantly slower: {', '.join(fold(map(short, found.unsettled), SHOWN))}"])
    yield Line("Best", [f"{letters[place]} {place}: {tell_best(one)}" for place, one in cell.answers.items()])
    yield Line("Flips", fold((tell_pair(pair, letters) for pair in cell.pairs if pair.fate == "flips"), SHOWN))
    fates = Counter(pair.fate for pair in cell.pairs)
    words = {"flips": "flip", "holds": "hold", "unknown": "unknown"}
    yield Line("Pairs", [f"{fates[fate]} {words[fate]}" for fate in get_args(Fate) if fates[fate]])


def tell_best(answer: Answer) -> str:
    """Name what an answer ships, with its time and what may be equally good."""
    if answer.ship is None:
        return f"no answer: {answer.reason}"
    told = [f"{short(answer.ship.arm)}{qualify(answer)}", duration(answer.ship.median_ns)]
    for word, rivals in (("tied with ", answer.tied), ("not significantly slower: ", answer.unsettled)):
        told += [word + ", ".join(fold((short(one.arm) for one in rivals), 2))] if rivals else []
    return ", ".join(told)


def tell_pair(pair: Pair, letters: Mapping[str, str]) -> str:
    """Compare a pair in each place: `a against b: 1.3x faster (1.1 to 1.4) on A, 1.3x slower (1.1 to 1.5) on B`."""
    told = ", ".join(f"{tell_ratio(ratio)} on {letters[place]}" for place, ratio in pair.ratios.items())
    return f"{short(pair.a)} against {short(pair.b)}: {told}"


def _tabulate_cell(
    cell: MergedCell, rows: Mapping[str, Mapping[str, PlacedRow]], width: int
) -> Iterator[RenderableType]:
    """Tabulate target × place: time, and time ÷ that of what the place ships."""
    letters, worst = letter_places(rows), cell.worst
    times = {
        arm: [row.end_to_end.median_ns for mine in rows.values() if (row := mine.get(arm)) and row.end_to_end]
        for arm in dict.fromkeys(arm for mine in rows.values() for arm in mine)
    }
    arms = [arm for arm, found in times.items() if found]
    arms.sort(key=lambda arm: (worst[arm].value if arm in worst else math.inf, -len(times[arm]), min(times[arm])))
    unit = choose_unit(min((min(times[arm]) for arm in arms), default=0.0))
    lines: list[dict[str, Cell]] = []
    for arm in arms:
        line: dict[str, Cell] = {"target": short(arm)}
        for place, letter in letters.items():
            time, ratio = _compare_to_best(rows[place].get(arm), cell.answers[place], unit)
            line |= {letter: time, f"against {letter}'s best": ratio}
        if len(rows) > 1:
            found = worst.get(arm)  # without its interval, in the digits that this bears
            spread = found.high / found.low if found and found.low and found.high else 2 * WIDE
            line["at worst"] = tell_direction(found.value, spread=spread) if found else ""
        lines.append(line)
    if lines:
        flush = [name for name in lines[0] if name not in letters.values()]
        yield from stack_tables([*lines[0]], lines, width, left=flush)
        yield Text(READING, style="dim")


def _compare_to_best(row: PlacedRow | None, answer: Answer, unit: str) -> tuple[Cell, Cell]:
    """Write a time, and how it compares with what the place ships: the time is that one's × the ratio."""
    timing, ship = row.end_to_end if row else None, answer.ship
    if row is None or timing is None:
        return Text("-" if row is None else row.outcome, style="dim"), ""
    if ship and ship.arm == row.arm:
        return write_time(ship.median_ns, unit), Text("best", style="bold")
    if ship is None or timing.ship_ratio is None:
        return write_time(timing.median_ns, unit), ""
    return write_time(ship.median_ns * timing.ship_ratio.value, unit), against(timing.ship_ratio)


def letter_places(places: Iterable[str]) -> dict[str, str]:
    """Give each place a short name: A, B, …"""
    return {place: f"{chr(ord('A') + index % 26)}{index // 26 or ''}" for index, place in enumerate(places)}


def render_compared(document: ComparedDocument, width: int, *, full: bool) -> list[RenderableType]:
    """Render the whole screen in so many columns."""
    narrow = max(min(width, WIDEST), NARROWEST)
    parts: list[RenderableType] = [Text(LEVELS[document.level], style="bold")]
    parts += render_merged(document.merged, width, full=full) if document.merged else []
    parts += [*write_lines(tell_compared(document, full=full), narrow), Text()]
    for session in document.sessions:
        parts += [*_render_session(session, width), Text()]
    if any(move.ratio for session in document.sessions for move in session.moved):
        parts.append(Text(MOVED, style="dim"))
    return [*parts, *_warn(document.warnings)]


def tell_compared(document: ComparedDocument, *, full: bool) -> Iterator[Line]:
    """Tell what became of the targets, then where and how the two runs were made."""
    if document.level == 1:
        yield from _tell_moved(document.sessions)
    for name, place in (("A", document.a), ("B", document.b)):
        told = [place.run, place.created.replace("T", " ")[:16], *tell_machine(place.environment)]
        yield Line(name, told if place.complete else [*told, "unfinished"])
    yield Line("Changed", list(_tell_changes(document.changes, len(document.changes) if full else SHOWN)))
    compared = [move for session in document.sessions for move in session.moved if move.ratio]
    if compared:
        sure = [f"95 % for {'all ' * (len(compared) > 1)}{counted(len(compared), 'target')} together"]
        if learned := sorted({move.sessions for move in compared if move.sessions}):
            sessions = " to ".join(map(str, dict.fromkeys((learned[0], learned[-1]))))
            sure.append(f"floors learned from {sessions} earlier sessions")
        if any(not move.sessions for move in compared):
            sure.append("a floor of 10 % is assumed: name five or more earlier runs by --history")
        yield Line("Sure", sure)
    for name, groups in (("A", document.only_a), ("B", document.only_b)):
        yield Line(f"Only {name}", fold(groups, SHOWN))
    if document.settle:
        remark = "PATH: an interpreter that has the other version"
        yield Line("Next", commands=[Command(text=document.settle, remark=remark)])


def _tell_moved(sessions: Sequence[SessionComparison]) -> Iterator[Line]:
    """Tell which targets are slower, faster, or the same in B; of open ones how many, and of others why not."""
    found: dict[Verdict, list[str]] = {verdict: [] for verdict in Verdict}
    why: dict[str, list[str]] = {}
    for session in sessions:
        group = f" ({session.group})" if len(sessions) > 1 else ""
        for move in session.moved:
            if move.ratio:
                changes = "".join(f", {tell_change(change)}" for change in move.changes[:1])
                told = f"{short(move.arm)} {tell_ratio(move.ratio)}{changes}{group}"
                found[move.ratio.verdict].append(told)
            elif move.reason:
                why.setdefault(move.reason, []).append(short(move.arm))
    for verdict, word in _TOLD.items():
        yield Line(word, fold(found[verdict], SHOWN))
    if open_ := found[Verdict.CANT_TELL]:
        none = "" if any(found[verdict] for verdict in _TOLD) else "no target is significantly slower or faster in B: "
        yield Line("Open", [f"{none}{counted(len(open_), 'target')} may have changed, or not; see below"])
    unknown = [f"{', '.join(fold(dict.fromkeys(arms), SHOWN))}: {reason}" for reason, arms in why.items()]
    yield Line("Unknown", unknown or ([] if any(found.values()) else ["no target has a time in both"]))


def _tell_changes(changes: Sequence[RunChange], shown: int) -> Iterator[str]:
    """Tell changes of what both runs have, then what only one has."""
    if not changes:
        yield "nothing in versions, system, processor and options"
    yield from fold((tell_change(change) for change in changes if NONE not in (change.a, change.b)), shown)
    for name, only in (
        ("A", [change.what for change in changes if change.b == NONE]),
        ("B", [change.what for change in changes if change.a == NONE]),
    ):
        if only:
            yield f"only in {name}: {', '.join(fold(only, shown))}"


def tell_change(change: RunChange) -> str:
    """Tell one change: `onnxruntime 1.22 → 1.23`."""
    a, b = (text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…" for text in (change.a, change.b))
    return f"{change.what} {a} → {b}"


def _render_session(session: SessionComparison, width: int) -> Iterator[RenderableType]:
    yield Text(session.group, style="bold")
    unit = choose_unit(min((min(move.a_ns, move.b_ns) for move in session.moved), default=0.0))
    lines = [_tabulate_move(move, unit) for move in session.moved]
    if lines:
        headers = [name for name in lines[0] if any(str(line[name]) for line in lines)]
        flush = {"target", "B against A", "relative to", "changed"}
        yield from stack_tables(headers, lines, width, left=flush)


def _tabulate_move(move: Moved, unit: str) -> dict[str, Cell]:
    return {
        "target": short(move.arm),
        "A": write_time(move.a_ns, unit),
        "B": write_time(move.b_ns, unit),
        "B against A": against(move.ratio) if move.ratio else "",
        "relative to": short(move.control) if move.control else "",
        "floor": f"{100 * move.floor:.1f} %" if move.floor else "",
        "changed": ", ".join(fold(map(tell_change, move.changes), 2)),
    }
