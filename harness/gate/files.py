"""A gate as files: the run's own formats, and in JUnit a suite for the gate, a case for each thing that was checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from shootout.decide.limits import Standing
from shootout.formats import junit
from shootout.formats.files import check_files, write_file, write_files
from shootout.gate.screen import tell_outcome
from shootout.gate.verdict import Gate, Outcome, tell_check
from shootout.results.document import Document


def write_gate(gate: Gate, document: Document | None, paths: Sequence[Path]) -> None:
    """Write the files, each by the end of its name; where nothing was run, JUnit alone has something to tell.

    Raises:
        UsageError: as `formats.files.check_files`.
    """
    for path in check_files(paths):
        if path.name.lower().endswith(".xml"):
            write_file(path, junit.as_xml(document, [("gate", list(_cases(gate)))]))
        elif document:
            write_files(document, [path])


def _cases(gate: Gate) -> Iterator[junit.Case]:
    """The outcome, and each check that something limits: who is broken fails, what isn't known is an error."""
    kinds: dict[Standing, junit.Kind | None] = {
        Standing.BROKEN: "failure",
        Standing.UNKNOWN: "error",
        Standing.MET: None,
    }
    wholes: dict[Outcome, junit.Kind | None] = {"fail": "failure", "undecided": "error", "pass": None}
    yield junit.Case(name="outcome", kind=wholes[gate.outcome], message="; ".join([tell_outcome(gate), *gate.reasons]))
    for one in gate.checks:
        if one.standing is not None:
            yield junit.Case(name=one.name, kind=kinds[one.standing], message=tell_check(one))
