"""Tell of NVIDIA's GPUs what their driver and NVML know (`shootout.core.host.devices.Accelerator`).

Read the state of the one GPU that is used, by NVML.

The used GPU is the first that CUDA_VISIBLE_DEVICES leaves. Only the driver knows how CUDA_VISIBLE_DEVICES and
CUDA_DEVICE_ORDER are meant, so the driver names the GPU and NVML then describes it. NVML comes with the optional
package nvidia-ml-py and counts all GPUs of the machine, by PCI bus, whatever CUDA_VISIBLE_DEVICES says. A value that
NVML doesn't give is None, never a guess.

Explain errors of libraries on NVIDIA's GPUs: a full memory, a driver that is too old.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from types import ModuleType
from typing import Any

from shootout.backends.devices import cuda_driver
from shootout.core import clock
from shootout.core.errors import SkippedArm
from shootout.core.messages import GpuCost, GpuState


def facts() -> dict[str, Any]:
    """Return the GPUs of this machine, and the newest CUDA that the driver knows."""
    return {"gpus": gpu_facts(), "cuda_driver": cuda_driver.version()}


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
        return explain_error(error)


HARMFUL = {
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
"""NVML's bits for what holds a clock down from outside. Left out: idle, clocks that a user set, and the power cap,
which a heavy arm meets by its own work at any time.
"""
POWER_CAP = 0x04
"""NVML's bit for the power limit."""
NVML_SM_CLOCK = 1
"""NVML_CLOCK_SM of nvml.h: the clock of the streaming multiprocessors."""
NVML_MEMORY_CLOCK = 2
"""NVML_CLOCK_MEM."""
_COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
"""By NVML's numbers."""


def harmful(mask: int) -> tuple[str, ...]:
    """Name what holds the clock down, from NVML's bits."""
    return tuple(name for bit, name in HARMFUL.items() if mask & bit)


class UsedGpu:
    """Read the used GPU through NVML. Every answer is None, or empty, if NVML doesn't give it.

    A MIG instance has memory and processes of its own. Clock, heat and power belong to the whole chip, so its energy
    can't be separated from its neighbors'.

    Args:
        api: the started NVML; None without a GPU, or without NVML.
        handle: of the GPU, or of the MIG instance.
        chip: of the GPU that the instance is a part of; the same handle without MIG.
    """

    def __init__(self, api: Any, handle: Any, chip: Any) -> None:
        self._api, self._handle, self._chip = api, handle, chip

    @classmethod
    def open(cls) -> UsedGpu:
        """Return this process's GPU, looked up once."""
        return _open_used_gpu()

    def state(self) -> GpuState:
        """Return the clock, and what holds it down now. The clock is read first because it falls when nothing runs."""
        clock_mhz = self._ask(self._chip, "nvmlDeviceGetClockInfo", NVML_SM_CLOCK)
        held_down = self._held_down() or 0
        return GpuState(
            sm_clock_mhz=clock_mhz,
            throttled=harmful(held_down),
            power_capped=bool(held_down & POWER_CAP),
        )

    def index(self) -> int | None:
        """Return its number as nvidia-smi counts."""
        number: int | None = self._ask(self._chip, "nvmlDeviceGetIndex")
        return number

    def used_bytes(self) -> int | None:
        """Return the device memory that all processes together hold."""
        memory = self._ask(self._handle, "nvmlDeviceGetMemoryInfo")
        return None if memory is None else int(memory.used)

    def free_bytes(self) -> int | None:
        """Return the device memory that no process holds."""
        memory = self._ask(self._handle, "nvmlDeviceGetMemoryInfo")
        return None if memory is None else int(memory.free)

    def processes(self) -> int | None:
        """Return how many processes besides this one have a CUDA context on it.

        Only their number counts: in a container their ids belong to another namespace, and some aren't shown at all.
        """
        running = self._ask(self._handle, "nvmlDeviceGetComputeRunningProcesses")
        return None if running is None else max(0, len(running) - cuda_driver.has_context())

    def energy_mj(self) -> int | None:
        """Return the millijoules that it took since the driver was loaded."""
        if self._handle is not self._chip:
            return None
        millijoules: int | None = self._ask(self._chip, "nvmlDeviceGetTotalEnergyConsumption")
        return millijoules

    def power_w(self) -> float | None:
        """Return the watts now, as the driver averages them."""
        milliwatts = None if self._handle is not self._chip else self._ask(self._chip, "nvmlDeviceGetPowerUsage")
        return None if milliwatts is None else milliwatts / 1_000

    def evidence(self) -> tuple[str, ...]:
        """Return the kinds of evidence of a disturbance that it gives."""
        named = {
            "GPU clock": self.state().sm_clock_mhz,
            "GPU throttling": self._held_down(),
            "GPU processes": self.processes(),
        }
        return tuple(name for name, value in named.items() if value is not None)

    def _held_down(self) -> int | None:
        """Return NVML's bits; the function has had two names."""
        names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        return next((mask for name in names if (mask := self._ask(self._chip, name)) is not None), None)

    def _ask(self, handle: Any, name: str, *arguments: Any) -> Any:
        return None if self._api is None else ask_nvml(self._api, name, handle, *arguments)


@cache
def _open_used_gpu() -> UsedGpu:
    api = start_nvml()
    name = cuda_driver.uuid() if api is not None else None
    if name is None:
        return UsedGpu(None, None, None)
    if (part := ask_nvml(api, "nvmlDeviceGetHandleByUUID", f"MIG-{name}")) is not None:
        return UsedGpu(api, part, ask_nvml(api, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", part))
    whole = ask_nvml(api, "nvmlDeviceGetHandleByUUID", f"GPU-{name}")
    return UsedGpu(None if whole is None else api, whole, whole)


def find_nvml() -> ModuleType | None:
    """Return the module of nvidia-ml-py, or None."""
    try:
        import pynvml
    except ImportError:
        return None
    module: ModuleType = pynvml
    return module


def start_nvml() -> Any | None:
    """Start NVML and return its module; None without the package, a driver, or the right to ask it.

    It is never shut down before the process ends.
    """
    module = find_nvml()
    if module is None:
        return None
    try:
        module.nvmlInit()
    except module.NVMLError:
        return None
    return module


def ask_nvml(api: Any, name: str, *arguments: Any) -> Any:
    """Return what one of NVML's functions says; None if this GPU, driver, package or user isn't told."""
    try:
        return getattr(api, name)(*arguments)
    except (AttributeError, api.NVMLError, api.NVMLLibraryMismatchError):
        return None


def is_on(mode: int | None) -> bool | None:
    """Read an NVML on/off value; None stays None."""
    return None if mode is None else mode == 1


def is_on_now(pair: Any) -> bool | None:
    """Read an NVML mode that is told as (now, after the next reset): now."""
    return None if pair is None else pair[0] == 1


def compute_growth(before: int | None, after: int | None) -> int | None:
    """Return the difference; None if it is unknown, or if other processes freed memory meanwhile."""
    return None if before is None or after is None or after < before else after - before


def gpu_facts() -> list[dict[str, Any]]:
    """Describe each NVIDIA GPU of the machine in its driver's words; empty without one, or without nvidia-ml-py.

    A value is None if the driver doesn't tell. `visible` marks the one GPU that is used; only its L2 cache is known.
    """
    api = start_nvml()
    if api is None:
        return []
    visible, count = UsedGpu.open().index(), ask_nvml(api, "nvmlDeviceGetCount") or 0
    handles = [ask_nvml(api, "nvmlDeviceGetHandleByIndex", index) for index in range(count)]
    return [
        _describe_gpu(api, index, handle, index == visible)
        for index, handle in enumerate(handles)
        if handle is not None
    ]


def _describe_gpu(api: Any, index: int, handle: Any, visible: bool) -> dict[str, Any]:
    def ask(name: str, *arguments: Any) -> Any:
        return ask_nvml(api, name, handle, *arguments)

    memory, milliwatts = ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetEnforcedPowerLimit")
    capability, mode = ask("nvmlDeviceGetCudaComputeCapability"), ask("nvmlDeviceGetComputeMode")
    return {
        "index": index,
        "visible": visible,
        "name": ask("nvmlDeviceGetName"),
        "memory_bytes": memory.total if memory else None,
        "l2_bytes": cuda_driver.l2_bytes() if visible else None,
        "compute_capability": ".".join(map(str, capability)) if capability else None,
        "sm_clock_max_mhz": ask("nvmlDeviceGetMaxClockInfo", NVML_SM_CLOCK),
        "memory_clock_max_mhz": ask("nvmlDeviceGetMaxClockInfo", NVML_MEMORY_CLOCK),
        "power_limit_w": milliwatts / 1_000 if milliwatts else None,
        "ecc": is_on_now(ask("nvmlDeviceGetEccMode")),
        "persistence": is_on(ask("nvmlDeviceGetPersistenceMode")),
        "compute_mode": None if mode is None else _COMPUTE_MODES[mode],
        "mig": is_on_now(ask("nvmlDeviceGetMigMode")),
        "driver": ask_nvml(api, "nvmlSystemGetDriverVersion"),
    }


FULL = {
    r"out.?of.?memory": "PyTorch, CUDA's runtime and driver, JAX, TensorRT, each in its own spelling",
    r"RESOURCE_EXHAUSTED": "XLA",
    r"cudaErrorMemoryAllocation": "CUDA's runtime",
    r"Failed to allocate memory for requested buffer": "ONNX Runtime's arena",
    r"is smaller than requested bytes": "ONNX Runtime's arena, with a limit",
    r"Requested amount of GPU memory": "TensorRT",
    r"(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED": "cuBLAS, cuDNN",
}
"""Messages of a full memory: the device's, unless `HOST` matches too."""
HOST = {r"HostAlloc": "CUDA's runtime", r"DefaultCPUAllocator": "PyTorch", r"std::bad_alloc": "C++"}
OLD_DRIVER = {
    r"driver version is insufficient": "CUDA's runtime",
    r"cudaErrorInsufficientDriver": "CUDA's runtime",
    r"driver on your system is too old": "PyTorch",
    r"CUDA initialization failure with error:? 35": "TensorRT",
}


def explain_error(error: BaseException) -> str | None:
    """Explain in one line what an error of a CUDA arm means; None if it is about something else.

    Either the device's memory is full (with what NVML says is free), or the driver is older than the library (both
    versions and the fix).
    """
    text = f"{type(error).__name__}: {error}"
    if _matches_any(FULL, text, re.IGNORECASE) and not _matches_any(HOST, text):
        free = UsedGpu.open().free_bytes()
        return f"needs more device memory than there is{'' if free is None else f', has {_format_size(free)} free'}"
    old = find_old_driver(error)
    return f"{old.reason}: {old.fix}" if old else None


def find_old_driver(error: BaseException) -> SkippedArm | None:
    """Return reason and fix if a library says that the driver is older than the CUDA that it was built for."""
    if not _matches_any(OLD_DRIVER, str(error), re.IGNORECASE):
        return None
    has = cuda_driver.version()
    known = f"knows CUDA {has} at most" if has else "is too old"
    build = f"install the library's build for CUDA {has.partition('.')[0]}" if has else "install an older build"
    return SkippedArm(f"the NVIDIA driver {known}, the library needs a newer one", f"{cuda_driver.UPDATE}, or {build}")


def _matches_any(table: Iterable[str], text: str, flags: int = 0) -> bool:
    return re.search("|".join(table), text, flags) is not None


def _format_size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
