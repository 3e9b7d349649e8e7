"""Say what each unit adds to a metric of a whole set, by leaving it out: then intervals of means hold for any metric.

A unit is a row, or rows that belong together. What it adds is Tukey's pseudo-value, shifted so that their mean is the
metric itself. Two targets have the same units, so their pseudo-values are compared in pairs like scores of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from shootout.core.contract import Array

MOST_LEFT_OUT = 1_000
"""The metric is computed so many times at most: of more units, several are left out at a time."""
SEED = 20_261_124
HALVES = 64
"""`_is_uneven` looks at so many random halves of the units."""
HALVED_FROM = 300
"""Halves of fewer units tell nothing."""
LEAST_EXPLAINED = 0.85
"""The least share of a metric's variance over halves that the units must explain. Of 400 units, sums, ratios, F1 and
ranks have 0.9 to 1, percentiles less.
"""

ValueOf = Callable[[Array], float]
"""Take (rows,) bool, and return the metric of these rows."""


def find_pseudo_values(value_of: ValueOf, units: Array, *, must_be_even: bool = False) -> Array:
    """Return what each unit adds to the metric, (units,); their mean is the metric of all rows.

    If there are more than `MOST_LEFT_OUT` units, several drawn at random share what they add. It is scaled by the root
    of their number, so that the variance of the mean stays what it is.

    Args:
        units: (rows,), the unit of each row, from 0 up; two at least.
        must_be_even: refuse a metric like a median, for which leaving units out doesn't tell how it varies.

    Raises:
        ValueError: the metric is no finite number, for all rows or without a unit; or it isn't even.

    Source: Tukey 1958; several at a time: Shao and Wu 1989, Annals of Statistics 17.
    """
    count = int(units.max()) + 1
    if count < 2:
        raise ValueError("one unit alone tells nothing of others")
    rng, size = np.random.default_rng(SEED), -(-count // MOST_LEFT_OUT)
    parts = np.empty(count, int)
    parts[rng.permutation(count) if size > 1 else np.arange(count)] = np.arange(count) // size
    part_of_row, sizes = parts[units], np.bincount(parts)
    whole = _evaluate(value_of, np.ones(len(units), bool), "all rows")
    left = [
        _evaluate(value_of, part_of_row != part, f"all rows but those of unit {np.flatnonzero(parts == part)[0]}")
        for part in range(len(sizes))
    ]
    added = (whole - np.array(left)) * (len(sizes) - 1)
    added -= added.mean()
    if must_be_even and _is_uneven(value_of, part_of_row, added, rng):
        raise ValueError(
            "it jumps like a median or a percentile, so nothing tells how far it may lie from that of others"
        )
    shared = (added * np.sqrt(sizes))[parts]
    return np.asarray(whole + shared - shared.mean())


def _is_uneven(value_of: ValueOf, units: Array, added: Array, rng: np.random.Generator) -> bool:
    """Tell whether what the units add doesn't explain what the metric is of random halves; few units don't show it."""
    if (count := len(added)) < HALVED_FROM:
        return False
    values, told = np.empty(HALVES), np.empty(HALVES)
    for half in range(HALVES):
        kept = rng.permutation(count) < count // 2
        values[half], told[half] = _evaluate(value_of, kept[units], "half of the rows"), added[kept].mean()
    return float(np.var(values - told)) > (1 - LEAST_EXPLAINED) * float(np.var(values))


def _evaluate(value_of: ValueOf, kept: Array, rows: str) -> float:
    value = value_of(kept)
    if not math.isfinite(value):
        raise ValueError(f"{value:g} for {rows}")
    return value
