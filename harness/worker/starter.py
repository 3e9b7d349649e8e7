"""Workers forked from one process that has imported what they begin with, where several of a generation do.

Importing torch takes 1.5 s of CPU time, and what every worker needs, NumPy among it, 0.3 s; a generation of ten arms
did so ten times. Now a starter does it once for those that begin alike, forks each arm's worker, and is gone when all
are loaded. Every generation has starters of its own, started like any worker (see `Child`), so address layout, hash
seed and padding are drawn anew in each; the arms that share one share that draw. A generation therefore stays what is
independent of the others, and nothing of one lives on into the next.

A forked worker has a session, a temporary folder, CPUs and descriptors of its own, and is the child of the process
that asked for it: an orphan that this one adopts. What its arm needs beyond that, it imports itself. A starter that
is not alone (threads, processes of its own) forks nobody: locks and pools don't survive a fork. Wherever a fork fails,
`fork` raises `NotForked` and the worker is started as ever, which also tells what is wrong with a library.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout import clock
from shootout.constants import LOAD_TIMEOUT_S
from shootout.host.child import Child, leave_with
from shootout.host.placement import TASKS

if TYPE_CHECKING:
    from shootout.worker.interpreters import Interpreter

WORKER = "shootout.worker"
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_LONGEST_MESSAGE = 1 << 17
_READY = b"ready"
_PAGEMAP = Path("/proc/self/pagemap")
_IS_FILES, _ENTRY_BYTES = np.uint64(0b101 << 61), 8
"""Of an entry: a page is present, and a file's rather than a process's own copy."""
_PATIENCE = 1000
_ADOPTING = Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadStart:
    """What a worker was spared, so that it tells the same figures as one that had to do it.

    Attributes:
        import_s: seconds that its library's import took, under the same loads beside it.
        rss_before_bytes: what was resident before.
    """

    import_s: float
    rss_before_bytes: int


class NotForked(Exception):
    """A worker could not be forked; whoever might hold its descriptors all the same needs others than the next one."""


class Forked:
    """A forked worker, as `subprocess.Popen` tells of one that was started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ends = os.pidfd_open(pid)
        self._reaping = Lock()
        weakref.finalize(self, os.close, self._ends)  # and no sooner: another thread may wait on it

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended (0 where somebody else reaped it); may be called from any thread.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        if self.returncode is None:
            if not select.select([self._ends], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(WORKER, timeout or 0)
            with self._reaping:
                if self.returncode is None:
                    try:
                        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                    except ChildProcessError:
                        self.returncode = 0
        return self.returncode


def can_fork() -> bool:
    """Whether the system has all that a starter needs: Linux from 5.3 on, with /proc."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        return False
    return TASKS.is_dir() and os.access(_PAGEMAP, os.R_OK)


class Starter:
    """The process that workers are forked from, and this one's end of the pipe to it.

    Args:
        modules: what it imports; this, the environment, the CPUs and the interpreter are its workers' too.
    """

    def __init__(
        self,
        modules: Iterable[str],
        *,
        environment: Mapping[str, str],
        cpus: frozenset[int] | None = None,
        log: Path | None = None,
        interpreter: Interpreter | None = None,
    ) -> None:
        if log:
            log.parent.mkdir(parents=True, exist_ok=True)
        self._environment = interpreter.environment(environment) if interpreter else dict(environment)
        self._pipe, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._forking = Lock()
        self._ready: bool | None = None
        with theirs:
            self._child = Child(
                __name__,
                [str(theirs.fileno()), *modules],
                environment=self._environment,
                executable=interpreter.path if interpreter else None,
                cpus=cpus,
                log=log,
                pass_fds=(theirs.fileno(),),
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def move(self, cpus: frozenset[int]) -> None:
        """Let it go on on these CPUs."""
        self._child.move(cpus)

    def is_ready(self, timeout_s: float = LOAD_TIMEOUT_S) -> bool:
        """Whether it can fork, once it has imported everything; it can't where an import failed or left threads.

        One that takes longer than `timeout_s` seconds is ended: nobody waits for it again.
        """
        with self._forking:
            if self._ready is None:
                self._pipe.settimeout(timeout_s)
                with self._ending_unless_done(), suppress(OSError):
                    self._ready = self._pipe.recv(len(_READY)) == _READY
            return bool(self._ready)

    def fork(self, arguments: Sequence[str], environment: Mapping[str, str], files: Sequence[int]) -> Forked:
        """A worker with these arguments, on this thread's CPUs.

        Args:
            environment: the starter's own, but for what differs from worker to worker and no library reads.
            files: descriptors of its commands, its standard output and its standard error.

        Raises:
            NotForked: the starter can't, or has gone, or failed at this one, and then it forks no other either.
        """
        if not self.is_ready():
            raise NotForked
        changed = {name: text for name, text in environment.items() if self._environment.get(name) != text}
        cpus = sorted(os.sched_getaffinity(0))
        message = json.dumps([list(arguments), changed, str(Path.cwd()), cpus]).encode()
        if len(message) > _LONGEST_MESSAGE:
            raise NotForked
        with self._forking, _adopting():
            if self._ready:
                self._ready = None  # the next answer is this worker's, or nobody's
                with self._ending_unless_done(), suppress(OSError, ValueError):
                    socket.send_fds(self._pipe, [message], files)
                    found = Forked(int(self._pipe.recv(_LONGEST_MESSAGE)))
                    self._ready = True
                    return found
        raise NotForked

    @contextmanager
    def _ending_unless_done(self) -> Iterator[None]:
        """End it where what is inside didn't come to be ready: an answer that comes later must be nobody's."""
        try:
            yield
        finally:
            if not self._ready:
                self._ready = False
                self.end()

    def end(self) -> None:
        """Make whoever waits for it hear that it died. May be called from any thread; `kill` cleans up."""
        if self._pipe.fileno() >= 0:  # its process id may be another's once it was killed
            self._child.signal(signal.SIGKILL)

    def kill(self) -> None:
        """End it; its workers live on."""
        self._pipe.close()
        self._child.kill()


@contextmanager
def _adopting() -> Iterator[None]:
    """Orphans among this process's descendants become its own children inside, and not init's."""
    control: Any = ctypes.CDLL(None).prctl
    was = ctypes.c_int()
    with _ADOPTING:
        control(_PR_GET_CHILD_SUBREAPER, ctypes.byref(was))
        control(_PR_SET_CHILD_SUBREAPER, 1)
        try:
            yield
        finally:
            control(_PR_SET_CHILD_SUBREAPER, was.value)


def main() -> None:
    """Import what every worker imports, then the modules that are asked for, and fork one worker for each message."""
    number, *modules, parent = sys.argv[1:]
    leave_with(int(parent))
    worker: Any = import_module(f"{WORKER}.__main__")
    before = worker.resident_bytes()
    with clock.collected_once(), clock.Stopwatch() as watch:
        for module in modules:
            import_module(module)
    if not is_alone():
        sys.exit(f"{', '.join(modules)} left threads or processes: each worker imports it by itself")
    head_start, pages = HeadStart(import_s=watch.seconds, rss_before_bytes=before), touched_pages()
    with socket.socket(fileno=int(number)) as pipe, suppress(ConnectionError):  # who asked may be killed
        pipe.send(_READY)
        while True:
            message, files, _, _ = socket.recv_fds(pipe, _LONGEST_MESSAGE, 3)
            if not message:
                return
            arguments, environment, folder, cpus = json.loads(message)
            _fork(pipe, files, _Life(arguments, environment, folder, cpus, pages, head_start))


def is_alone() -> bool:
    """Whether this process has one thread and no children, once it has forked.

    OpenBLAS, which NumPy brings, starts its threads when it is imported, ends them before a fork and starts them again
    when they are needed; so a first fork, for nothing, shows who else has any.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        if not (child := os.fork()):
            os._exit(0)
    os.waitpid(child, 0)
    for _ in range(_PATIENCE):  # a thread that was joined may still be on its way out
        if len(list(TASKS.iterdir())) == 1:
            break
        time.sleep(0)
    else:
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


@dataclass(frozen=True, slots=True)
class _Life:
    """What a worker begins with."""

    arguments: Sequence[str]
    variables: Mapping[str, str]
    folder: str
    cpus: Sequence[int]
    pages: Sequence[int]
    head_start: HeadStart


def _fork(pipe: socket.socket, files: Sequence[int], life: _Life) -> None:
    told, tells = os.pipe()
    between = os.fork()
    if not between:  # whose end makes the worker an orphan, which the process that asked then adopts
        try:
            parent = os.getpid()
            if not os.fork():
                pipe.close()
                os.setsid()  # before anybody knows it: it is ended by its group
                os.write(tells, str(os.getpid()).encode())
                os.close(told)
                os.close(tells)
                _live(parent, files, life)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(tells)
    os.waitpid(between, 0)
    pipe.send(os.read(told, 20))
    for one in (told, *files):
        os.close(one)


def _live(between: int, files: Sequence[int], life: _Life) -> None:
    """Be a worker in this forked process, to its end, once it is adopted: a worker ends where its parent has."""
    commands, out, errors = files
    while os.getppid() == between:
        time.sleep(0)
    os.sched_setaffinity(0, life.cpus)
    os.chdir(life.folder)
    for file, number in ((out, 1), (errors, 2)):
        os.dup2(file, number)
        os.close(file)
    os.environ.update(life.variables)
    tempfile.tempdir = None
    touch(life.pages)
    sys.argv = [WORKER, str(commands), *life.arguments[1:]]  # there its descriptor has another number
    code = 0
    try:
        worker: Any = import_module(f"{WORKER}.__main__")
        worker.main(life.head_start)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def touched_pages() -> list[int]:
    """Addresses of the pages of files (code, mostly) that this process has in memory: a fork doesn't inherit them.

    A started worker has them, so a forked one takes them in again: its memory and its first calls are then the same.
    """
    found: list[int] = []
    page = mmap.PAGESIZE
    with Path("/proc/self/maps").open() as maps, _PAGEMAP.open("rb", buffering=0) as pagemap:
        for line in maps:
            span, mode, _, _, inode, *_ = line.split()
            if inode == "0" or mode[0] != "r":
                continue
            start, end = (int(address, 16) for address in span.split("-"))
            pagemap.seek(start // page * _ENTRY_BYTES)
            entries = np.frombuffer(pagemap.read((end - start) // page * _ENTRY_BYTES), np.uint64)
            found += (start + page * np.flatnonzero((entries & _IS_FILES) == _IS_FILES)).tolist()
    return found


def touch(pages: Iterable[int]) -> None:
    """Have these pages in memory."""
    for address in pages:
        ctypes.string_at(address, 1)


if __name__ == "__main__":
    main()
