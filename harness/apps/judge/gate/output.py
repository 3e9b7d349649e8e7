"""Tell a gate's outcome: the first line, what else is broken or open, the next command, then the evidence.

In GitHub Actions a step summary has the same, and each thing that is wrong a line of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from shootout.apps.judge.gate.verdict import TIME, Gate, Outcome, list_reasons, tell_check, tell_slowdown
from shootout.core.errors import UsageError, printable, tell_refusal
from shootout.core.units import counted, span
from shootout.tell import junit
from shootout.tell.document import Document
from shootout.tell.formats import check_files, write_file, write_files
from shootout.tell.limits import SHARE, Standing
from shootout.tell.page import contents, markdown
from shootout.tell.report import Command, Line, Report, Table, write_lines
from shootout.tell.wording import describe_noise

SUMMARY, ACTIONS = "GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS"
_STYLES: dict[Outcome, str] = {"pass": "bold green", "fail": "bold red", "undecided": "bold yellow"}
_STANDINGS: dict[Outcome, Standing] = {"pass": Standing.MET, "fail": Standing.BROKEN, "undecided": Standing.UNKNOWN}
MARKS = {Standing.MET: "ok", Standing.BROKEN: "BROKEN", Standing.UNKNOWN: "unknown", None: ""}
_KINDS: dict[Standing, junit.Kind] = {Standing.BROKEN: "failure", Standing.UNKNOWN: "error"}


def report_gate(gate: Gate, document: Document | None = None) -> Report:
    """Return a gate's outcome with its evidence, and how its run was measured.

    Args:
        document: of the run; None where nothing was raced.
    """
    told = [(one, " · ".join(filter(None, [MARKS[one.standing], one.reason]))) for one in gate.checks]
    rows = [(one.name, one.reference or "–", one.candidate or "–", one.limit or "–", mark) for one, mark in told]
    evidence = Table(title="Evidence", headers=("evidence", "reference", "candidate", "limit", ""), rows=rows)
    return Report(
        name="gate",
        lines=[*tell_gate(gate, document)],
        warnings=gate.notes,
        tables=[evidence] if rows else [],
        notes=contents.lay_out(contents.MeasuredRun(document)).notes if document and gate.ratio else {},
    )


def render(gate: Gate, document: Document | None, width: int) -> RenderableType:
    """Return the whole screen; see `report_gate`."""
    report = report_gate(gate, document)
    first, *others = write_lines(report.lines, width)
    first.stylize(_STYLES[gate.outcome], 0, len(gate.outcome))
    parts: list[RenderableType] = [first, *others, *(Text(f"note: {one}", style="yellow") for one in report.warnings)]
    for table in report.tables:
        grid = Grid(box=None, pad_edge=False, header_style="bold")
        for name in table.headers:
            # a limit's name is typed as it stands, so it isn't broken
            grid.add_column(name, overflow="fold", no_wrap=name == table.headers[0], min_width=len(name))
        for first_cell, *cells in table.rows:
            grid.add_row(Text(str(first_cell).replace(": ", ":\n")), *(Text(str(cell)) for cell in cells))
        parts += [Text(), grid]
    return Group(*parts)


def tell_gate(gate: Gate, document: Document | None) -> Iterator[Line]:
    """Tell the outcome and what decided it, whose, what is broken or open, and what to type next."""
    yield tell_outcome(gate)
    candidate = f"{gate.given}, run as {gate.candidate}" if gate.given else gate.candidate
    yield Line("", [f"reference {gate.reference} of {gate.recorded}", f"candidate {candidate}", f"run in {gate.run}"])
    for label, standing in (("Broken", Standing.BROKEN), ("Open", Standing.UNKNOWN)):
        yield Line(label, [told for one, told in list_reasons(gate)[1:] if one is standing])
    is_open = any(one.name == TIME and one.standing is Standing.UNKNOWN for one in gate.checks)
    if document and gate.ratio and not (is_open and gate.outcome == "fail"):
        enough = "too few restarts for this limit yet" if is_open else "it doesn't change this outcome"
        yield Line("Noise", [f"{describe_noise(document.groups)}: {enough}"])
    adopts = "puts the packed candidate in the reference's place"
    remark = adopts if gate.outcome == "pass" else "goes on where this stopped"
    yield Line("Next", commands=[Command(text=gate.next, remark=remark)] if gate.next else ())


def tell_outcome(gate: Gate) -> Line:
    """Return the first line: the outcome, the candidate's file with what decided, the restarts and the time.

    For example `fail    new.onnx: size is 9 MB, reference 1 MB, limit at most 10 % more · 1 more below`.
    """
    ratio, (first, *others) = tell_slowdown(gate.ratio) if gate.ratio else "not raced", gate.reasons or ("",)
    told = f"not slower by more than {SHARE.tell_limit(gate.limit - 1)}: {ratio}" if gate.outcome == "pass" else first
    named = f"{gate.given}: {told}" if gate.given else told
    more = [f"{len(others)} more below"] if others else []
    return Line(gate.outcome, [named, *more, counted(gate.restarts, "restart"), span(gate.wall_s)])


def write_gate(gate: Gate, document: Document | None, paths: Sequence[Path]) -> None:
    """Write the files, each by the end of its name; where nothing was run, JUnit alone has something to tell.

    Raises:
        UsageError: as `formats.files.check_files`.
    """
    for path in check_files(paths):
        if path.name.lower().endswith(".xml"):
            write_file(path, junit.as_xml(document, [("gate", list(_make_cases(gate)))]))
        elif document:
            write_files(document, [path])


def _make_cases(gate: Gate) -> Iterator[junit.JUnitCase]:
    """Yield the outcome, and each check that has a limit: a broken limit is a failure, an unknown one an error."""
    message = "; ".join(gate.reasons) or " · ".join(tell_outcome(gate).parts)
    yield junit.JUnitCase(name="outcome", kind=_KINDS.get(_STANDINGS[gate.outcome]), message=message)
    for one in gate.checks:
        if one.standing is not None:
            yield junit.JUnitCase(name=one.name, kind=_KINDS.get(one.standing), message=tell_check(one))


def tell_github(
    gate: Gate, document: Document | None, stream: TextIO, environment: Mapping[str, str] = os.environ
) -> None:
    """Add the summary to the job's, and print the lines, in a job of GitHub's.

    Args:
        document: None where nothing was run.
        stream: the runner reads both; where data is on stdout, stderr.

    Raises:
        UsageError: the summary can't be written.
    """
    if place := environment.get(SUMMARY):
        try:
            with Path(place).open("a", encoding="utf-8") as file:
                file.write(markdown.render([report_gate(gate, document)]))
        except OSError as error:
            why = tell_refusal(error, f"unset {SUMMARY}")
            raise UsageError(f"{SUMMARY} {place!r} can't be written: {why}") from None
    if environment.get(ACTIONS) == "true":
        stream.writelines(f"{line}\n" for line in annotate(gate))


def annotate(gate: Gate) -> Iterator[str]:
    """Yield `::error title=…::…` for each broken limit, `::warning` for what isn't known and for each note."""
    for standing, told in list_reasons(gate):
        level, word = ("error", "fail") if standing is Standing.BROKEN else ("warning", "undecided")
        yield write_command(level, f"{word}: {gate.given or gate.candidate}: {told}")
    for note in gate.notes:
        yield write_command("warning", note)


def write_command(level: str, message: str) -> str:
    """Return a workflow command, so escaped that nothing in it begins another one.

    Source: actions/toolkit, packages/core/src/command.ts.
    """
    text = printable(message).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return f"::{level} title=shootout gate::{text}"
