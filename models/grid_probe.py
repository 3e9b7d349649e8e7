"""A Linear that shows how many levels weights and activations are left with: the permutation probe of integers.

The first rows carry evenly spaced numbers from -1 to 1, which the first outputs copy; so many different ones as come
out, so many levels do activations have. Each of the last rows is a single 1, so that the last outputs read
weights, evenly spaced as well. Every row, and every group of 32 numbers of a ramp, holds a 1 (and a ramp's a -1): then
whatever a quantizer scales by (a tensor, a row, a channel, a group), all scales are the same, and 8 bits leave at most
256 levels, 4 bits 16, while bfloat16 leaves about 1,000. `shootout.worker.precision_probe.read_grid` reads the answer.
"""

from __future__ import annotations

import numpy as np

from shootout.contract import Array
from shootout.models.linear_probe import WIDTH, linear_probe

COPIES = 128
"""Outputs, and input columns, that carry the activations' ramp."""
RAMP_ROWS, WEIGHT_ROWS = 16, 16
GRID_BATCH = RAMP_ROWS + WEIGHT_ROWS
GROUP = 32
READ = tuple(column for column in range(COPIES, WIDTH) if column % GROUP >= 4)[::6][:WEIGHT_ROWS]
"""Columns whose weights are read."""


def weight() -> Array:
    """(WIDTH, WIDTH): the copies' identity; below it the weights' ramp, with a 1 and a -1 in each group."""
    found = np.zeros((WIDTH, WIDTH), np.float32)
    found[range(COPIES), range(COPIES)] = 1.0
    found[COPIES:, COPIES::GROUP] = 1.0
    found[COPIES:, COPIES + 1 :: GROUP] = -1.0
    found[COPIES:, READ] = _ramp(COPIES * WEIGHT_ROWS).reshape(COPIES, WEIGHT_ROWS)
    return found


def rows() -> Array:
    """(GRID_BATCH, WIDTH): the ramp, then the single ones."""
    x = np.zeros((GRID_BATCH, WIDTH), np.float32)
    x[:RAMP_ROWS, :COPIES] = _ramp(RAMP_ROWS * COPIES).reshape(RAMP_ROWS, COPIES)
    x[:RAMP_ROWS, :COPIES:GROUP], x[:RAMP_ROWS, 1:COPIES:GROUP] = 1.0, -1.0
    x[range(RAMP_ROWS, GRID_BATCH), READ] = 1.0
    return x


def _ramp(count: int) -> Array:
    """Evenly spaced from -1 to 1, shuffled so that no group and no row has only neighbours."""
    return np.random.default_rng(23).permutation(np.linspace(-1, 1, count)).astype(np.float32)


MODEL = linear_probe("grid_probe", "tells how many levels a backend leaves weights and activations", weight, rows)
