"""Compare tensors by a few sums of each, which take no room: the gradients of a training step. NumPy only."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from shootout.core.contract import Array, Arrays

BUCKETS = 64
"""So many numbers stand for one gradient; they show a wrong gradient's relative error to within about a fifth."""
SMALLEST = 1e-3
"""Judge a gradient that is smaller than this share of the largest one as if it were so large: zero is never exact."""


def sketch(tensors: Arrays) -> dict[str, Array]:
    """Return BUCKETS float64 numbers for each tensor: sums of its elements with signs that its name seeds.

    The sketch of a difference has the difference's own norm on average (Charikar, Chen and Farach-Colton, "Finding
    frequent items in data streams", 2002), so sketches are compared as the tensors would be, and take no room.
    """
    return {name: _sum_buckets(name, array) for name, array in tensors.items()}


def _sum_buckets(name: str, array: Array) -> Array:
    flat = np.asarray(array, dtype=np.float64).ravel()
    signs = np.unpackbits(
        np.frombuffer(np.random.default_rng(zlib.crc32(name.encode())).bytes(flat.size // 8 + 1), "u1")
    )
    padded = np.zeros(-(-flat.size // BUCKETS) * BUCKETS)
    np.copyto(padded[: flat.size], np.where(signs[: flat.size], flat, -flat))
    return np.asarray(padded.reshape(-1, BUCKETS).sum(axis=0))


def off(got: Arrays, wanted: Arrays) -> float | None:
    """Return the largest relative L2 error of any tensor (see SMALLEST); None if one isn't finite."""
    least = SMALLEST * max(float(np.linalg.norm(array)) for array in wanted.values())
    found = [
        float(np.linalg.norm(as_float64(got[name]) - as_float64(array))) / max(float(np.linalg.norm(array)), least)
        for name, array in wanted.items()
    ]
    return max(found) if np.isfinite(found).all() else None


def as_float64(array: Any) -> Array:
    """Return a tensor of any kind in float64."""
    return np.asarray(array, dtype=np.float64)
