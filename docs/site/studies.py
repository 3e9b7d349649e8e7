"""Write a page for each named study: its question, what its reference runs answered, with figures, and the file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from docs.site.links import ROOT
from shootout import studies
from shootout.apps.judge.analysis import analyse
from shootout.tell.page import page
from shootout.tell.page.charts import to_svg
from shootout.tell.page.contents import lay_out, read
from shootout.tell.page.figures import draw_all
from shootout.tell.report import Report
from shootout.tell.study_options import DEFAULT

RUNS = Path("results/reference")
"""From the root of the repository, as runs are named on their pages."""
STUDIES = ROOT / "harness" / "studies"
OPEN = 2
"""Figures of a run that stand on a study's page; its own page has all."""
INDEX = "studies/index.md"


def find_runs() -> dict[str, list[str]]:
    """Return the reference runs of each named study; of the default one those of its own model, which bear its name."""
    found: dict[str, list[str]] = {name: [] for name in studies.shipped()}
    for journal in sorted((ROOT / RUNS).glob("*/journal.jsonl.gz")):
        with gzip.open(journal) as lines:
            study, run = json.loads(lines.readline())["study"], journal.parent.name
        if study in found and (study != DEFAULT or run.split("-")[0] == DEFAULT):
            found[study].append(run)
    return found


def write_studies() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page: an index, every study, every run as `shootout report` has it."""
    questions, found = studies.names(), find_runs()
    yield INDEX, _index(questions, found)
    for study, runs in found.items():
        measured = {run: read(RUNS / run, analyse(RUNS / run)) for run in runs}
        reports = {name: lay_out(run, draw_all(run)) for name, run in measured.items()}
        yield f"studies/{study}.md", _study(study, questions[study], reports)
        for run, report in reports.items():
            yield f"runs/{run}.html", page.render([report])


def _index(questions: Mapping[str, str], found: Mapping[str, Sequence[str]]) -> str:
    rows = (f"| [{one}]({one}.md) | {told} | {len(found[one]) or 'none yet'} |" for one, told in questions.items())
    return "\n".join(
        [
            "# Each study, with its figures",
            "",
            "Every figure is drawn from a run that ships with the project, by today's statistic.",
            "[Choose targets, sizes, time](../studies.md) shows how to change a study,",
            "and [What we found](../findings.md) sums the runs up.",
            "",
            "| study | question | runs that ship |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _study(name: str, question: str, runs: Mapping[str, Report]) -> str:
    parts = [f"# {name}", question, f"```\nshootout run {name}\n```"]
    if not runs:
        parts.append(f"No run of it ships yet; `shootout run {name} --dry-run` shows how long it takes.")
    for run, report in runs.items():
        parts += [f"## The run `{run}`", _shown(report), f"[All its tables and figures](../runs/{run}.html)"]
    text = (STUDIES / f"{name}.toml").read_text(encoding="utf-8").strip()
    return "\n\n".join([*parts, "## The study as a file", f"```toml\n{text}\n```", ""])


def _shown(report: Report) -> str:
    """Write a run's answer and its first figures; what is drawn isn't searched."""
    shown = [f'<div class="answer" data-search-exclude>{page.render_answer(report)}</div>']
    for figure in report.figures[:OPEN]:
        shown.append(f'<p class="told"><b>{figure.title}.</b> {figure.caption}</p>')
        shown.append(f"<div data-search-exclude>{to_svg(figure)}</div>")
    return "\n".join(shown)
