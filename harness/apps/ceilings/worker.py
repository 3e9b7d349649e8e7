"""Measures ceilings, in a worker's fresh process: peak rates of products, and how fast memory can be read and copied.

A ceiling is a maximum, so each figure is the best block of all kernels and sizes; a block counts with its median call,
so that no single reading decides. Bandwidth is measured with NumPy's own loops, which outrun sums and copies of small
arrays by walking over the same bytes many times in one call.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import cast

import numpy as np
from numpy.lib.stride_tricks import as_strided

from shootout.backends.optional import Gemm, Gemms
from shootout.core import backends, clock, plugins

SIZES = (512, 1_024, 2_048, 4_096)
LONGEST_S = 0.25
"""A larger product, or a longer pass over memory, that would take more than this isn't tried."""
GROWTH = 8
"""The next size has so many times the operations."""
BLOCKS = 3
BLOCK_NS = 30_000_000
BLOCK_CALLS = 3
READINGS = 10_000
CALL_BYTES = 1 << 28
"""A call walks over its bytes until it has moved about so many."""

Kernel = Callable[[int, int], tuple[Gemm, int]]
"""(bytes of its own working set, passes in one call) → a call, and the bytes that it moves."""


def multipliers() -> dict[str, str]:
    """Return where each library's fastest square products are made, by the library's name as it is imported."""
    return {row.loads[""][0]: row.gemms for row in backends.shipped().values() if row.gemms}


def gemms(library: str, threads: int) -> Gemms:
    """Return a library's fastest square products on so many threads; imports it.

    Raises:
        KeyError: no row has any of this library.
    """
    return cast("Gemms", plugins.load(multipliers()[library])(threads))


def peak_rates(source: str, threads: int, sizes: Sequence[int] = SIZES) -> tuple[dict[str, float], list[str]]:
    """Measure the rates that the library `source` reaches on square products.

    Returns:
        GFLOP/s (or GOP/s) by precision, the best of `sizes`; and a line for each precision that it can't multiply in.
    """
    rates, faults = dict[str, float](), list[str]()
    for precision, make in gemms(source, threads).items():
        try:
            rates[str(precision)] = _best_rate(make, sizes)
        except Exception as error:  # of any library: the other precisions count all the same
            said = str(error).strip().splitlines() or [""]
            faults.append(f"{precision}: {type(error).__name__}: {said[0]}")
    return rates, faults


def bandwidth(bytes_each: Sequence[int], threads: int, call_bytes: int = CALL_BYTES) -> tuple[float, float]:
    """Measure GB/s of reading and of copying, all threads together; the best of the working sets (bytes a thread).

    A copy counts its bytes twice, read and written; what the hardware fetches besides (a cache line that is about to
    be overwritten) isn't counted.
    """
    with ThreadPoolExecutor(threads) as pool:
        found = [
            [_run_together(kernel, size, threads, pool, call_bytes) for size in bytes_each]
            for kernel in (read_with_maximum, read_with_products, copy)
        ]
    reads, copies = [*found[0], *found[1]], found[2]
    return max(reads), max(copies)


def read_with_maximum(size: int, passes: int) -> tuple[Gemm, int]:
    """Return the largest of 64-bit integers: one load and one comparison each."""
    numbers = np.ones(size // 8, np.int64)
    repeated = np.broadcast_to(numbers, (passes, numbers.size))
    return lambda: np.maximum.reduce(repeated, axis=1), passes * numbers.nbytes


def read_with_products(size: int, passes: int) -> tuple[Gemm, int]:
    """Return the sum of products of two halves, by the BLAS."""
    left, right = (np.ones(size // 8, np.float32) for _ in range(2))
    halves = [np.broadcast_to(half, (passes, half.size)) for half in (left, right)]
    return lambda: np.vecdot(*halves), passes * 2 * left.nbytes


def copy(size: int, passes: int) -> tuple[Gemm, int]:
    """Copy one half onto the other as a single block of bytes, so that the C library chooses how."""
    block = np.dtype((np.void, size // 2))
    source, target = (np.frombuffer(bytearray(b"\1" * block.itemsize), block) for _ in range(2))
    onto, from_ = (as_strided(half, (passes,), (0,)) for half in (target, source))
    return lambda: np.copyto(onto, from_), passes * 2 * block.itemsize


def _run_together(kernel: Kernel, size: int, threads: int, pool: ThreadPoolExecutor, call_bytes: int) -> float:
    made = [kernel(size, max(1, call_bytes // (size * threads))) for _ in range(threads)]
    calls = [call for call, _ in made]

    def run() -> None:
        for future in [pool.submit(call) for call in calls]:
            future.result()

    return sum(moved for _, moved in made) / _best_ns(calls[0] if threads == 1 else run)


def _best_rate(make: Callable[[int], Gemm], sizes: Sequence[int]) -> float:
    best, expected_s = 0.0, 0.0
    for size in sizes:
        if expected_s > LONGEST_S:
            break
        run = make(size)
        first_s = clock.seconds_to_call(lambda _: run(), 0)  # noqa: B023 - called at once
        if first_s > GROWTH * LONGEST_S:  # an emulated precision: one reading will do
            return max(best, 2.0 * size**3 / (first_s * 1e9))
        took_ns = _best_ns(run)
        best, expected_s = max(best, 2.0 * size**3 / took_ns), GROWTH * took_ns / 1e9
    return best


def _best_ns(run: Gemm) -> float:
    """Return the nanoseconds of a call in the best block, after calls that don't count."""
    call, readings = (lambda _: run()), array("q", bytes(8 * READINGS))
    clock.lead_in(call, 1, calls=BLOCK_CALLS, ns=BLOCK_NS)
    blocks = []
    for _ in range(BLOCKS):
        count = clock.read_block(call, 1, readings, per_reading=1, block_ns=BLOCK_NS, min_calls=BLOCK_CALLS)
        blocks.append(median(readings[:count]))
    return min(blocks)
