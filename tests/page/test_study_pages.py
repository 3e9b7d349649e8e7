"""The site's page of each named study: its question, its runs with their figures, its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.site import studies
from shootout.studies import names, shipped
from shootout.tell.page.charts import layer, marks
from shootout.tell.report import Figure, Line, Report

ROOT = Path(__file__).resolve().parents[2]


def made(*figures: str) -> Report:
    drawn = [Figure(title=name, caption="how", chart=layer(marks([{"x": 1}]).mark_point())) for name in figures]
    lines = [Line("Ship", subject="x"), Line("", ["toy"]), Line("Sure", ["of it"])]
    return Report(name="", lines=lines, figures=drawn)


def test_every_study_has_its_runs_and_no_run_of_another_model():
    found = studies.find_runs()
    assert sorted(found) == shipped()
    assert found["shootout"] == ["shootout", "shootout-intel"]
    assert {"batch-sweep", "runtimes-batches", "h200-batch"} == set(found["batch-sweep"])
    assert "magika" not in {run for runs in found.values() for run in runs}


def test_a_study_s_page_has_question_answer_two_figures_and_the_file(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(studies, "analyse", lambda run: run)
    monkeypatch.setattr(studies, "read", lambda run, _: run)
    monkeypatch.setattr(studies, "draw_all", lambda run: [])
    kept = studies.find_runs()
    monkeypatch.setattr(studies, "find_runs", lambda: {**kept, "detectors": []})
    monkeypatch.setattr(studies, "lay_out", lambda *_: made("Intervals", "Sizes", "Order"))
    monkeypatch.setattr(studies.page, "render", lambda reports: f"{len(reports)} run")
    pages = dict(studies.write_studies())
    told, page = names()["attention"], pages["studies/attention.md"]
    assert f"| [attention](attention.md) | {told} | 1 |" in pages["studies/index.md"]
    assert page.startswith(f"# attention\n\n{told}\n\n```\nshootout run attention\n```")
    assert page.count("<svg ") == 2
    answer = page[page.index('<div class="answer"') : page.index('<p class="told"')]
    assert "<h3>Ship x</h3>" in answer
    assert "\n\n" not in answer, "it would end the HTML"
    assert "](../runs/attention.html)" in page
    assert pages["runs/attention.html"] == "1 run"
    assert "No run of it ships yet" in pages["studies/detectors.md"]
