"""The figures of a row that people read, each declared once: its name in the document, how it is written, its header.

The unit of a figure stands at the end of its name, so most need no more than that name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from shootout.contract import SCALED, BoundStanding, Precision
from shootout.results.document import (
    AccuracyChange,
    Ceiling,
    FidelityFigures,
    Metric,
    MetricChange,
    Rate,
    Ratio,
    Row,
    Serving,
    Timing,
)
from shootout.schemes import shown_as
from shootout.stats.verdicts import Verdict
from shootout.study.group import short
from shootout.units import duration, number, points, seconds, size

Cell = str | Text
_UNBOUNDED = Console(width=10_000)
"""Where a table's own width is measured."""
_UNITS: Mapping[str, Callable[[Any], str]] = {"ns": duration, "bytes": size, "s": seconds}
"""How a figure is written, by the last word of its name."""
UNCHECKED = "unchecked"
"""Behind an error: whether the precision explains it isn't known."""
_STYLES = {Verdict.FASTER: "green", Verdict.SLOWER: "red", Verdict.SAME: "cyan", Verdict.CANT_TELL: "yellow"}


def verdict(ratio: Ratio) -> Text:
    """The verdict in words, with how much."""
    words = {
        Verdict.FASTER: f"{1 / ratio.value:.3g}x faster",
        Verdict.SLOWER: f"{ratio.value:.3g}x slower",
        Verdict.SAME: "same (within 1 %)",
        Verdict.CANT_TELL: "can't tell",
    }
    return Text(words[ratio.verdict], style=_STYLES[ratio.verdict])


def ends_of(low: float | None, high: float | None) -> str:
    """` [0.9, 1.2]`, behind the value; None is an end that nothing is known of, and "" stands for two such."""
    if low is not None and high is not None:
        return f" [{low:.3g}, {high:.3g}]"
    if low is not None:
        return f" [over {low:.3g}]"
    return f" [under {high:.3g}]" if high is not None else ""


def timed(timing: Timing) -> str:
    """A time, and how far its interval goes from it to the farther side."""
    off = max(timing.high_ns - timing.median_ns, timing.median_ns - timing.low_ns) / timing.median_ns
    spread = f" ±{100 * off:.{int(off < 0.01)}f}%" if timing.restarts > 1 else ""
    return duration(timing.median_ns) + spread


def known(ratio: Ratio) -> str:
    """A ratio with its interval, as far as that is known."""
    return f"{ratio.value:.3g}{ends_of(ratio.low, ratio.high)}"


def judged(ratio: Ratio) -> Text:
    """A ratio with its interval and its verdict, in one cell."""
    return Text(f"{known(ratio)} {ratio.verdict}", style=_STYLES[ratio.verdict])


def rate(found: Rate) -> str:
    """A rate with its interval, where it has one."""
    ends = f" [{number(found.low)}, {number(found.high)}]" if found.low < found.high else ""
    return number(found.value) + ends


def error(relative_l2: float) -> str:
    """A relative error."""
    return f"{relative_l2:.1e}"


def error_of(found: FidelityFigures) -> str:
    """A row's relative error; its outputs may be no numbers, where that doesn't keep it out.

    Behind an error that was held against nothing stands that it is so.
    """
    told = "NaN" if found.relative_l2 is None else error(found.relative_l2)
    return f"{told} {UNCHECKED}" if found.standing is BoundStanding.NOT_JUDGED else told


def share(value: float) -> str:
    """A share of rows, to the tenth of a percent."""
    return f"{value:.1%}"


def proven(row: Row) -> str:
    """The precision that evidence shows: the permutation probe's, with node counts where the runtime mixes precisions;
    for what a quantizer made the runtime's own node counts.

    `int8 126/128, rest fp32`: so many of the compute nodes, and what all other nodes run in. A file in its own
    precisions has nothing to prove: all counts are told.
    """
    executed = row.executed or {}
    counts, others = executed.get("compute_nodes_by_precision", {}), executed.get("other_nodes_by_precision", {})
    if row.precision == Precision.NATIVE:
        return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "-"
    mine = shown_as(row.precision, row.scheme)
    if row.fidelity and row.fidelity.probe and row.precision not in SCALED:
        mixed = len(counts) > 1
        return row.fidelity.probe + (f" {counts.get(mine, 0)}/{sum(counts.values())}" if mixed else "")
    if not counts.get(mine):
        return "-"
    rest = sorted((set(counts) | set(others)) - {mine})
    return f"{mine} {counts[mine]}/{sum(counts.values())}" + (f", rest {' '.join(rest)}" if rest else "")


def _limit(found: Serving) -> str:
    told = {True: "holds", False: "BREAKS", None: "unknown:"}[found.holds]
    return f"{told} {duration(found.limit_ns)}"


def _change(found: AccuracyChange) -> str:
    return f"{points(found.value)} [{points(found.low)}, {points(found.high)}]"


def _score(found: Metric) -> str:
    return f"{found.value:.4g}"


def _score_change(found: MetricChange) -> str:
    return f"{found.value:+.2g} [{found.low:+.2g}, {found.high:+.2g}]"


def _bare(ratio: Ratio) -> str:
    return f"{ratio.value:.3g}"


def _bare_judged(ratio: Ratio) -> Text:
    return Text(f"{_bare(ratio)} {ratio.verdict}", style=_STYLES[ratio.verdict])


def _bare_rate(found: Rate) -> str:
    return number(found.value)


def _bare_change(found: AccuracyChange) -> str:
    return points(found.value)


def _ceiling(found: Ceiling) -> str:
    return f"{found.share:.0%}" + (f" {found.binds}" if found.binds != "overhead" else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of a row.

    Attributes:
        name: its path in a row of the document, e.g. `end_to_end.median_ns`; "" for one that takes the whole row.
        header: of its column.
        show: how it is written; None: by the unit in its name.
        missing: what stands where it is null.
        baseline: what stands there instead on the group's baseline; None: the same.
        left: whether its column is flush left.
        brief: how it is written where there is little room: without its interval.
    """

    name: str
    header: str
    show: Callable[[Any], Cell] | None = None
    missing: Cell = ""
    baseline: Cell | None = None
    left: bool = False
    brief: Callable[[Any], Cell] | None = None

    def of(self, row: Row, *, is_baseline: bool = False, brief: bool = False) -> Cell:
        """The figure of a row, as people read it; `brief`: in few letters."""
        value: Any = row
        for part in filter(None, self.name.split(".")):
            value = getattr(value, part) if value is not None else None
        if value is None:
            return self.baseline if is_baseline and self.baseline is not None else self.missing
        show = self.show or _UNITS[self.name.rpartition("_")[2]]
        return ((brief and self.brief) or show)(value)


FIGURES = (
    Figure(name="arm", header="target", show=str, left=True, brief=short),
    Figure(name="end_to_end", header="time", show=timed, brief=lambda timing: duration(timing.median_ns)),
    Figure(name="end_to_end.ratio", header="ratio", show=known, baseline="1", left=True, brief=_bare),
    Figure(
        name="end_to_end.ratio",
        header="verdict",
        show=verdict,
        missing=Text("not compared"),
        baseline=Text("baseline"),
        left=True,
    ),
    Figure(name="end_to_end.own_fp32_ratio", header="to own fp32", show=judged, left=True, brief=_bare_judged),
    Figure(name="end_to_end.ratio", header="to baseline", show=judged, baseline="baseline", left=True),
    Figure(name="items_per_s", header="items/s", show=rate, brief=_bare_rate),
    Figure(name="serve.rate_per_s", header="requests/s", show=rate, brief=_bare_rate),
    Figure(name="serve.p99_ns", header="p99"),
    Figure(name="serve", header="limit", show=_limit),
    Figure(name="serve.unloaded_ns", header="idle"),
    Figure(name="compute.median_ns", header="compute"),
    Figure(name="ceiling", header="of peak", show=_ceiling),
    Figure(name="ceiling.gbs", header="GB/s", show=lambda value: f"{value:.3g}"),
    Figure(name="", header="proven", show=proven, left=True),
    Figure(name="fidelity", header="error", show=error_of),
    Figure(name="fidelity.shared_l2", header="to own file", show=error),
    Figure(name="fidelity.accuracy", header="accuracy", show=share),
    Figure(name="fidelity.accuracy_change", header="change (points)", show=_change, brief=_bare_change),
    Figure(name="fidelity.metric", header="metric", show=_score),
    Figure(
        name="fidelity.metric.change",
        header="metric change",
        show=_score_change,
        brief=lambda found: f"{found.value:+.2g}",
    ),
    Figure(name="quantized.flops", header="int ops", show=lambda value: f"{value:.0%}"),
    Figure(name="quantizer", header="quantizer", show=lambda name: name if name != "none" else ""),
    Figure(name="artifact_bytes", header="size", missing=size(0)),
    Figure(name="rss_loaded_bytes", header="memory", missing=size(0)),
    Figure(name="build_s", header="build"),
    Figure(name="load_s", header="load"),
    Figure(name="install_bytes", header="installed"),
    Figure(name="memory_bytes", header="memory at most"),
    Figure(name="ready_s", header="ready"),
)
"""All that have a column; each table chooses among them by header."""
BY_HEADER = {figure.header: figure for figure in FIGURES}


def make_table(
    headers: Sequence[str],
    lines: Sequence[Mapping[str, Cell]],
    *,
    left: Iterable[str] = (),
    long: Collection[str] = (),
) -> Table:
    """A table in the house's one style: a rule below the headers, and no figure ever cut or wrapped.

    Where it is wider than the console, the names in its first column go on in a second line.

    Args:
        lines: by header, the cells of each.
        left: headers whose columns are flush left, besides the figures that always are.
        long: headers of other columns that may go on in a second line.
    """
    flush = {*left, *(figure.header for figure in FIGURES if figure.left)}
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), collapse_padding=True)
    for name in headers:
        may_fold = name == headers[0] or name in long
        table.add_column(name, justify="left" if name in flush else "right", no_wrap=not may_fold, overflow="fold")
    for line in lines:
        table.add_row(*(line[name] for name in headers))
    return table


def stack_tables(
    headers: Sequence[str],
    lines: Sequence[Mapping[str, Cell]],
    width: int,
    *,
    first: Sequence[str] = (),
    left: Iterable[str] = (),
    long: Collection[str] = (),
) -> list[Table]:
    """One table, or several below each other, each with the first column again and as many others as fit in `width`.

    Args:
        first: headers that the first table has in any case; by default the first two.
        left, long: see `make_table`.
    """
    parts = [list(first or headers[:2]), [headers[0]]]
    if fits(make_table(headers, lines), width):
        parts = [list(headers)]
    for name in (name for name in headers if name not in parts[0]):
        if len(parts[-1]) > 1 and not fits(make_table([*parts[-1], name], lines), width):
            parts.append([headers[0]])
        parts[-1].append(name)
    return [make_table(part, lines, left=left, long=long) for part in parts if len(part) > 1]


def fits(table: Table, width: int) -> bool:
    """Whether it can be shown in so many columns with nothing cut."""
    return Measurement.get(_UNBOUNDED, _UNBOUNDED.options, table).maximum <= width
