"""Show a gate's outcome: on the screen its first line, then the evidence; in JUnit a case for each check."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shootout.apps.judge.gate.evidence import Check
from shootout.apps.judge.gate.verdict import TIME, Gate, Outcome, tell_check, tell_decisive, tell_slowdown
from shootout.core.units import counted, span
from shootout.tell.document import Document
from shootout.tell.formats import junit
from shootout.tell.formats.files import check_files, write_file, write_files
from shootout.tell.limits import SHARE, Standing
from shootout.tell.screen import INDENT, labeled, typed

_STYLES: dict[Outcome, str] = {"pass": "bold green", "fail": "bold red", "undecided": "bold yellow"}

COLUMNS = ("evidence", "reference", "candidate", "limit", "")

MARKS = {Standing.MET: "ok", Standing.BROKEN: "BROKEN", Standing.UNKNOWN: "unknown", None: ""}


def render(gate: Gate, width: int) -> RenderableType:
    """Return the whole screen."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in COLUMNS:
        # a limit's name is typed as it stands, so it isn't broken
        table.add_column(name, overflow="fold", no_wrap=name == COLUMNS[0], min_width=len(name))
    for name, *cells in lines(gate):
        table.add_row(Text(name.replace(": ", ":\n")), *map(Text, cells))
    told = [Text(f"note: {one}", style="yellow") for one in gate.notes]
    next_ = [*([("to go on", gate.next)] if gate.next else []), *tell_adoption(gate)]
    return Group(
        Text(tell_outcome(gate), style=_STYLES[gate.outcome]),
        *(Text(f"  {one}") for one in gate.reasons),
        *(
            line
            for told, command in next_
            for line in (Text(f"  {told}:"), *labeled("", [typed(command, width - INDENT)], width))
        ),
        Text(),
        *((table, Text()) if gate.checks else ()),
        *told,
        Text(
            f"reference: {gate.reference} of {gate.recorded}; candidate: {name_candidate(gate)}; run folder: {gate.run}"
        ),
    )


def tell_outcome(gate: Gate) -> str:
    """Return the outcome, the candidate's file, what decided, the restarts and the time, with `·` before the last two.

    For example `fail  new.onnx: 1.2x slower than the reference (1.176x slower to 1.224x slower), limit 5 % slower`. The
    first broken limit takes the slowdown's place, or one that stays open beside a slowdown that is known.

    It also says how many of the restarts an earlier command raced.
    """
    ratio = "not raced" if gate.ratio is None else tell_slowdown(gate.ratio)
    earlier = gate.earlier_restarts
    before = f" ({'all' if earlier == gate.restarts else earlier} by an earlier command)" if earlier else ""
    took = f"{counted(gate.restarts, 'restart')}{before}, {span(gate.wall_s)}"
    limit = SHARE.tell_limit(gate.limit - 1)
    told = f"not slower by more than {limit}: {ratio}" if gate.outcome == "pass" else f"{ratio}, limit {limit} slower"
    wanted = {"fail": Standing.BROKEN, "undecided": Standing.UNKNOWN}.get(gate.outcome)
    decisive = [one for one in gate.checks if one.standing is not None and one.standing is wanted]
    is_slow = gate.outcome == "undecided" and any(one.name == TIME for one in decisive)
    if decisive and decisive[0].name != TIME and not is_slow:
        others = len(decisive) - 1
        told = tell_decisive(decisive[0]) + (f", and {counted(others, 'other limit')}" if others else "")
    named = f"{gate.given}: " if gate.given else ""
    return f"{gate.outcome}  {named}{told} · {took}"


def name_candidate(gate: Gate) -> str:
    """Name the candidate by its file, if it is one, and by what ran."""
    return f"{gate.given}, run as {gate.candidate}" if gate.given else gate.candidate


def tell_adoption(gate: Gate) -> list[tuple[str, str]]:
    """Return where the candidate's folder is, and the command that puts it in the reference's place, if it passed."""
    if gate.outcome == "pass" and gate.again:
        return [("to adopt it, install the new versions here and ship again", gate.again)]
    if gate.outcome != "pass" or not gate.folder:
        return []
    source, goal, new = map(shlex.quote, (gate.folder, gate.recorded, f"{gate.recorded.rstrip('/')}-new"))
    return [
        (
            f"the candidate is packed in {gate.folder}; to adopt it",
            f"cp -r {source} {new} && rm -r {goal} && mv {new} {goal}",
        )
    ]


def find_unknown(gate: Gate) -> set[str]:
    """Return the reasons that no broken limit is behind."""
    if gate.outcome == "undecided":
        return {*gate.reasons}
    unknown = [one for one in gate.checks if one.standing is Standing.UNKNOWN]
    return {word for one in unknown for word in (tell_check(one), one.reason or "")}


def lines(gate: Gate) -> list[tuple[str, ...]]:
    """Return the evidence, a line each: name, reference, candidate, limit, standing."""
    return [_check_cells(one) for one in gate.checks]


def _check_cells(one: Check) -> tuple[str, ...]:
    standing = " · ".join(filter(None, [MARKS[one.standing], one.reason]))
    return one.name, one.reference or "–", one.candidate or "–", one.limit or "–", standing


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
    kinds: dict[Standing, junit.Kind | None] = {
        Standing.BROKEN: "failure",
        Standing.UNKNOWN: "error",
        Standing.MET: None,
    }
    wholes: dict[Outcome, junit.Kind | None] = {"fail": "failure", "undecided": "error", "pass": None}
    yield junit.JUnitCase(
        name="outcome", kind=wholes[gate.outcome], message="; ".join([tell_outcome(gate), *gate.reasons])
    )
    for one in gate.checks:
        if one.standing is not None:
            yield junit.JUnitCase(name=one.name, kind=kinds[one.standing], message=tell_check(one))
