"""Workers forked from a process that has imported what all of them import, which is most of the work of a small one.

A worker forked so is as alone as one that was started: it has a session, an environment, CPUs, a working folder and
descriptors of its own, and it is this process's child. What it imports for its arm, it imports itself.
Run as `python -P -m support.forked_workers FD`, it forks a worker for each message that comes.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import pickle
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from shootout.host import child

TESTS = Path(__file__).resolve().parents[1]
WORKER = "shootout.worker"
ITS_OWN = ("TMPDIR", "SHOOTOUT_PADDING", "PYTEST_CURRENT_TEST")
"""Variables that differ from worker to worker, and that nothing reads while it is imported."""
PR_SET_CHILD_SUBREAPER = 36
_LONGEST_MESSAGE = 1 << 17
_HEAD = [sys.executable, "-P", "-m", WORKER]


class Forked:
    """A forked worker, as `subprocess.Popen` tells of one that was started."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, None
        self._ends = os.pidfd_open(pid)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._ends], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(WORKER, timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._ends)
        return self.returncode


class Nursery:
    """The process that workers are forked from, and this one's end of the pipe to it."""

    _lock = threading.Lock()
    _latest: Nursery | None = None

    @classmethod
    def start(cls, arguments: Sequence[str], how: Mapping[str, Any]) -> Forked:
        """A worker with these arguments, from a nursery in the same environment."""
        environment = {name: text for name, text in how["env"].items() if name not in ITS_OWN}
        with cls._lock:
            if cls._latest is None or cls._latest.environment != environment:
                if cls._latest is not None:
                    cls._latest.end()
                cls._latest = cls(environment)
            return cls._latest.fork(arguments, how)

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self._pipe, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            search = os.pathsep.join([str(TESTS), *filter(None, [environment.get("PYTHONPATH")])])
            command = [sys.executable, "-P", "-m", __name__, str(theirs.fileno())]
            self._process = subprocess.Popen(
                command,
                env={**environment, "PYTHONPATH": search},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is not for it
            )
        atexit.register(self.end)

    def fork(self, arguments: Sequence[str], how: Mapping[str, Any]) -> Forked:
        message = pickle.dumps((arguments[1:], how["env"], str(Path.cwd()), os.sched_getaffinity(0)))
        files = [*how["pass_fds"], how["stdout"].fileno(), how["stderr"].fileno()]
        adopt(True)
        try:
            socket.send_fds(self._pipe, [message], files)
            return Forked(int(self._pipe.recv(_LONGEST_MESSAGE)))
        finally:
            adopt(False)

    def end(self) -> None:
        atexit.unregister(self.end)
        self._pipe.close()
        self._process.wait()


def adopt(orphans: bool) -> None:
    """Whether orphans among this process's descendants become its own children, or init's."""
    assert not ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0)


def start(command: Sequence[str], **how: Any) -> Forked | subprocess.Popen[bytes]:
    """In place of `subprocess.Popen`, for the command of a child of ours."""
    if [*command[: len(_HEAD)]] != _HEAD:
        return subprocess.Popen(command, **how)
    return Nursery.start(command[len(_HEAD) :], how)


def fork_workers(change: Callable[[object, str, Any], None] = setattr) -> None:
    """Fork the workers that this process's runs ask for, where the system can, by this `change` of a module."""
    if hasattr(os, "pidfd_open"):  # on Linux, from 5.3 on
        change(child, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": start}))


def main() -> None:
    """Import what every worker imports, then fork one for each message, until the other end is gone."""
    for module in (f"{WORKER}.__main__", "shootout.backends._numpy.backend", "shootout.backends._spin.backend"):
        import_module(module)
    gc.freeze()  # pages of what lives already stay shared
    with socket.socket(fileno=int(sys.argv[1])) as pipe, suppress(ConnectionError):  # who asked may be killed
        _serve(pipe)


def _serve(pipe: socket.socket) -> None:
    while True:
        message, files, _, _ = socket.recv_fds(pipe, _LONGEST_MESSAGE, 3)
        if not message:
            return
        told, tells = os.pipe()
        between = os.fork()
        if not between:  # whose end makes the worker an orphan, which the process that asked then adopts
            parent = os.getpid()
            if not os.fork():
                pipe.close()
                os.setsid()  # before anybody knows it: it is ended by its group
                os.write(tells, str(os.getpid()).encode())
                os.close(told)
                os.close(tells)
                _become(parent, files, *pickle.loads(message))
            os._exit(0)
        os.close(tells)
        os.waitpid(between, 0)
        pipe.send(os.read(told, 20))
        for one in (told, *files):
            os.close(one)


def _become(
    between: int,
    files: Sequence[int],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
    cpus: set[int],
) -> None:
    """Be a worker in this forked process, to its end, once it is adopted: a worker ends where its parent has."""
    commands, out, errors = files
    while os.getppid() == between:
        time.sleep(0)
    os.sched_setaffinity(0, cpus)
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(errors, 2)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    sys.argv = [WORKER, str(commands), *arguments]
    code = 0
    try:
        import_module(f"{WORKER}.__main__").main()
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
