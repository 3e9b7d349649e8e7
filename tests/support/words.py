"""The study that a command line asks for, without a command line."""

from __future__ import annotations

from typing import Any

from shootout.commands import selection
from shootout.core.study.schema import Study
from shootout.tell.study_options import RunOptions, read_words


def chosen(name: str = "shootout", **words: Any) -> Study:
    """The study with these words of `shootout run`, by their keywords in Python."""
    return selection.choose(name, read_words(RunOptions, words))
