"""Hold the pages that people read to their budgets of words, and their figures to runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

BUDGETS = {
    "README.md": 900,
    "answer.md": 830,
    "install.md": 460,
    "your-own-model.md": 1200,
    "parts.md": 500,
    "metrics.md": 1030,
    "studies.md": 1050,
    "load.md": 950,
    "quantization.md": 1000,
    "explain.md": 850,
    "deciding.md": 1100,
    "shipping.md": 800,
    "landing.md": 540,
    "gate.md": 800,
    "pytest.md": 450,
    "comparing.md": 800,
    "bisect.md": 740,
    "fleet.md": 1000,
    "tuning.md": 400,
    "report.md": 600,
    "gpu.md": 800,
    "python.md": 800,
    "agents/README.md": 260,
    "agents/SKILL.md": 560,
    "faq.md": 1000,
    "measurement.md": 1500,
    "statistics.md": 1200,
    "proof.md": 1000,
    "findings.md": 1100,
    "runtimes/README.md": 400,
    "adding-a-backend.md": 1000,
    "architecture.md": 600,
    "file-formats.md": 700,
}
"""Words by page, code and marked blocks apart. A runtime's page has `RUNTIME`, a recipe's `RECIPE`."""
RUNTIME = 200
RECIPE = 250
ROOT_README = 700
MADE = ("reference/", "notebook.md", "results.md", "contributing.md", "security.md", "changelog.md")
"""Pages without a budget: programs write them, or the repository has them for other readers too."""
TYPES = ("Tutorial", "Recipes", "How-to", "Explanation", "Runtimes", "Reference", "Contribute")
"""The parts of the nav: a page's type is the part that it stands in."""
APART = ("design/", "evidence/")
"""Folders of pages outside the nav, which keep what few people need: derivations, simulations, measurements."""
_FENCE = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1`*~* *$", re.MULTILINE | re.DOTALL)
_CODE = "\0"
_MARKED = re.compile(r"<!--(?:(?!-->).)*-->\n\n?(?:[|\0][^\n]*(?:\n|\Z))+", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\([^)\s]*\)")
_NUMBER = r"\d[\d.,]*x?"
_INTERVAL = re.compile(rf"\({_NUMBER} to {_NUMBER}\)|\[{_NUMBER}, {_NUMBER}\]")


def strip_made(markdown: str) -> str:
    """Return the text that a person wrote as prose: no code, no block below a mark, no goals of links."""
    text = _FENCE.sub(_CODE, markdown)
    for pattern in (_MARKED, _COMMENT):
        text = pattern.sub("", text)
    return _LINK.sub(r"\1", text)


def count_words(markdown: str) -> int:
    """Return how many words of prose a page has; tables that a person wrote count."""
    return sum(any(letter.isalnum() for letter in word) for word in strip_made(markdown).split())


def find_intervals(markdown: str) -> list[str]:
    """Return the intervals that are typed by hand: outside of code and of marked blocks."""
    return _INTERVAL.findall(re.sub(r"`[^`]*`", "", strip_made(markdown)))


def find_faults(page: str, markdown: str, kind: str | None) -> Iterator[str]:
    """Yield what is wrong with a page of the site.

    Args:
        kind: the part of the nav that it stands in; None if it stands in none.
    """
    if kind not in TYPES:
        yield f"{page} has no type: put it into the nav under one of {', '.join(TYPES)}"
    if page.startswith(MADE):
        return
    most = BUDGETS.get(page, {"Runtimes": RUNTIME, "Recipes": RECIPE}.get(str(kind)))
    if most is None:
        yield f"{page} has no budget of words: give it one in docs/site/prose.py"
    elif (words := count_words(markdown)) > most:
        yield f"{page} has {words} words and a budget of {most}: move what few need to docs/design or docs/evidence"
    for interval in find_intervals(markdown):
        yield f"{page} has the interval {interval} typed by hand: mark its block, or link the run"


def find_type(nav: Any, page: str) -> str | None:
    """Return the part of the nav that a page stands in."""
    for part in nav:
        if isinstance(part, Mapping):
            for title, entries in part.items():
                if page in _list_pages(entries):
                    return str(title)
    return None


def _list_pages(entries: Any) -> list[str]:
    if isinstance(entries, Mapping):
        entries = list(entries.values())
    return [entries] if isinstance(entries, str) else [page for one in entries for page in _list_pages(one)]
