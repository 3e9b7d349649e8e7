"""Tell a gate's outcome: the first line, what is broken or open, the next command, then the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from shootout.apps.judge.gate.evidence import SAME, Check
from shootout.apps.judge.gate.verdict import TIME, Gate, Outcome, list_reasons, tell_check, tell_slowdown
from shootout.core.units import counted, span
from shootout.tell.document import Document
from shootout.tell.formats import junit
from shootout.tell.formats.files import check_files, write_file, write_files
from shootout.tell.limits import SHARE, Standing
from shootout.tell.page import contents
from shootout.tell.report import Command, Line, Report, Table
from shootout.tell.screen import write_lines
from shootout.tell.wording import describe_noise

_STYLES: dict[Outcome, str] = {"pass": "bold green", "fail": "bold red", "undecided": "bold yellow"}
_STANDINGS: dict[Outcome, Standing] = {
    "pass": Standing.MET,
    "fail": Standing.BROKEN,
    "undecided": Standing.UNKNOWN,
}
MARKS = {Standing.MET: "ok", Standing.BROKEN: "BROKEN", Standing.UNKNOWN: "unknown", None: ""}
_KINDS: dict[Standing, junit.Kind | None] = {
    Standing.BROKEN: "failure",
    Standing.UNKNOWN: "error",
    Standing.MET: None,
}


def report_gate(gate: Gate, document: Document | None = None) -> Report:
    """Return a gate's outcome with its evidence, and how its run was measured.

    Args:
        document: of the run; None where nothing was raced.
    """
    rows = [(one.name, one.reference or "–", one.candidate or "–", one.limit or "–", _mark(one)) for one in gate.checks]
    evidence = Table(title="Evidence", headers=("evidence", "reference", "candidate", "limit", ""), rows=rows)
    return Report(
        name="gate",
        lines=[*tell_gate(gate, document)],
        warnings=gate.notes,
        tables=[evidence] if rows else [],
        notes=contents.lay_out(contents.MeasuredRun(document)).notes if document and gate.ratio else {},
    )


def _mark(one: Check) -> str:
    return " · ".join(filter(None, [MARKS[one.standing], one.reason]))


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
        yield Line(label, [told for one, told in list_reasons(gate) if one is standing])
    is_open = any(one.name == TIME and one.standing is Standing.UNKNOWN for one in gate.checks)
    if document and gate.ratio and not (is_open and gate.outcome == "fail"):
        enough = "too few restarts for this limit yet" if is_open else "it doesn't change this outcome"
        yield Line("Noise", [f"{describe_noise(document.groups)}: {enough}"])
    remark = "goes on where this stopped"
    if gate.outcome == "pass":
        remark = "puts the packed candidate in the reference's place"
        remark = remark if gate.folder else "ships the upgrade, once the new versions are installed here"
    yield Line("Next", commands=[Command(text=gate.next, remark=remark)] if gate.next else ())


def tell_outcome(gate: Gate) -> Line:
    """Return the first line: the outcome, the candidate's file with what decided, the restarts and the time.

    For example `fail    new.onnx: 1.2x slower than the reference (1.176x slower to 1.224x slower), limit 5 % slower`.
    The first broken limit takes the slowdown's place, or one that stays open beside a slowdown that is known. It also
    says how many of the restarts an earlier command raced.
    """
    earlier = gate.earlier_restarts
    before = f" ({'all' if earlier == gate.restarts else earlier} by an earlier command)" if earlier else ""
    ratio, limit = tell_slowdown(gate.ratio) if gate.ratio else "not raced", SHARE.tell_limit(gate.limit - 1)
    told = f"not slower by more than {limit}: {ratio}" if gate.outcome == "pass" else f"{ratio}, limit {limit} slower"
    decisive = [one for one in gate.checks if one.standing is _STANDINGS[gate.outcome] and gate.outcome != "pass"]
    is_open = gate.outcome == "undecided" and any(one.name == TIME for one in decisive)
    if decisive and decisive[0].name != TIME and not is_open:
        others = len(decisive) - 1
        told = _tell_decisive(decisive[0]) + (f", and {counted(others, 'other limit')}" if others else "")
    named = f"{gate.given}: {told}" if gate.given else told
    return Line(gate.outcome, [named, counted(gate.restarts, "restart") + before, span(gate.wall_s)])


def _tell_decisive(one: Check) -> str:
    """Return a check as a headline has it: `size: +800.0 %, limit at most 10 % more`."""
    found = one.candidate if one.limit == SAME or not one.reason else one.reason.split("; ")[0]
    told = f"{one.name}: {found}" + (f", reference {one.reference}" if one.limit == SAME else "")
    return told + (f", limit {one.limit}" if one.limit else "")


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
    first = tell_outcome(gate)
    message = "; ".join([f"{first.label}  {' · '.join(first.parts)}", *gate.reasons])
    yield junit.JUnitCase(name="outcome", kind=_KINDS[_STANDINGS[gate.outcome]], message=message)
    for one in gate.checks:
        if one.standing is not None:
            yield junit.JUnitCase(name=one.name, kind=_KINDS[one.standing], message=tell_check(one))
