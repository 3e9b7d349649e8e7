"""IREE's devices: one thread of the caller's own, a pool of threads, or a Vulkan device.

A device stays for as long as its process is there: outputs that were handed out lie in it, and the runtime ends the
process where a device goes before its buffers.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shootout import clock
from shootout.contract import Arm, Device, Option
from shootout.host import gpu
from shootout.host.gpu import VulkanDevice

PACKAGE = "iree-base-runtime"
TASKS = Path("/proc/self/task")
WORKER = "iree-worker-"
NAMED_S, LOOK_S = 1.0, 0.01
"""A thread gets its name once it runs, on a busy machine a moment after it was made."""
SPIN = "task_worker_spin_us"
_ON_CPU = frozenset({Device.CPU})
OPTIONS = (
    Option(
        name=SPIN,
        devices=_ON_CPU,
        help="microseconds that a thread of the pool goes on looking for work before it sleeps (0)",
        form=r"\d{1,6}",
        takes="microseconds",
        tries=("50",),
        parallel=True,
    ),
    Option(
        name="task_topology_group_count",
        help="threads of the pool",
        devices=_ON_CPU,
        settled="the target's threads decide",
    ),
)
"""The runtime's own, by its flags."""
HALF_FEATURES = ("shaderFloat16", "storageBuffer16BitAccess")
"""What Vulkan calls it that a device computes in FP16, and stores it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A Vulkan device.

    Attributes:
        has_half: whether it computes in FP16.
    """

    device: VulkanDevice
    has_half: bool


def open_device(arm: Arm) -> Any:
    """The CPU as an arm has it: its caller's thread where it has one, else the process's pool of threads."""
    from iree.runtime import _binding as runtime

    name = name_of(arm)
    if flags := flags_of(arm):
        runtime.parse_flags(*flags)
    return _kept(runtime.get_cached_hal_driver(name).create_device_by_uri(name))


def name_of(arm: Arm) -> str:
    """IREE's driver of the CPU for so many threads."""
    return "local-sync" if arm.threads == 1 else "local-task"


def flags_of(arm: Arm) -> list[str]:
    """What the runtime is told before it makes a pool of threads; nothing where it makes none."""
    spin = [f"--{SPIN}={value}" for key, value in arm.options.items() if key == SPIN]
    return [f"--task_topology_group_count={arm.threads}", *spin] if arm.threads > 1 else []


def find_card() -> Card:
    """The Vulkan device that `--gpu` names, or the first.

    Raises:
        SkippedArm: there is none, or no such one.
    """
    driver = _vulkan()
    found = driver.query_available_devices() if driver else []
    index = gpu.vulkan_index(len(found))
    told = driver.dump_device_info(found[index]["device_id"])
    facts = dict(line.partition(": ")[::2] for line in told.splitlines())
    features = dict(word.partition("=")[::2] for word in facts.get("features", "").split())
    return Card(
        device=VulkanDevice(index=index, name=facts["name"], software=facts.get("type") == "cpu"),
        has_half=all(features.get(name) == "yes" for name in HALF_FEATURES),
    )


def open_card(card: Card) -> Any:
    """A device of IREE's own on a card."""
    driver = _vulkan()
    return _kept(driver.create_device(driver.query_available_devices()[card.device.index]["device_id"], {}))


def _vulkan() -> Any:
    """IREE's driver; None where Vulkan's loader isn't there, or no driver of a device."""
    os.environ.setdefault(gpu.SHADER_CACHE, "1")
    from iree.runtime import _binding as runtime

    try:
        return runtime.get_cached_hal_driver("vulkan")
    except (RuntimeError, ValueError):  # as releases differ
        return None


def _kept(device: Any) -> Any:
    from iree.runtime import _binding as runtime

    runtime.disable_leak_checker()  # which would tell of it, at length
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(device))
    return device


def count_threads(threads: int) -> int | None:
    """The threads that compute: the pool's, where an arm has one; None where the system doesn't tell of threads."""
    if threads == 1:
        return 1 if not TASKS.is_dir() or not _workers() else None
    if not TASKS.is_dir():
        return None
    limit = clock.Deadline(NAMED_S)
    while (found := _workers()) < threads and limit.allows(0.0):
        clock.sleep(LOOK_S)
    return found


def _workers() -> int:
    return sum(_name(task).startswith(WORKER) for task in TASKS.iterdir())


def _name(task: Path) -> str:
    """A thread's, "" of one that has ended since it was listed."""
    try:
        return (task / "comm").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
