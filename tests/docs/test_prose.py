"""The limits of a page: its words are counted as a reader has them, and an interval that is typed by hand is found."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from docs.site.prose import BUDGETS, ROOT_README, count_words, find_faults, find_intervals, find_type

ROOT = Path(__file__).resolve().parents[2]
RUN = "<!-- results/reference/shootout -->"
NAV = [{"Tutorial": ["README.md", {"Read the answer": "answer.md"}]}, {"Reference": [{"Each": ["studies/index.md"]}]}]


@pytest.mark.parametrize(
    ("markdown", "words"),
    [
        ("Two words", 2),
        ("A [link of four](https://example.org/not/counted) words: 1.5x", 6),
        ("Code\n\n```\nisn't counted, nor\n\nbehind an empty line\n```\n\nbut this is", 4),
        (f"A run\n\n{RUN}\n```\nits screen\n```\n\nand text", 4),
        ("<!-- written by a program -->\n\n| a | b |\n|---|---|\n| c | d |\n\nand text", 2),
        ("| a | b |\n|---|---|\n| typed | by hand |", 5),
        ("<!-- a remark -->\nA paragraph counts", 3),
        ("<!-- in a line --> four words of text", 4),
    ],
)
def test_words_are_those_that_a_person_wrote(markdown: str, words: int):
    assert count_words(markdown) == words


@pytest.mark.parametrize(
    ("markdown", "found"),
    [
        ("1.7x slower (1.1 to 2.7), twice", ["(1.1 to 2.7)"]),
        ("0.65 [0.622, 0.692] and (1.1x to 2.7x)", ["[0.622, 0.692]", "(1.1x to 2.7x)"]),
        ("`1.7x slower (1.1 to 2.7)` is an example", []),
        ("```\n1.7x slower (1.1 to 2.7)\n```", []),
        (f"{RUN}\n| a | 1.7x slower (1.1 to 2.7) |", []),
        ("(2 to 4 minutes), (see 1), [1](a.md) and [0.1, 0.2](b.md)", []),
    ],
)
def test_an_interval_is_typed_by_hand_unless_it_is_in_code_or_below_a_mark(markdown: str, found: list[str]):
    assert find_intervals(markdown) == found


def test_a_page_knows_its_type():
    assert find_type(NAV, "answer.md") == find_type(NAV, "README.md") == "Tutorial"
    assert find_type(NAV, "studies/index.md") == "Reference"
    assert find_type(NAV, "nowhere.md") is None


def test_each_fault_of_a_page_is_told():
    long = "word " * (BUDGETS["install.md"] + 1)
    assert list(find_faults("install.md", "Few words", "How-to")) == []
    assert [fault.partition(":")[0] for fault in find_faults("install.md", f"{long} (1.1 to 2.7)", None)] == [
        "install.md has no type",
        f"install.md has {BUDGETS['install.md'] + 4} words and a budget of {BUDGETS['install.md']}",
        "install.md has the interval (1.1 to 2.7) typed by hand",
    ]
    (fault,) = find_faults("new.md", "Few words", "How-to")
    assert fault.startswith("new.md has no budget")
    assert list(find_faults("runtimes/new.md", "word " * 200, "Runtimes")) == []
    assert len(list(find_faults("runtimes/new.md", "word " * 201, "Runtimes"))) == 1
    assert list(find_faults("reference/keys.md", long, "Reference")) == []


@pytest.mark.parametrize("page", BUDGETS)
def test_a_page_keeps_its_budget_and_has_no_interval_typed_by_hand(page: str):
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert list(find_faults(page, (ROOT / "docs" / page).read_text(), find_type(nav, page))) == []


def test_the_readme_keeps_its_budget():
    text = (ROOT / "README.md").read_text()
    assert count_words(text) <= ROOT_README
    assert text.count("\n") <= 100
    assert find_intervals(text) == []
