"""A process that imports what several workers begin with, and forks them; `worker.starter` asks it to.

One that is not alone (threads, processes of its own) forks nobody: locks and pools don't survive a fork. What an arm
needs beyond the shared imports, its worker imports itself.
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from shootout import clock
from shootout.contract import Array
from shootout.host.child import leave_with
from shootout.host.placement import TASKS
from shootout.messages import HeadStart

WORKER = "shootout.worker"
LONGEST_MESSAGE = 1 << 17
READY = b"ready"
PAGEMAP = Path("/proc/self/pagemap")
_IS_FILES, _ENTRY_BYTES = np.uint64(0b101 << 61), 8
"""Of an entry: a page is present, and a file's rather than a process's own copy."""
_PATIENCE_S, _LOOK_S = 1.0, 0.001


def main() -> None:
    """Import what every worker imports, then the modules that are asked for, and fork one worker for each message."""
    number, *modules, parent = sys.argv[1:]
    leave_with(int(parent))
    os.set_inheritable(int(number), False)  # what a library starts must not hold the pipe open
    worker: Any = import_module(f"{WORKER}.__main__")
    before = worker.resident_bytes()
    with clock.collected_once(), clock.Stopwatch() as watch:
        for module in modules:
            import_module(module)
    if not is_alone():
        sys.exit(f"{', '.join(modules)} left threads or processes: each worker imports it by itself")
    head_start, pages = HeadStart(import_s=watch.seconds, rss_before_bytes=before), touched_pages()
    with socket.socket(fileno=int(number)) as pipe:
        try:
            pipe.send(READY)
            while True:
                message, files, _, _ = socket.recv_fds(pipe, LONGEST_MESSAGE, 3)
                if not message:
                    return
                arguments, environment, folder, cpus = json.loads(message)
                _fork(pipe, files, _Life(arguments, environment, folder, cpus, pages, head_start))
        except ConnectionError:  # who asked may be killed
            pass
        except OSError:
            traceback.print_exc()  # as long as the pipe is open: then this process is ended


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


@dataclass(frozen=True, slots=True)
class _Life:
    """What a worker begins with."""

    arguments: Sequence[str]
    variables: Mapping[str, str]
    folder: str
    cpus: Sequence[int]
    pages: Array
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
        clock.sleep(0)
    os.sched_setaffinity(0, life.cpus)
    os.chdir(life.folder)
    for file, number in ((out, 1), (errors, 2)):
        os.dup2(file, number)
        os.close(file)
    mark(life.variables["TMPDIR"])
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


def mark(folder: str) -> None:
    """Let the kernel tell this process's temporary folder, and no longer the one of what it was forked from.

    `host.scratch` knows by it whom a folder's end is to end. The kernel tells variables from where they lay when the
    process was started, so this is written in their place: the paths of two scratch folders are of one length.
    """
    start, end = (
        int(word)
        for word in Path("/proc/self/stat")
        .read_text(encoding="utf-8", errors="replace")
        .rpartition(")")[2]
        .split()[47:49]
    )
    before, name, behind = (b"\0" + ctypes.string_at(start, end - start)).partition(b"\0TMPDIR=")
    if name:
        room = len(behind.partition(b"\0")[0])
        ctypes.memmove(start + len(before + name) - 1, os.fsencode(folder).ljust(room, b"\0"), room)


def touched_pages() -> Array:
    """Runs of pages of files (code, mostly) that this process has in memory: a fork doesn't inherit them.

    A started worker has them, so a forked one takes them in again: its memory and its first calls are then the same.

    Returns:
        A row for each run: the addresses of its first page and of the one behind it.
    """
    found = [np.empty((0, 2), np.int64)]
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
            found.append(start + page * edges.reshape(-1, 2))
    return np.concatenate(found)


def touch(pages: Array) -> None:
    """Have these pages in memory."""
    for start, end in pages:
        for address in range(start, end, mmap.PAGESIZE):
            ctypes.string_at(address, 1)


if __name__ == "__main__":
    main()
