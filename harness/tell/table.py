"""Write the screen of a result: the answer, a line for each target, then what was skipped or failed and the fix."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from shootout.core.constants import USUAL_SCENARIO
from shootout.core.contract import Device, NotRunKind, Value, short
from shootout.core.exported.request import name_model
from shootout.core.scenario import find_scenario
from shootout.core.stats.verdicts import Verdict
from shootout.core.units import counted, duration, seconds, size
from shootout.tell import notes
from shootout.tell.answer import (
    name_metric_verdict,
    name_reference,
    qualify,
    tell_race,
    tell_threads_beside,
)
from shootout.tell.columns import (
    BASELINE,
    BY_HEADER,
    OWN,
    SHIP,
    Cell,
    fit_table,
    fits,
    has_room,
    make_table,
    stack_tables,
)
from shootout.tell.document import Answer, Document, GroupSummary, Ratio, Row, Timing
from shootout.tell.grid import render_answers
from shootout.tell.notes import STYLES, Reason, fold_reasons, reason_of
from shootout.tell.over_time import tell_over_time
from shootout.tell.screen import ANY_WIDTH, NOTEBOOK_WIDTH, name_targets, render_pre, write_lines
from shootout.tell.skipped import LONGEST_REASON, tell_missing, tell_why
from shootout.tell.wording import gains, tell_gain

MANY = 3
"""Up to so many sizes have a table each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Groups that differ in their size alone, rising.

    Attributes:
        fixed: what they have in common, for people.
        groups: the groups' names by size.
        selecting: groups that chose the settings which one of `groups` confirms: name → size.
    """

    axis: str
    fixed: str
    groups: dict[int, str]
    selecting: dict[str, int]


def find_sweeps(document: Document, *, more_than: int = MANY) -> list[Sweep]:
    """Find the sweeps of more than so many sizes, along the longest axis."""
    chose = {group.name for group in document.groups if group.selects}
    confirms = {group.name: group.confirms for group in document.groups if group.confirms}
    first: dict[str, Row] = {}
    for row in document.rows:
        if row.group not in chose:
            first.setdefault(row.group, row)
    parameters = dict.fromkeys(name for row in first.values() for name in row.parameters)
    axis = max(("batch", "threads", *parameters), key=lambda axis: len(_sizes_along(first, axis)))
    sweeps: dict[str, dict[int, str]] = {}
    for name, row in first.items():
        size = _size_along(row, axis)
        if size is not None:
            sweeps.setdefault(_name_fixed(row, axis), {}).setdefault(size, name)
    return [
        Sweep(
            axis=axis,
            fixed=fixed,
            groups=dict(sorted(groups.items())),
            selecting={confirms[name]: size for size, name in sorted(groups.items()) if name in confirms},
        )
        for fixed, groups in sweeps.items()
        if len(groups) > more_than
        and not _is_about_costs([row for row in document.rows if row.group in groups.values()])
    ]


def _sizes_along(first: dict[str, Row], axis: str) -> set[int]:
    return {size for row in first.values() if (size := _size_along(row, axis)) is not None}


def _size_along(row: Row, axis: str) -> int | None:
    value: Value | None = {"batch": row.batch, "threads": row.threads, **row.parameters}.get(axis)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _name_fixed(row: Row, axis: str) -> str:
    everything: dict[str, Value] = {**row.parameters, "batch": row.batch, "threads": row.threads}
    told = ", ".join(f"{name}={value}" for name, value in everything.items() if name != axis)
    return f"{name_model(row.model)} ({told})" + ("" if row.scenario == USUAL_SCENARIO else f", {row.scenario}")


def render_sweep(line: Sweep, document: Document, width: int) -> list[RenderableType]:
    """Render one sweep in as many tables as `width` (columns) needs; then what went wrong, and trust."""
    names = set(line.groups.values())
    rows = [row for row in document.rows if row.group in names]
    measured = [row for row in rows if row.outcome == "measured"]
    parts: list[RenderableType] = [Text(f"{line.fixed}, by {line.axis}", style="bold")]
    if measured:
        parts += _make_tables_by_size(line, measured, width)
        parts.append(Text("* the lowest median of its column; --json tells whether it is significant."))
    size_of = {name: size for size, name in line.groups.items()}
    parts += map(Text, notes.tell_unsynchronized(line.axis, [(size_of[row.group], row) for row in measured]))
    mine = [row for row in document.rows if row.group in {*names, *line.selecting}]
    parts += _tell_reasons_by_size(line, [row for row in mine if not _is_told_above(row, document.answer)])
    groups = [group for group in document.groups if group.name in names]
    if {answer.group for answer in document.answer} != names:  # else the answers tell it
        parts.append(Text(f"{', '.join(tell_race(groups))}."))
    return [*parts, *map(Text, notes.tell_noise(groups))]


def _make_tables_by_size(line: Sweep, rows: Sequence[Row], width: int) -> list[RenderableType]:
    times = {(row.arm, row.group): row.end_to_end.median_ns for row in rows if row.end_to_end}
    unjudged = {(row.arm, row.group) for row in rows if not row.is_judged}
    best = {name: min(ns for (_, where), ns in times.items() if where == name) for _, name in times}
    arms = list(dict.fromkeys(row.arm for row in rows))
    columns = [
        (
            _name_size(line, size),
            [_mark_best(times.get((arm, name)), best.get(name), (arm, name) in unjudged) for arm in arms],
        )
        for size, name in line.groups.items()
    ]
    room = max(width - max(map(len, arms)) - 2, 1)  # where that is little, the names go on in a second line
    parts: list[RenderableType] = []
    while columns:
        fitting = max(_count_fitting(columns, room), 1)
        shown: list[tuple[str, Sequence[Cell]]] = [(line.axis, arms), *columns[:fitting]]
        lines = [{name: cells[index] for name, cells in shown} for index in range(len(arms))]
        parts.append(fit_table([name for name, _ in shown], lines, width, left=[line.axis]))
        columns = columns[fitting:]
    return parts


def _name_size(line: Sweep, size: int) -> str:
    """Write a size; 0 threads are those that each library takes by itself."""
    return "default" if line.axis == "threads" and size == 0 else str(size)


def _count_fitting(columns: Sequence[tuple[str, Sequence[Text]]], room: int) -> int:
    used = count = 0
    for name, cells in columns:
        used += 2 + max(len(name), *(len(cell) for cell in cells))
        if used > room:
            break
        count += 1
    return count


def _mark_best(ns: float | None, best: float | None, is_unjudged: bool) -> Text:
    if ns is None:
        return Text("-", style="dim")
    style = "yellow" if is_unjudged else "green"  # a fast time is no good news of unchecked outputs
    return Text(f"{duration(ns)}*", style=style) if ns == best else Text(duration(ns) + " ")


def _tell_reasons_by_size(line: Sweep, rows: Sequence[Row]) -> list[Text]:
    """Tell what was skipped or failed; an arm with the same reason at several sizes has one line."""
    size_of = line.selecting | {name: size for size, name in line.groups.items()}
    sizes: dict[Reason, list[str]] = {}
    for row in (row for row in rows if row.reason):
        sizes.setdefault(reason_of(row, row.arm), []).append(_name_size(line, size_of[row.group]))
    told = []
    for reason, some in sizes.items():
        where = "" if len(some) == len(line.groups) else f" at {line.axis} {', '.join(some)}"
        told.append(reason._replace(subject=f"{reason.subject}{where}"))
    return [Text(text, style=STYLES[outcome]) for outcome, text in fold_reasons(told)]


NOTE = "note"
"""The last column, without a title: why a row may not be shipped."""
_RACE_SHARED = ("target", "at first", "time", "items/s", "requests/s", "p99", "limit")
_RANGES = ("over restarts", "items/s over restarts", "requests/s over restarts")
RACE = (
    *_RACE_SHARED,
    *(SHIP, NOTE, BASELINE, *_RANGES, "last to first", "idle", "compute", "CPU a call", "of peak", "GB/s"),
    *("proven", "error", "worst at", "metric", "metric change", "size", "installed"),
    *("memory at most", "build", "load", "ready"),
)
"""The columns of a race; those without any figure are left out."""
RACE_FIRST = (*_RACE_SHARED, SHIP, "error", "metric", NOTE)
"""The columns that are shown by default; a latency run without labels has figures in four of them."""
COSTS = (
    *(
        "target",
        "time",
        SHIP,
        NOTE,
        BASELINE,
        OWN,
        "over restarts",
        "size",
        "error",
        "worst at",
        "to own file",
    ),
    *("metric", "metric change", "proven", "int ops", "quantizer"),
    *("of peak", "GB/s", "memory", "build", "load"),
)
"""The columns of a quantization study: what a precision costs and buys."""
COSTS_FIRST = (
    *("target", "time", "size", SHIP, OWN),
    *("error", "metric change", NOTE),
)
WRAP = ("wrap", "target")
"""The step from which on a name may go on in a second line."""
STEPS: tuple[tuple[str, str], ...] = (
    *(("drop", "error"), ("brief", "target"), ("drop", NOTE), ("drop", OWN)),
    *(("brief", "metric change"), ("drop", "size"), ("drop", "metric")),
    *(("drop", "limit"), ("drop", "p99"), ("brief", SHIP), WRAP),
    ("drop", "metric change"),
)
"""The parts that a table that is too wide does without, one after the other; never the interval. `--full` has all
columns, in several tables.
"""
SHIPS, NOT_ELIGIBLE = "▸", "×"
_STOPPED = {name: Text("failed" if name == "failed" else "not timed", style=STYLES[name]) for name in STYLES}
"""Stands in place of a comparison, by outcome."""
MORE = "Add --full for more columns (compute, proof, size, build) and notes, or --json for everything."


def render(document: Document, width: int, *, full: bool = False) -> RenderableType:
    """Render the answer, and what it rests on; see `render_tables`."""
    return Group(*render_answers(document, width, full=full), render_tables(document, width, full=full))


def render_tables(
    document: Document, width: int, *, full: bool = False, above: Sequence[str] | None = None
) -> RenderableType:
    """Render a table for each group, of few columns, notes below.

    Args:
        width: in letters; see `STEPS`.
        above: see `notes.tell_end`.
        full: all columns, in several tables if `width` is too narrow; also for a sweep over many sizes, which
            otherwise is one table of times.
    """
    sweeps = [] if full else find_sweeps(document)
    shown = {name for line in sweeps for name in (*line.groups.values(), *line.selecting)}
    parts: list[RenderableType] = [part for line in sweeps for part in render_sweep(line, document, width)]
    printed: list[PrintedTable] = []
    for summary in (group for group in document.groups if group.name not in shown):
        found = compare_rows(summary, document)
        tables, headers = (_make_tables if full else _fit_table)(found, found.choose_headers(full=full), width)
        printed.append(PrintedTable(found, headers))
        parts += _tell_title(summary, document, full=full)
        parts += [*tables, *tell_group(summary, document, full=full)]
    parts += map(Text, tell_legend(printed, document.answer))
    parts += tell_run(document, full=full, width=width, above=above)
    if not full and any(row.outcome == "measured" for row in document.rows):
        parts.append(Text(MORE, style="dim"))
    return Group(*parts)


def render_notebook(document: Document) -> str:
    """Write a run for a notebook: the answer, and the tables below it to open; every letter of the run is text."""
    answer = render_pre(*render_answers(document, NOTEBOOK_WIDTH))
    rows = counted(len(document.rows), "row")
    tables = render_pre(render_tables(document, NOTEBOOK_WIDTH))
    return f"{answer}<details><summary>{rows}</summary>{tables}</details>"


def describe_interpreters(facts: Mapping[str, Any]) -> list[str]:
    """Describe each other interpreter in a record's environment in one line: what differs from ours there."""
    ours = {"Python": facts["python"]["version"], **facts["libraries"]} if facts.get("interpreters") else {}
    lines = []
    for name, other in facts.get("interpreters", {}).items():
        theirs = {"Python": other["python"], **other["libraries"]}
        changed = [
            f"{key} {theirs[key]} (ours {ours[key]})" for key in theirs if ours.get(key, "") not in ("", theirs[key])
        ]
        lines.append(f"@{name} is {other['path']}: {', '.join(changed) or 'the same versions as ours'}.")
    return lines


def tell_run(
    document: Document, *, full: bool, width: int = ANY_WIDTH, above: Sequence[str] | None = None
) -> list[Text]:
    """Write the lines below all tables: the front, what was set, and how the run ended.

    Args:
        above: see `notes.tell_end`.
    """
    parts = [*write_lines(tell_missing(document.answer, [document]), width), *_tell_front(document, full=full)]
    if variables := document.environment.get("variables"):
        text = ", ".join(f"{name}={value}" for name, value in variables.items())
        parts.append(Text(f"Set in the environment, for all targets: {text}.", style="dim"))
    parts += [Text(line, style="dim") for line in describe_interpreters(document.environment)]
    if full:
        parts += [Text(line, style="dim") for line in notes.tell_ceilings(document)]
        parts += [Text(line, style="dim") for line in notes.tell_time(document.spent_s)]
    parts += [Text(f"warning: {warning}", style="yellow") for warning in document.warnings]
    return [
        *parts,
        *(
            Text(line, style="dim" if document.complete else "yellow")
            for line in notes.tell_end(document, width, above)
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A group's rows in the order of its table, and what they are compared with.

    Attributes:
        rows: what may be shipped by time, then what may not; without an answer, all by time.
        answer: the group's; None if it has none, as a group that selects settings.
    """

    summary: GroupSummary
    rows: Sequence[Row]
    answer: Answer | None

    @property
    def ship(self) -> str | None:
        """Return the arm that is shipped."""
        return self.answer.ship.arm if self.answer and self.answer.ship else None

    def titles(self, *, brief: bool = False) -> dict[str, str]:
        """Return the titles of the comparisons' columns, with the names of what the rows are compared with."""
        name = short if brief else str
        ship = f"against {name(self.ship)}" if self.ship else SHIP
        baseline = f"against {name(self.summary.baseline)}" if self.summary.baseline else BASELINE
        long = f"against {SHIPS}" if brief else f"against {short(self.ship or '')}"
        mean = {"time": "mean time"} if any(find_scenario(row.scenario).varies for row in self.rows) else {}
        return {SHIP: ship if len(ship) <= LONGEST_TITLE else long, BASELINE: baseline, NOTE: "", **mean}

    def is_refused(self, row: Row) -> bool:
        """Tell whether a row with a time may not be shipped."""
        return bool(self.ship and row.end_to_end and self.answer and row.arm not in self.answer.eligible)

    @property
    def reference(self) -> str | None:
        """Return the arm that the rows are compared with: what is shipped, else the baseline."""
        return self.ship or self.summary.baseline

    def ratio(self, row: Row) -> Ratio | None:
        """Return a row's time over that of the reference; None of the reference, and if they share no restart."""
        timing = row.end_to_end
        return (timing.ship_ratio if self.ship else timing.ratio) if timing else None

    def list_ratios(self, row: Row, headers: Collection[str]) -> list[Ratio]:
        """List the ratios that a row shows in these columns."""
        timing = row.end_to_end
        shown = {SHIP: timing.ship_ratio, BASELINE: timing.ratio, OWN: timing.own_fp32_ratio} if timing else {}
        return [ratio for name, ratio in shown.items() if ratio and name in headers]

    def time_ns(self, row: Row) -> float:
        """Return the time that is shown: the reference's × the row's ratio, so that the two agree."""
        reference = next((other.end_to_end for other in self.rows if other.arm == self.reference), None)
        if reference and (ratio := self.ratio(row)):
            return reference.median_ns * ratio.value
        return _get_timing(row).median_ns

    def tell_refusal(self, row: Row) -> str:
        """Tell in a few words why a row may not be shipped; "" if it may, or if the group has no answer."""
        if not self.is_refused(row) or self.answer is None:
            return ""
        passed = next((passed for passed in self.answer.passed if passed.arm == row.arm), None)
        if passed and passed.because == "unsound":
            reason = (passed.reason or "").removeprefix(row.arm).strip()
            return reason if len(reason) <= LONGEST_NOTE else "no sound time"
        return _name_refusal(row)

    def choose_headers(self, *, full: bool) -> list[str]:
        """Return the headers of all columns, or of the first ones, with no comparison that this group doesn't have."""
        costs, baseline = _is_about_costs(self.rows), self.summary.baseline
        missing = {name for name, to in ((SHIP, self.ship), (BASELINE, baseline)) if not to}
        if full:
            missing |= {BASELINE} if self.ship == baseline else set()
            return [name for name in (COSTS if costs else RACE) if name not in missing]
        first = COSTS_FIRST if costs else RACE_FIRST
        shown = first if self.ship else [BASELINE if name == SHIP else name for name in first]
        return [name for name in shown if name not in missing]


class PrintedTable(NamedTuple):
    """Hold what a screen or a page shows of a group: its rows, and the headers of the columns that are there."""

    found: Compared
    headers: Collection[str]


INTERVAL = "(a to b): holds for all rows together at 95 %, whenever the race stops; sure if it excludes 1."
"""Explains what brackets hold, in the tables and in the answer."""
MARKED = f"{NOT_ELIGIBLE}: not shipped by default."
ERRORS = "error: relative to the model in float64."
ERRORS_OF_LIBRARY = "error: relative to the outputs of {library}, which wrote the file."
OVER_RESTARTS = "over restarts: from the lowest median to the highest; from 6 restarts on, the median's 95 % interval."
COMPUTE = "compute: timed in calls of its own and in fewer rounds, so it can exceed the time of a whole call."


def tell_legend(printed: Sequence[PrintedTable], answers: Sequence[Answer], *, marked: bool = True) -> Iterator[str]:
    """Explain what the tables show, once: what brackets, marks, ratios and times are; nothing that isn't there.

    Args:
        answers: the run's, which stand above the tables.
        marked: a mark stands before what isn't shipped.
    """
    rows = [(found, row, headers) for found, headers in printed for row in found.rows]
    ratios = [ratio for found, row, headers in rows for ratio in found.list_ratios(row, headers)]
    ratios += [answer.otherwise.ratio for answer in answers if answer.otherwise and answer.otherwise.ratio]
    first = []
    if any(ratio.verdict is not Verdict.CANT_TELL for ratio in ratios):
        first.append(INTERVAL)
    if marked and any(found.is_refused(row) for found, row, _ in rows):
        first.append(MARKED)
    if any("error" in headers for _, headers in printed):
        library = name_reference(row for _, row, _ in rows)
        first.append(ERRORS_OF_LIBRARY.format(library=library) if library else ERRORS)
    if first:
        yield " ".join(first)
    timed = [(row.end_to_end, row.compute, headers) for _, row, headers in rows if row.end_to_end]
    if any("over restarts" in headers and whole.low_ns < whole.high_ns for whole, _, headers in timed):
        yield OVER_RESTARTS
    if any("compute" in headers and part and part.median_ns > whole.median_ns for whole, part, headers in timed):
        yield COMPUTE


SHIPPED = "ships"
"""Stands in place of a comparison of what is shipped."""
LONGEST_NOTE = 40
"""Letters; a longer reason stands in the answer only."""


LONGEST_TITLE = 40
"""Letters; a longer title gives no name."""


def compare_rows(summary: GroupSummary, document: Document) -> Compared:
    """Put a group's rows in the order of its table."""
    answer = next((answer for answer in document.answer if answer.group == summary.name), None)
    rows = _list_rows([row for row in document.rows if row.group == summary.name])
    found = Compared(summary=summary, rows=rows, answer=answer)
    timed = sorted((row for row in rows if row.end_to_end), key=found.time_ns)
    refused = [row for row in timed if found.is_refused(row)]
    others = [row for row in rows if not row.end_to_end]
    return replace(found, rows=[*(row for row in timed if row not in refused), *refused, *others])


def tabulate(found: Compared, *, full: bool) -> tuple[list[str], list[dict[str, Cell]]]:
    """Return the columns that have a figure, and the cells of each row by column, for a page.

    The comparisons' columns have the names of what the rows are compared with; the column of reasons has none. No mark
    stands before a target's name.

    Args:
        full: all columns.
    """
    headers = found.choose_headers(full=full)
    lines = [_fill_cells(found, row, headers, marked=False) for row in found.rows]
    titles = found.titles()
    shown = [name for name in headers if any(str(line[name]) for line in lines)]
    return [titles.get(name, name) for name in shown], [
        {titles.get(name, name): line[name] for name in shown} for line in lines
    ]


def tell_group(summary: GroupSummary, document: Document, *, full: bool) -> list[Text]:
    """Write the lines below the group's table: why not faster, what is out and why, how far to trust it."""
    rows = [row for row in document.rows if row.group == summary.name]
    measured = [row for row in _list_rows(rows) if row.end_to_end]
    answers = [answer for answer in document.answer if answer.group == summary.name]
    is_only = len(answers) == len(document.answer) == 1
    parts = [*_tell_whys(measured, answers if is_only else (), full=full), *map(Text, notes.tell_gpu(measured))]
    parts += map(Text, (*notes.tell_flips(measured), *notes.tell_errors_by_step(rows)))
    parts += map(Text, notes.tell_errors_by_output(rows) if full else ())
    is_told = not full and is_only
    parts += _tell_setbacks(
        [row for row in rows if row.reason and (full or not _is_told_above(row, answers))], full=full
    )
    if not is_told:
        ships = next((answer.ship.arm for answer in answers if answer.ship), None)
        parts += map(Text, tell_over_time(summary.ranking, measured, ships))
    if measured:
        has_ship = bool(answers and answers[0].ship)
        parts += map(Text, notes.tell_trust(summary, measured, full=full, is_told=is_told, has_ship=has_ship))
    return parts


def _tell_title(summary: GroupSummary, document: Document, *, full: bool) -> list[Text]:
    """Write the title above a group's table; the answer is that of the only one."""
    if not full and len(document.groups) == len(document.answer) == 1:
        return []
    return [Text(title(summary, document.rows_of(summary.name)), style="bold")]


def _list_rows(rows: Sequence[Row]) -> list[Row]:
    """List the rows that have a line in a table: by time, then those with other figures."""
    measured = sorted((row for row in rows if row.end_to_end), key=lambda row: _get_timing(row).median_ns)
    return [*measured, *(row for row in rows if not row.end_to_end and (row.fidelity or row.serve))]


def _tell_front(document: Document, *, full: bool) -> list[Text]:
    """List the rows that nothing beats in score and time together."""
    if not document.pareto:
        return []
    title = "Pareto front: no other row with a score beats these in score and time together"
    lines = []
    for point in document.pareto:
        ties = f"; not distinguished: {name_targets(point.ties, full=full)}" if point.ties else ""
        score = f"{point.metric} {point.score:.4g}"
        lines.append(f"  {duration(point.median_ns):>8}  {score}  {short(point.arm)}, {point.group}{ties}")
    return [Text(title, style="bold"), *map(Text, lines)]


def title(summary: GroupSummary, rows: Sequence[Row]) -> str:
    """Write the group's name, with its threads."""
    return ", ".join([summary.name, *tell_threads_beside(summary.name.split(", "), rows)])


def _tell_whys(rows: Sequence[Row], answers: Sequence[Answer], *, full: bool) -> list[Text]:
    """Tell why each row isn't faster than its own FP32, or is (if `full`); rows with the same reason share a line.

    Args:
        answers: those above the tables, which tell it of their own rows.
    """
    told = {one.arm for answer in answers for one in answer.no_gain}
    arms: dict[str, list[str]] = {}
    for row in rows:
        if row.why and row.arm not in told and (full or not gains(row.why.ratio)):
            arms.setdefault(tell_gain(row.why), []).append(row.arm)
    return [Text(f"{name_targets(names, full=full)}: {text}.") for text, names in arms.items()]


def _is_about_costs(rows: Sequence[Row]) -> bool:
    """Return whether arms were compared with their own backend's FP32: then a time alone is not the answer."""
    return any(row.end_to_end and row.end_to_end.own_fp32_ratio for row in rows)


def _fit_table(found: Compared, headers: Sequence[str], width: int) -> tuple[list[RenderableType], list[str]]:
    """Return one table, as much of it as fits in `width`, with what it lost, if anything; and its headers."""
    if not found.rows:
        return [], []
    whole = [_fill_cells(found, row, headers) for row in found.rows]
    filled = [name for name in headers if any(str(line[name]) for line in whole)]
    for count in range(len(STEPS) + 1):
        taken = [name for how, name in STEPS[:count] if how == "drop"]
        brief = [name for how, name in STEPS[:count] if how == "brief"]
        shown = [name for name in filled if name not in taken]
        lines = [_fill_cells(found, row, shown, brief=brief) for row in found.rows]
        titles = found.titles(brief=SHIP in brief)
        titles |= {"change (points)": "points"} if "change (points)" in brief else {}
        how: dict[str, Any] = {"left": [NOTE], "titles": titles}
        wraps = WRAP in STEPS[:count] and has_room(shown, lines, width, titles=titles)
        if wraps or fits(make_table(shown, lines, **how), width):
            break
    parts = [fit_table(shown, lines, width, **how)]
    if refused := [row for row in found.rows if found.is_refused(row)] if NOTE in filled and NOTE in taken else []:
        reasons: dict[str, None] = dict.fromkeys(found.tell_refusal(row) for row in refused)
        parts.append(Text(f"{NOT_ELIGIBLE} may not be shipped: {', '.join(reasons)}.", style="dim"))
    lost = [name for name in taken if name in filled and name != NOTE]
    if lost:
        parts.append(Text(f"Left out in {width} columns: {', '.join(lost)}.", style="dim"))
    return parts, shown


def _make_tables(found: Compared, headers: Sequence[str], width: int) -> tuple[list[RenderableType], list[str]]:
    """Return one table, with short names of arms if needed, or several below each other; and their headers."""
    if not found.rows:
        return [], []
    for brief in ((), ("target",)):
        cells = [_fill_cells(found, row, headers, brief=brief) for row in found.rows]
        shown = [name for name in headers if any(str(line[name]) for line in cells)]
        titles = found.titles(brief=bool(brief))
        if fits(table := make_table(shown, cells, left=[NOTE], titles=titles), width):
            return [table], shown
    first = [name for name in ("target", "time", SHIP if found.ship else BASELINE) if name in shown]
    return stack_tables(shown, cells, width, first=first, left=[NOTE], titles=titles), shown


def _fill_cells(
    found: Compared, row: Row, headers: Sequence[str], *, brief: Sequence[str] = (), marked: bool = True
) -> dict[str, Cell]:
    is_baseline = row.arm == found.summary.baseline
    cells = {
        name: found.tell_refusal(row)
        if name == NOTE
        else BY_HEADER[name].of(row, is_baseline=is_baseline, brief=name in brief)
        for name in headers
    }
    if marked and "target" in cells and found.ship:
        mark = SHIPS if row.arm == found.ship else NOT_ELIGIBLE if found.is_refused(row) else " "
        cells["target"] = f"{mark} {cells['target']}"
    if row.arm == found.ship and SHIP in cells:
        told = qualify(found.answer).removeprefix(", ") if found.answer else ""
        cells[SHIP] = Text(told or SHIPPED, style="bold")
    if row.end_to_end and "time" in cells:
        cells["time"] = duration(found.time_ns(row))
    if row.serve and "items/s" in cells:
        cells |= dict.fromkeys(cells.keys() & {"items/s", "items/s over restarts"}, "")  # its requests are counted
    if row.end_to_end is None or row.outcome == "failed":
        cells |= {name: _STOPPED[row.outcome] for name in (SHIP, BASELINE, OWN) if name in cells}
    if not row.is_judged:  # its outputs are unchecked, so a fast time is no good news
        for cell in cells.values():
            if isinstance(cell, Text) and cell.style == "green":
                cell.style = "yellow"
    if row.build_cached and "build" in cells:
        cells["build"] = f"{cells['build']}*"
    return cells


def _name_refusal(row: Row) -> str:
    figures = row.fidelity
    if figures is None:
        return "accuracy unknown"
    if figures.metric:
        return name_metric_verdict(figures.metric)
    if figures.standing == "tolerated":
        return "error above its bound"
    return "outputs unchecked" if figures.standing == "not judged" else "accuracy unknown"


def _tell_setbacks(rows: Sequence[Row], *, full: bool) -> list[Text]:
    built = {row.arm: _tell_built(row) if full else "" for row in rows}
    reasons = (reason_of(row, f"{row.arm}{built[row.arm]}") for row in rows)
    return [Text(line, style=STYLES[outcome]) for outcome, line in fold_reasons(reasons, full=full)]


def _is_told_above(row: Row, answers: Collection[Answer]) -> bool:
    """Return whether the line `Skipped` of the answers tells all that helps: other hardware is no fix to type."""
    if all(answer.group != row.group for answer in answers):
        return False
    is_brief = row.outcome == "skipped" and len(tell_why(row.reason or "")) <= LONGEST_REASON
    return is_brief and (row.device != Device.CPU or row.cause is NotRunKind.NOT_INSTALLED or not row.fix)


def _tell_built(row: Row) -> str:
    """Tell what was built for an arm that can't run here."""
    if not row.built_nodes_by_precision:
        return ""
    nodes = " and ".join(f"{count} {name}" for name, count in row.built_nodes_by_precision.items())
    return f" (built: {size(row.artifact_bytes or 0)} in {seconds(row.build_s or 0.0)}, compute layers: {nodes})"


def _get_timing(row: Row) -> Timing:
    assert row.end_to_end is not None, "only measured rows have a time"
    return row.end_to_end
