"""The linter of words: each rule finds what breaks it, at its line, and leaves the rest alone."""

from __future__ import annotations

import pytest
import typer

from lab import words
from shootout.cli import app

PAGE = """\
---
title: who
---
# A page

Fine, by [a link
of who](https://who.example/sentinel-where). `who` is code, and users who read it are people.
<!-- who -->

```
nobody asks for sure
```

| a table | of oracles |
- One item.
  Where it fails, try again. Its sentinel is
  told apart.
"""


def faults(text: str) -> list[str]:
    return [one for sentence in words.split_page(text, "p.md") for one in words.check(sentence)]


def test_prose_is_checked_and_each_fault_has_its_line():
    found = faults(PAGE)
    assert [(one.split(": ")[0], one.split(": ")[1]) for one in found] == [
        ("p.md:6", "a program is a thing"),
        ("p.md:16", '"if" or "when" for "where"'),
        ("p.md:16", "the term is 'control'"),
        ("p.md:16", 'the term is "significantly faster, or'),
    ]


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("Whoever is late leaves.", True),
        ("Nobody waits for it.", True),
        ("the arm whose time is least", False),
        ("people who ship models", False),
        ("An engineer, who knows it, and an arm, who doesn't.", True),
    ],
)
def test_a_human_being_may_be_a_person(text: str, is_one: bool):
    assert words.calls_person(text) is is_one


@pytest.mark.parametrize(
    ("text", "british"),
    [
        ("Labelled rows are counted.", "Labelled"),
        ("At 70 % utilisation it holds.", "utilisation"),
        ("The colours optimise nothing.", "colours"),
        ("An optimistic promise raises noise in the cached center.", None),
        ("Write `labelled` as the run has it.", None),
    ],
)
def test_the_spelling_is_american(text: str, british: str | None):
    told = [] if british is None else [f"p.md:1: {british!r} is British: {text}"]
    assert faults(text) == told


@pytest.mark.parametrize("count", [words.MOST_WORDS, words.MOST_WORDS + 1])
def test_a_long_sentence_is_counted_without_its_code(count: int):
    text = "Run `shootout run model.onnx --max-time 2m` " + "word " * (count - 3) + "end."
    assert [one.words for one in words.split_page(text, "p.md")] == [count]
    assert len(faults(text)) == (count > words.MOST_WORDS)


def test_messages_and_lines_of_code_are_checked():
    code = """
def run(path, kept):
    raise UsageError(f"{path} is no ordinary file: " + ("remove it" if kept else "Where it is, look"))
    # nobody reads this
    print("generations of oracles")
"""
    assert list(words.check_code(code, "m.py")) == [
        "m.py:3: the term is 'not a regular file, text file, …': `X` is no ordinary file: remove it.",
        'm.py:3: "if" or "when" for "where": Where it is, look',
        "m.py:4: a program is a thing: # nobody reads this",
    ]


def test_the_help_of_every_command_is_read_and_clean():
    command = typer.main.get_command(app)
    read = list(words.read_help(command))
    places = {one.place for one in read}
    assert {"shootout --help", "shootout run --max-time", "shootout gate --slower", "shootout ship folder"} <= places
    assert [fault for one in read for fault in words.check(one)] == []
