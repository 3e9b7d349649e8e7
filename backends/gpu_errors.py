"""Explain errors of libraries on NVIDIA's GPUs: a full memory, a driver that is too old."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib import metadata

from shootout.backends.devices import cuda_driver
from shootout.backends.devices.nvml import UsedGpu
from shootout.core.errors import SkippedArm

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
    needs, free = _find_bytes(NEEDS, text), _find_bytes(FREE, text, after=" is (?:free|smaller)")
    free = UsedGpu.open().free_bytes() if free is None else free
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
