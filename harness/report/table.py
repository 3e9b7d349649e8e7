"""The result as people read it: one line per arm, the verdict in words, then what was skipped or failed and the fix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from shootout.report import notes, sweep_table
from shootout.report.figures import BY_HEADER, Cell, interval, make_table
from shootout.report.notes import STYLES, Reason, fold_reasons
from shootout.results.document import Document, GroupSummary, Row, Timing
from shootout.units import duration, seconds, size, span
from shootout.worker import interpreters

UNBOUNDED = Console(width=10_000)
"""Where a table's own width is measured."""
ANSWER = ("arm", "time", "ratio", "interval", "verdict")
RACE = (
    *(*ANSWER, "items/s", "requests/s", "p99", "limit", "idle", "compute", "of peak", "proven", "error", "accuracy"),
    *("size", "build", "load"),
)
"""The columns of a race, the answer first; those without any figure are left out."""
COSTS_ANSWER = ("arm", "size", "time", "to own fp32", "to baseline")
COSTS = (
    *(*COSTS_ANSWER, "error", "accuracy", "change", "proven", "int ops", "quantizer", "of peak", "memory"),
    *("build", "load"),
)
"""The columns of a quantization study: what a precision costs and buys."""


def render(document: Document, width: int, *, full: bool = False) -> RenderableType:
    """The whole document: a table per group (two where `width`, in columns, is narrow), notes below.

    Args:
        full: also of a sweep over many sizes, which otherwise is one table of times.
    """
    sweeps = [] if full else sweep_table.lines(document)
    shown = {name for line in sweeps for name in (*line.groups.values(), *line.selecting)}
    parts: list[RenderableType] = [part for line in sweeps for part in sweep_table.render(line, document, width)]
    for summary in (one for one in document.groups if one.name not in shown):
        parts += _group(summary, [row for row in document.rows if row.group == summary.name], width)
    parts += notes.tell_crossovers(document)
    parts += _front(document)
    if variables := document.environment.get("variables"):
        text = ", ".join(f"{name}={value}" for name, value in variables.items())
        parts.append(Text(f"Set in the environment, for all arms: {text}.", style="dim"))
    parts += [Text(line, style="dim") for line in interpreters.described(document.environment)]
    parts += [Text(line, style="dim") for line in notes.tell_holding(document.holding)]
    parts += [Text(line, style="dim") for line in notes.tell_ceilings(document)]
    parts += [Text(f"warning: {warning}", style="yellow") for warning in document.warnings]
    if document.budget_s is not None:
        told = f"It stopped after {span(document.budget_s)} of racing. To know more, give it --max-time 5m: it goes on."
        parts.append(Text(told, style="dim"))
    elif not document.complete:
        parts.append(Text("This run is unfinished; run the same command again to resume.", style="yellow"))
    return Group(*parts)


def _group(summary: GroupSummary, rows: Sequence[Row], width: int) -> list[RenderableType]:
    measured = [row for row in rows if row.end_to_end]
    if not (costs := _is_about_costs(measured)):
        measured.sort(key=lambda row: _timing(row).median_ns)
    parts: list[RenderableType] = [Text(_title(summary, rows), style="bold")]
    if measured:
        cells = [_cells(summary, row, COSTS if costs else RACE) for row in measured]
        parts += _tables(cells, COSTS_ANSWER if costs else ANSWER, width)
    parts += _whys(measured)
    parts += map(Text, notes.tell_gpu(measured))
    parts += _setbacks(row for row in rows if row.outcome != "measured")
    return [*parts, *(Text(note) for note in _trust(summary, measured))]


def _front(document: Document) -> list[Text]:
    """The rows that nothing beats in accuracy and time together."""
    if not document.pareto:
        return []
    title = "Pareto front: no other row with an accuracy beats these in accuracy and time together"
    lines = [f"  {duration(one.median_ns):>8}  {one.accuracy:6.1%}  {one.arm}, {one.group}" for one in document.pareto]
    return [Text(title, style="bold"), *map(Text, lines)]


def _title(summary: GroupSummary, rows: Sequence[Row]) -> str:
    threads = {row.threads for row in rows}
    return f"{summary.name}, {'/'.join(map(str, sorted(threads)))} thread{'' if threads == {1} else 's'}"


def _whys(rows: Sequence[Row]) -> list[Text]:
    """Why each row is or isn't faster than its own FP32; arms with the same reason share a line."""
    arms: dict[str, list[str]] = {}
    for row in rows:
        if row.why:
            arms.setdefault(row.why, []).append(row.arm)
    return [Text(f"{', '.join(names)}: {why}.") for why, names in arms.items()]


def _is_about_costs(rows: Sequence[Row]) -> bool:
    """Whether arms were compared with their own backend's FP32."""
    return any(row.end_to_end and row.end_to_end.own_fp32_ratio for row in rows)


def _tables(cells: Sequence[dict[str, Cell]], answer: Sequence[str], width: int) -> list[Table]:
    """One table, or as many below each other as a narrow terminal needs; the answer is always the first."""
    headers = [name for name in cells[0] if any(str(one[name]) for one in cells)]
    if _fits(headers, cells, width):
        return [make_table(headers, cells)]
    if not _fits(answer, cells, width):
        answer = [name for name in answer if name not in ("interval", "to baseline")]
    parts = [list(answer), ["arm"]]
    for name in (name for name in headers if name not in answer):
        if len(parts[-1]) > 1 and not _fits([*parts[-1], name], cells, width):
            parts.append(["arm"])
        parts[-1].append(name)
    return [make_table(part, cells) for part in parts]


def _fits(headers: Sequence[str], cells: Sequence[dict[str, Cell]], width: int) -> bool:
    return Measurement.get(UNBOUNDED, UNBOUNDED.options, make_table(headers, cells)).maximum <= width


def _cells(summary: GroupSummary, row: Row, headers: Sequence[str]) -> dict[str, Cell]:
    cells = {name: BY_HEADER[name].of(row, is_baseline=row.arm == summary.baseline) for name in headers}
    if row.serve and "items/s" in cells:
        cells["items/s"] = ""  # its requests are counted
    return cells | {"build": f"{cells['build']}{'*' * bool(row.build_cached)}"}


def _setbacks(rows: Iterable[Row]) -> list[Text]:
    reasons = (Reason(row.outcome, f"{row.arm}{_built(row)}", row.reason or "", row.fix or "") for row in rows)
    return [Text(line, style=STYLES[outcome]) for outcome, line in fold_reasons(reasons)]


def _built(row: Row) -> str:
    """What was built for an arm that can't run here."""
    if not row.built_nodes_by_precision:
        return ""
    nodes = " and ".join(f"{count} {name}" for name, count in row.built_nodes_by_precision.items())
    return f" (built: {size(row.artifact_bytes or 0)} in {seconds(row.build_s or 0.0)}, compute layers: {nodes})"


def _trust(summary: GroupSummary, rows: Sequence[Row]) -> list[str]:
    """What the reader must know to trust the table, or not to."""
    if not rows:
        return []
    spread = "" if summary.sd is None else f", SD between generations {summary.sd:.1%}"
    lines = [
        f"{summary.generations} generations, {summary.void_share:.0%} of the rounds flagged{_why(summary)}{spread}."
    ]
    ratio = summary.sentinel.ratio
    if ratio is not None:
        state = "holds" if summary.sentinel.holds else "DIFFERS: all verdicts are withheld"
        lines[0] += f" Sentinel {state}: {ratio.value:.4g} {interval(ratio)}."
    lines += notes.tell_noise([summary])
    reasons = {timing.ratio.reason for row in rows if (timing := row.end_to_end) and timing.ratio}
    lines += [f"No verdict: {reason}." for reason in sorted(filter(None, reasons))]
    told: dict[str, list[str]] = {}  # arms of which the same is to be said share a line
    for row in rows:
        for text in (*(row.executed or {}).get("fallbacks", ()), *row.notes):
            told.setdefault(text, []).append(row.arm)
    lines += [f"{', '.join(arms)}: {text}." for text, arms in told.items()]
    lines += notes.tell_rates(rows)
    if any(row.build_cached for row in rows):
        lines.append("* built earlier, taken from the cache.")
    return lines


def _why(summary: GroupSummary) -> str:
    counts = ", ".join(f"{reason} {count}" for reason, count in sorted(summary.void_reasons.items()))
    return f" ({counts})" if counts else ""


def _timing(row: Row) -> Timing:
    assert row.end_to_end is not None, "only measured rows have a time"
    return row.end_to_end
