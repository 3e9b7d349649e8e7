"""One run measures at a time on a machine: two at once would be each other's noise.

The machine's lock file stays behind on purpose: removing one that another process is about to lock would let two in. A
flock has no queue: of several processes that wait, the one that looks first after its end gets it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from shootout.core.clock import Deadline, sleep
from shootout.core.errors import NothingMeasured
from shootout.core.host import folders
from shootout.core.units import span

_LOOKING_S = 1.0
"""Look again so often while waiting; a run that measures meanwhile doesn't feel it."""
OnWait = Callable[[str, float], None]
"""Takes, at each look, which process this one waits for, and for how many seconds so far: 0 at the first look."""
_held = set[tuple[int, Path]]()
"""The threads of this process that hold a machine, and by which file."""


def machine_lock_path() -> Path:
    """Return the machine's lock file: the same for every user, whatever TMPDIR says, if there is a /tmp."""
    shared = Path("/tmp")  # noqa: S108 - the file is opened with distrust, see above
    return (shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())) / "shootout-machine.lock"


@contextmanager
def machine_lock(
    owner: str, on_wait: OnWait, path: Path | None = None, *, limit: Deadline | None = None
) -> Iterator[float]:
    """Hold this machine for measuring, and give the seconds that this took.

    A thread that holds it already keeps it, so that several measurements of one command can follow each other.

    Args:
        owner: what a process that waits shows, e.g. the run's folder.
        path: the lock file, when not the machine's.
        limit: when to stop waiting; None: never.

    Raises:
        NothingMeasured: the machine wasn't free in time; names the process that holds it.
        UsageError: the lock file can't be used; says why and what to do.
    """
    path = path or machine_lock_path()
    mine = threading.get_ident(), path
    if mine in _held:
        yield 0.0
        return
    waiting = Deadline(None)
    descriptor = _wait_for_lock(path, on_wait, limit or Deadline(None), waiting)
    _held.add(mine)
    try:
        with folders.sign_lock(descriptor, owner):
            yield waiting.elapsed_s
    finally:
        _held.discard(mine)
        os.close(descriptor)


def _wait_for_lock(path: Path, on_wait: OnWait, limit: Deadline, waiting: Deadline) -> int:
    waits = False
    while True:
        descriptor = folders.open_lock_file(path, 0o666)
        try:
            if folders.try_lock(descriptor, fcntl.LOCK_EX, path):
                holder = None
                if folders.is_still_there(descriptor, path):
                    return descriptor
            else:
                holder = folders.read_holder(descriptor)
                if not limit.allows(0.0):
                    raise NothingMeasured(
                        f"--max-time {span(limit.seconds or 0.0)} was over before this machine was free: {holder} "
                        "measures on it; run the same command again later"
                    )
                on_wait(f"waiting for another run on this machine: {holder}", waiting.elapsed_s if waits else 0.0)
                waits = True
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # opened again: someone may clean the folder, and this file guards nothing then
        if holder:
            sleep(min(_LOOKING_S, max(0.0, limit.left_s)))
