"""The parent's end of a worker: start it, ask it, hold it still, and leave nothing of it behind.

Every wait is a `poll` on the pipe, so the parent sleeps while an arm runs. A stop counts once `waitid` has seen it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.constants import LAST_WORDS_LINES
from shootout.contract import NotRun
from shootout.errors import ArmFailed, SkippedArm
from shootout.messages import Fault

if TYPE_CHECKING:
    from shootout.worker.interpreters import Interpreter

_MOST_WORDS_BYTES = 10_000
_GOODBYE_S = 5.0
_LONGEST_NAME = 150
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class WorkerProcess:
    """One worker process.

    Args:
        environment: its whole environment; thread counts are in it.
        cpus: the CPUs it may run on, set before it starts so that no library sees others.
        log: where its output goes, behind what is there; its own last lines become a failure's last words.
        interpreter: the Python that it runs under, when not ours.

    Its temporary folder is its own and goes with it: a killed process can't tidy up, and compilers leave megabytes.
    """

    def __init__(
        self, environment: Mapping[str, str], cpus: frozenset[int], log: Path, interpreter: Interpreter | None = None
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._interpreter = interpreter
        executable = interpreter.path if interpreter else sys.executable
        environment = interpreter.environment(environment) if interpreter else environment
        ours, theirs = socket.socketpair()
        with ours, theirs, log.open("ab") as output, on_cpus(cpus):
            self._log, self._log_start = log, output.tell()
            self._scratch = tempfile.mkdtemp(prefix="shootout-")
            self._process = subprocess.Popen(  # noqa: S603
                [executable, "-P", "-m", "shootout.worker", str(theirs.fileno()), str(os.getpid())],
                env={**environment, "TMPDIR": self._scratch},
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            self._pipe: Connection[Any, Any] = Connection(os.dup(ours.fileno()))

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    def ask(self, command: str, timeout_s: float, **arguments: Any) -> Any:
        """Send a command and wait for its answer.

        Raises:
            ArmFailed: the command raised, the process died, or no answer came within `timeout_s`.
            SkippedArm: the worker says that this can't be asked here.
        """
        try:
            self._pipe.send((command, arguments))
            if not self._pipe.poll(timeout_s):
                raise ArmFailed(self._told(f"hung: no answer to {command!r} within {timeout_s:g} s; it was killed"))
            answer = self._pipe.recv()
        except ArmFailed:
            raise
        except (EOFError, ConnectionError):
            raise ArmFailed(self._told(f"{self._how_it_died()} during {command!r}")) from None
        except Exception as error:  # a type of the adapter's own, which can't be unpickled here
            raise ArmFailed(f"{command} gave an answer that can't be read: {plain(str(error))}") from None
        if isinstance(answer, NotRun):
            raise SkippedArm(answer.reason, answer.fix, answer.kind)
        if not isinstance(answer, Fault):
            return answer
        if self._interpreter and answer.kind == "ModuleNotFoundError":
            raise _missing(answer, self._interpreter)
        raise ArmFailed(f"{command} raised {answer.kind}: {plain(answer.message)}")

    def hold(self) -> None:
        """Stop it and everything it started; returns once it has stopped."""
        self._signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def release(self) -> None:
        """Let it run again."""
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """Make whoever waits for its answer hear that it died. May be called from any thread; `kill` cleans up."""
        if not self._pipe.closed:
            self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """End it, stopped or not, with everything it started; harmless when it is gone."""
        if self._pipe.closed:
            return  # its process id may be another's by now
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._pipe.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return

    def _how_it_died(self) -> str:
        try:
            code = self._process.wait(_GOODBYE_S)
        except subprocess.TimeoutExpired:
            return "closed its pipe and went on running; it was killed"
        if code >= 0:
            return f"exited with code {code}"
        memory = " (the kernel does this when memory runs out)" if -code == signal.SIGKILL else ""
        return f"killed by {signal.Signals(-code).name}{memory}"

    def _told(self, how: str) -> str:
        words = last_words(self._log, self._log_start)
        return f"{how}; its last words: {words}" if words else how


def _missing(answer: Fault, interpreter: Interpreter) -> SkippedArm:
    """Another interpreter lacks a package that the arm needs."""
    package = answer.message.rpartition("No module named ")[2].strip("'\"").partition(".")[0]
    return SkippedArm(f"@{interpreter.name} has no {package}", interpreter.install([package]))


def log_name(text: str) -> str:
    """A label or target as a log file's name; file systems end at 255 bytes, and settings may be long."""
    name = "".join(letter if letter.isalnum() else "-" for letter in text)
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return f"{name}.log"


def last_words(log: Path, start: int = 0) -> str:
    """The last lines of a worker's output, joined into one; `start` is where its part of the file begins."""
    try:
        with log.open("rb") as output:
            end = output.seek(0, os.SEEK_END)
            output.seek(max(start, end - _MOST_WORDS_BYTES))
            text = output.read().decode(errors="replace")
    except OSError:
        return ""
    return plain("\n".join([line for line in text.splitlines() if line.strip()][-LAST_WORDS_LINES:]))


def plain(text: str) -> str:
    """A library's words on one line, without the colours and control characters that would steer a terminal."""
    lines = (line.strip() for line in _COLOURS.sub("", text).splitlines())
    return " | ".join("".join(letter for letter in line if letter.isprintable()) for line in lines if line)


@contextmanager
def on_cpus(cpus: frozenset[int]) -> Iterator[None]:
    """This thread runs on `cpus` only; children started inside inherit them before any code of theirs runs."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


@contextmanager
def worker(
    environment: Mapping[str, str], cpus: frozenset[int], log: Path, interpreter: Interpreter | None = None
) -> Iterator[WorkerProcess]:
    """A worker that is gone on exit, whatever happened inside."""
    process = WorkerProcess(environment, cpus, log, interpreter)
    try:
        yield process
    finally:
        process.kill()
