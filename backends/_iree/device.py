"""IREE's devices: one thread of the caller's own, a pool of threads, or a Vulkan device."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from shootout.contract import Arm, Option

PACKAGE = "iree-base-runtime"
TASKS = Path("/proc/self/task")
WORKER = "iree-worker-"
SPIN = "task_worker_spin_us"
OPTIONS = (
    Option(
        name=SPIN,
        help="microseconds that a thread of the pool goes on looking for work before it sleeps (0)",
        form=r"\d{1,6}",
        takes="microseconds",
        tries=("50",),
        parallel=True,
    ),
    Option(name="task_topology_group_count", help="threads of the pool", settled="the target's threads decide"),
)
"""The runtime's own, by its flags."""


def open_device(arm: Arm) -> Any:
    """The device that an arm computes on: its own where it has one thread, else the process's pool of threads."""
    from iree.runtime import _binding as runtime

    name = "local-sync" if arm.threads == 1 else "local-task"
    if arm.threads > 1:
        runtime.parse_flags(f"--task_topology_group_count={arm.threads}")
        runtime.parse_flags(*(f"--{SPIN}={value}" for key, value in arm.options.items() if key == SPIN))
    return _kept(runtime.get_cached_hal_driver(name).create_device_by_uri(name))


def _kept(device: Any) -> Any:
    """The device, for as long as the process is there: outputs that were handed out lie in it, and the runtime ends the
    process where a device goes before its buffers.
    """
    from iree.runtime import _binding as runtime

    runtime.disable_leak_checker()  # which would tell of it, at length
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(device))
    return device


def count_threads(threads: int) -> int | None:
    """The threads that compute: the pool's, where an arm has one; None where the system doesn't tell of threads."""
    if threads == 1:
        return 1 if not TASKS.is_dir() or not _workers() else None
    return _workers() if TASKS.is_dir() else None


def _workers() -> int:
    return sum((task / "comm").read_text().startswith(WORKER) for task in TASKS.iterdir())
