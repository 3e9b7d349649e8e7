"""Run a module of ours in a child process that dies with this one, and tell in plain words how it ended.

Both ends are here: `Child` starts the process, and the first thing its `main` does is to call `leave_with`.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import IO, Self

from shootout.core import clock
from shootout.core.constants import LAST_WORDS_LINES
from shootout.core.errors import one_line
from shootout.core.host.folders import Scratch
from shootout.core.host.placement import move_threads, on_cpus, passed_on

PROC = Path("/proc")
_LONGEST_WORDS_BYTES = 10_000
MOST_LOG_BYTES, _KEPT_LOG_BYTES = 16 << 20, 1 << 20
"""Cut a log that is longer: a library may print without end. The size is checked whenever the process is waited for."""
_PR_SET_PDEATHSIG = 1
_GUARD = """
exec 3<&0
(
    while read -r sign group; do
        case $sign in
            +) set -- "$@" "-$group" ;;
            *) for one do shift; [ "$one" = "-$group" ] || set -- "$@" "$one"; done ;;
        esac
    done
    [ $# -eq 0 ] || kill -s KILL -- "$@"
) <&3 3<&- &
"""
"""A shell that ends process groups when its input ends. The groups come and go by lines: `+ GROUP`, `- GROUP`. It goes
on in the background, as no child of its caller.
"""
_GUARDING = Lock()
LOOKING_S = 1.0
CRASHES = {getattr(signal, f"SIG{name}") for name in ("SEGV", "BUS", "ILL", "FPE", "ABRT", "SYS", "TRAP")}
"""The signals of a process that crashed by its own fault."""
QUIET = {"ORT_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}
"""Turn telemetry off in every child. OpenVINO's and NNCF's is turned off when they are imported."""
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Variables for work on models: one thread is no slower there, and sums in the same order each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Describe how a child ended.

    Attributes:
        code: its exit code, negative for the signal that killed it; None: it took too long and was killed.
        said: its standard output, as far as it got.
        how: its end in words, with its last words.
        was_killed: whether a foreign signal ended it, as when memory runs out.
    """

    code: int | None
    said: str
    how: str
    was_killed: bool = False


class Forked:
    """A forked process that is this one's child, as `subprocess.Popen` tells of one that was started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ends = os.pidfd_open(pid)
        self._reaping = Lock()
        weakref.finalize(self, os.close, self._ends)  # and no sooner: another thread may wait on it

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code, 0 if another process reaped it. Any thread may call this.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        if self.returncode is None:
            if not select.select([self._ends], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0)
            with self._reaping:
                if self.returncode is None:
                    try:
                        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                    except ChildProcessError:
                        self.returncode = 0
        return self.returncode


Fork = Callable[[Sequence[str], Mapping[str, str], Sequence[int]], Forked]
"""Makes a process from arguments, variables and descriptors (those that stay open, standard output and error)."""


class Child:
    """Run a module of ours in a process and a session of its own, so that all it starts is stopped and ended with it.

    Its temporary folder is its own and goes with it: a killed process can't tidy up, and compilers leave megabytes.

    Args:
        module: its dotted name.
        arguments: of its command line; our process id follows them, for `leave_with`.
        environment: all of its variables but TMPDIR; None: those of ours that are passed on.
        executable: its Python; None: ours.
        cpus: those that it may run on, set before it starts so that no library sees others; None: ours.
        log: gets all its output, appended (of too much, the end stays); None: its standard output is kept for `finish`.
        pass_fds: the descriptors that stay open in it.
        fork: makes the process instead of starting one; its exceptions reach the caller.
    """

    def __init__(
        self,
        module: str,
        arguments: Iterable[str | Path] = (),
        *,
        environment: Mapping[str, str] | None = None,
        executable: str | None = None,
        cpus: frozenset[int] | None = None,
        log: Path | None = None,
        pass_fds: Sequence[int] = (),
        fork: Fork | None = None,
    ) -> None:
        if log:
            log.parent.mkdir(parents=True, exist_ok=True)
        self._scratch = Scratch()
        self._words: IO[bytes] = log.open("a+b") if log else tempfile.TemporaryFile()  # noqa: SIM115 - `kill` closes it
        self._said: IO[bytes] = self._words if log else tempfile.TemporaryFile()  # noqa: SIM115
        self._words_start = self._words.seek(0, os.SEEK_END)
        self._cut_log()
        self._family = frozenset[int]()
        self._overran = self._is_over = False
        words = [*map(str, arguments), str(os.getpid())]
        files = (*pass_fds, self._said.fileno(), self._words.fileno())
        given = passed_on(os.environ) if environment is None else environment
        environment = {**given, **QUIET, "TMPDIR": str(self._scratch.path)}
        try:
            with on_cpus(cpus) if cpus is not None else nullcontext():
                self._process: Forked | subprocess.Popen[bytes] = (
                    fork(words, environment, files)
                    if fork
                    else subprocess.Popen(  # noqa: S603
                        [executable or sys.executable, "-P", "-m", module, *words],
                        env=environment,
                        pass_fds=pass_fds,
                        stdin=subprocess.DEVNULL,
                        stdout=self._said,
                        stderr=self._words,
                        start_new_session=True,
                    )
                )
        except BaseException:
            self._close_files()
            raise
        _guard(f"+ {self.pid}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Return the process id, which is also the id of its session and of its process group."""
        return self._process.pid

    def signal(self, number: int) -> None:
        """Send a signal to the process and to everything it started; do nothing once its end was seen."""
        if not self._is_over:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def end(self) -> None:
        """End it, so that a caller that waits for it hears it died. Any thread may call this; `kill` cleans up."""
        self.signal(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the process and everything it started; return once it has stopped."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let it run again."""
        self.signal(signal.SIGCONT)

    def cpu_ns(self) -> int | None:
        """Return the CPU time (ns) that the process and its family used so far; None if one of them doesn't tell.

        The family is whatever it has started. A member that ends takes its figure with it: the next call returns None,
        and later calls leave the member out.
        """
        before, self._family = self._family, frozenset(_list_session(self.pid))
        known = [ns for pid in (self.pid, *self._family) if (ns := clock.cpu_ns(pid)) is not None]
        return sum(known) if before <= self._family and len(known) == 1 + len(self._family) else None

    @property
    def has_helpers(self) -> bool:
        """Return whether processes run now that this one started."""
        return any(_list_session(self.pid))

    def move(self, cpus: frozenset[int]) -> None:
        """Let all threads of the process, and of whatever it started, run on these CPUs only."""
        for pid in (self.pid, *_list_session(self.pid)):
            move_threads(pid, cpus)

    def _end_family(self) -> None:
        """End all that the process started, right after its own end: its id may be reused later."""
        if not self._is_over:
            self.end()
            self._is_over = True
            _guard(f"- {self.pid}")

    def kill(self) -> None:
        """End the process, stopped or not, with everything it started in its session; harmless if it is gone."""
        if self._words.closed:
            return
        self.end()
        self._process.wait()
        self._end_family()
        self._close_files()

    def _close_files(self) -> None:
        self._said.close()
        self._words.close()
        self._scratch.close()

    def _cut_log(self) -> None:
        """Keep only the last part of a log that is too long; later output is appended to it."""
        file = self._words.fileno()
        if (size := os.fstat(file).st_size) > MOST_LOG_BYTES:
            kept = _read_from(self._words, size - _KEPT_LOG_BYTES)
            os.ftruncate(file, 0)
            os.lseek(file, 0, os.SEEK_SET)  # it and we have one position in it
            os.write(file, b"(what was said before is left out)\n" + kept.partition(b"\n")[2])
            self._words_start = 0

    def wait(self, timeout_s: float) -> str | None:
        """Return in words how the process ended by itself, after ending what it started; None if it still runs.

        Args:
            timeout_s: how long to wait for its end.
        """
        self._cut_log()
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._end_family()
        return ending(code)

    @property
    def was_killed(self) -> bool:
        """Return whether a foreign signal ended it, as when memory runs out; a crash or a timeout doesn't count."""
        code = self._process.returncode or 0
        return code < 0 and -code not in CRASHES and not self._overran

    def told(self, how: str) -> str:
        """Add the process's last words to `how`."""
        return with_last_words(how, last_words(self._words, self._words_start))

    def finish(self, timeout_s: float, look: Callable[[], bool] = lambda: True) -> Ending:
        """Wait for the end, and kill the process after `timeout_s` seconds. `look` is called now and then; False ends
        the process.
        """
        limit, how = clock.Deadline(timeout_s), None
        while how is None and limit.allows(0.0):
            how = self.wait(min(LOOKING_S, max(limit.left_s, 0.0)))
            if not look():
                break
        self._overran = how is None
        if self._overran:
            self.end()
            self._process.wait()
            self._end_family()
        code = None if how is None else self._process.returncode
        said = _read_from(self._said, 0).decode(errors="replace")
        return Ending(code=code, said=said, how=self.told(how or too_long(timeout_s)), was_killed=self.was_killed)


def too_long(timeout_s: float) -> str:
    """Say that a process ran out of time."""
    return f"took longer than {timeout_s:.0f} s and was killed"


def with_last_words(how: str, words: str) -> str:
    """Add the last words, if there are any, to how a process ended."""
    return f"{how}; its last words: {words}" if words else how


def run(
    module: str,
    arguments: Iterable[str | Path],
    timeout_s: float,
    variables: Mapping[str, str] | None = None,
    look: Callable[[], bool] = lambda: True,
) -> Ending:
    """Run a module of ours in a process of its own, with all our variables, to its end.

    Args:
        variables: set there, on top of ours.
        look: called now and then while it runs; False ends it.
    """
    with Child(module, arguments, environment={**os.environ, **(variables or {})}) as child:
        return child.finish(timeout_s, look)


def _list_session(leader: int) -> Iterator[int]:
    for folder in PROC.iterdir() if PROC.is_dir() else ():  # no file is read: this is asked after every turn
        if folder.name.isdigit() and (pid := int(folder.name)) != leader:
            with suppress(OSError):  # it has gone
                if os.getsid(pid) == leader:
                    yield pid


def _guard(line: str) -> None:
    """Tell the guard of a group, which it ends as soon as this process has ended, killed or not."""
    with _GUARDING, suppress(OSError):  # the guard itself was killed
        os.write(_start_guard(), f"{line}\n".encode())


@cache
def _start_guard() -> int:
    """Start the guard once in each process, and return the end of its pipe that nothing else holds open."""
    reader, writer = os.pipe()
    out = subprocess.DEVNULL
    shell = ["/bin/sh", "-c", _GUARD]
    subprocess.run(shell, stdin=reader, stdout=out, stderr=out, start_new_session=True, check=False)  # noqa: S603
    os.close(reader)
    return writer


def leave_with(parent: int) -> None:
    """Die when the process `parent` dies, even while stopped, and ignore the terminal's Ctrl-C: the parent decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def ending(code: int) -> str:
    """Put an exit code into words; a negative one is the signal that killed the process."""
    if code >= 0:
        return f"exited with code {code}"
    memory = " (the kernel does this when memory runs out)" if -code == signal.SIGKILL else ""
    return f"killed by {signal.Signals(-code).name}{memory}"


def last_words(output: IO[bytes], start: int = 0) -> str:
    """Join the last lines of a process's output into one; `start` is where its part of the file begins."""
    size = os.fstat(output.fileno()).st_size
    text = _read_from(output, max(start, size - _LONGEST_WORDS_BYTES)).decode(errors="replace")
    return one_line("\n".join([line for line in text.splitlines() if line.strip()][-LAST_WORDS_LINES:]))


def _read_from(output: IO[bytes], start: int) -> bytes:
    """Read a file from `start` on without moving its position, because the child writes there."""
    return os.pread(output.fileno(), max(0, os.fstat(output.fileno()).st_size - start), start)
