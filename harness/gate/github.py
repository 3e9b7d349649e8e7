"""What GitHub Actions shows of a gate: a step summary, and a line of its own for each thing that is wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from shootout.errors import UsageError, printable
from shootout.gate.screen import COLUMNS, lines, tell_outcome
from shootout.gate.verdict import Gate
from shootout.page import markdown
from shootout.results.document import Document

SUMMARY, ACTIONS = "GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS"
TITLE = "shootout gate"


def tell(gate: Gate, document: Document, environment: Mapping[str, str] = os.environ) -> None:
    """Add the summary to the job's, and print the lines, where this is such a job.

    The lines go to stderr, which the runner reads too: data on stdout stays whole.

    Raises:
        UsageError: the summary can't be written.
    """
    if place := environment.get(SUMMARY):
        try:
            with Path(place).open("a", encoding="utf-8") as file:
                file.write(summarize(gate, document))
        except OSError as error:
            raise UsageError(f"{SUMMARY} {place!r} can't be written: {error.strerror}") from None
    if environment.get(ACTIONS) == "true":
        sys.stderr.writelines(f"{line}\n" for line in annotate(gate))


def summarize(gate: Gate, document: Document) -> str:
    """The outcome and the evidence, then the run, as Markdown of at most `markdown.MOST_BYTES`."""
    rows = [markdown.line(COLUMNS), markdown.line(["---"] * len(COLUMNS), raw=True), *map(markdown.line, lines(gate))]
    front = [
        f"## {markdown.escape(tell_outcome(gate))}",
        markdown.bullets([*gate.reasons, *(f"note: {one}" for one in gate.notes)]),
        "\n".join(rows) if gate.checks else "",
    ]
    return markdown.render([document], front=[part for part in front if part])


def annotate(gate: Gate) -> Iterator[str]:
    """`::error title=…::…` lines; a gate that passed has its notes as warnings."""
    if gate.outcome != "pass":
        level = "error" if gate.outcome == "fail" else "warning"
        for reason in gate.reasons:
            yield command(level, f"{gate.outcome}: {gate.candidate}: {reason}", title=TITLE)
    for note in gate.notes:
        yield command("warning", note, title=TITLE)


def command(level: str, message: str, **properties: str) -> str:
    """A workflow command, so escaped that nothing in it begins another one.

    Source: actions/toolkit, packages/core/src/command.ts.
    """
    told = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{level} {told}::{_message(message)}"


def _message(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
