"""Show a gate in GitHub Actions: a step summary, and a line of its own for each thing that is wrong."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from shootout.apps.judge.gate.output import report_gate
from shootout.apps.judge.gate.verdict import Gate, list_reasons
from shootout.core.errors import ExitCode, ShootoutError, Undecided, UsageError, printable, tell_refusal
from shootout.tell.document import Document
from shootout.tell.limits import Standing
from shootout.tell.page import markdown

SUMMARY, ACTIONS = "GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS"
TITLE = "shootout gate"
_NO_OUTCOME = {
    ExitCode.USAGE: "wrong use",
    ExitCode.NOTHING: "no reference",
    ExitCode.UNAVAILABLE: "can't run here",
    ExitCode.UNDECIDED: "undecided",
}


@contextmanager
def muted(stream: TextIO, environment: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Let nothing that is printed meanwhile begin a command: a model, or a folder that is loaded, may be a stranger's.

    Source: "Stopping and starting workflow commands" in GitHub's documentation.
    """
    if not is_job(environment):
        yield
        return
    word = secrets.token_hex(16)
    print(f"::stop-commands::{word}", file=stream, flush=True)
    try:
        yield
    finally:
        print(f"::{word}::", file=stream, flush=True)


def tell(gate: Gate, document: Document | None, stream: TextIO, environment: Mapping[str, str] = os.environ) -> None:
    """Add the summary to the job's, and print the lines, where this is such a job.

    Args:
        document: None where nothing was run.
        stream: the runner reads both; where data is on stdout, stderr.

    Raises:
        UsageError: the summary can't be written.
    """
    _add_summary(markdown.render([report_gate(gate, document)]), environment)
    if is_job(environment):
        stream.writelines(f"{line}\n" for line in annotate(gate))


def _add_summary(text: str, environment: Mapping[str, str]) -> None:
    if place := environment.get(SUMMARY):
        try:
            with Path(place).open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise UsageError(
                f"{SUMMARY} {place!r} can't be written: {tell_refusal(error, f'unset {SUMMARY}')}"
            ) from None


def tell_error(error: ShootoutError, stream: TextIO, environment: Mapping[str, str] = os.environ) -> None:
    """Add a summary for an error that leaves the gate without an outcome, and print a line, in such a job."""
    told = f"{_NO_OUTCOME.get(error.exit_code, 'no outcome')}, exit code {error.exit_code:d}"
    _add_summary(f"## {told}\n\n{markdown.write_bullets([printable(str(error))])}\n", environment)
    if is_job(environment):
        level = "warning" if isinstance(error, Undecided) else "error"
        stream.write(command(level, str(error), title=TITLE) + "\n")


def is_job(environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether a runner of GitHub's reads what is printed."""
    return environment.get(ACTIONS) == "true"


def annotate(gate: Gate) -> Iterator[str]:
    """Yield `::error title=…::…` for each broken limit, `::warning` for what isn't known and for each note."""
    for standing, told in list_reasons(gate):
        level, word = ("error", "fail") if standing is Standing.BROKEN else ("warning", "undecided")
        yield command(level, f"{word}: {gate.given or gate.candidate}: {told}", title=TITLE)
    for note in gate.notes:
        yield command("warning", note, title=TITLE)


def command(level: str, message: str, **properties: str) -> str:
    """Return a workflow command, so escaped that nothing in it begins another one.

    Source: actions/toolkit, packages/core/src/command.ts.
    """
    told = ",".join(f"{name}={_escape_property(value)}" for name, value in properties.items())
    return f"::{level} {told}::{_escape_message(message)}"


def _escape_message(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_message(text).replace(":", "%3A").replace(",", "%2C")
