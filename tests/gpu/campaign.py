"""The campaign itself: step after step, each a process of its own with a share of the time, until the time is over.

A step that breaks is noted with its last words and costs the others nothing. Races keep what they measured and go on in
the next call; so does the campaign.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shootout.clock import Deadline, Stopwatch
from shootout.errors import ShootoutError
from shootout.host.child import last_words
from shootout.journal import journal

from . import conformance, summary, work
from .state import State, Status
from .steps import GRACE_S, LEAST_S, Step, limit_s, share_s, shared_s

FOUND, NOTHING, UNAVAILABLE, INTERRUPTED = 1, 3, 6, 130
"""Exit codes of `shootout`; those of conformance.py, too."""
NOTHING_MEASURED = "nothing was measured"
NO_DOCTOR = "doctor hasn't told what works on CUDA"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a step's process ended: its exit code, None where it had to be stopped."""

    code: int | None
    wall_s: float


Run = Callable[[list[str], Path, Path, float], Ending]
"""Runs a command with files for its output and its errors, for so many seconds at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """One call of `make gpu`.

    Attributes:
        deadline: of all steps together.
        without: steps that can't be asked here, and why.
    """

    state: State
    deadline: Deadline
    without: dict[str, str]
    say: Callable[[str], None]
    run: Run

    def play(self) -> None:
        """Do all that waits; then spend what is left on what is unfinished, or had to wait for what was."""
        self._pass(self.state.waiting())
        self._pass([step for step in self.state.waiting() if self._goes_on(step)])

    def _pass(self, waiting: list[Step]) -> None:
        while waiting and (left_s := self._left_s()) >= LEAST_S:
            step = waiting[0]
            share = share_s(step, waiting, left_s)
            self._step(step, share, limit_s(share, left_s))
            waiting = waiting[1:]

    def _left_s(self) -> float:
        return shared_s((self.deadline.seconds or 0.0) - self.deadline.elapsed_s)

    def _goes_on(self, step: Step) -> bool:
        one = self.state.standings[step.name]
        return one.status is Status.UNFINISHED or one.words == NO_DOCTOR

    def _step(self, step: Step, share: float, limit: float) -> None:
        if why := self.without.get(step.name) or self._unready(step):
            self.state.note(step, Status.SKIPPED, 0.0, why)
            return
        try:
            command = work.command(step, self.state.folder, share)
        except (ShootoutError, OSError, ValueError) as error:
            self.state.note(step, Status.FAILED, 0.0, str(error))
            self.say(f"{step.name}: failed: {error}")
            return
        self.say(f"{step.name}: {step.brings}; {share:.0f} s")
        logs = self.state.folder / "logs"
        logs.mkdir(exist_ok=True)
        out, errors = logs / f"{step.name}.out", logs / f"{step.name}.err"
        ending = self.run(command, out, errors, limit)
        status, words = outcome(step, self.state.folder, ending, errors)
        self.state.note(step, status, round(ending.wall_s, 1), words)
        self.say(f"{step.name}: {status} after {ending.wall_s:.0f} s{f': {words}' if words else ''}")

    def _unready(self, step: Step) -> str:
        """Why a step can't begin, by what an earlier one found."""
        if step.name != "conformance" or (found := conformance.able(self.state.folder)):
            return ""
        return NO_DOCTOR if found is None else "no backend works on CUDA here: see doctor"


def outcome(step: Step, folder: Path, ending: Ending, errors: Path) -> tuple[Status, str]:
    """What came of a step, and why it isn't done."""
    words = ""
    with suppress(FileNotFoundError), errors.open("rb") as said:  # it may have ended before it said anything
        words = last_words(said)
    if not step.study:
        if ending.code in (None, INTERRUPTED):
            return Status.UNFINISHED, "its time was over"
        if ending.code == FOUND and (finding := _finding(step, folder)):
            return Status.DONE, finding
        return (Status.DONE, "") if ending.code == 0 else (Status.FAILED, words or f"exit code {ending.code}")
    complete = _complete(folder / step.name)
    if ending.code in (None, INTERRUPTED) or (ending.code in (0, NOTHING) and not complete):
        return Status.UNFINISHED, "its time was over"
    if ending.code == NOTHING:
        return Status.FAILED, NOTHING_MEASURED
    return (Status.DONE, "") if ending.code == 0 else (Status.FAILED, words)


def _finding(step: Step, folder: Path) -> str:
    """What a step that did its work and ended with exit code 1 has found; "" where it hasn't done it."""
    if step.name == "selftest" and "planted" in (summary.output(folder, step.name) or {}):
        return "a verdict was wrong"
    if step.name == "conformance" and not conformance.left(folder) and FOUND in conformance.codes(folder).values():
        return "a check failed"
    return ""


def _complete(folder: Path) -> bool:
    return journal.begun(folder) and journal.read(folder).played_out


def run(command: list[str], out: Path, errors: Path, limit: float) -> Ending:
    """Run a command; when its time is over, ask it to stop, and at last make it.

    What it wrote takes the place of an earlier try's where it ended by itself; else it stays beside it, as `….new`.

    Raises:
        KeyboardInterrupt: the user's; the command was stopped too.
    """
    fresh = {file: file.with_name(f"{file.name}.new") for file in (out, errors)}
    code: int | None = None
    try:
        with Stopwatch() as watch, fresh[out].open("wb") as output, fresh[errors].open("wb") as words:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=words, start_new_session=True
            )
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                _stop(process)
            except BaseException:
                _stop(process)
                raise
    finally:
        for file, new in fresh.items():
            if new.exists() and (code is not None or not file.exists()):
                new.replace(file)
    return Ending(code, watch.seconds)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C for it and all that it started; where that isn't enough, an end."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            continue
        return


def without(lacking: Collection[str]) -> dict[str, str]:
    """Steps that can't be asked for what is missing."""
    return {"conformance": "pytest or pytest-timeout is missing"} if "conformance" in lacking else {}


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)
