"""The documents' links to each other: every file and every heading that they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "results/reference/README.md"]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The page's headings, as GitHub writes them behind a #."""
    headings = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    for link in (one for one in LINK.findall(page.read_text()) if not one.startswith("http")):
        name, _, heading = link.partition("#")
        goal = page.parent / name if name else page
        assert goal.exists(), link
        assert not heading or goal.suffix != ".md" or heading in anchors(goal), link
