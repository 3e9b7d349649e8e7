"""Choose the one GPU that is used, read its state by NVML, and explain errors: a full memory, an old driver.

The used GPU is the first that CUDA_VISIBLE_DEVICES leaves. Only the driver knows how CUDA_VISIBLE_DEVICES and
CUDA_DEVICE_ORDER are meant, so the driver names the GPU and NVML then describes it. NVML comes with the optional
package nvidia-ml-py and counts all GPUs of the machine, by PCI bus, whatever CUDA_VISIBLE_DEVICES says. A value that
NVML doesn't give is None, never a guess.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from types import ModuleType
from typing import Any

from shootout.core.contract import Device
from shootout.core.errors import SkippedArm, Unavailable, UsageError
from shootout.core.host import cuda_driver
from shootout.core.messages import GpuState

CHOSEN = "SHOOTOUT_GPU"
"""The variable that tells a process the number of the chosen GPU."""
COUNTING = {Device.VULKAN: "Vulkan", Device.XPU: "OpenVINO"}
"""The libraries that count GPUs, besides NVIDIA's own driver."""
VULKAN_DRIVER = "install the GPU's Vulkan driver; Mesa's (apt-get install mesa-vulkan-drivers) has one in software too"
VULKAN_LIBRARY = "libvulkan.so.1"
"""Vulkan's loader, which finds the drivers."""
VULKAN_LOADER = "apt-get install libvulkan1, and a driver: mesa-vulkan-drivers (in software too), or the GPU maker's"
SHADER_CACHE = "MESA_SHADER_CACHE_DISABLE"
"""Mesa's shader cache on disk has a thread that may run on every CPU, whatever CPUs the process was given: an arm with
such a thread can't be believed. Without that cache each load compiles its shaders again.
"""
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


def require_gpu() -> None:
    """Ask the NVIDIA driver itself, so that every backend gives the same reason.

    Raises:
        SkippedArm: there is no driver or no GPU, or the driver is too old or broken; with the fix.
    """
    cuda_driver.start()


def choose_gpu(index: int | None, devices: Collection[Device]) -> None:
    """Use this GPU, here and in every process started from here. Call it before anything else asks for a GPU.

    Args:
        index: among the GPUs that CUDA_VISIBLE_DEVICES names; if it names none, among all by PCI bus, as nvidia-smi
            counts; for other libraries, as Vulkan or OpenVINO counts; None: the first visible one.
        devices: those that anything will run on. A GPU that isn't NVIDIA's is looked up by the library that runs on it,
            and so is every GPU if there is no NVIDIA driver.

    Raises:
        UsageError: a number is given, and several of CUDA, Vulkan and OpenVINO would go by it.
        Unavailable: there is no such GPU, or no GPU that can be used.
    """
    if index is None:
        return
    counting = [name for device, name in COUNTING.items() if device in devices]
    on_cuda = Device.CUDA in devices and not (counting and cuda_driver.library() is None)
    counting = ["CUDA"] * on_cuda + counting
    if len(counting) > 1:
        names = " and ".join(counting)
        raise UsageError(f"--gpu {index}: {names} count GPUs each in its own way: run their targets one kind at a time")
    if index < 0 and not on_cuda:
        raise Unavailable(f"gpu {index}: GPUs are counted from 0")
    os.environ[CHOSEN] = str(index)
    if not on_cuda:
        return
    named = [part.strip() for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
    if named and not 0 <= index < len(named):
        raise Unavailable(
            f"gpu {index}: CUDA_VISIBLE_DEVICES names {_count_in_words(len(named))}: choose one, or unset it"
        )
    everything = _machine_count()
    if not named:
        if everything and not 0 <= index < everything:
            raise Unavailable(
                f"gpu {index}: this machine has {_count_in_words(everything)}: choose one that nvidia-smi lists"
            )
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ["CUDA_VISIBLE_DEVICES"] = named[index] if named else str(index)
    try:
        require_gpu()
    except SkippedArm as skipped:
        if index and not named and everything is None and cuda_driver.library() is not None:
            raise Unavailable(f"gpu {index}: the driver finds no such GPU: choose one that nvidia-smi lists") from None
        raise Unavailable(f"gpu {index}: {skipped.reason}; {skipped.fix}") from None


def chosen() -> int | None:
    """Return the number that was given to `choose_gpu`; None if none was."""
    text = os.environ.get(CHOSEN, "")
    return int(text) if text.isdecimal() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class VulkanDevice:
    """Describe a device as Vulkan's loader finds it: a GPU of any vendor, or a program such as Mesa's lavapipe
    (`llvmpipe`).

    A software device proves all that a GPU would have to, but its times mean nothing.

    Attributes:
        index: as Vulkan counts.
        software: whether it is a program.
    """

    index: int
    name: str
    software: bool

    def __str__(self) -> str:
        return f"{self.name}{', a software device' if self.software else ''}"


def vulkan_index(count: int, first: int = 0) -> int:
    """Return the index of the Vulkan device to use: the one that `--gpu` names, or the library's own choice.

    Args:
        count: how many the library finds.
        first: its own choice.

    Raises:
        SkippedArm: there is none, or no such one.
    """
    asked = chosen()
    if not count and not _has_vulkan_loader():
        raise SkippedArm(f"no Vulkan loader ({VULKAN_LIBRARY}) on this machine", VULKAN_LOADER)
    if not count:
        raise SkippedArm("no Vulkan driver that works on this machine", VULKAN_DRIVER)
    if asked is not None and asked >= count:
        raise SkippedArm(f"gpu {asked}: Vulkan has only {count} here", f"choose one below {count}, or leave --gpu out")
    return first if asked is None else asked


def _has_vulkan_loader() -> bool:
    try:
        ctypes.CDLL(VULKAN_LIBRARY)
    except OSError:
        return False
    return True


def make_context() -> None:
    """Make the GPU's primary CUDA context, which every library in this process then shares.

    Raises:
        SkippedArm: there is no GPU that can be used.
        RuntimeError: the driver refuses, for example for want of memory; in its words.
    """
    driver = cuda_driver.start()
    context = ctypes.c_void_p()
    cuda_driver.ask(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), cuda_driver.device(driver))
    cuda_driver.ask(driver, "cuCtxSetCurrent", context)


def harmful(mask: int) -> tuple[str, ...]:
    """Name what holds the clock down, from NVML's bits."""
    return tuple(name for bit, name in HARMFUL.items() if mask & bit)


class UsedGpu:
    """Read the used GPU through NVML. Every answer is None, or empty, if NVML doesn't give it.

    A MIG instance has memory and processes of its own. Clock, heat and power belong to the whole chip, so its energy
    can't be separated from its neighbors'.

    Args:
        api: the started NVML.
        handle: of the GPU, or of the MIG instance.
        chip: of the GPU that the instance is a part of; the same handle without MIG.
    """

    def __init__(self, api: Any, handle: Any, chip: Any) -> None:
        self._api, self._handle, self._chip = api, handle, chip

    @classmethod
    def open(cls) -> UsedGpu | None:
        """Return this process's GPU, looked up once; None without a GPU, or without NVML."""
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
        return ask_nvml(self._api, name, handle, *arguments)


@cache
def _open_used_gpu() -> UsedGpu | None:
    api = start_nvml()
    name = cuda_driver.uuid() if api is not None else None
    if name is None:
        return None
    if (part := ask_nvml(api, "nvmlDeviceGetHandleByUUID", f"MIG-{name}")) is not None:
        return UsedGpu(api, part, ask_nvml(api, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", part))
    whole = ask_nvml(api, "nvmlDeviceGetHandleByUUID", f"GPU-{name}")
    return None if whole is None else UsedGpu(api, whole, whole)


def _machine_count() -> int | None:
    api = start_nvml()
    count: int | None = ask_nvml(api, "nvmlDeviceGetCount") if api is not None else None
    return count


def _count_in_words(count: int) -> str:
    """Write "1 (index 0)", "4 (index 0 to 3)"."""
    return f"{count} (index 0{f' to {count - 1}' if count > 1 else ''})" if count else "none"


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
NEEDS = (
    *("allocate", "allocating", "request for", "buffer of size", "requested bytes of"),
    *(r"GPU memory \(", "[Ss]ize was"),
)
"""The words in front of the bytes that were asked for."""
FREE = ("of which", "Available memory of")
"""The words in front of the bytes that were free."""
OLD_DRIVER = {
    r"driver version is insufficient": "CUDA's runtime",
    r"cudaErrorInsufficientDriver": "CUDA's runtime",
    r"driver on your system is too old": "PyTorch",
    r"CUDA initialization failure with error:? 35": "TensorRT",
}
_FOUND_VERSION = re.compile(r"found version (\d{4,6})")
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = r" ?(?P<number>[\d.]*\d) ?(?P<unit>[KMGT]iB)?"
_RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13", "nvidia-cuda-runtime-cu12")


def explain_error(error: BaseException) -> str | None:
    """Explain in one line what an error of a CUDA arm means; None if it is about something else.

    Either the device's memory is full ("needs 16.0 GiB of device memory, has 5.1 GiB free", as far as the message or
    NVML tell), or the driver is older than the library (both versions and the fix).
    """
    text = f"{type(error).__name__}: {error}"
    if _matches_any(FULL, text, re.IGNORECASE) and not _matches_any(HOST, text):
        return _explain_full(text)
    old = find_old_driver(error)
    return f"{old.reason}: {old.fix}" if old else None


def find_old_driver(error: BaseException) -> SkippedArm | None:
    """Return reason and fix if a library says that the driver is older than the CUDA that it was built for."""
    if not _matches_any(OLD_DRIVER, text := str(error), re.IGNORECASE):
        return None
    version = _FOUND_VERSION.search(text)  # as the driver counts, 12040; PyTorch tells it
    has, needs = cuda_driver.dotted(int(version[1])) if version else cuda_driver.version(), built_for()
    known = f"knows CUDA {has} at most" if has else "is too old"
    wanted = f"CUDA {needs}" if needs else "a newer one"
    build = f"install the library's build for CUDA {has.partition('.')[0]}" if has else "install an older build"
    return SkippedArm(f"the NVIDIA driver {known}, the library needs {wanted}", f"{cuda_driver.UPDATE}, or {build}")


def built_for() -> str | None:
    """Return the CUDA that the libraries in this process need, such as `13.0`; None if nothing tells.

    If torch is imported, its own figure counts, else the newest installed runtime package.
    """
    torch = sys.modules.get("torch")
    own = getattr(getattr(torch, "version", None), "cuda", None)
    return own or max(_installed_runtimes(), key=lambda text: [int(part) for part in text.split(".")], default=None)


def _installed_runtimes() -> list[str]:
    versions = []
    for name in _RUNTIMES:
        try:
            versions.append(".".join(metadata.version(name).split(".")[:2]))
        except metadata.PackageNotFoundError:
            continue
    return versions


def _explain_full(text: str) -> str:
    needs, free, card = _find_bytes(NEEDS, text), _find_bytes(FREE, text, after=" is (?:free|smaller)"), UsedGpu.open()
    free = card.free_bytes() if free is None and card is not None else free
    asked = (
        "needs more device memory than there is" if needs is None else f"needs {_format_size(needs)} of device memory"
    )
    return asked if free is None else f"{asked}, has {_format_size(free)} free"


def _matches_any(table: Iterable[str], text: str, flags: int = 0) -> bool:
    return re.search("|".join(table), text, flags) is not None


def _find_bytes(before: Iterable[str], text: str, after: str = "") -> int | None:
    size = re.search(f"(?:{'|'.join(before)}){_SIZE}{after}", text)
    return None if size is None else int(float(size["number"]) * _UNITS.get(size["unit"] or "", 1))


def _format_size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
