"""docs/python.md and docs/notebook.ipynb show what their calls print: each is run on runs that ship."""

from __future__ import annotations

import doctest
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.docs import notebook

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 300_000
"""Bytes of the notebook."""


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
