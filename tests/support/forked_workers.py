"""Workers forked from a process that has imported what all of them import, which is most of the work of a small one.

The package forks those that share a library, restart by restart; here one such process lives on over all tests.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from shootout.core.host import child
from shootout.core.host.child import Forked
from shootout.core.race import live_arm
from shootout.core.worker.fork_server import WORKER, ForkServer, can_fork

ITS_OWN = ("TMPDIR", "SHOOTOUT_PADDING", "PYTEST_CURRENT_TEST")
"""Variables that differ from worker to worker, and that nothing reads while it is imported."""
MODULES = ("shootout.backends._numpy.backend", "shootout.backends._spin")
_HEAD = [sys.executable, "-P", "-m", WORKER]
_MAKER = ThreadPoolExecutor(1)
"""A process of ours ends with the thread that started it: this one stays."""


class Nursery:
    """The starter of all workers that have the environment of the last one."""

    _lock = threading.Lock()
    _environment: Mapping[str, str] | None = None
    _starter: ForkServer | None = None

    @classmethod
    def fork(cls, arguments: Sequence[str], how: Mapping[str, Any]) -> Forked:
        """A worker with these arguments, from a starter in the same environment."""
        environment = {name: text for name, text in how["env"].items() if name not in ITS_OWN}
        with cls._lock:
            if cls._environment != environment:
                cls.end()
                cls._environment = environment
                cls._starter = _MAKER.submit(ForkServer, MODULES, environment=environment).result()
            assert cls._starter
            files = [*how["pass_fds"], how["stdout"].fileno(), how["stderr"].fileno()]
            return cls._starter.fork(arguments, how["env"], files)

    @classmethod
    def end(cls) -> None:
        if cls._starter:
            cls._starter.kill()
        cls._starter = None


atexit.register(Nursery.end)


def start(command: Sequence[str], **how: Any) -> Forked | subprocess.Popen[bytes]:
    """In place of `subprocess.Popen`, for the command of a child of ours."""
    if [*command[: len(_HEAD)]] == _HEAD:
        with suppress(ChildProcessError):
            return Nursery.fork(command[len(_HEAD) :], how)
    return subprocess.Popen(command, **how)


def fork_workers(change: Callable[[object, str, Any], None] = setattr) -> None:
    """Fork the workers that this process's runs ask for, where the system can, by this `change` of a module."""
    if can_fork():
        change(child, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": start}))
        change(live_arm, "can_fork", lambda: False)  # a restart's own starters would be started
