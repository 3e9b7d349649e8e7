"""A page opens with the answer in words, fetches nothing, and no name steers it."""

from __future__ import annotations

import html
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support import reference_runs
from support.races.cells import cell, document, row

from shootout.apps.judge.decide.policy import read_policy
from shootout.apps.judge.decide.question import PolicyAnswer
from shootout.commands.report import render
from shootout.tell.document import Document
from shootout.tell.page import contents, figures
from shootout.tell.page.contents import MeasuredRun
from shootout.tell.ratios import inverse, tell_ends
from shootout.tell.report import clean_text

REFERENCE = Path(__file__).resolve().parents[2] / "results" / "reference"

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


def test_the_page_fetches_nothing(hostile_page: str):
    found = Tags(hostile_page)
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in found.attributes
    assert {value for name, value in found.attributes if name in {"src", "href", "data", "srcset"}} == {"#run1"}
    namespaces = ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink")
    values = [value for _, value in found.attributes if value not in namespaces and NAMED not in value]
    assert not [value for value in values if "://" in value or "url(" in value]
    style = hostile_page[hostile_page.index("<style>") : hostile_page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_a_hostile_name_steers_no_markdown():
    summary = render([MeasuredRun(hostile())], ".md").decode()
    told, blocks = re.subn(r"^(`{3,})\n.*?\n\1$", "", summary, flags=re.MULTILINE | re.DOTALL)
    assert blocks == 2, "the answer and what is missing, which no row of backticks ends"
    assert "<script" not in re.sub("(`+).+?\\1", "", told), "outside of code"
    listed = re.sub("<summary>.*</summary>", "", told)  # which is HTML, and no Markdown
    assert not re.search(r"(?<!\\)\]\(", re.sub("(`+).+?\\1", "", listed))
    assert "\x1b" not in summary


def test_a_name_of_several_lines_is_one_in_the_summary_which_a_blank_line_would_end():
    name = "x\n\n![](http://evil.example/p.png)"
    cells = [
        cell(*(row(arm, ns, group=group) for arm, ns in (("slow", 2e6), ("fast", 5e5))), group=group)
        for group in (name, "other")
    ]
    told = render([MeasuredRun(document(*cells))], ".md").decode()
    assert r"**x !\[\](http://evil.example/p.png), 1 thread**" in told


@pytest.mark.parametrize("ending", [".html", ".md"])
def test_a_page_is_the_one_that_is_kept(ending: str):
    """A run with a policy: all but the drawings, whose letters depend on fonts, the style and the long environment."""
    run = REFERENCE / "decide-digits"
    decided = PolicyAnswer.of_runs([run], read_policy(None, {"size": "1GB", "ready": "3s"}))
    text = render([contents.read(run, decided.question.documents[0])], ending, decided).decode()
    text = re.sub(r'<svg .*?(aria-label=".*?").*?</svg>', r"<svg \1></svg>", text, flags=re.DOTALL)
    text = re.sub("<style>.*?</style>|<summary>Environment.*?</details>", "", text, flags=re.DOTALL)
    kept = Path(__file__).with_name(f"decide-digits{ending}")
    if os.environ.get("SCREENS") == "write":
        kept.write_text(text, encoding="utf-8")
    assert text == kept.read_text(encoding="utf-8"), "read the difference, then write it by SCREENS=write"


def test_no_path_of_the_machine_is_on_the_page():
    """Where a run, a model or a library lies is shown by its last part; what a user typed relatively is kept."""
    folder = "/home/alice/secret project/run-7"
    model = "/home/alice/models/net.onnx"
    executed = {"library": "lib", "fallbacks": ["/opt/vendor/lib/libx.so is missing"]}
    rows = [
        row("slow", 2e6, model=model, group=f"{model}, batch 1", executed=executed, notes=("see '/srv/a b/c.txt'",)),
        row("fast", 5e5, model=model, group=f"{model}, batch 1"),
        row("gone", None, model=model, group=f"{model}, batch 1", reason="no ~/drivers/x.so"),
    ]
    environment = {"variables": {"PYTHONPATH": "/home/alice/lib:/srv/alice/more"}, "shootout": {"version": "0.1.0"}}
    found = document(cell(*rows, group=f"{model}, batch 1", run=folder), run=folder, environment=environment)
    for ending in (".html", ".md", ".svg"):
        told = re.sub("</?i>", "", html.unescape(render([MeasuredRun(found)], ending).decode()))
        assert not re.findall("alice|secret|/opt|/srv|drivers", told), ending
        assert ending == ".svg" or "shootout ship run-7 -o model-1" in told.replace("'", ""), ending
    assert clean_text("results/a/b and 200/s and http://x/y/z") == "results/a/b and 200/s and http://x/y/z"


ENDS = re.compile(r"\(([\d.,]+)\sto\s([\d.,]+)\)")


@pytest.mark.parametrize("name", ["shootout", "batch-sweep", pytest.param("quantization", marks=pytest.mark.long)])
def test_no_interval_on_the_page_has_a_confidence_other_than_95_percent(name: str):
    """All brackets are intervals to read; a sweep's bars are intervals of medians or have no length."""
    run = contents.read(REFERENCE / name, reference_runs.read(name).document)
    timings = [row.end_to_end for row in run.document.rows if row.end_to_end]
    assert any(timing.confidence < 0.95 for timing in timings), "the run has something to hide"
    known = {
        tell_ends(*ends).strip()
        for timing in timings
        for ratio in (timing.ratio, timing.ship_ratio, timing.own_fp32_ratio)
        if ratio
        for ends in (ratio.ends, inverse(ratio).ends)
    }
    page = render([run], ".html").decode()
    shown_to_all, _, _ = page.partition("<h2>Terms</h2>")  # whose example is no figure of the run's
    text = "".join(Tags(re.sub("<svg.*?</svg>", "", shown_to_all, flags=re.DOTALL)).texts)
    shown = {found[0].replace("\xa0", " ") for found in ENDS.finditer(text)}
    assert shown
    assert shown <= known
    assert "±" not in text
    drawn = figures.draw_curves(run)
    data = drawn.chart.to_dict()["datasets"].values() if drawn else ()
    bars = [one for values in data for one in values if "low" in one]
    sure = {timing.median_ns / 1e6 for timing in timings if timing.confidence >= 0.95}
    assert all(one["low"] == one["high"] == one["y"] for one in bars if one["y"] not in sure)
