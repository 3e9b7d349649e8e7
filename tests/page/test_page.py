"""A page holds what the terminal shows, asks nobody for anything, and lets no stranger's name steer it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from support.races.cells import cell, document, row

from shootout.commands.report import render
from shootout.page.sources import MeasuredRun
from shootout.report.answer import WIDEST, render_answers
from shootout.report.screen import as_plain
from shootout.results.document import Document

HOSTILE = "<script>alert(1)</script>[bold]x[/bold]\x1b[31m\u202e\"'&|`` ``` ](http://evil.example)"
NAMED = HOSTILE.replace("\x1b", "").replace("\u202e", "")
"""What may be left of it: no letter that steers a terminal or turns a line round."""


def hostile() -> Document:
    """A run in which everything that a stranger may name is hostile."""
    executed = {"library": HOSTILE, "fallbacks": [HOSTILE]}
    bad = row("bad", 3e6, model=HOSTILE, notes=(HOSTILE,), executed=executed).model_copy(update={"arm": HOSTILE})
    best = row("fast", 1e6).model_copy(update={"arm": f"{HOSTILE}fast"})
    absent = row("gone", None, reason=HOSTILE, fix=HOSTILE)
    rows = [one.model_copy(update={"group": HOSTILE}) for one in (best, bad, absent)]
    names = {"study": HOSTILE, "run": HOSTILE, "warnings": (HOSTILE,), "environment": {HOSTILE: HOSTILE}}
    return document(cell(*rows, group=HOSTILE), **names)


class Tags(HTMLParser):
    """What a browser would find: tags, attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def hostile_page() -> str:
    return render([MeasuredRun(hostile())], ".html").decode()


def test_a_hostile_name_is_text_on_the_page(hostile_page: str):
    found = Tags(hostile_page)
    assert "script" not in found.tags
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert NAMED in "".join(found.texts)  # whole, not cleaned away
    assert not set(hostile_page) & set("\x1b\u202e")


def test_the_page_asks_nobody_for_anything(hostile_page: str):
    found = Tags(hostile_page)
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in found.attributes
    assert {value for name, value in found.attributes if name in {"src", "href", "data", "srcset"}} == set()
    namespaces = ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink")
    values = [value for _, value in found.attributes if value not in namespaces and NAMED not in value]
    assert not [value for value in values if "://" in value or "url(" in value]
    style = hostile_page[hostile_page.index("<style>") : hostile_page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_a_hostile_name_steers_no_markdown():
    told = render([MeasuredRun(hostile())], ".md").decode()
    body, fence = told.split("\n"), "`" * 4
    assert body.count(f"{fence}text") == body.count(fence) == 1  # the text's own three don't end the block
    outside = told[told.index(f"\n{fence}\n") :]
    assert "<script" not in outside
    listed = re.sub("<summary>.*</summary>", "", outside)  # which is HTML, and no Markdown
    assert not re.search(r"(?<!\\)\]\(", listed)
    assert "\x1b" not in told


def test_a_name_of_several_lines_is_one_in_the_summary_which_a_blank_line_would_end():
    name = "x\n\n![](http://evil.example/p.png)"
    rows = [row(arm, ns).model_copy(update={"group": name}) for arm, ns in (("slow", 2e6), ("fast", 5e5))]
    told = render([MeasuredRun(document(cell(*rows, group=name)))], ".md").decode()
    assert "<details><summary>x ![](http://evil.example/p.png), 1 thread</summary>\n" in told


def test_the_first_screen_is_the_terminals():
    found = document(cell(row("slow", 2e6), row("fast", 5e5)), environment={})
    page = render([MeasuredRun(found)], ".html").decode()
    shown = as_plain(render_answers(found, WIDEST), WIDEST)
    first = re.search(r"<pre>(.*?)</pre>", page, re.DOTALL)
    assert first
    assert "".join(Tags(first[1]).texts) == shown
    assert shown in render([MeasuredRun(found)], ".md").decode()


def test_several_runs_stand_below_each_other():
    runs = [MeasuredRun(document(cell(row("slow", 2e6), row("fast", 5e5)), study=name)) for name in ("one", "two")]
    page = render(runs, ".html").decode()
    assert [value for name, value in Tags(page).attributes if name == "href"] == ["#run1", "#run2"]
    assert page.index("<h1>one") < page.index("<h1>two")


def test_markdown_stays_below_what_a_summary_may_hold(monkeypatch: pytest.MonkeyPatch):
    from shootout.page import markdown

    monkeypatch.setattr(markdown, "MOST_BYTES", 2_000)
    rows: list[Any] = [row(f"arm{index}", 1e6 + index) for index in range(60)]
    told = render([MeasuredRun(document(cell(*rows)))], ".md").decode()
    assert len(told.encode()) <= 2_000
    assert told.endswith(markdown.CUT)
    assert "Ship" in told
