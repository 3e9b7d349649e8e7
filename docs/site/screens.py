"""Fill the screens on the pages from those that the tests keep: `make screens`.

`<!-- screen: show results/reference/shootout -->` before a block names a command whose screen tests/report/screens/
has; with `answer:` in place of `screen:` the block ends before the first table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from docs.site.links import ROOT

KEPT = ROOT / "tests" / "report" / "screens"
_KEPT = re.compile(r"^\$ shootout ([^\n]+)\n(.*?)^\[\d+\]$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"(<!-- (answer|screen): ([^\n]+?) -->\n```\n)(?:.*?\n)??(```\n)", re.DOTALL)


def read_screens() -> dict[str, str]:
    """Return the screen of each command that is kept, without the blanks at the ends of its lines."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(KEPT.glob("*.txt")))
    return {
        command: "".join(f"{line.rstrip()}\n" for line in screen.strip().splitlines())
        for text in texts
        for command, screen in _KEPT.findall(text)
    }


def list_pages() -> Iterator[Path]:
    """Yield the pages that may show screens."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


def fill_screens(page: str, screens: Mapping[str, str]) -> str:
    """Return the text of a page with its screens written anew.

    Raises:
        KeyError: a command of the page is none whose screen is kept.
    """

    def fill(match: re.Match[str]) -> str:
        mark, part, command, end = match.groups()
        screen = screens[command]
        return mark + (screen.partition("\n\n")[0].rstrip() + "\n" if part == "answer" else screen) + end

    return _BLOCK.sub(fill, page)


def main() -> None:
    """Write all pages, and say which of them changed."""
    screens = read_screens()
    for page in list_pages():
        text = page.read_text(encoding="utf-8")
        if (filled := fill_screens(text, screens)) != text:
            page.write_text(filled, encoding="utf-8")
            sys.stderr.write(f"{page.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
