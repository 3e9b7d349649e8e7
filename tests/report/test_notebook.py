"""What a notebook shows of a run: its answer, its tables, and nothing that a name could do."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from types import ModuleType
from typing import Any

import pytest
from support.races import cells

import shootout


class Page(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert {name for name, _ in attrs} <= {"style"}
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_notebook_shows_the_answer_and_the_tables_and_names_are_text():
    evil = "<script>alert(1)</script>\x1b[31m</pre>[bold]"
    rows = cells.row("a", 1e6), cells.row("b", 5e5), cells.row("c", None, reason=evil)
    page = Page(shootout.Run(cells.document(cells.cell(*rows)))._repr_html_())
    assert page.tags == {"pre", "span", "details", "summary"}
    assert page.text.startswith("Ship    b:cpu:fp32")
    assert "3 rows" in page.text
    assert "faster than a (" in page.text
    assert "Skipped c: <script>alert(1)</script>[31m</pre>[bold]" in page.text
    assert "\x1b" not in page.text


def test_a_notebook_is_given_one_piece_of_html_and_nothing_beside_it(monkeypatch: pytest.MonkeyPatch):
    class ZMQInteractiveShell:
        """What Jupyter runs cells in; Rich goes by the name."""

    def display(*_: object, **__: object) -> None:
        raise AssertionError("it was shown beside the answer")

    run = shootout.Run(cells.document(cells.cell(cells.row("a", 1e6), cells.row("b", 5e5))))
    outside = run._repr_html_()
    kernel: Any = ModuleType("IPython.display")
    kernel.display = display
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", kernel)
    monkeypatch.setattr("builtins.get_ipython", ZMQInteractiveShell, raising=False)
    assert run._repr_html_() == outside
