"""The site's page of each named study: its question, its runs with their figures, its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from markupsafe import Markup

from docs.site import studies
from shootout.page.charts import DARK
from shootout.page.page import DrawnFigure, Section, Table
from shootout.study import schema

ROOT = Path(__file__).resolve().parents[2]


def section(*figures: str) -> Section:
    drawn = [DrawnFigure(title=name, caption="how", wide=Markup("<svg/>"), narrow=Markup("<svg/>")) for name in figures]
    empty = Table(title="", headers=[], lines=[], remarks=[])
    return Section(
        name="",
        screen=Markup("Ship  x"),
        narrow_screen=Markup("Ship x"),
        intervals=drawn[0],
        tables=[],
        figures=drawn[1:],
        proof=empty,
        environment=empty,
        remarks=[],
    )


def test_every_study_has_its_runs_and_no_run_of_another_model():
    found = studies.find_runs()
    assert sorted(found) == schema.shipped()
    assert found["shootout"] == ["shootout", "shootout-intel"]
    assert {"batch-sweep", "runtimes-batches"} == set(found["batch-sweep"])
    assert "magika" not in {run for runs in found.values() for run in runs}


def test_a_study_s_page_has_question_answer_two_figures_and_the_file(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(studies, "read", lambda run: run)
    monkeypatch.setattr(studies.page, "lay_out", lambda _: section("Intervals", "Sizes", "Order"))
    monkeypatch.setattr(studies.page, "write", lambda sections: f"{len(sections)} run")
    pages = dict(studies.write_studies())
    told = schema.names()["decoder"]
    page = pages["studies/decoder.md"]
    assert f"| [decoder](decoder.md) | {told} | 1 |" in pages["studies/index.md"]
    assert page.startswith(f"# decoder\n\n{told}\n\n```\nshootout run decoder\n```")
    assert page.count("<svg/>") == 4, "two figures, each for a desktop and for a phone"
    assert "Ship  x" in page
    assert "Order" not in page
    assert "](../runs/decoder.html)" in page
    assert pages["runs/decoder.html"] == "1 run"
    assert (ROOT / "harness/studies/decoder.toml").read_text().strip() in page
    assert "No run of it ships yet" in pages["studies/detectors.md"]


def test_the_dark_has_a_colour_for_each():
    sheet = studies.write_colours()
    assert all(f'[fill="{light}"] {{ fill: {dark} }}' in sheet for light, dark in DARK.items())
