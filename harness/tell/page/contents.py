"""The report of a run: its answer, figures and tables, how it was measured, and the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from shootout.core.contract import short
from shootout.core.journal.records import Played
from shootout.core.results.run import read_run
from shootout.tell import answer as screen
from shootout.tell import notes, table
from shootout.tell.columns import BY_HEADER, Cell, error_of
from shootout.tell.document import Document, Row
from shootout.tell.grid import tabulate_answers, tell_answers, tell_more
from shootout.tell.machines import list_facts
from shootout.tell.notes import tell_missing
from shootout.tell.report import Figure, Line, Report, Table
from shootout.tell.table import compare_rows

OPEN = 3
"""The number of groups with an answer whose tables are open; the others are folded."""
METHOD = (
    "Before anything was timed, each target's outputs were compared with those of the model in float64.",
    "The targets took turns on the same CPUs, in shuffled order, so a disturbance met all of them alike.",
    "Every process was started afresh several times. The statistics compare whole restarts.",
)
"""Sentences that hold for the measurement of every run."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One run; without its journal's lines the figures that need them are left out."""

    document: Document
    played: tuple[Played, ...] = ()


def read(folder: Path, document: Document) -> MeasuredRun:
    """Read the restarts of the run in a folder.

    Args:
        document: of that run.

    Raises:
        UsageError: there is no run, or this version can't read it.
    """
    return MeasuredRun(document, tuple(line for line in read_run(folder).history.lines if isinstance(line, Played)))


def lay_out(run: MeasuredRun, figures: Sequence[Figure] = ()) -> Report:
    """Lay out what a run shows; its figures are drawn with the libraries of an extra, see `figures`."""
    document = run.document
    groups = sorted(document.groups, key=lambda summary: not any(one.group == summary.name for one in document.answer))
    titles = {group.name: table.title(group, document.rows_of(group.name)) for group in groups}
    measured = [found for group in groups if (found := compare_rows(group, document)).rows]
    tables, full = (
        [table.tabulate(found, titles[found.summary.name], full=full) for found in measured] for full in (False, True)
    )
    few = min(OPEN, len(document.answer)) or OPEN
    told: dict[str, list[Cell]] = {"": [*METHOD, *notes.tell_circumstances(document)]}
    for group in groups:
        told.setdefault(titles[group.name] if len(groups) > 1 else "", []).extend(notes.tell_group(group, document))
    evidence = {
        "All columns": full,
        "What ran, and the proof": [tabulate_proof(document)],
        "Run order": [*_tabulate_order(run.played)],
        "Environment": [_tabulate_environment(document)],
    }
    return Report(
        name=f"{document.study} ({PurePath(document.run).name})" if document.study else PurePath(document.run).name,
        lines=_tell_answer(document),
        answers=tabulate_answers(document) if len(document.answer) > 1 else None,
        warnings=document.warnings,
        figures=figures,
        tables=tables[:few],
        missing=[line for line in _tell_below(document) if line.parts or line.commands],
        notes={name: some for name, some in told.items() if some},
        evidence={title: some for title, some in evidence.items() if some},
    )


def without_answer(report: Report) -> Report:
    """Return a run's report without its own answer, for a page on which a policy has one for all runs."""
    told = "Below, its targets are compared with what it ships without the policy."
    return replace(
        report, lines=[Line("", subject=f"The run {report.name}"), *report.lines[1:2], Line("", [told])], answers=None
    )


def _tell_answer(document: Document) -> list[Line]:
    """Tell a run's answer: what to ship, the question, and what supports it."""
    answers, machine = document.answer, [*screen.tell_machine(document.environment)]
    if not answers:
        return [Line("", subject="No answer: nothing was measured"), Line("", machine)]
    if len(answers) > 1:
        return [*tell_answers(document)]
    return [*screen.tell_answer(answers[0], document.rows_of(answers[0].group), document)]


def _tell_below(document: Document) -> Iterator[Line]:
    """Tell what stands below the tables: what was skipped, what leads further, and how the run goes on."""
    yield from tell_missing(document.answer, [document])
    yield from tell_more(document)
    yield from notes.tell_end(document)


PROOF = ("target", "library", "device", "threads", "compute layers", "proven", "error", "fallbacks")


def tabulate_proof(document: Document) -> Table:
    """Tabulate what each runtime says it ran, and its error; a row that is in several groups comes once."""
    rows = [*dict.fromkeys(_list_proof_cells(row, row.executed) for row in document.rows if row.executed)]
    filled = [number for number, name in enumerate(PROOF) if any(row[number] for row in rows)]
    headers = [PROOF[number] for number in filled]
    cells = [[row[number] for number in filled] for row in rows]
    return Table(title="", headers=headers, rows=cells, left=headers)


def _list_proof_cells(row: Row, executed: Mapping[str, Any]) -> tuple[str, ...]:
    counts = executed.get("compute_nodes_by_precision") or {}
    return (
        row.arm,
        f"{executed.get('library', '')} {executed.get('version', '')}".strip(),
        str(executed.get("device", "")),
        str(executed.get("threads") or ""),
        ", ".join(f"{name} {count}" for name, count in sorted(counts.items())),
        str(BY_HEADER["proven"].of(row, "ms")),
        error_of(row.fidelity) if row.fidelity else "",
        "; ".join(executed.get("fallbacks") or ()),
    )


ORDER = ("restart", "rounds", "disturbed", "targets in the order in which they were started")


def _tabulate_order(played: Sequence[Played]) -> Iterator[Table]:
    """Tabulate each restart of a group: its rounds, how many were disturbed, and the shuffled order of targets."""
    restarts: dict[str, dict[int, list[Played]]] = {}
    for line in played:
        restarts.setdefault(line.group, {}).setdefault(line.restart, []).append(line)
    for group, found in restarts.items():
        rows = [
            (
                str(restart + 1),
                str(max(len(line.block_median_ns.get("end_to_end", ())) for line in mine)),
                str(len({number for line in mine for number in line.flagged})),
                ", ".join(short(line.arm) for line in mine),
            )
            for restart, mine in sorted(found.items())
        ]
        yield Table(title=group, headers=ORDER, rows=rows, left=ORDER[-1:])


def _tabulate_environment(document: Document) -> Table:
    """Tabulate every fact of the machine and of the software, by its path in the document."""
    facts = {"run": PurePath(document.run).name, "study": document.study, **document.environment}
    headers = ("fact", "value")
    return Table(title="", headers=headers, rows=[*list_facts(facts)], left=headers)
