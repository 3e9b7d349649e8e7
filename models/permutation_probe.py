"""A Linear whose weight is a permutation: its output is its input moved about, exactly, unless precision was lost.

One row holds 1+2^-k for each k, so the rows that survive tell how many mantissa bits the backend's matmul kept; the
last row holds 2^17, which is beyond FP16's range. Every second column is 1.0, so a constant output can't pass.
`shootout.worker.precision_probe.read_permutation` reads the answer.
"""

from __future__ import annotations

import numpy as np

from shootout.contract import Array
from shootout.models.linear_probe import WIDTH, linear_probe

PROBE_ROWS = (5, 7, 8, 10, 12)
"""k of the rows that hold 1+2^-k, in order; one more row holds OVERFLOW."""
OVERFLOW = 2.0**17
PROBE_BATCH = len(PROBE_ROWS) + 1
ORDER: Array = np.random.default_rng(17).permutation(WIDTH)
"""Output column j is input column ORDER[j]."""


def weight() -> Array:
    """The permutation matrix: row j has its 1 in column ORDER[j]."""
    return np.eye(WIDTH, dtype=np.float32)[ORDER]


def rows() -> Array:
    """The one input set, (PROBE_BATCH, WIDTH): nothing about it is random."""
    x = np.ones((PROBE_BATCH, WIDTH), np.float32)
    x[:, ::2] = np.array([*(1 + 2.0**-k for k in PROBE_ROWS), OVERFLOW], np.float32)[:, None]
    return x


MODEL = linear_probe("permutation_probe", "tells which float precision a backend really computes in", weight, rows)
