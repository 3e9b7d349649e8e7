"""Is an arm still where it was put? A library may move its threads, or rewrite the thread counts, while it loads.

Affinity and environment are set before the process starts; this reads them back from the kernel and from the process
afterwards, thread by thread.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TASKS = Path("/proc/self/task")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a process may use: its CPUs, its threads (alive now), and the variables that limit thread pools."""

    cpus: frozenset[int]
    os_threads: int
    variables: Mapping[str, str]

    def left(self, later: Bounds) -> str | None:
        """Why a process that began with these bounds and has `later` ones now is out of them, or None."""
        if stray := sorted(later.cpus - self.cpus):
            return f"was given the CPUs {sorted(self.cpus)}, but has threads that may run on {stray}"
        for name, value in self.variables.items():
            if later.variables.get(name) != value:
                return f"was started with {name}={value}, which is {later.variables.get(name, 'unset')} after loading"
        return None


def current(names: tuple[str, ...]) -> Bounds:
    """This process's bounds now; `names` are the variables to look at."""
    threads = [int(task.name) for task in TASKS.iterdir()] if TASKS.is_dir() else []
    cpus = [_affinity(thread) for thread in threads] or [_affinity(0)]
    variables = {name: os.environ[name] for name in names if name in os.environ}
    return Bounds(cpus=frozenset[int]().union(*cpus), os_threads=len(threads), variables=variables)


def _affinity(thread: int) -> frozenset[int]:
    try:
        return frozenset(os.sched_getaffinity(thread))
    except (OSError, AttributeError):  # the thread has ended, or this system has no affinities
        return frozenset()
