"""What shipped folders came to, as the table of docs/shipping.md: `python -m lab.shipped.table FILE FILE`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HEADERS = ("backend", "`model/`", "installed", "packages", "error (limit)", "difference to the arm", "folder ÷ arm")


def write_table(*found: Mapping[str, Any]) -> Iterator[str]:
    """A line for each backend.

    Args:
        found: what the bench wrote of `ship` and `ship-race`, in one file or several; races may be missing.
    """
    raced = {row["target"]: row for row in _rows(found, "ship-race")}
    yield f"| {' | '.join(HEADERS)} |"
    yield f"|---|{'---:|' * (len(HEADERS) - 1)}"
    for row in _rows(found, "ship"):
        cells = [
            f"`{row['target']}`",
            f"{row['artifact_mb']:.2f} MB",
            f"{row['install_mb']:.0f} MB",
            str(row["packages"]),
            f"{row['error']:.1e} ({row['limit']:.1e})",
            f"{row['max_abs_difference']:.1e}" if row["max_abs_difference"] else "none",
            _ratio(raced.get(row["target"], {})),
        ]
        yield f"| {' | '.join(cells)} |"


def _rows(found: Sequence[Mapping[str, Any]], section: str) -> list[dict[str, Any]]:
    tables = [one["sections"].get(section, {}).get("tables", {}) for one in found]
    return [row for some in tables for rows in some.values() for row in rows if "failed" not in row]


def _ratio(row: Mapping[str, Any]) -> str:
    if not row:
        return "not raced"
    return f"{row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" if row["low"] else f"{row['ratio']:.3f}"


if __name__ == "__main__":
    sys.stdout.write("\n".join(write_table(*(json.loads(Path(file).read_text()) for file in sys.argv[1:]))) + "\n")
