"""Write tables of the runs that ship into the pages that mark a place for one: `python -m lab.run_tables`.

`<!-- run: NAME KEY=VALUE … -->` asks for one row per target of a group; `NAME+NAME` reads several runs. The keys:

- `against=TARGET` compares each time with that target's, `against=own` with the FP32 target of the same backend;
- `targets=A,B` keeps these targets alone; a target that the run doesn't have is left out;
- `columns=time,against,…` chooses from `COLUMNS`;
- `by=batch` (or another parameter, `model`, `run`) makes a column of each value; its cells hold the time, or the
  comparison if `against` is given;
- any other key narrows the groups or targets: `model`, `batch`, `precision`, `scenario`, a parameter of the model.

`<!-- record: NAME -->` asks for one of `RECORDS`, made from the laboratory's JSON records. A test holds each page to
its tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab import landings
from lab.claims_page import RUNS, Where, fits, place_of, read
from lab.marked_tables import fill_tables, find_pages, write_table
from shootout.core.contract import Value
from shootout.core.units import duration, seconds, size
from shootout.tell.document import Ratio, Row
from shootout.tell.ratios import tell_ratio

RUN, RECORD = "run", "record"
"""The kinds of marks."""
NONE = "–"
AGAINST = "against"
OWN = "own"
BY_RUN = "run"
LAYERS = 128
"""The layers of the toy, and of its thin form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Hold what a mark asks for; the module's words say what each key means."""

    runs: tuple[str, ...]
    against: str
    targets: tuple[str, ...]
    columns: tuple[str, ...]
    by: str
    where: Where


@dataclass(frozen=True, slots=True)
class Found:
    """A row with the run that it is from."""

    run: str
    row: Row

    def compare(self, against: str) -> Ratio | None:
        """Return this row's time ÷ that of another target of its group, or of its own backend's FP32 target."""
        if against == OWN:
            return self.row.end_to_end.own_fp32_ratio if self.row.end_to_end else None
        run = read(self.run)
        cell = run.cells.get(self.row.group) if run and against != self.row.arm else None
        return cell.ratio(self.row.arm, against) if cell else None

    def tell(self, column: str, asked: Asked) -> str:
        """Write the cell of a column."""
        if column != AGAINST:
            return COLUMNS[column](self.row)
        found = self.compare(asked.against)
        return tell_ratio(found) if found else NONE

    def value_of(self, parameter: str) -> Value:
        """Return what the row has of a parameter, or its run's name."""
        return self.run if parameter == BY_RUN else place_of(self.row)[parameter]


def _tell(write: Callable[[Any], str], value: Any) -> str:
    return NONE if value is None else write(value)


COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "time": lambda row: _tell(lambda timing: duration(timing.median_ns), row.end_to_end),
    "error": lambda row: _tell("{:.1e}".format, row.fidelity and row.fidelity.relative_l2),
    "accuracy": lambda row: _tell(lambda metric: f"{metric.value:.1%}", row.fidelity and row.fidelity.metric),
    "size": lambda row: _tell(size, row.artifact_bytes),
    "installed": lambda row: _tell(size, row.install_bytes),
    "memory": lambda row: _tell(size, row.memory_bytes),
    "ready": lambda row: _tell(seconds, row.ready_s),
}
"""Column → how a row's cell is written; `against` comes from the comparison."""


def read_mark(text: str) -> Asked:
    """Read a mark's words.

    Raises:
        ValueError: a column is not among `COLUMNS`.
    """
    runs, *rest = text.split()
    keys = dict(word.split("=", 1) for word in rest)
    against, by = keys.pop("against", ""), keys.pop("by", "")
    columns = tuple(keys.pop("columns", "time,against" if against else "time").split(","))
    if strange := {*columns} - {*COLUMNS, AGAINST}:
        raise ValueError(f"no such column: {', '.join(sorted(strange))}; there are {', '.join((*COLUMNS, AGAINST))}")
    targets = tuple(filter(None, keys.pop("targets", "").split(",")))
    where = {name: int(value) if value.isdigit() else value for name, value in keys.items()}
    return Asked(runs=tuple(runs.split("+")), against=against, targets=targets, columns=columns, by=by, where=where)


def write_run(text: str) -> list[str]:
    """Write the table that a mark asks for, line by line.

    Raises:
        ValueError: there is no such run, nothing in it fits, or rows of several groups do.
    """
    asked = read_mark(text)
    found = list(_find(asked))
    if not found:
        raise ValueError(f"no row of {', '.join(asked.runs)} fits {text!r}")
    return _cross(asked, found) if asked.by else _list(asked, found)


def _find(asked: Asked) -> Iterator[Found]:
    for name in asked.runs:
        run = read(name)
        if run is None:
            raise ValueError(f"no run {name} in {RUNS}")
        for row in run.document.rows:
            if row.end_to_end and fits(row, asked.where) and (not asked.targets or row.arm in asked.targets):
                yield Found(name, row)


def _list(asked: Asked, found: Sequence[Found]) -> list[str]:
    groups = {(one.run, one.row.group) for one in found}
    if len(groups) > 1:
        raise ValueError(f"{len(groups)} groups fit, narrow it down: {', '.join(sorted(name for _, name in groups))}")
    heads = ["target", *(_head(column, asked.against) for column in asked.columns)]
    ordered = sorted(found, key=_time_of)
    return write_table(
        heads, ([f"`{one.row.arm}`", *(one.tell(name, asked) for name in asked.columns)] for one in ordered)
    )


def _head(column: str, against: str) -> str:
    if column != AGAINST:
        return column
    return "against its own FP32" if against == OWN else f"against `{against}`"


def _cross(asked: Asked, found: Sequence[Found]) -> list[str]:
    values = sorted({one.value_of(asked.by) for one in found}, key=lambda value: (isinstance(value, str), value))
    if asked.by == BY_RUN:
        values = list(asked.runs)
    cells: dict[str, dict[Value, str]] = {}
    for one in sorted(found, key=lambda one: (values.index(one.value_of(asked.by)), _time_of(one))):
        mine, value = cells.setdefault(one.row.arm, {}), one.value_of(asked.by)
        if value in mine:
            raise ValueError(f"{one.row.arm} has several rows at {asked.by}={value}, narrow it down")
        mine[value] = one.tell(AGAINST if asked.against else "time", asked)
    heads = [f"target, by {asked.by}", *(f"`{value}`" if asked.by == BY_RUN else str(value) for value in values)]
    rows = ([f"`{arm}`", *(mine.get(value, NONE) for value in values)] for arm, mine in cells.items())
    return write_table(heads, rows)


def _time_of(one: Found) -> float:
    return one.row.end_to_end.median_ns if one.row.end_to_end else 0.0


def _read_record(name: str, section: str, title: str) -> list[dict[str, Any]]:
    tables = json.loads((RUNS / name).read_text(encoding="utf-8"))["sections"][section]["tables"]
    rows: list[dict[str, Any]] = tables[title]
    return rows


def _overhead() -> list[str]:
    """Write where the time of the toy goes, by target."""
    times = _read_record("bench-backends.json", "order", "compute scope by size of the toy model (width x depth, us)")
    derived = {row["arm"]: row for row in _read_record("bench-backends.json", "order", "what follows from it")}
    heads = ["target", "toy, 128 wide", "16 wide", "overhead a layer", "its share of the toy", "1,024 wide, batch 32"]
    cells = [
        [
            f"`{row['arm']}`",
            _tell(lambda us: duration(1e3 * us), row["128x128"]),
            _tell(lambda us: duration(1e3 * us), row["16x128"]),
            _tell("{:.2f} us".format, derived[row["arm"]]["thin_layer_us"]),
            _tell("{:.0f} %".format, derived[row["arm"]]["overhead_percent"]),
            _tell("{:.0f} GFLOP/s".format, derived[row["arm"]]["fat_gflop_per_s"]),
        ]
        for row in sorted(times, key=lambda row: float(row["128x128"]))
    ]
    return write_table(heads, cells)


def _instructions() -> list[str]:
    """Write what a call executes on layers with next to nothing to compute."""
    rows = _read_record("instructions.json", "instructions", "instructions of a call")
    thin = sorted((row for row in rows if row["width"] == 16), key=lambda row: int(row["instructions"]))
    heads = ["target", "instructions of a call, 16 wide", "a layer", "function calls a layer"]
    cells = [
        [
            f"`{row['arm']}`",
            f"{row['instructions']:,}",
            *(f"{row[one] / LAYERS:,.0f}" for one in ("instructions", "calls")),
        ]
        for row in thin
    ]
    return write_table(heads, cells)


def _repeated() -> list[str]:
    """Write how long each of ten default runs took, and how sure it was."""
    runs = _read_record("repeated.json", "repeated", "the default run")
    said = _read_record("repeated.json", "repeated", "what each run said")
    heads = ["run", "next to", "seconds", "first answer after", "restarts", "verdicts", "flagged rounds", "SD", "ships"]
    cells = [
        [
            f"{number}{' (cold)' if row['built'] else ''}",
            row["beside"],
            f"{row['wall_s']:.0f}",
            f"{answer['after_s']:.0f} s",
            str(row["restarts"]),
            f"{row['verdicts']} of {row['arms'] - 1}",
            f"{row['flagged_percent']:.0f} %",
            f"{row['sd_percent']:.0f} %",
            f"`{row['ship']}`",
        ]
        for number, (row, answer) in enumerate(zip(runs, said, strict=True), 1)
    ]
    return write_table(heads, cells)


def _same() -> list[str]:
    """Write how often one target under five names was called faster or slower than itself."""
    runs = _read_record("same.json", "same", "onnxruntime 5 times")
    heads = [
        "run",
        "next to",
        "restarts",
        "SD between restarts",
        "verdicts",
        "false",
        "pairs",
        "false pairs",
        "control",
    ]
    cells = [
        [
            str(number),
            row["beside"],
            str(row["restarts"]),
            f"{row['sd_percent']:.1f} %",
            *(str(row[one]) for one in ("verdicts", "false", "pairs", "false pairs")),
            "equal" if row["control holds"] else "can't tell" if row["control holds"] is None else "different",
        ]
        for number, row in enumerate(runs, 1)
    ]
    return write_table(heads, cells)


RECORDS: Mapping[str, Callable[[], list[str]]] = {
    "overhead": _overhead,
    "instructions": _instructions,
    "repeated": _repeated,
    "same": _same,
    "landings": landings.write_sum,
    "each-landing": landings.write_each,
}


def fill(text: str) -> str:
    """Return a page with all tables of runs and records written anew."""
    return fill_tables(fill_tables(text, RUN, write_run), RECORD, lambda name: RECORDS[name]())


def main() -> None:
    """Write the tables of all pages anew."""
    for page in {*find_pages(RUN), *find_pages(RECORD)}:
        page.write_text(fill(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
