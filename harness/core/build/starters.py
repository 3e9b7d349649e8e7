"""Fork the processes of builds from ones that have imported what those builds begin with (see `worker.fork_server`).

Imports are most of a short build: torch takes 1 s of CPU time, Dynamo another one, a converter 1 to 2 s. Here each is
imported once for all builds of a run. What imports more is forked from what imports less: a converter's fork server
from that with torch. Every build still has a process of its own, and what its library starts or breaks goes with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock

from shootout.core.clock import Deadline
from shootout.core.constants import LOAD_TIMEOUT_S
from shootout.core.host.placement import child_environment
from shootout.core.worker.fork_server import ForkServer, NotForked, can_fork
from shootout.core.worker.process import log_name


@dataclass(slots=True, kw_only=True)
class BuildStarters:
    """The fork servers of a run's builds, each started when a build first needs it.

    Attributes:
        logs: the folder of their logs.
    """

    logs: Path
    _servers: dict[tuple[tuple[str, ...], int], ForkServer] = field(default_factory=dict, init=False)
    _is_over: bool = field(default=False, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1), init=False)
    """Starts them: a process is killed when the thread that started it ends, and those of builds come and go."""

    def find(self, modules: Sequence[str], threads: int, cpus: frozenset[int], limit: Deadline) -> ForkServer | None:
        """Return the server that has imported the modules, or as many of the first ones as can be forked.

        Args:
            threads: compute threads of the build's arm.
            cpus: those of the build; a server that is there may have as many others.
            limit: when a server that isn't ready is ended: its import may hang.

        Returns:
            None if nothing can be forked.
        """
        found = None
        for count in range(len(modules) + 1 if can_fork() else 0):
            server = self._start(tuple(modules[:count]), threads, cpus, found)
            if server is None or not server.is_ready(max(0.0, min(LOAD_TIMEOUT_S, limit.left_s))):
                break
            found = server
        return found

    def _start(
        self, modules: tuple[str, ...], threads: int, cpus: frozenset[int], parent: ForkServer | None
    ) -> ForkServer | None:
        key = modules, threads
        with self._lock:
            if key not in self._servers and not self._is_over:
                start = partial(
                    ForkServer,
                    modules,
                    environment=child_environment(threads, 0),
                    cpus=cpus,
                    log=self.logs / log_name("-".join(["build-import", *modules])),
                    parent=parent,
                )
                with suppress(OSError, NotForked):  # the system is short of something, or the parent has died
                    self._servers[key] = self._thread.submit(start).result()
            return self._servers.get(key)

    def end(self) -> None:
        """Let a wait for one end, since it has died; from any thread. No other one is started."""
        with self._lock:
            self._is_over = True
            for server in self._servers.values():
                server.end()

    def kill(self) -> None:
        """End them; builds live on."""
        self.end()
        for server in self._servers.values():
            server.kill()
        self._thread.shutdown()
