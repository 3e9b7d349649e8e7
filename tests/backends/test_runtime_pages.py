"""docs/runtimes: a page for every backend that ships, all in one form."""

from __future__ import annotations

import re

import pytest
from support.console import TESTS

from docs.site.prose import RUNTIME, count_words
from shootout.core import backends

FOLDER = TESTS.parent / "docs" / "runtimes"
PAGES = sorted(page.name for page in FOLDER.glob("*.md") if page.name != "README.md")
FORM = ["Install", "Precisions", "Limits", "Options worth trying"]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_the_form(name: str):
    text = (FOLDER / name).read_text()
    assert re.match(r"# [^\n]+\n\n[^#\n]", text), "a title, then what it is for"
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == FORM
    limits = text.partition("## Limits\n")[2].partition("\n## ")[0]
    assert len(re.findall(r"^- ", limits, re.MULTILINE)) == 3
    assert count_words(text) <= RUNTIME


@pytest.mark.parametrize("name", PAGES)
def test_every_option_that_a_page_recommends_is_one(name: str):
    """Backticked `name=value` in its last section; whether the backend has the name is what its adapter declares."""
    told = (FOLDER / name).read_text().partition("## Options worth trying\n")[2]
    known = [option for backend in backends.names() for option in backends.get(backend).capabilities.options]
    for option in re.findall(r"`([\w.-]+)=[^`]*`", told):
        assert any(one.covers(option) for one in known), option


def test_the_table_lists_each_page_and_each_backend():
    text = (FOLDER / "README.md").read_text()
    rows = re.findall(r"^\| \[[^]]+\]\(([^)]+)\) \| (.*?) \|", text, re.MULTILINE)
    assert sorted(name for name, _ in rows) == PAGES
    shipped = set(backends.names())
    assert shipped <= set(re.findall(r"`([\w-]+)`", " ".join(told for _, told in rows)))
