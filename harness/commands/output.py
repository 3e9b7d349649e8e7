"""Print what all commands print: progress on stderr, an answer as text or JSON on stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from shootout.core.errors import ExitCode, printable
from shootout.tell import table
from shootout.tell.document import Document
from shootout.tell.formats import json_text
from shootout.tell.progress import ProgressDisplay
from shootout.tell.report import gather

_TAKEN = ContextVar[list[Any] | None]("taken", default=None)


class PlainConsole(Console):
    """A console that shows every text as it is written: strings are no markup, and no letter steers the terminal.

    Names, reasons and journals may be a stranger's. Styles and the movements of a progress bar are Rich's own.
    """

    def __init__(self, **how: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **how)

    def on_broken_pipe(self) -> None:
        """Print no more: what reads standard error has ended, and a run goes on without it."""
        self.quiet = True

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the segments of anything that can be shown; each goes through here."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def show_progress() -> ProgressDisplay:
    """Show progress for people on stderr."""
    return ProgressDisplay(PlainConsole(stderr=True))


@contextmanager
def take_answers() -> Iterator[list[Any]]:
    """Take what commands find, in place of printing it: the object that is found, or else the data of its JSON."""
    token = _TAKEN.set(found := list[Any]())
    try:
        yield found
    finally:
        _TAKEN.reset(token)


def print_document(document: Document, *, full: bool, as_json: bool) -> int:
    """Print a run's answer and tables, or its document as JSON; `full`: all columns, and a table for each size."""
    text = table.render(document, width(), full=full)
    return print_answer(text, document.model_dump(mode="json", by_alias=True), as_json=as_json, found=document)


def print_answer(text: RenderableType, data: Any, *, as_json: bool, found: object = None) -> int:
    """Print data as JSON, or the same as text for people; return the exit code, always 0.

    Args:
        found: the object that both are made of, for `take_answers`.
    """
    if (taken := _TAKEN.get()) is not None:
        taken.append(data if found is None else found)
    elif as_json:
        sys.stdout.write(json_text(data))
    else:
        _make_console().print(text, crop=False)  # a command that is cut can't be pasted
    return ExitCode.OK


def print_written(data: Any, *, as_json: bool) -> int:
    """Print as JSON what a command has written, of which people are told on stderr; return the exit code, always 0."""
    return print_answer("", data, as_json=True) if as_json else ExitCode.OK


def join_reasons(why: Mapping[str, str]) -> list[str]:
    """Return why targets were left out, a line for those that share a reason."""
    by_reason = gather((reason, label) for label, reason in why.items())
    return [f"{', '.join(labels)}: {reason}" for reason, labels in by_reason.items()]


def width() -> int:
    """Return the console's width in letters."""
    return _make_console().width


def _make_console() -> Console:
    """Return standard output, as wide as COLUMNS says or the terminal is.

    Without either it is wide, so that a file or a pipe gets whole lines.
    """
    told = os.environ.get("COLUMNS", "")
    columns = int(told) if told.isdecimal() else 0
    return PlainConsole(width=columns or (None if sys.stdout.isatty() else 200))
