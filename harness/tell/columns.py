"""Columns of tables, each declared once: the figure's name in the document, how it is written, its header.

The unit of a figure stands at the end of its name, so most need no more than that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from shootout.core.contract import SCALED, Precision
from shootout.core.schemes import shown_as
from shootout.core.units import duration, number, seconds, size, three_digits
from shootout.tell.document import Ceiling, FidelityFigures, Ratio, Row, Serving, Timing
from shootout.tell.limits import limit_digits
from shootout.tell.ratios import NEVER_TOGETHER, STYLES, tell_ratio
from shootout.tell.wording import tell_error, tell_metric_change

Cell = str | Text
_UNBOUNDED = Console(width=10_000)
"""Measures a table's own width."""
_UNITS: Mapping[str, Callable[[Any], str]] = {"bytes": size, "s": seconds}
"""Writes a figure, by the last word of its name."""
SHIP, BASELINE, OWN = "against ship", "against baseline", "against own FP32"
"""The headers of comparisons with what is shipped, with the baseline, and with the same backend in FP32; a table puts
the names of the first two in."""
RESTARTS = "over restarts"
"""The header of the lowest and the highest median, or from 6 restarts on of the median's 95 % interval."""
LEAST_SHARE = 1e-4
"""A smaller relative error counts as none beside those of lower precisions."""
UNCHECKED = "unchecked"
"""Follows an error that was compared with no bound: whether the precision explains it isn't known."""


SCALES = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
"""Nanoseconds in each unit of time, rising."""
LEAST, MOST = 1e-3, 1e6
"""The figures that a table writes in its unit; a time outside keeps a unit of its own."""


def choose_unit(shown_ns: float) -> str:
    """Choose the unit of a table's times: that of what ships, as people read it."""
    return max((unit for unit in SCALES if shown_ns >= SCALES[unit]), key=SCALES.__getitem__, default="ns")


def write_time(ns: float, unit: str) -> str:
    """Write a time in a table's unit with three digits; one that is far off keeps a unit of its own."""
    figure = ns / SCALES[unit]
    return f"{three_digits(figure)} {unit}" if LEAST <= figure < MOST else duration(ns)


def against(ratio: Ratio) -> Text:
    """Write how a row compares with another one, in the color of its verdict."""
    return Text(tell_ratio(ratio), style=STYLES[ratio.verdict])


def error(relative_l2: float) -> str:
    """Write a relative error: `1.9e-3`."""
    return f"{relative_l2:.1e}".replace("e-0", "e-").replace("e+0", "e+")


def error_of(fidelity: FidelityFigures) -> str:
    """Write a row's relative error, or NaN if its outputs aren't numbers and that doesn't rule it out.

    An error that was compared with no bound is marked as unchecked.
    """
    return _mark_error(fidelity, error(fidelity.relative_l2 or 0.0))


def tell_error_share(fidelity: FidelityFigures) -> str:
    """Write a row's relative error in per cent: `0.19 %`; see `error_of`."""
    value = fidelity.relative_l2 or 0.0
    return _mark_error(fidelity, "0 %" if not value else "<0.01 %" if value < LEAST_SHARE else tell_error(value))


def _mark_error(fidelity: FidelityFigures, told: str) -> str:
    told = "NaN" if fidelity.relative_l2 is None else told
    return f"{told} {UNCHECKED}" if fidelity.standing == "not judged" else told


def proven(row: Row) -> str:
    """Write the precision that evidence shows: the permutation probe's, or the runtime's node counts if quantized.

    `int8 126/128, rest fp32`: so many of the compute nodes, and what all other nodes run in. Node counts follow the
    probe's precision if the runtime mixes precisions. A file in its own precisions has nothing to prove: all counts
    are written.
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


def _tell_p99(serving: Serving) -> str:
    """Write the p99 in the unit of its limit."""
    if serving.p99_ns is None:
        return ""
    return write_time(serving.p99_ns, choose_unit(serving.limit_ns or serving.p99_ns))


def _tell_limit(serving: Serving) -> str:
    told = {True: "holds", False: "BREAKS", None: "unknown:"}[serving.holds]
    return f"{told} {duration(serving.limit_ns, limit_digits(serving.limit_ns))}"


def _tell_ceiling(ceiling: Ceiling) -> str:
    return f"{ceiling.share:.0%}" + (f" {ceiling.binds}" if ceiling.binds != "overhead" else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: one figure of each row.

    Attributes:
        name: the figure's path in a row of the document, e.g. `end_to_end.median_ns`; "": the whole row.
        header: the title of the column.
        show: writes the figure; None: by the unit in its name.
        missing: stands in place of null.
        baseline: stands in place of null on the group's baseline; None: as `missing`.
        left: the column is flush left.
    """

    name: str
    header: str
    show: Callable[[Any], Cell] | None = None
    missing: Cell = ""
    baseline: Cell | None = None
    left: bool = False

    def of(self, row: Row, unit: str, *, is_baseline: bool = False) -> Cell:
        """Write the figure of a row; `unit`: of the table's times."""
        value: Any = row
        for part in filter(None, self.name.split(".")):
            value = getattr(value, part) if value is not None else None
        if value is None:
            return self.baseline if is_baseline and self.baseline is not None else self.missing
        if self.show:
            return self.show(value)
        if isinstance(value, Timing):
            return f"{write_time(value.low_ns, unit)} to {write_time(value.high_ns, unit)}"
        kind = self.name.rpartition("_")[2]
        return write_time(value, unit) if kind == "ns" else _UNITS[kind](value)


_APART = Text(NEVER_TOGETHER, style="dim")
COLUMNS = (
    Column(name="arm", header="target", show=str, left=True),
    Column(name="over_time.first_ns", header="at first"),
    Column(name="end_to_end.median_ns", header="time"),
    Column(name="items_per_s.value", header="items/s", show=number),
    Column(name="serve.rate_per_s.value", header="requests/s", show=number),
    Column(name="serve", header="p99", show=_tell_p99),
    Column(name="serve", header="limit", show=_tell_limit),
    Column(name="end_to_end.ship_ratio", header=SHIP, show=against, missing=_APART, left=True),
    Column(
        name="end_to_end.ratio", header=BASELINE, show=against, missing=_APART, baseline=Text("baseline"), left=True
    ),
    Column(name="end_to_end.own_fp32_ratio", header=OWN, show=against, left=True),
    Column(name="end_to_end", header=RESTARTS),
    Column(name="over_time.change", header="last to first", show=against, left=True),
    Column(name="compute.median_ns", header="compute"),
    Column(name="cpu.median_ns", header="CPU a call"),
    Column(name="ceiling", header="of peak", show=_tell_ceiling),
    Column(name="", header="proven", show=proven, left=True),
    Column(name="artifact_bytes", header="size", missing=size(0)),
    Column(name="fidelity", header="error", show=tell_error_share),
    Column(name="fidelity.metric", header="metric", show=lambda metric: f"{metric.value:.4g}"),
    Column(name="fidelity.metric", header="metric change", show=tell_metric_change),
    Column(name="quantized.layers", header="int products", show=lambda value: f"{value:.0%}"),
    Column(name="install_bytes", header="installed"),
    Column(name="memory_bytes", header="memory at most"),
    Column(name="build_s", header="build"),
    Column(name="ready_s", header="ready"),
)
"""All columns in their order; those without any figure are left out, and the first screen has a few."""
BY_HEADER = {column.header: column for column in COLUMNS}


def make_table(
    headers: Sequence[str],
    lines: Sequence[Mapping[str, Cell]],
    *,
    left: Iterable[str] = (),
    titles: Mapping[str, str] | None = None,
) -> Table:
    """Make a table in the one style: a rule below the headers, and no figure ever cut or wrapped.

    If it is wider than the console, the names in its first column go on in a second line.

    Args:
        lines: the cells of each line, by header.
        left: headers whose columns are flush left, besides `Column.left`.
        titles: what is shown in place of a header.
    """
    flush = {*left, headers[0], *(column.header for column in COLUMNS if column.left)}
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), collapse_padding=True)
    for index, name in enumerate(headers):
        justify: JustifyMethod = "left" if name in flush else "right"
        table.add_column((titles or {}).get(name, name), justify=justify, no_wrap=index > 0, overflow="fold")
    for line in lines:
        first, *others = (line[name] for name in headers)
        table.add_row(_hang(first), *others)
    return table


def _hang(name: Cell) -> RenderableType:
    """Return a name behind its mark so that its further lines stand below the name, not below the mark."""
    told = Text.assemble(name)
    if told.plain[1:2] != " ":
        return told
    grid = Table.grid()
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(told[:2], told[2:])
    return grid


def stack_tables(
    headers: Sequence[str],
    lines: Sequence[Mapping[str, Cell]],
    width: int,
    *,
    first: Sequence[str] = (),
    left: Iterable[str] = (),
    titles: Mapping[str, str] | None = None,
) -> list[RenderableType]:
    """Make one table, or several below each other that fit in `width`, each with the first column again.

    Args:
        first: headers that the first table has in any case; by default the first one.
        left, titles: see `make_table`.
    """
    name, *others = headers
    longest = max(len(word) for line in lines for word in str(line[name]).split())
    room = width - longest - len(" ▸ ") - 1  # beside the names, whose words go on in a second line

    def fit(part: Sequence[str]) -> bool:
        whole = make_table([name, *part], lines, left=left, titles=titles)
        return fits(whole, width) or fits(make_table(part, lines, titles=titles), room)

    parts = [[one for one in first if one != name]]
    for other in (other for other in others if other not in parts[0]):
        if parts[-1] and not fit([*parts[-1], other]):
            parts.append([])
        parts[-1].append(other)
    return [make_table([name, *part], lines, left=left, titles=titles) for part in parts]


def fits(table: Table, width: int) -> bool:
    """Return whether a table can be shown in so many columns with nothing cut or wrapped."""
    return Measurement.get(_UNBOUNDED, _UNBOUNDED.options, table).maximum <= width
