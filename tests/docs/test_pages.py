"""Pages show what is printed of runs that ship: screens, and the calls of docs/python.md and docs/notebook.ipynb."""

from __future__ import annotations

import doctest
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from docs.site.screens import fill_screens, list_pages, read_screens
from tests.docs import notebook

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 300_000
"""Bytes of the notebook."""


def test_pages_show_the_screens_that_are_kept():
    screens = read_screens()
    shown = {page.name: page.read_text() for page in list_pages() if "<!-- screen: " in page.read_text()}
    assert {"answer.md", "comparing.md"} <= shown.keys()
    for page in list_pages():
        assert fill_screens(page.read_text(), screens) == page.read_text(), f"{page.name}: run `make screens`"


def test_an_answer_ends_before_the_first_table_and_every_command_has_a_screen():
    page = "<!-- answer: show a -->\n```\nold\n```\n\n<!-- screen: show a -->\n```\n```\n"
    filled = fill_screens(page, {"show a": "Ship x\n\ntable\n"})
    assert filled == "<!-- answer: show a -->\n```\nShip x\n```\n\n<!-- screen: show a -->\n```\nShip x\n\ntable\n```\n"
    with pytest.raises(KeyError, match="show a"):
        fill_screens(page, {})


def test_each_call_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "results").mkdir()
    for name in ("shootout", "shootout-intel"):
        shutil.copytree(ROOT / "results" / "reference" / name, tmp_path / "results" / "reference" / name)
    monkeypatch.chdir(tmp_path)  # the page writes files
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    found = doctest.testfile(str(ROOT / "docs" / "python.md"), module_relative=False, optionflags=options)
    assert found.failed == 0
    assert found.attempted > 15


def test_the_notebook_holds_the_cells_of_its_source_each_with_what_it_shows():
    cells = notebook.read_cells(notebook.SOURCE.read_text())
    made = json.loads(notebook.NOTEBOOK.read_text())
    assert [(one["cell_type"], "".join(one["source"])) for one in made["cells"]] == [
        (one.kind, one.source) for one in cells
    ], "make notebook"
    outputs = [output for one in made["cells"] for output in one.get("outputs", ())]
    assert {one["output_type"] for one in outputs} == {"stream", "execute_result"}
    assert sum("image/svg+xml" in one.get("data", {}) for one in outputs) == 3
    assert notebook.NOTEBOOK.stat().st_size < LONGEST


def test_the_notebooks_cells_run_on_runs_that_ship(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("altair.renderers.enable", lambda _: None)  # what draws is tested with the page, and takes long
    cells = [one for one in notebook.read_cells(notebook.SOURCE.read_text()) if "plot(" not in one.source]
    made = notebook.make(cells, notebook.DOCS)
    assert sum(bool(one.get("outputs")) for one in made["cells"]) >= 8
    kept = {"".join(one["source"]): words(one) for one in json.loads(notebook.NOTEBOOK.read_text())["cells"]}
    for one in made["cells"]:
        source = "".join(one["source"])
        if "st_size" not in source:  # bytes of files differ by the versions that write them
            assert words(one) == kept[source], "make notebook"


def words(cell: Mapping[str, Any]) -> list[str]:
    """What a cell of a notebook printed, and its value as text and as HTML."""
    shown = [part for one in cell.get("outputs", ()) for part in (one.get("text"), *one.get("data", {}).values())]
    return ["".join(part) for part in shown if part]


def test_a_live_notebook_differs_in_one_word():
    text = notebook.SOURCE.read_text()
    here, live = (
        [one.source for one in notebook.read_cells(text, live=live) if one.kind == "code"] for live in (False, True)
    )
    ((one, other),) = [pair for pair in zip(here, live, strict=True) if pair[0] != pair[1]]
    assert one.replace("LIVE = False", "LIVE = True") == other


def test_a_cell_that_fails_makes_no_notebook(tmp_path: Path):
    with pytest.raises(ZeroDivisionError):
        notebook.make(notebook.read_cells("# %%\n1 / 0\n"), tmp_path)
