"""Tell of NVIDIA's GPUs what their driver and NVML know (`shootout.core.host.devices.Accelerator`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shootout.backends import gpu_errors
from shootout.backends.devices import cuda_driver, nvml
from shootout.backends.devices.nvml import UsedGpu, compute_growth
from shootout.core import clock
from shootout.core.messages import GpuCost, GpuState


def facts() -> dict[str, Any]:
    """Return the GPUs of this machine, and the newest CUDA that the driver knows."""
    return {"gpus": nvml.gpu_facts(), "cuda_driver": cuda_driver.version()}


class Cuda:
    """Ask the driver, and NVML where it is installed, of the GPU that is used."""

    def has_driver(self) -> bool:
        """Return whether NVIDIA's driver is installed."""
        return cuda_driver.library() is not None

    def model(self) -> str | None:
        """Return name and compute capability; they need no NVML."""
        return cuda_driver.model()

    def is_shared(self) -> bool:
        """Return whether MPS lends all processes one context: a stopped one would keep the others waiting."""
        return cuda_driver.is_shared()

    def begin_load(self) -> Callable[[], GpuCost]:
        """Make the CUDA context, which libraries would else make while they load."""
        gpu = UsedGpu.open()
        before = gpu.used_bytes()
        with clock.Stopwatch() as watch:
            cuda_driver.make_context()
        used = gpu.used_bytes()

        def cost() -> GpuCost:
            loaded = compute_growth(used, gpu.used_bytes())
            return GpuCost(context_s=watch.seconds, context_bytes=compute_growth(before, used), loaded_bytes=loaded)

        return cost

    def state(self) -> GpuState:
        """Return clock and throttling now."""
        return UsedGpu.open().state()

    def free_bytes(self) -> int | None:
        """Return the device memory that no process holds."""
        return UsedGpu.open().free_bytes()

    def processes(self) -> int | None:
        """Return how many processes besides this one have a context."""
        return UsedGpu.open().processes()

    def evidence(self) -> tuple[str, ...]:
        """Return which of clock, throttling and processes NVML tells here."""
        return UsedGpu.open().evidence()

    def explain(self, error: Exception) -> str | None:
        """Explain a full memory or an old driver."""
        return gpu_errors.explain_error(error)
