"""`shootout report`: what it writes, and what it says where it can't."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from shootout.commands.report import report
from shootout.core.errors import UsageError
from shootout.core.install import install

RUN = Path(__file__).resolve().parents[2] / "results" / "reference" / "gap-after"


@pytest.mark.parametrize(("ending", "begins"), [(".html", b"<!doctype html>"), (".md", b"## "), (".svg", b"<svg ")])
def test_a_run_is_written_in_the_form_that_its_name_asks_for(tmp_path: Path, ending: str, begins: bytes):
    out = tmp_path / f"page{ending}"
    assert report([RUN], out) == 0
    assert out.read_bytes().startswith(begins)


def test_another_ending_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"\.html, \.md or \.svg"):
        report([RUN], tmp_path / "page.pdf")


def test_without_the_extra_the_command_to_install_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "altair" else found(name))
    with pytest.raises(UsageError, match=re.escape(f"altair: {install('report')}")):
        report([RUN], tmp_path / "page.html")
    assert report([RUN], tmp_path / "page.md") == 0


def test_where_it_is_written_is_looked_at_before_and_made_where_it_is_not_there(tmp_path: Path):
    (tmp_path / "file").touch()
    for name, said in (("file/page.md", "can't be written: see"), (f"{'x' * 300}.md", "can't be written: File name")):
        with pytest.raises(UsageError, match=said):
            report([tmp_path / "no run"], tmp_path / name)
    assert report([RUN], tmp_path / "new" / "page.md") == 0
    assert (tmp_path / "new" / "page.md").exists()
