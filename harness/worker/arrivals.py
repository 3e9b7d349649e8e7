"""When requests arrive: an open loop, whose schedule is fixed before the first one and never waits for an answer.

Times between arrivals are exponential (a Poisson process), which is what many independent users make together.
"""

from __future__ import annotations

import numpy as np


def schedule_ns(rate_per_s: float, requests: int, seed: int) -> list[int]:
    """Nanoseconds from the start to each request's arrival, ascending.

    The same seed gives the same times in units of the mean gap, at any rate: so arms that are offered different rates
    meet the same luck, and at a higher rate nobody waits less.

    Args:
        rate_per_s: requests a second, on average.
        requests: how many.
        seed: of the gaps.
    """
    gaps = np.random.default_rng(seed).exponential(size=requests)
    due: list[int] = np.rint(np.cumsum(gaps) * (1e9 / rate_per_s)).astype(np.int64).tolist()
    return due
