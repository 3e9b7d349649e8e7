"""The README shows what its reference run says, to the letter."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from shootout import backends, cli
from shootout.commands.report import render
from shootout.contract import Precision
from shootout.page.sources import read
from shootout.report import table
from shootout.results import analysis

ROOT = Path(__file__).resolve().parents[2]


def test_the_readme_table_is_the_reference_run():
    readme = (ROOT / "README.md").read_text()
    found = re.search(r"<!-- (results/\S+) -->\n```\n(.*?)\n```", readme, re.DOTALL)
    assert found
    page = StringIO()
    Console(width=100, file=page, highlight=False).print(table.render(analysis.analyse(ROOT / found[1]), 100))
    rendered = "\n".join(line.rstrip() for line in page.getvalue().splitlines()).strip("\n")
    assert rendered.startswith("Ship    ")
    assert found[2] == rendered


def test_the_readme_has_a_row_for_each_command():
    told = re.search(r"^## Commands\n\n(.*?)\n\n", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert told
    named = [word for row in re.findall(r"^\| (`.*?`) \|", told[1], re.MULTILINE) for word in row.split("`")[1::2]]
    commands = {word.removeprefix("shootout ").split()[0] for word in named if not word.startswith("make ")}
    assert commands == {one.name or one.callback.__name__ for one in cli.app.registered_commands if not one.hidden}


def test_the_readme_figure_is_the_reference_run():
    """By its words, which hold the figures: places of letters depend on the fonts of the machine that drew it."""
    run = ROOT / "results" / "reference" / "shootout"
    assert f"]({run.relative_to(ROOT)}.svg)" in (ROOT / "README.md").read_text()
    kept, made = run.with_suffix(".svg").read_text(), render([read(run)], ".svg").decode()
    assert words(kept) == words(made), "run `make report`"
    assert len(words(made)) > 20


def words(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)<", svg)


def test_every_link_of_the_documents_leads_somewhere():
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    for document in documents:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            assert target.startswith("https://") or (document.parent / target).exists(), f"{document.name}: {target}"


@pytest.mark.parametrize(
    ("run", "figures"), [("shootout", ("9.3x faster", "8.48 MB")), ("digits", ("can't tell", "98.0%"))]
)
def test_an_80_column_terminal_sees_every_figure_too(run: str, figures: tuple[str, ...]):
    page = StringIO()
    document = analysis.analyse(ROOT / "results" / "reference" / run)
    Console(width=80, file=page, highlight=False).print(table.render(document, 80, full=True))
    assert "…" not in page.getvalue()
    for figure in (*figures, "against", "build"):
        assert figure in page.getvalue()


REFUSED = {"jax-jit": {"cpu:fp16"}}
"""What a backend takes as a target only to say why it doesn't run it."""


def test_the_table_of_backends_names_every_precision_that_one_runs():
    text = (ROOT / "docs" / "runtimes" / "README.md").read_text()
    lines = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| `")]
    rows = {line[0].split("`")[1]: line for line in lines if len(line) == 4}
    for name in backends.names():
        texts = {"cpu": rows[name][2], "cuda": ""}
        for part in rows[name][3].split(";"):
            named = re.match(r" *on `?(\w+)[^:]*:", part)
            device = named[1].lower() if named else "cuda"
            texts[device] = texts.get(device, "") + part
        targets = {f"{device}:{precision}" for device, precision in backends.get(name).capabilities.targets}
        told = {
            f"{device}:{precision}"
            for device, text in texts.items()
            for precision in map(str, Precision)
            if re.search(rf"(?<![\w-]){precision}(?![\w-])", text)
        }
        assert told == targets - REFUSED.get(name, set()) - {f"{device}:native" for device in ("cpu", "cuda")}, name
