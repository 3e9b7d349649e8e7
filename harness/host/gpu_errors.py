"""What the libraries' own words about a GPU mean: texts in, facts out. Beside a pattern stands whose words it knows."""

from __future__ import annotations

import re
import sys
from importlib import metadata

_FULL = re.compile(
    r"out.?of.?memory"  # torch, CUDA's runtime and driver, JAX, TensorRT, each in its own spelling
    r"|RESOURCE_EXHAUSTED"  # XLA
    r"|cudaErrorMemoryAllocation"
    r"|Failed to allocate memory for requested buffer|is smaller than requested bytes"  # ONNX Runtime's arena
    r"|Requested amount of GPU memory"  # TensorRT
    r"|(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED",
    re.IGNORECASE,
)
_ON_HOST = re.compile(r"HostAlloc|DefaultCPUAllocator|std::bad_alloc")
_NEEDS = re.compile(
    r"(?:allocate|allocating|request for|buffer of size|requested bytes of|GPU memory \(|[Ss]ize was)"
    r" ?(?P<number>[\d.]*\d) ?(?P<unit>[KMGT]iB)?"
)
_FREE = re.compile(r"(?:of which|Available memory of) (?P<number>[\d.]*\d) ?(?P<unit>[KMGT]iB)? is (?:free|smaller)")
_OLD_DRIVER = re.compile(
    r"driver version is insufficient|driver on your system is too old|cudaErrorInsufficientDriver"
    r"|CUDA initialization failure with error:? 35",
    re.IGNORECASE,
)
_FOUND_VERSION = re.compile(r"found version (\d{4,6})")
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13", "nvidia-cuda-runtime-cu12")


def is_out_of_memory(text: str) -> bool:
    """Whether a message says that the device's memory is full; the host's is another matter."""
    return bool(_FULL.search(text)) and not _ON_HOST.search(text)


def needs_bytes(text: str) -> int | None:
    """What a message says was asked for."""
    return _bytes(_NEEDS.search(text))


def free_bytes(text: str) -> int | None:
    """What a message says was free."""
    return _bytes(_FREE.search(text))


def needs_and_has(needs: int | None, free: int | None) -> str:
    """One line about bytes of device memory; None where they aren't told."""
    asked = "needs more device memory than there is" if needs is None else f"needs {_size(needs)} of device memory"
    return asked if free is None else f"{asked}, has {_size(free)} free"


def is_old_driver(text: str) -> bool:
    """Whether a message says that the driver is older than the CUDA that the library was built for."""
    return bool(_OLD_DRIVER.search(text))


def found_version(text: str) -> int | None:
    """The driver's CUDA version as the driver counts (12040), where a message tells it, as torch's does."""
    found = _FOUND_VERSION.search(text)
    return int(found[1]) if found else None


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


def _bytes(found: re.Match[str] | None) -> int | None:
    return None if found is None else int(float(found["number"]) * _UNITS.get(found["unit"] or "", 1))


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
