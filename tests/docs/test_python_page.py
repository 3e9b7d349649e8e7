"""docs/python.md shows what its calls print: each is run on a run that ships."""

from __future__ import annotations

import doctest
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "python.md"


def test_each_call_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "results").mkdir()
    shutil.copytree(ROOT / "results" / "reference" / "shootout", tmp_path / "results" / "reference" / "shootout")
    monkeypatch.chdir(tmp_path)  # the page writes files
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    found = doctest.testfile(str(PAGE), module_relative=False, optionflags=options)
    assert found.failed == 0
    assert found.attempted > 15
