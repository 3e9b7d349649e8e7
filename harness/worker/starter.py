"""Workers forked from one process that has imported what they begin with: the end of the process that asks for them.

Every arm's worker is forked, so that all lie in memory in one way: an arm that was started differed from its forked
copy by 1 %. It also saves time. Importing torch takes 1.5 s of CPU time, and what every worker needs, NumPy among it,
0.3 s. A starter (`worker.forking`) does it once for the arms that share these imports, and is gone when all are loaded.
Every restart has starters of its own, each started like any process (see `Child`), so address layout, hash seed and
padding are drawn anew; the arms that share a starter share that draw. A restart therefore stays independent of the
others, and nothing of one lives on into the next.

A forked worker has a session, a temporary folder, CPUs and descriptors of its own, and is the child of the process
that asked for it: an orphan that this one adopts. If a fork fails, `fork` raises `NotForked` and the worker is started,
which also tells what is wrong with a library.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from shootout.constants import LOAD_TIMEOUT_S
from shootout.host.child import Child
from shootout.host.placement import TASKS
from shootout.worker import forking
from shootout.worker.forking import LONGEST_MESSAGE, PAGEMAP, READY, WORKER

if TYPE_CHECKING:
    from shootout.worker.interpreters import Interpreter

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_ADOPTING = Lock()


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
    return TASKS.is_dir() and os.access(PAGEMAP, os.R_OK)


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
                forking.__name__,
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

    def is_ready(self, timeout_s: float = LOAD_TIMEOUT_S) -> bool:
        """Whether it can fork, once it has imported everything; it can't where an import failed or left threads.

        One that takes longer than `timeout_s` seconds is ended: nobody waits for it again.
        """
        with self._forking:
            if self._ready is None:
                self._pipe.settimeout(timeout_s)
                with self._ending_unless_done(), suppress(OSError):
                    self._ready = self._pipe.recv(len(READY)) == READY
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
        if len(message) > LONGEST_MESSAGE:
            raise NotForked
        with self._forking, _adopting():
            if self._ready:
                self._ready = None  # the next answer is this worker's, or nobody's
                with self._ending_unless_done(), suppress(OSError, ValueError):
                    socket.send_fds(self._pipe, [message], files)
                    found = Forked(int(self._pipe.recv(LONGEST_MESSAGE)))
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
