"""Where to look for a crossover next: a fit of a + b·n for each arm proposes, and nothing else is done with it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Times = tuple[int, float, float]
"""A size and both arms' median times there, in ns."""
ASIDE = 2.0**0.4
"""So far beside the proposed crossover: there a verdict is cheap, and two of them make a bracket within an octave."""
MARGIN = 1 / 8
"""At least this share of the bracket's logarithm is cut off, so that wrong proposals can't go on for ever."""


def line(sizes: Sequence[int], times: Sequence[float]) -> tuple[float, float]:
    """a, b ≥ 0 of time = a + b·size with the least squares of the relative error, which is nearly that of the log.

    Args:
        sizes: at least one, ≥ 1.
        times: as many, > 0, any unit; a has that unit, b that unit per size.
    """
    n, t = np.array(sizes, dtype=float), np.array(times, dtype=float)
    constant, growing = 1 / t, n / t
    a, b = (float(value) for value in np.linalg.lstsq(np.column_stack([constant, growing]), np.ones(n.size))[0])
    if a >= 0 and b >= 0:
        return a, b
    alone = [float(column.sum() / (column @ column)) for column in (constant, growing)]  # one of the two is 0 then
    errors = [float(np.sum((part * column - 1) ** 2)) for part, column in zip(alone, (constant, growing), strict=True)]
    return (alone[0], 0.0) if errors[0] <= errors[1] else (0.0, alone[1])


def crossing(times: Sequence[Times]) -> float | None:
    """The size at which the two fitted lines meet; None where they don't."""
    sizes = [size for size, _, _ in times]
    if len(sizes) < 2:
        return None
    first, second = (line(sizes, [one[index] for one in times]) for index in (1, 2))
    slope = second[1] - first[1]
    return (first[0] - second[0]) / slope if slope else None


def aim(low: int, high: int, times: Sequence[Times]) -> float:
    """The size to race inside the bracket: beside the proposed crossover, on the side that cuts off more.

    Where the fit proposes nothing inside the bracket: its geometric midpoint.
    """
    found = crossing(times)
    if found is None or not low < found < high:
        return math.sqrt(low * high)
    below, above = found / ASIDE, found * ASIDE
    chosen = below if below / low > high / above else above
    width = math.log(high / low)
    return low * math.exp(min(max(math.log(chosen / low), MARGIN * width), (1 - MARGIN) * width))


def sizes(low: int, high: int, target: float) -> tuple[int, ...]:
    """The round sizes strictly between, the nearest to `target` first.

    Round means three significant bits: 1 … 8, 10, 12, 14, 16, 20 …. Different pairs then meet at the same sizes, and no
    size is odd in a way that kernels made for multiples of 8 would feel.
    """
    steps = {number << shift for shift in range(high.bit_length()) for number in range(1, 8)}
    inside = sorted(size for size in steps if low < size < high)
    return tuple(sorted(inside, key=lambda size: abs(math.log(size / target))))
