"""The result as people read it: one line per arm, the verdict in words, then what was skipped or failed and the fix."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from shootout.document import Document, GroupSummary, Ratio, Row, Timing
from shootout.verdicts import Verdict

_STYLES = {Verdict.FASTER: "green", Verdict.SLOWER: "red", Verdict.SAME: "cyan", Verdict.CANT_TELL: "yellow"}


UNBOUNDED = Console(width=10_000)
"""Where a table's own width is measured."""
ANSWER = ("arm", "time", "ratio", "interval", "verdict")


def render(document: Document, width: int) -> RenderableType:
    """The whole document: a table per group (two where `width`, in columns, is narrow), notes below."""
    parts: list[RenderableType] = []
    for summary in document.groups:
        parts += _group(summary, [row for row in document.rows if row.group == summary.name], width)
    if variables := document.environment.get("variables"):
        text = ", ".join(f"{name}={value}" for name, value in variables.items())
        parts.append(Text(f"Set in the environment, for all arms: {text}.", style="dim"))
    parts += [Text(f"warning: {warning}", style="yellow") for warning in document.warnings]
    if not document.complete:
        parts.append(Text("This run is unfinished; run the same command again to resume.", style="yellow"))
    return Group(*parts)


def _group(summary: GroupSummary, rows: Sequence[Row], width: int) -> list[RenderableType]:
    measured = sorted((row for row in rows if row.end_to_end), key=lambda row: _timing(row).median_ns)
    parts: list[RenderableType] = [Text(_title(summary, rows), style="bold")]
    if measured:
        parts += _tables(summary, measured, width)
    parts += [_setback(row) for row in rows if row.outcome != "measured"]
    return [*parts, *(Text(note) for note in _notes(summary, measured))]


def _title(summary: GroupSummary, rows: Sequence[Row]) -> str:
    threads = {row.threads for row in rows}
    return f"{summary.name}, {'/'.join(map(str, sorted(threads)))} thread{'' if threads == {1} else 's'}"


def _tables(summary: GroupSummary, rows: Sequence[Row], width: int) -> list[Table]:
    """One table, or as many below each other as a narrow terminal needs; the answer is always the first."""
    cells = [_cells(summary, row) for row in rows]
    headers = [name for name in cells[0] if any(str(one[name]) for one in cells)]
    if _fits(headers, cells, width):
        return [_table(headers, cells)]
    answer = ANSWER if _fits(ANSWER, cells, width) else tuple(name for name in ANSWER if name != "interval")
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
        table.add_column(name, justify="left" if name in ("arm", "verdict", "proven") else "right", no_wrap=True)
    for one in cells:
        table.add_row(*(one[name] for name in headers))
    return table


def _cells(summary: GroupSummary, row: Row) -> dict[str, str | Text]:
    timing, found = _timing(row), row.fidelity
    ratio = timing.ratio
    return {
        "arm": row.arm,
        "time": duration(timing.median_ns),
        "ratio": f"{ratio.value:.3g}" if ratio else "1",
        "interval": interval(ratio) if ratio else "",
        "verdict": verdict(ratio) if ratio else Text("baseline" if row.arm == summary.baseline else "not compared"),
        "compute": duration(row.compute.median_ns) if row.compute else "",
        "proven": proven(row),
        "error": f"{found.relative_l2:.1e}" if found and found.relative_l2 is not None else "exact",
        "accuracy": f"{found.accuracy:.1%}" if found and found.accuracy is not None else "",
        "size": size(row.artifact_bytes or 0),
        "build": _seconds(row.build_s) + ("*" if row.build_cached else ""),
        "load": _seconds(row.load_s),
    }


def proven(row: Row) -> str:
    """The precision that evidence shows: the permutation probe's, with node counts where the runtime mixes precisions;
    for integers the runtime's own node counts.

    `int8 126/128, rest fp32`: so many of the compute nodes, and what all other nodes run in.
    """
    executed = row.executed or {}
    counts, others = executed.get("compute_nodes_by_precision", {}), executed.get("other_nodes_by_precision", {})
    mine = row.precision.partition("-")[0]
    if row.fidelity and row.fidelity.probe:
        mixed = len(counts) > 1
        return row.fidelity.probe + (f" {counts.get(mine, 0)}/{sum(counts.values())}" if mixed else "")
    if not counts.get(mine):
        return "-"
    rest = sorted((set(counts) | set(others)) - {mine})
    return f"{mine} {counts[mine]}/{sum(counts.values())}" + (f", rest {' '.join(rest)}" if rest else "")


def verdict(ratio: Ratio) -> Text:
    """The verdict in words, with how much, or with what it would take."""
    words = {
        Verdict.FASTER: f"{1 / ratio.value:.3g}x faster",
        Verdict.SLOWER: f"{ratio.value:.3g}x slower",
        Verdict.SAME: "same (within 1 %)",
        Verdict.CANT_TELL: "can't tell" + (f" (needs ~{ratio.generations_needed})" if ratio.generations_needed else ""),
    }
    return Text(words[ratio.verdict], style=_STYLES[ratio.verdict])


def interval(ratio: Ratio) -> str:
    """The ratio's interval; an infinite end is shown as such."""
    low = f"{ratio.low:.3g}" if ratio.low is not None else "0"
    high = f"{ratio.high:.3g}" if ratio.high is not None else "inf"
    return f"[{low}, {high}]"


def _setback(row: Row) -> Text:
    style = "red" if row.outcome == "failed" else "dim"
    fix = f". Fix: {row.fix}" if row.fix else ""
    return Text(f"{row.outcome}: {row.arm}: {row.reason}{_built(row)}{fix}", style=style)


def _built(row: Row) -> str:
    """What was built for an arm that can't run here."""
    if not row.built_nodes_by_precision:
        return ""
    nodes = " and ".join(f"{count} {name}" for name, count in row.built_nodes_by_precision.items())
    return f" (built: {size(row.artifact_bytes or 0)} in {_seconds(row.build_s)}, compute layers: {nodes})"


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
    notes += [f"{row.arm}: {line}." for row in rows for line in (row.executed or {}).get("fallbacks", ())]
    if any(row.build_cached for row in rows):
        notes.append("* built earlier, taken from the cache.")
    return notes


def _why(summary: GroupSummary) -> str:
    counts = ", ".join(f"{reason} {count}" for reason, count in sorted(summary.void_reasons.items()))
    return f" ({counts})" if counts else ""


def _timing(row: Row) -> Timing:
    assert row.end_to_end is not None, "only measured rows have a time"
    return row.end_to_end


def duration(ns: float) -> str:
    """Nanoseconds with a unit that keeps the number readable."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= scale:
            return f"{ns / scale:.3g} {unit}" if ns / scale < 1000 else f"{ns / scale:.0f} {unit}"
    return f"{ns:.0f} ns"


def size(count: int) -> str:
    """Bytes with a decimal unit."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count} B"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2g} s"
