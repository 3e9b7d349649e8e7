"""Fork workers from one process that has imported what they begin with, and draw where their memory lies.

Every arm's worker is forked, so that all lie in memory in one way. An arm that was started differed from its forked
copy by 1 %. It also saves time. Importing torch takes 1.5 s of CPU time, and what every worker needs, NumPy among it,
0.3 s. A starter does it once for the arms that share these imports, and is gone when all are loaded.
Every restart has starters of its own, each started like any process (see `Child`). So address layout, hash seed and
padding are drawn again, and the arms that share a starter share that draw. A restart stays independent of the others.

A starter with threads or processes of its own forks nothing: locks and pools don't survive a fork. What an arm
needs beyond the shared imports, its worker imports itself.

A forked worker has a session, a temporary folder, CPUs and descriptors of its own. It is the child of the process
that asked for it: an orphan that this process adopts. If a fork fails, `fork` raises `ChildProcessError` and the
worker is started, which also tells what is wrong with a library.

`shift_heap` draws the place where a worker's heap goes on. `malloc` puts an array wherever the imports before it left
the heap, on any multiple of 16 bytes. The same product takes up to a quarter longer if its matrix begins off a cache
line. That place is alike in all restarts of one program and differs between two, so no number of restarts would average
it out. Here the draw decides instead.

The starter's own process runs `python -m shootout.core.worker.fork_server`.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import socket
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.core import clock
from shootout.core.constants import LOAD_TIMEOUT_S
from shootout.core.contract import Array
from shootout.core.host.child import Child, Forked, leave_with
from shootout.core.host.placement import TASKS
from shootout.core.messages import Loaded

if TYPE_CHECKING:
    from shootout.core.worker.availability import PythonInterpreter

WORKER, SERVER = "shootout.core.worker.worker", "shootout.core.worker.fork_server"
BINDING_VARIABLES = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""If one is set, an OpenMP library may bind the thread that imports it, and workers forked from that one with it."""
LONGEST_MESSAGE = 1 << 17
READY = b"ready"
PAGEMAP = Path("/proc/self/pagemap")
_IS_FILES, _ENTRY_BYTES = np.uint64(0b101 << 61), 8
"""The bits of an entry of /proc/PID/pagemap whose page is present, and a file's rather than a process's own copy; an
entry's bytes.
"""
_PATIENCE_S, _LOOK_S = 1.0, 0.001


def main(spared: Loaded | None = None) -> None:
    """Import what every worker imports, then the modules that are asked for, and fork one worker for each message.

    Args:
        spared: what the fork server that this one was forked from had imported.
    """
    number, *modules, parent = sys.argv[1:]
    leave_with(int(parent))
    os.set_inheritable(int(number), False)  # what a library starts must not hold the pipe open
    worker: Any = import_module(WORKER)
    spared = spared or Loaded(rss_before_bytes=worker.resident_bytes(), forked=True)
    with clock.never_collected(), clock.Stopwatch() as watch:
        for module in modules:
            import_module(module)
    if not is_alone():
        sys.exit(f"{', '.join(modules)} left threads or processes: each worker imports it by itself")
    spared, pages = replace(spared, load_s=spared.load_s + watch.seconds), touched_pages()
    with socket.socket(fileno=int(number)) as pipe:
        try:
            pipe.send(READY)
            while True:
                message, files, _, _ = socket.recv_fds(pipe, LONGEST_MESSAGE, 3)
                if not message:
                    return
                asked = json.loads(message)
                _fork_worker(pipe, files, asked.pop("cpus"), partial(_run_worker, files, pages, spared, **asked))
        except ConnectionError:  # the process that asked may be killed
            pass
        except OSError:
            traceback.print_exc()  # as long as the pipe is open: then this process is ended


def is_alone() -> bool:
    """Return whether this process has one thread and no children, after a first fork.

    OpenBLAS, which NumPy brings, starts threads when it is imported. It ends them before a fork and starts them again
    when they are needed. So a first fork, for nothing, leaves only the threads and processes of other libraries.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        if not (child := os.fork()):
            os._exit(0)
    os.waitpid(child, 0)
    patience = clock.Deadline(_PATIENCE_S)
    while len(list(TASKS.iterdir())) > 1:  # a thread that was joined may still be on its way out
        if patience.left_s < 0:
            return False
        clock.sleep(_LOOK_S)
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _fork_worker(pipe: socket.socket, files: Sequence[int], cpus: Sequence[int], run: Callable[[int], None]) -> None:
    """Fork a process that runs to its end and never returns, once it has told its id; `run` gets its parent's.

    Before that it is on its CPUs, since it may be moved to others as soon as its id is known.
    """
    pid_reader, pid_writer = os.pipe()
    between = os.fork()
    if not between:  # whose end makes the worker an orphan, which the process that asked then adopts
        try:
            parent = os.getpid()
            if not os.fork():
                pipe.close()
                os.setsid()  # before its id is known: it is ended by its group
                os.sched_setaffinity(0, cpus)
                os.write(pid_writer, str(os.getpid()).encode())
                os.close(pid_reader)
                os.close(pid_writer)
                run(parent)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(pid_writer)
    os.waitpid(between, 0)
    pipe.send(os.read(pid_reader, 20))
    for descriptor in (pid_reader, *files):
        os.close(descriptor)


def _run_worker(
    files: Sequence[int],
    pages: Array,
    spared: Loaded,
    between: int,
    *,
    module: str,
    arguments: Sequence[str],
    variables: Mapping[str, str],
    folder: str,
) -> None:
    """Be a worker in this forked process to its end, once it is adopted: a worker ends when its parent has ended.

    Args:
        pages: those that a started worker would have in memory.
        between: the process whose end makes this one an orphan.
        module, arguments, variables, folder: what it begins with; it may be another fork server.
    """
    commands, out, errors = files
    while os.getppid() == between:
        clock.sleep(0)
    os.chdir(folder)
    for file, number in ((out, 1), (errors, 2)):
        os.dup2(file, number)
        os.close(file)
    os.environ.update(variables)
    tempfile.tempdir = None
    touch(pages)
    sys.argv = [module, str(commands), *arguments[1:]]  # there its descriptor has another number
    code = 0
    try:
        if module == SERVER:
            main(spared)
        else:
            worker: Any = import_module(WORKER)
            worker.main(spared)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def touched_pages() -> Array:
    """List the pages of files, mostly code, that this process has in memory: a fork doesn't inherit them.

    A started worker has them in memory. So a forked one loads them again, and its memory and first calls are the same.

    Returns:
        A row for each run: the addresses of its first page and of the one behind it.
    """
    runs = [np.empty((0, 2), np.int64)]
    page = mmap.PAGESIZE
    with (
        Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as maps,
        PAGEMAP.open("rb", buffering=0) as pagemap,
    ):
        for line in maps:
            span, mode, _, _, inode, *_ = line.split()
            if inode == "0" or mode[0] != "r":
                continue
            start, end = (int(address, 16) for address in span.split("-"))
            pagemap.seek(start // page * _ENTRY_BYTES)
            entries = np.frombuffer(pagemap.read((end - start) // page * _ENTRY_BYTES), np.uint64)
            there = ((entries & _IS_FILES) == _IS_FILES).astype(np.int8)
            edges = np.flatnonzero(np.diff(there, prepend=0, append=0))  # in and out of a run, by turns
            runs.append(start + page * edges.reshape(-1, 2))
    return np.concatenate(runs)


def touch(pages: Array) -> None:
    """Load these pages into memory."""
    for start, end in pages:
        for address in range(start, end, mmap.PAGESIZE):
            ctypes.string_at(address, 1)


_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_ADOPTING = Lock()


def can_fork() -> bool:
    """Return whether the system has all that a fork server needs: Linux from 5.3 on, with `/proc`, no threads bound."""
    if any(name in os.environ for name in BINDING_VARIABLES):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        return False
    return TASKS.is_dir() and os.access(PAGEMAP, os.R_OK)


class ForkServer(Child):
    """The process that workers are forked from, and this one's end of the pipe to it.

    Args:
        modules: what it imports; this, the environment, the CPUs and the interpreter are its workers' too.
        parent: what it is forked from, with the same environment and interpreter; None starts it.

    Raises:
        ChildProcessError: the parent couldn't.
    """

    def __init__(
        self,
        modules: Iterable[str],
        *,
        environment: Mapping[str, str],
        cpus: frozenset[int] | None = None,
        log: Path | None = None,
        interpreter: PythonInterpreter | None = None,
        parent: ForkServer | None = None,
    ) -> None:
        self._environment = interpreter.environment(environment) if interpreter else dict(environment)
        self._pipe, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._forking = Lock()
        self._ready: bool | None = None
        with theirs:
            super().__init__(
                SERVER,
                [str(theirs.fileno()), *modules],
                environment=self._environment,
                executable=interpreter.path if interpreter else None,
                cpus=cpus,
                log=log,
                pass_fds=(theirs.fileno(),),
                fork=partial(parent.fork, module=SERVER) if parent else None,
            )

    def is_ready(self, timeout_s: float = LOAD_TIMEOUT_S) -> bool:
        """Return whether it can fork, once it has imported everything. It can't if an import failed or left threads.

        It is ended if it takes longer than `timeout_s` seconds, so that only one caller ever waits that long.
        """
        with self._forking:
            if self._ready is None:
                self._pipe.settimeout(timeout_s)
                with self._ending_unless_done(), suppress(OSError):
                    self._ready = self._pipe.recv(len(READY)) == READY
            return bool(self._ready)

    def fork(
        self, arguments: Sequence[str], environment: Mapping[str, str], files: Sequence[int], module: str = WORKER
    ) -> Forked:
        """Fork a worker with these arguments, on this thread's CPUs.

        Args:
            module: what it runs: a worker, or another fork server.
            environment: the fork server's own, but for variables that differ between workers and that no library reads.
            files: descriptors of its commands, its standard output and its standard error.

        Raises:
            ChildProcessError: the fork server can't, has ended, or failed at this worker, which may still hold these
                descriptors. Then it forks no other either.
        """
        if not self.is_ready():
            raise ChildProcessError("the fork server is not ready")
        changed = {name: text for name, text in environment.items() if self._environment.get(name) != text}
        cpus = sorted(os.sched_getaffinity(0))
        begins_with = {"module": module, "arguments": list(arguments), "variables": changed, "cpus": cpus}
        message = json.dumps({**begins_with, "folder": str(Path.cwd())}).encode()
        if len(message) > LONGEST_MESSAGE:
            raise ChildProcessError("the message is too long")
        with self._forking, _adopt_orphans():
            if self._ready:
                self._ready = None  # the next answer is this worker's, or of no worker
                with self._ending_unless_done(), suppress(OSError, ValueError):
                    socket.send_fds(self._pipe, [message], files)
                    forked = Forked(int(self._pipe.recv(LONGEST_MESSAGE)))
                    self._ready = True
                    return forked
        raise ChildProcessError("the fork server has ended")

    @contextmanager
    def _ending_unless_done(self) -> Iterator[None]:
        """End it unless what is inside succeeded: a late answer must not be taken for another worker's."""
        try:
            yield
        finally:
            if not self._ready:
                self._ready = False
                self.end()

    def kill(self) -> None:
        """End it; its workers live on."""
        self._pipe.close()
        super().kill()


class ForkServers:
    """Fork servers by what they are for, each started when it is first needed, all by one thread.

    A process is killed when the thread that started it ends, and the threads that need a server may come and go.
    """

    def __init__(self) -> None:
        self._servers: dict[Hashable, ForkServer] = {}
        self._is_over = False
        self._lock = Lock()
        self._thread = ThreadPoolExecutor(1)

    def obtain(self, key: Hashable, start: Callable[[], ForkServer], timeout_s: float) -> ForkServer | None:
        """Return a key's server once it can fork; None if it can't, or if none is started any more.

        Args:
            start: makes the server unless it is there.
            timeout_s: when one that isn't ready is ended: its import may hang.
        """
        with self._lock:
            if key not in self._servers and not self._is_over:
                with suppress(OSError):  # the system is short of something, or the parent has died
                    self._servers[key] = self._thread.submit(start).result()
            server = self._servers.get(key)
        return server if server and server.is_ready(timeout_s) else None

    def end(self) -> None:
        """Let a wait for one end, since it has died; from any thread. No other one is started."""
        with self._lock:
            self._is_over = True
            for server in self._servers.values():
                server.end()

    def kill(self) -> None:
        """End them; what was forked lives on."""
        self.end()
        for server in self._servers.values():
            server.kill()
        self._thread.shutdown()


@contextmanager
def _adopt_orphans() -> Iterator[None]:
    """Make orphans among this process's descendants its own children inside, and not init's."""
    control: Any = ctypes.CDLL(None).prctl
    was = ctypes.c_int()
    with _ADOPTING:
        control(_PR_GET_CHILD_SUBREAPER, ctypes.byref(was))
        control(_PR_SET_CHILD_SUBREAPER, 1)
        try:
            yield
        finally:
            control(_PR_SET_CHILD_SUBREAPER, was.value)


_LARGEST_BYTES, _SMALLEST_BYTES = 65536, 256
"""Sizes of the free blocks that are taken. Larger arrays get whole pages from the system, most smaller ones come from
caches.
"""
_LEAST_BYTES = 4096
"""More than any cache of free blocks holds."""
_MOST_BYTES = 32 << 20
"""The most that is taken in all: another allocator than glibc's shows no end of its gaps."""


class _Statistics(ctypes.Structure):
    """glibc's `struct mallinfo2`; `keepcost` is what is free at the end of the main heap."""

    _fields_ = (("other", ctypes.c_size_t * 9), ("keepcost", ctypes.c_size_t))


def shift_heap(offset: int) -> None:
    """Place the arrays that follow `offset` bytes further, by memory that is never freed.

    Blocks that the imports freed are taken first: an array that fills one would lie where that one begins.

    Args:
        offset: bytes, rounded to the 16 that `malloc` keeps to.
    """
    library: Any = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    if hasattr(library, "mallinfo2"):  # glibc from 2.33 on
        library.mallinfo2.restype = _Statistics
        _fill_gaps(library)
    library.malloc(_LEAST_BYTES + offset)


def _fill_gaps(library: Any) -> None:
    """Take free blocks of each size until one comes from the end of the heap: then no gap is so large."""
    size, left = _LARGEST_BYTES, _MOST_BYTES
    while size >= _SMALLEST_BYTES:
        end = library.mallinfo2().keepcost
        while library.mallinfo2().keepcost == end and left >= size:
            library.malloc(size)
            left -= size
        size //= 2


if __name__ == "__main__":
    main()
