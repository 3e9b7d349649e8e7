"""What the libraries' own words about a GPU mean: tables of what they say, beside whose words those are."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib import metadata

from shootout.errors import SkippedArm
from shootout.host import cuda_driver
from shootout.host.gpu import Gpu

FULL = {
    r"out.?of.?memory": "PyTorch, CUDA's runtime and driver, JAX, TensorRT, each in its own spelling",
    r"RESOURCE_EXHAUSTED": "XLA",
    r"cudaErrorMemoryAllocation": "CUDA's runtime",
    r"Failed to allocate memory for requested buffer": "ONNX Runtime's arena",
    r"is smaller than requested bytes": "ONNX Runtime's arena, with a limit",
    r"Requested amount of GPU memory": "TensorRT",
    r"(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED": "cuBLAS, cuDNN",
}
"""A memory is full: the device's, unless `HOST` has it."""
HOST = {r"HostAlloc": "CUDA's runtime", r"DefaultCPUAllocator": "PyTorch", r"std::bad_alloc": "C++"}
NEEDS = (
    *("allocate", "allocating", "request for", "buffer of size", "requested bytes of"),
    *(r"GPU memory \(", "[Ss]ize was"),
)
"""What comes before the bytes that were asked for."""
FREE = ("of which", "Available memory of")
"""What comes before the bytes that were free."""
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
    """What an error of a CUDA arm means, in one line; None where it is about something else.

    Either the device's memory is full ("needs 16.0 GiB of device memory, has 5.1 GiB free", as far as the message or
    NVML tell), or the driver is older than the library (both versions and the fix).
    """
    text = f"{type(error).__name__}: {error}"
    if _says(FULL, text, re.IGNORECASE) and not _says(HOST, text):
        return _explain_full(text)
    old = find_old_driver(error)
    return f"{old.reason}: {old.fix}" if old else None


def find_old_driver(error: BaseException) -> SkippedArm | None:
    """Reason and fix, if what a library says is that the driver is older than the CUDA that it was built for."""
    if not _says(OLD_DRIVER, text := str(error), re.IGNORECASE):
        return None
    found = _FOUND_VERSION.search(text)  # as the driver counts, 12040; PyTorch tells it
    has, needs = cuda_driver.dotted(int(found[1])) if found else cuda_driver.version(), built_for()
    known = f"knows CUDA {has} at most" if has else "is too old"
    wanted = f"CUDA {needs}" if needs else "a newer one"
    build = f"install the library's build for CUDA {has.partition('.')[0]}" if has else "install an older build"
    return SkippedArm(f"the NVIDIA driver {known}, the library needs {wanted}", f"{cuda_driver.UPDATE}, or {build}")


def built_for() -> str | None:
    """The CUDA that the libraries in this process need, e.g. `13.0`: torch's own word if it is imported, else the
    newest runtime package that is installed; None where neither tells.
    """
    torch = sys.modules.get("torch")
    own = getattr(getattr(torch, "version", None), "cuda", None)
    return own or max(_installed(), key=lambda text: [int(part) for part in text.split(".")], default=None)


def _installed() -> list[str]:
    found = []
    for name in _RUNTIMES:
        try:
            found.append(".".join(metadata.version(name).split(".")[:2]))
        except metadata.PackageNotFoundError:
            continue
    return found


def _explain_full(text: str) -> str:
    needs, free, card = _bytes(NEEDS, text), _bytes(FREE, text, after=" is (?:free|smaller)"), Gpu.open()
    free = card.free_bytes() if free is None and card is not None else free
    asked = "needs more device memory than there is" if needs is None else f"needs {_size(needs)} of device memory"
    return asked if free is None else f"{asked}, has {_size(free)} free"


def _says(table: Iterable[str], text: str, flags: int = 0) -> bool:
    return re.search("|".join(table), text, flags) is not None


def _bytes(before: Iterable[str], text: str, after: str = "") -> int | None:
    found = re.search(f"(?:{'|'.join(before)}){_SIZE}{after}", text)
    return None if found is None else int(float(found["number"]) * _UNITS.get(found["unit"] or "", 1))


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
