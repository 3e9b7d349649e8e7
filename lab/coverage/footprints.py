"""What each backend takes where it runs, as a table: `python -m lab.coverage.footprints RUN`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from shootout.report.figures import BY_HEADER
from shootout.results.analysis import analyse
from shootout.results.document import Document, Row

HEADERS = ("installed", "size", "memory at most", "ready")


def write_table(found: Document) -> Iterator[str]:
    """A line for each arm that ran, those that take least first."""
    ran = [row for row in found.rows if row.install_bytes is not None and row.starts]
    yield f"| backend | {' | '.join(HEADERS)} |"
    yield f"|---|{'---:|' * len(HEADERS)}"
    for row in sorted(ran, key=_bytes):
        yield f"| `{row.backend}` | {' | '.join(str(BY_HEADER[one].of(row)) for one in HEADERS)} |"


def _bytes(row: Row) -> int:
    return (row.install_bytes or 0) + (row.artifact_bytes or 0)


if __name__ == "__main__":
    sys.stdout.write("\n".join(write_table(analyse(Path(sys.argv[1])))) + "\n")
