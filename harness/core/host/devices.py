"""Look up what a kind of device other than the CPU tells by a driver of its own; most kinds tell nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import cycle, islice
from typing import Any, Protocol, TypeVar, cast

from shootout.core import plugins
from shootout.core.contract import Device
from shootout.core.host.placement import MOST_LANES
from shootout.core.messages import GpuCost, GpuState

Lane = TypeVar("Lane")


class Accelerator(Protocol):
    """Tell of the device of its kind that is used here. An answer is None, or empty, where the driver doesn't tell."""

    def has_driver(self) -> bool:
        """Return whether a driver is installed; nothing is started."""

    def model(self) -> str | None:
        """Return which device compiled code is for; None if there is none that can be used."""

    def is_shared(self) -> bool:
        """Return whether all processes share one context, so that none of them may be stopped."""

    def begin_load(self) -> Callable[[], GpuCost]:
        """Make this process's context before any library does; call what is returned to learn what was taken since."""

    def state(self) -> GpuState:
        """Return clock and throttling; the clock is read first because it falls when nothing runs."""

    def free_bytes(self) -> int | None:
        """Return the device memory that no process holds."""

    def processes(self) -> int | None:
        """Return how many processes besides this one have a context on it."""

    def evidence(self) -> tuple[str, ...]:
        """Return the kinds of evidence of a disturbance that it gives."""

    def explain(self, error: Exception) -> str | None:
        """Return what an error says of the device, such as how much memory it lacks; None if nothing."""


def accelerator(device: Device) -> Accelerator | None:
    """Return what a kind of device tells; None of a CPU, and of a kind that tells nothing by itself."""
    place = plugins.table(plugins.DEVICES).get(device)
    return cast("Accelerator", plugins.load(place)()) if place else None


def facts() -> dict[str, Any]:
    """Return what the environment in a journal's header says of the CPU and of other devices, as JSON values by key."""
    told = (plugins.load(place)() for place in import_module(plugins.DEVICES).FACTS)
    return {key: fact for one in told for key, fact in one.items()}


def cpu_model() -> str:
    """Return the processor's own name, or at least its architecture."""
    model: str = plugins.load(import_module(plugins.DEVICES).CPU_MODEL)()
    return model


def lanes_on_gpu(lanes: Sequence[Lane], cpus: int, needs_bytes: Sequence[int]) -> list[Lane]:
    """Return a lane for each target on a GPU that is worked on at once: as many as fit its free memory.

    Such a target keeps few CPUs busy, so a lane may come more than once. Without a figure of it there is one.

    Args:
        lanes: those that targets on the CPU have.
        cpus: in all of them together.
        needs_bytes: what each target takes of the GPU's memory.
    """
    card = accelerator(Device.CUDA)
    free_bytes = card.free_bytes() if card else None
    fitting = 1 if free_bytes is None else free_bytes // max([1, *needs_bytes])
    return list(islice(cycle(lanes), max(1, min(MOST_LANES, cpus, fitting, len(needs_bytes)))))
