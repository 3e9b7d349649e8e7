"""JUnit XML for a CI's list of tests: a suite per group, a case per arm.

The schema: junit-10.xsd of Jenkins' xUnit plugin, which accepts what pytest writes too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree as Xml

from shootout.core.errors import printable
from shootout.tell.document import Document, Row

Kind = Literal["failure", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JUnitCase:
    """A check that isn't a row of the run, as a test case; it passed if `kind` is None."""

    name: str
    kind: Kind | None
    message: str


def as_xml(document: Document | None, others: Sequence[tuple[str, Sequence[JUnitCase]]] = ()) -> bytes:
    """Write the file's content: an arm that failed is a failure, an arm without a time for another reason is skipped.

    Args:
        document: None if nothing was run.
        others: suites before those of the run, by name.
    """
    every, wall_s = (document.rows, document.wall_s) if document else ((), 0.0)
    counts = _count_outcomes(every, [case for _, cases in others for case in cases])
    root = _add_element(None, "testsuites", name="shootout", time=f"{wall_s:.3f}", **counts)
    for name, cases in others:
        suite = _add_element(root, "testsuite", name=name, **_count_outcomes((), cases), skipped="0")
        for case in cases:
            element = _add_element(suite, "testcase", name=case.name, classname=name)
            if case.kind:
                _add_element(element, case.kind, type=case.kind, message=case.message).text = printable(case.message)
    for group in dict.fromkeys(row.group for row in every):
        rows = [row for row in every if row.group == group]
        skipped = sum(_is_skipped(row) for row in rows)
        suite = _add_element(root, "testsuite", name=group, **_count_outcomes(rows), skipped=str(skipped))
        for row in rows:
            _add_case(suite, row)
    Xml.indent(root)
    text = Xml.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def _count_outcomes(rows: Sequence[Row], cases: Sequence[JUnitCase] = ()) -> dict[str, str]:
    kinds = ["failure" for row in rows if row.outcome == "failed"] + [case.kind for case in cases if case.kind]
    counts = {"failures": kinds.count("failure"), "errors": kinds.count("error")}
    return {"tests": str(len(rows) + len(cases)), **{name: str(count) for name, count in counts.items()}}


def _is_skipped(row: Row) -> bool:
    return row.outcome in ("skipped", "not timed")


def _add_case(suite: Xml.Element, row: Row) -> None:
    timing = row.end_to_end
    seconds = {"time": f"{timing.median_ns / 1e9:.9f}"} if timing else {}
    case = _add_element(suite, "testcase", name=row.arm, classname=row.group, **seconds)
    if row.outcome == "failed" or _is_skipped(row):
        kind, reason = "failure" if row.outcome == "failed" else "skipped", row.reason or row.outcome
        why = _add_element(case, kind, type=str(row.cause or row.outcome), message=reason)
        why.text = printable(f"{reason}. Fix: {row.fix}" if row.fix else reason)


def _add_element(parent: Xml.Element | None, tag: str, **attributes: str) -> Xml.Element:
    # XML can't hold control letters or half of a surrogate pair
    legal = {name: printable(value) for name, value in attributes.items()}
    return Xml.Element(tag, legal) if parent is None else Xml.SubElement(parent, tag, legal)
