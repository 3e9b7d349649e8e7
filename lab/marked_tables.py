"""Fill the tables of pages that programs write: each follows a comment that names it, `<!-- KIND: NAME -->`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table, line by line."""
    return [f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *rows)]


def fill_tables(text: str, kind: str, write: Callable[[str], Iterable[str]]) -> str:
    """Return the page with the tables of one kind written anew.

    Args:
        write: returns a table's lines by its name.
    """

    def fill(match: re.Match[str]) -> str:
        return match[1] + "".join(f"{line}\n" for line in write(match[2]))

    return re.sub(rf"(<!-- {kind}: (.*?) -->\n)(?:\|.*\n)*", fill, text)


def find_names(text: str, kind: str) -> list[str]:
    """Return the names of the tables of one kind, in the page's order."""
    return re.findall(rf"<!-- {kind}: (.*?) -->\n", text)


def find_pages(kind: str) -> Iterator[Path]:
    """Yield the pages below docs/ that have tables of one kind."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        if find_names(page.read_text(encoding="utf-8"), kind):
            yield page
