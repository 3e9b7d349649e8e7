"""Account of what NumPy really computed, for every adapter on it: its matrix products by dtype, and its BLAS's threads.

NumPy has no graph to read, so one run is observed, by arrays that report their own products. An intermediate that slips
into float64 shows as `fp64`.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from shootout.backends.common import precision_of
from shootout.core.contract import Array, Arrays

BLAS_THREAD_SYMBOLS = (
    "scipy_openblas_get_num_threads64_",
    "scipy_openblas_get_num_threads",
    "openblas_get_num_threads64_",
    "openblas_get_num_threads",
    "MKL_Get_Max_Threads",
)
PRODUCTS = frozenset({np.dot, np.inner, np.vdot, np.einsum, np.tensordot, np.convolve, np.correlate})
"""NumPy's matrix products that are functions; `np.matmul` and `@` are a ufunc."""


class CountingArray(np.ndarray[Any, Any]):
    """An array that reports each matrix product it takes part in; so do the arrays made from it."""

    products: ClassVar[Counter[str]] = Counter()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is not None:
            kwargs["out"] = tuple(_as_plain(array) for array in out)
        result = getattr(ufunc, method)(*(_as_plain(value) for value in inputs), **kwargs)
        if ufunc is np.matmul:
            self.products[precision_of(str(result.dtype))] += 1
        return _as_counting(result)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func not in PRODUCTS:
            return super().__array_function__(func, types, args, kwargs)
        result = func(*(_as_plain(value) for value in args), **kwargs)
        self.products[precision_of(str(np.asarray(result).dtype))] += 1
        return _as_counting(result)


def products_of(run: Callable[[Arrays], Any], inputs: Arrays) -> dict[str, int]:
    """Count by precision the matrix products in one call of `run`, a function written with NumPy calls."""
    CountingArray.products.clear()
    run({name: array.view(CountingArray) for name, array in inputs.items()})
    return dict(CountingArray.products)


def blas_threads() -> int | None:
    """Return the thread count of the BLAS that this process loaded, as the BLAS tells it; None if it doesn't."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    paths = {line.split()[-1] for line in maps.splitlines() if "blas" in line or "mkl_rt" in line}
    for path in sorted(paths, key=lambda path: "numpy" not in path):
        library = ctypes.CDLL(path)
        for symbol in BLAS_THREAD_SYMBOLS:
            if hasattr(library, symbol):
                return int(getattr(library, symbol)())
    return None


def _as_counting(result: Any) -> Any:
    return result.view(CountingArray) if isinstance(result, np.ndarray) else result


def _as_plain(value: Array | Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, CountingArray) else value
