"""The result as people read it: one line per arm, the verdict in words, then what was skipped or failed and the fix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from shootout.contract import INTEGERS
from shootout.report import ceilings, crossover_notes, gpu_notes, rates_notes, sweep_table
from shootout.report.setback_lines import STYLES, Told, folded
from shootout.results.document import Document, GroupSummary, Row, Timing
from shootout.units import duration, interval, judged, points, seconds, size, verdict
from shootout.worker import interpreters

UNBOUNDED = Console(width=10_000)
"""Where a table's own width is measured."""
ANSWER = ("arm", "time", "ratio", "interval", "verdict")
COSTS_ANSWER = ("arm", "size", "time", "to own fp32", "to baseline")
"""The answer of a quantization study: what a precision costs and buys."""
LEFT = ("arm", "verdict", "proven", "to own fp32", "to baseline")


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
    parts += crossover_notes.lines(document)
    parts += _front(document)
    if variables := document.environment.get("variables"):
        text = ", ".join(f"{name}={value}" for name, value in variables.items())
        parts.append(Text(f"Set in the environment, for all arms: {text}.", style="dim"))
    parts += [Text(line, style="dim") for line in interpreters.described(document.environment)]
    parts += [Text(line, style="dim") for line in gpu_notes.holding(document.holding)]
    parts += [Text(line, style="dim") for line in ceilings.notes(document)]
    parts += [Text(f"warning: {warning}", style="yellow") for warning in document.warnings]
    if not document.complete:
        parts.append(Text("This run is unfinished; run the same command again to resume.", style="yellow"))
    return Group(*parts)


def _group(summary: GroupSummary, rows: Sequence[Row], width: int) -> list[RenderableType]:
    measured = [row for row in rows if row.end_to_end]
    if not (costs := _is_about_costs(measured)):
        measured.sort(key=lambda row: _timing(row).median_ns)
    parts: list[RenderableType] = [Text(_title(summary, rows), style="bold")]
    if measured:
        cells = [(_costs if costs else _cells)(summary, row) for row in measured]
        parts += _tables(cells, COSTS_ANSWER if costs else ANSWER, width)
    parts += _whys(measured)
    parts += map(Text, gpu_notes.lines(measured))
    parts += _setbacks(row for row in rows if row.outcome != "measured")
    return [*parts, *(Text(note) for note in _notes(summary, measured))]


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


def _tables(cells: Sequence[dict[str, str | Text]], answer: Sequence[str], width: int) -> list[Table]:
    """One table, or as many below each other as a narrow terminal needs; the answer is always the first."""
    headers = [name for name in cells[0] if any(str(one[name]) for one in cells)]
    if _fits(headers, cells, width):
        return [_table(headers, cells)]
    if not _fits(answer, cells, width):
        answer = [name for name in answer if name not in ("interval", "to baseline")]
    parts = [list(answer), ["arm"]]
    for name in (name for name in headers if name not in answer):
        if len(parts[-1]) > 1 and not _fits([*parts[-1], name], cells, width):
            parts.append(["arm"])
        parts[-1].append(name)
    return [_table(part, cells) for part in parts]


def _fits(headers: Sequence[str], cells: Sequence[dict[str, str | Text]], width: int) -> bool:
    return Measurement.get(UNBOUNDED, UNBOUNDED.options, _table(headers, cells)).maximum <= width


def _table(headers: Sequence[str], cells: Sequence[dict[str, str | Text]]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for name in headers:
        table.add_column(name, justify="left" if name in LEFT else "right", no_wrap=True)
    for one in cells:
        table.add_row(*(one[name] for name in headers))
    return table


def _cells(summary: GroupSummary, row: Row) -> dict[str, str | Text]:
    timing, found = _timing(row), row.fidelity
    ratio = timing.ratio
    return {
        "arm": row.arm,
        "time": duration(timing.median_ns),
        "ratio": f"{ratio.value:.3g}" if ratio else "1" if row.arm == summary.baseline else "",
        "interval": interval(ratio) if ratio else "",
        "verdict": verdict(ratio) if ratio else Text("baseline" if row.arm == summary.baseline else "not compared"),
        **rates_notes.cells(row),
        "compute": duration(row.compute.median_ns) if row.compute else "",
        "of peak": ceilings.share(row),
        "proven": proven(row),
        "error": f"{found.relative_l2:.1e}" if found and found.relative_l2 is not None else "exact",
        "accuracy": f"{found.accuracy:.1%}" if found and found.accuracy is not None else "",
        "size": size(row.artifact_bytes or 0),
        "build": seconds(row.build_s) + ("*" if row.build_cached else ""),
        "load": seconds(row.load_s),
    }


def _costs(summary: GroupSummary, row: Row) -> dict[str, str | Text]:
    """A line of a quantization study: the plain table's figures, each beside what it was in FP32."""
    timing, plain = _timing(row), _cells(summary, row)
    found = row.fidelity.accuracy_change if row.fidelity else None
    return {
        "arm": row.arm,
        "size": plain["size"],
        "time": plain["time"],
        "to own fp32": judged(timing.own_fp32_ratio) if timing.own_fp32_ratio else "",
        "to baseline": judged(timing.ratio) if timing.ratio else "baseline" if row.arm == summary.baseline else "",
        "error": plain["error"],
        "accuracy": plain["accuracy"],
        "change": f"{points(found.value)} [{points(found.low)}, {points(found.high)}]" if found else "",
        "proven": plain["proven"],
        "int ops": f"{row.quantized.flops:.0%}" if row.quantized and row.quantized.flops is not None else "",
        "quantizer": row.quantizer if row.quantizer != "none" else "",
        "of peak": plain["of peak"],
        "memory": size(row.rss_loaded_bytes or 0),
        "build": plain["build"],
        "load": plain["load"],
    }


def proven(row: Row) -> str:
    """The precision that evidence shows: the permutation probe's, with node counts where the runtime mixes precisions;
    for integers the runtime's own node counts.

    `int8 126/128, rest fp32`: so many of the compute nodes, and what all other nodes run in.
    """
    executed = row.executed or {}
    counts, others = executed.get("compute_nodes_by_precision", {}), executed.get("other_nodes_by_precision", {})
    mine = row.precision.partition("-")[0]
    if row.fidelity and row.fidelity.probe and row.precision not in INTEGERS:
        mixed = len(counts) > 1
        return row.fidelity.probe + (f" {counts.get(mine, 0)}/{sum(counts.values())}" if mixed else "")
    if not counts.get(mine):
        return "-"
    rest = sorted((set(counts) | set(others)) - {mine})
    return f"{mine} {counts[mine]}/{sum(counts.values())}" + (f", rest {' '.join(rest)}" if rest else "")


def _setbacks(rows: Iterable[Row]) -> list[Text]:
    told = (Told(row.outcome, f"{row.arm}{_built(row)}", row.reason or "", row.fix or "") for row in rows)
    return [Text(line, style=STYLES[outcome]) for outcome, line in folded(told)]


def _built(row: Row) -> str:
    """What was built for an arm that can't run here."""
    if not row.built_nodes_by_precision:
        return ""
    nodes = " and ".join(f"{count} {name}" for name, count in row.built_nodes_by_precision.items())
    return f" (built: {size(row.artifact_bytes or 0)} in {seconds(row.build_s)}, compute layers: {nodes})"


def _notes(summary: GroupSummary, rows: Sequence[Row]) -> list[str]:
    """What the reader must know to trust the table, or not to."""
    if not rows:
        return []
    notes = [f"{summary.generations} generations, {summary.void_share:.0%} of the rounds voided{_why(summary)}."]
    ratio = summary.sentinel.ratio
    if ratio is not None:
        state = "holds" if summary.sentinel.holds else "DIFFERS: all verdicts are withheld"
        notes[0] += f" Sentinel {state}: {ratio.value:.4g} {interval(ratio)}."
    reasons = {timing.ratio.reason for row in rows if (timing := row.end_to_end) and timing.ratio}
    notes += [f"No verdict: {reason}." for reason in sorted(filter(None, reasons))]
    told: dict[str, list[str]] = {}  # arms of which the same is to be said share a line
    for row in rows:
        for line in (*(row.executed or {}).get("fallbacks", ()), *row.notes):
            told.setdefault(line, []).append(row.arm)
    notes += [f"{', '.join(arms)}: {line}." for line, arms in told.items()]
    notes += rates_notes.notes(rows)
    if any(row.build_cached for row in rows):
        notes.append("* built earlier, taken from the cache.")
    return notes


def _why(summary: GroupSummary) -> str:
    counts = ", ".join(f"{reason} {count}" for reason, count in sorted(summary.void_reasons.items()))
    return f" ({counts})" if counts else ""


def _timing(row: Row) -> Timing:
    assert row.end_to_end is not None, "only measured rows have a time"
    return row.end_to_end
