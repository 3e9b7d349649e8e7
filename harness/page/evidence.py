"""Tables of what ran and where: each row's own account of itself, and the machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from shootout.page.markup import cell
from shootout.report.figures import BY_HEADER
from shootout.results.document import Document, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells for a page; `remarks` stand below it."""

    title: str
    headers: Sequence[str]
    lines: Sequence[Sequence[Markup]]
    remarks: Sequence[Markup] = ()


PROOF = ("target", "library", "device", "threads", "compute layers", "proven", "error", "fallbacks")


def proof(document: Document) -> Table:
    """What each runtime says it ran, and the error that was found; of many groups each row once."""
    found: dict[tuple[str, ...], None] = {}
    for row in document.rows:
        if row.executed:
            found[_account(row, row.executed)] = None
    return Table(title="Proof", headers=PROOF, lines=[[*map(cell, line)] for line in found])


def _account(row: Row, executed: Mapping[str, Any]) -> tuple[str, ...]:
    counts = executed.get("compute_nodes_by_precision") or {}
    return (
        row.arm,
        f"{executed.get('library', '')} {executed.get('version', '')}".strip(),
        str(executed.get("device", "")),
        str(executed.get("threads") or ""),
        ", ".join(f"{name} {count}" for name, count in sorted(counts.items())),
        str(BY_HEADER["proven"].of(row)),
        str(BY_HEADER["error"].of(row)),
        "; ".join(executed.get("fallbacks") or ()),
    )


def environment(document: Document) -> Table:
    """Every fact of the machine and of the software, by its path in the document."""
    facts = {"run": document.run, "study": document.study, **document.environment}
    return Table(title="Environment", headers=("fact", "value"), lines=[[*map(cell, one)] for one in _leaves(facts)])


def _leaves(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{name}", ", ".join(map(str, value)) or "none"
        elif value not in (None, ""):
            yield f"{prefix}{name}", str(value)
