"""The screen of a result: the answer, one line per arm by time, then what was skipped or failed and the fix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shootout.contract import Value
from shootout.report import notes
from shootout.report.answer import render_answers
from shootout.report.columns import BY_HEADER, Cell, fits, make_table, stack_tables
from shootout.report.notes import STYLES, Reason, fold_reasons, reason_of
from shootout.report.screen import NOTEBOOK_WIDTH, name_targets, render_pre
from shootout.results.choice import is_judged
from shootout.results.document import Document, GroupSummary, Row, Timing
from shootout.stats.verdicts import Verdict
from shootout.study.group import name_model, short
from shootout.units import counted, duration, seconds, size
from shootout.worker import interpreters

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
    """Find the sweeps of more than so many sizes, along the run's axis or else along the longest one."""
    chose = {group.name for group in document.groups if group.selects}
    confirms = {group.name: group.confirms for group in document.groups if group.confirms}
    first: dict[str, Row] = {}
    for row in document.rows:
        if row.group not in chose:
            first.setdefault(row.group, row)
    parameters = dict.fromkeys(name for row in first.values() for name in row.parameters)
    longest = max(("batch", "threads", *parameters), key=lambda axis: len(_sizes_along(first, axis)), default="batch")
    axis = document.crossovers[0].axis if document.crossovers else longest
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
    return f"{name_model(row.model)} ({told})" + ("" if row.scenario == "latency" else f", {row.scenario}")


def render_sweep(line: Sweep, document: Document, width: int) -> list[RenderableType]:
    """Render one sweep in as many tables as `width` (columns) needs; then what went wrong, and trust."""
    names = set(line.groups.values())
    rows = [row for row in document.rows if row.group in names]
    measured = [row for row in rows if row.outcome == "measured"]
    parts: list[RenderableType] = [Text(f"{line.fixed}, by {line.axis}", style="bold")]
    if measured:
        parts += _make_tables_by_size(line, measured, width)
        parts.append(Text("* the lowest median of its column; whether it is proven, crossovers and --json say."))
    size_of = {name: size for size, name in line.groups.items()}
    parts += map(Text, notes.tell_unsynchronised(line.axis, [(size_of[row.group], row) for row in measured]))
    parts += _tell_reasons_by_size(line, [row for row in document.rows if row.group in {*names, *line.selecting}])
    groups = [group for group in document.groups if group.name in names]
    return [*parts, *map(Text, (_tell_trust_by_size(line, groups), *notes.tell_noise(groups)))]


def _make_tables_by_size(line: Sweep, rows: Sequence[Row], width: int) -> list[RenderableType]:
    times = {(row.arm, row.group): row.end_to_end.median_ns for row in rows if row.end_to_end}
    unjudged = {(row.arm, row.group) for row in rows if not is_judged(row)}
    best = {name: min(ns for (_, where), ns in times.items() if where == name) for _, name in times}
    arms = list(dict.fromkeys(row.arm for row in rows))
    columns = [
        (str(size), [_mark_best(times.get((arm, name)), best.get(name), (arm, name) in unjudged) for arm in arms])
        for size, name in line.groups.items()
    ]
    room = max(width - max(map(len, arms)) - 2, 1)  # where that is little, the names go on in a second line
    parts: list[RenderableType] = []
    while columns:
        fitting = max(_count_fitting(columns, room), 1)
        shown = [(line.axis, list(map(Text, arms))), *columns[:fitting]]
        find_sweeps = [{name: cells[index] for name, cells in shown} for index in range(len(arms))]
        parts.append(make_table([name for name, _ in shown], find_sweeps, left=[line.axis]))
        columns = columns[fitting:]
    return parts


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
        sizes.setdefault(reason_of(row, row.arm), []).append(str(size_of[row.group]))
    told = []
    for reason, some in sizes.items():
        where = "" if len(some) == len(line.groups) else f" at {line.axis} {', '.join(some)}"
        told.append(reason._replace(subject=f"{reason.subject}{where}"))
    return [Text(text, style=STYLES[outcome]) for outcome, text in fold_reasons(told)]


def _tell_trust_by_size(line: Sweep, groups: Sequence[GroupSummary]) -> str:
    """Tell restarts, disturbed rounds and the copies of the baselines, over all sizes."""
    counts = sorted({group.restarts for group in groups})
    span = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    void = max(group.void_share for group in groups)
    size_of = {name: size for size, name in line.groups.items()}
    broken = [str(size_of[group.name]) for group in groups if group.control.holds is False]
    passed = [group.control.holds for group in groups].count(True)
    controls = (
        "passed" if passed == len(groups) else f"passed at {passed} of {len(groups)} sizes, tell nothing elsewhere"
    )
    if broken:
        controls = f"FAILED at {', '.join(broken)}: no verdict there"
    told = f"{span} restarts, at most {void:.0%} of the rounds disturbed."
    return f"{told} Controls (each baseline beside a copy of itself) {controls}."


ANSWER = ("target", "time", "ratio", "verdict")
_RACE_SHARED = ("target", "time", "items/s", "requests/s", "p99", "limit", "ratio", "verdict")
RACE = (
    *_RACE_SHARED,
    *("idle", "compute", "of peak", "GB/s"),
    *("proven", "error", "worst at", "accuracy", "metric", "metric change", "size", "installed"),
    *("memory at most", "build", "load", "ready"),
)
"""The columns of a race; those without any figure are left out."""
RACE_FIRST = (*_RACE_SHARED, "error", "accuracy", "metric")
"""The columns that are shown by default; a latency run without labels has figures in five of them."""
COSTS_ANSWER = ("target", "time", "size", "to own fp32")
COSTS = (
    *COSTS_ANSWER,
    *("to baseline", "error", "worst at", "to own file", "accuracy", "change (points)", "metric", "metric change"),
    *("proven", "int ops", "quantizer", "of peak", "GB/s", "memory", "build", "load"),
)
"""The columns of a quantization study: what a precision costs and buys."""
COSTS_FIRST = (*COSTS_ANSWER, "error", "change (points)", "metric change")
BRIEF = ("target", "ratio", "to own fp32", "time", "items/s", "requests/s", "change (points)", "metric change")
"""Columns that become shorter if a table is too wide, one after the other: a short target, all others without their
intervals. `--full` keeps everything, in several tables.
"""
DROPPED = ("ratio", "error", "limit", "size", "accuracy", "metric")
"""Columns that are left out if that isn't enough, one after the other."""
_STOPPED = {name: Text("failed" if name == "failed" else "not timed", style=STYLES[name]) for name in STYLES}
"""Stands in place of a verdict, by outcome."""
MORE = "--full: more columns (compute, proof, size, build) and notes; --json: all."


def render(document: Document, width: int, *, full: bool = False) -> RenderableType:
    """Render the answer, and what it rests on; see `render_tables`."""
    return Group(*render_answers(document, width), render_tables(document, width, full=full))


def render_tables(document: Document, width: int, *, full: bool = False) -> RenderableType:
    """Render a table per group, of few columns, notes below.

    Args:
        width: in letters; see `BRIEF` and `DROPPED`.
        full: all columns, in several tables if `width` is too narrow; also for a sweep over many sizes, which
            otherwise is one table of times.
    """
    sweeps = [] if full else find_sweeps(document)
    shown = {name for line in sweeps for name in (*line.groups.values(), *line.selecting)}
    parts: list[RenderableType] = [part for line in sweeps for part in render_sweep(line, document, width)]
    for summary in (group for group in document.groups if group.name not in shown):
        mine = [row for row in document.rows if row.group == summary.name]
        parts += _render_group(summary, mine, width, full=full)
    parts += tell_run(document, full=full)
    if not full and any(row.outcome == "measured" for row in document.rows):
        parts.append(Text(MORE, style="dim"))
    return Group(*parts)


def render_notebook(document: Document) -> str:
    """Write a run for a notebook: the answer, and the tables below it to open; every letter of the run is text."""
    answer = render_pre(*render_answers(document, NOTEBOOK_WIDTH))
    rows = counted(len(document.rows), "row")
    tables = render_pre(render_tables(document, NOTEBOOK_WIDTH))
    return f"{answer}<details><summary>{rows}</summary>{tables}</details>"


def tell_run(document: Document, *, full: bool) -> list[Text]:
    """Write the lines below all tables: crossovers, the front, what was set, and how the run ended."""
    parts = [*notes.tell_crossovers(document), *_tell_front(document, full=full)]
    if variables := document.environment.get("variables"):
        text = ", ".join(f"{name}={value}" for name, value in variables.items())
        parts.append(Text(f"Set in the environment, for all targets: {text}.", style="dim"))
    parts += [Text(line, style="dim") for line in interpreters.describe_interpreters(document.environment)]
    parts += [Text(line, style="dim") for line in notes.tell_holding(document.holding)]
    if full:
        parts += [Text(line, style="dim") for line in notes.tell_ceilings(document)]
        parts += [Text(line, style="dim") for line in notes.tell_time(document.spent_s)]
    parts += [Text(f"warning: {warning}", style="yellow") for warning in document.warnings]
    return [
        *parts,
        *(Text(line, style="dim" if document.complete else "yellow") for line in notes.tell_end(document)),
    ]


def tabulate(summary: GroupSummary, rows: Sequence[Row]) -> tuple[list[str], list[dict[str, Cell]]]:
    """Return the columns that have a figure, and the cells of the group's rows by column, the fastest first.

    Args:
        rows: of the group.
    """
    known = _list_rows(rows)
    lines = [_fill_cells(summary, row, COSTS if _is_about_costs(known) else RACE) for row in known]
    return [name for name in (lines[0] if lines else ()) if any(str(line[name]) for line in lines)], lines


def tell_group(summary: GroupSummary, rows: Sequence[Row], *, full: bool) -> list[Text]:
    """Write the lines below the group's table: why not faster, what is out and why, how far to trust it."""
    measured = [row for row in _list_rows(rows) if row.end_to_end]
    parts = [*_tell_whys(measured, full=full), *map(Text, notes.tell_gpu(measured))]
    parts += map(Text, notes.tell_errors_by_output(rows) if full else ())
    parts += _tell_setbacks([row for row in rows if row.reason], full=full)
    return [*parts, *map(Text, notes.tell_trust(summary, measured, full=full) if measured else ())]


def _render_group(summary: GroupSummary, rows: Sequence[Row], width: int, *, full: bool) -> list[RenderableType]:
    known = _list_rows(rows)
    costs = _is_about_costs(known)
    parts: list[RenderableType] = [Text(title(summary, rows), style="bold")]
    if known:
        headers = (COSTS if full else COSTS_FIRST) if costs else (RACE if full else RACE_FIRST)
        if full:
            cells = [_fill_cells(summary, row, headers) for row in known]
            parts += _make_tables(cells, COSTS_ANSWER if costs else ANSWER, width)
        else:
            parts += _fit_table(summary, known, headers, width)
    return [*parts, *tell_group(summary, rows, full=full)]


def _list_rows(rows: Sequence[Row]) -> list[Row]:
    """List the rows that have a line in a table: by time, then those with other figures."""
    measured = sorted((row for row in rows if row.end_to_end), key=lambda row: _get_timing(row).median_ns)
    return [*measured, *(row for row in rows if not row.end_to_end and (row.fidelity or row.serve))]


def _tell_front(document: Document, *, full: bool) -> list[Text]:
    """List the rows that nothing beats in accuracy and time together."""
    if not document.pareto:
        return []
    title = "Pareto front: no other row with an accuracy beats these in accuracy and time together"
    lines = []
    for point in document.pareto:
        ties = f"; not distinguished: {name_targets(point.ties, full=full)}" if point.ties else ""
        lines.append(
            f"  {duration(point.median_ns):>8}  {point.accuracy:6.1%}  {short(point.arm)}, {point.group}{ties}"
        )
    return [Text(title, style="bold"), *map(Text, lines)]


def title(summary: GroupSummary, rows: Sequence[Row]) -> str:
    """Write the group's name, with its threads."""
    threads = {row.threads for row in rows}
    return f"{summary.name}, {'/'.join(map(str, sorted(threads)))} thread{'' if threads == {1} else 's'}"


def _tell_whys(rows: Sequence[Row], *, full: bool) -> list[Text]:
    """Tell why each row isn't faster than its own FP32, or is (if `full`); rows with the same reason share a line."""
    arms: dict[str, list[str]] = {}
    for row in rows:
        own = row.end_to_end.own_fp32_ratio if row.end_to_end else None
        if row.why and (full or (own and own.verdict is not Verdict.FASTER)):
            arms.setdefault(row.why, []).append(row.arm)
    return [Text(f"{name_targets(names, full=full)}: {why}.") for why, names in arms.items()]


def _is_about_costs(rows: Sequence[Row]) -> bool:
    """Return whether arms were compared with their own backend's FP32: then a time alone is not the answer."""
    return any(row.end_to_end and row.end_to_end.own_fp32_ratio for row in rows)


def _fit_table(
    summary: GroupSummary, rows: Sequence[Row], headers: Sequence[str], width: int
) -> Iterator[RenderableType]:
    """Make one table, as much of it as fits in `width`; then tell what it lost, if anything."""
    briefer: list[tuple[Sequence[str], Sequence[str]]] = [(BRIEF[:count], ()) for count in range(len(BRIEF) + 1)]
    fewer = [(BRIEF, DROPPED[:count]) for count in range(1, len(DROPPED) + 1)]
    whole = [_fill_cells(summary, row, headers) for row in rows]
    filled = [name for name in headers if any(str(line[name]) for line in whole)]
    for brief, dropped in [*briefer, *fewer]:
        shown = [name for name in filled if name not in dropped]
        table = make_table(shown, [_fill_cells(summary, row, shown, brief=brief) for row in rows])
        if fits(table, width):
            break
    yield table
    lost: dict[str, list[str]] = {
        "the interval of": [name for name in brief if name in shown and name != "target"],
        "the column": [name for name in dropped if name in filled],
    }
    if told := [f"{what} {', '.join(names)}" for what, names in lost.items() if names]:
        yield Text(f"Left out in {width} columns: {'; '.join(told)}.", style="dim")


def _make_tables(cells: Sequence[dict[str, Cell]], first: Sequence[str], width: int) -> list[Table]:
    """Make one table, with short names of arms if needed; or several below each other, `first` the first."""
    headers = [name for name in cells[0] if any(str(line[name]) for line in cells)]
    if fits(make_table(headers, cells), width):
        return [make_table(headers, cells)]
    cells = [line | {"target": short(str(line["target"]))} for line in cells]
    if fits(make_table(headers, cells), width):
        return [make_table(headers, cells)]
    first = [name for name in first if name in headers]
    if not fits(make_table(first, cells), width):
        first = [name for name in first if name not in ("ratio", "to own fp32")]
    return stack_tables(headers, cells, width, first=first)


def _fill_cells(
    summary: GroupSummary, row: Row, headers: Sequence[str], *, brief: Sequence[str] = ()
) -> dict[str, Cell]:
    is_baseline = row.arm == summary.baseline
    cells = {name: BY_HEADER[name].of(row, is_baseline=is_baseline, brief=name in brief) for name in headers}
    if row.serve and "items/s" in cells:
        cells["items/s"] = ""  # its requests are counted
    if row.end_to_end is None or row.outcome == "failed":
        cells |= {name: _STOPPED[row.outcome] for name in ("verdict", "to own fp32") if name in cells}
        cells |= {} if row.end_to_end else dict.fromkeys(cells.keys() & {"ratio"}, "")
    if not is_judged(row):  # its outputs are unchecked, so a fast time is no good news
        for cell in cells.values():
            if isinstance(cell, Text) and cell.style == "green":
                cell.style = "yellow"
    if row.build_cached and "build" in cells:
        cells["build"] = f"{cells['build']}*"
    return cells


def _tell_setbacks(rows: Sequence[Row], *, full: bool) -> list[Text]:
    built = {row.arm: _tell_built(row) if full else "" for row in rows}
    reasons = (reason_of(row, f"{row.arm}{built[row.arm]}") for row in rows)
    return [Text(line, style=STYLES[outcome]) for outcome, line in fold_reasons(reasons, full=full)]


def _tell_built(row: Row) -> str:
    """Tell what was built for an arm that can't run here."""
    if not row.built_nodes_by_precision:
        return ""
    nodes = " and ".join(f"{count} {name}" for name, count in row.built_nodes_by_precision.items())
    return f" (built: {size(row.artifact_bytes or 0)} in {seconds(row.build_s or 0.0)}, compute layers: {nodes})"


def _get_timing(row: Row) -> Timing:
    assert row.end_to_end is not None, "only measured rows have a time"
    return row.end_to_end
