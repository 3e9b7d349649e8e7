"""Seeded worlds in which the truth is known, for the tests of the statistics and for `tests/bench/simulate.py`.

They draw the log ratio of each generation directly (what a conductor would hand to `evidence.compare`), so thousands of
runs of 20 generations take seconds. All functions of the package are used as they are: nothing is vectorised anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from shootout.constants import BIAS_FLOOR, MAX_GENERATIONS
from shootout.contract import Array
from shootout.evidence import Verdict, bonferroni, interval, judge, min_generations

SD = 0.003
"""The generation SD to which MEASUREMENT.md's power targets refer."""
Noise = Callable[[np.random.Generator, int], Array]


def _bad_generations(rng: np.random.Generator, n: int) -> Array:
    return rng.standard_normal(n) * np.where(rng.random(n) < 0.07, 10.0, 1.0)


def _one_sided(rng: np.random.Generator, n: int) -> Array:
    return rng.standard_normal(n) + np.where(rng.random(n) < 0.07, rng.uniform(3, 30, n), 0.0)


def _gamma(shape: float, median: float) -> Noise:
    return lambda rng, n: (rng.gamma(shape, size=n) - median) / math.sqrt(shape)


NOISES: dict[str, Noise] = {
    "gaussian": lambda rng, n: rng.standard_normal(n),
    "7 % bad generations, SD x10": _bad_generations,
    "7 % bad generations, all slower": _one_sided,
    "Student t, 3 degrees": lambda rng, n: rng.standard_t(3, n),
    "skewness 0.5": _gamma(16, 15.6679),
    "skewness 1": _gamma(4, 3.67206),
}
"""Noise of one generation by name, in units of the SD of its good generations; the median is 0 (`all slower`: nearly)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Where one run ended: its generations, interval (log ratios) and verdict."""

    generations: int
    low: float
    high: float
    verdict: Verdict


def draw(noise: str, *, runs: int, seed: int, effect: float = 0.0, sd: float = SD) -> Iterator[Array]:
    """`runs` tapes of 20 log ratios whose true value is `effect`."""
    rng = np.random.default_rng(seed)
    for _ in range(runs):
        yield effect + sd * NOISES[noise](rng, MAX_GENERATIONS)


def run_until_decided(x: Array, comparisons: int = 1, bias_floor: float = BIAS_FLOOR) -> Stop:
    """Look after each generation, as the conductor does, and stop at the first verdict or at the end of the tape."""
    for n in range(min_generations(comparisons), x.size + 1):
        low, high = interval(x[:n], bonferroni(comparisons))
        verdict = judge(low, high, bias_floor=bias_floor)
        if verdict is not Verdict.CANT_TELL:
            break
    return Stop(generations=n, low=low, high=high, verdict=verdict)


def ever_misses(x: Array, truth: float, alpha: float = 0.05) -> bool:
    """Whether at any look the interval misses the truth: stopping there is the worst stopping rule there can be."""
    intervals = (interval(x[:n], alpha) for n in range(4, x.size + 1))
    return any(not low <= truth <= high for low, high in intervals)


def t_test_ever_rejects(x: Array, truth: float, alpha: float = 0.05) -> bool:
    """The drill: a fixed-sample t-test looked at after each generation, as the usual tools are used."""
    from scipy.stats import ttest_1samp

    return any(ttest_1samp(x[:n], truth).pvalue < alpha for n in range(4, x.size + 1))


def share(events: Iterator[bool]) -> float:
    """How often they are true."""
    return float(np.mean(list(events)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Shares over many runs with one true effect, and the median generations to the stop."""

    decided_right: float
    wrong_direction: float
    covered: float
    median_generations: float


def tally(noise: str, *, effect: float, runs: int, seed: int, comparisons: int = 1, sd: float = SD) -> Tally:
    """Run the stopping rule over `runs` tapes with the ratio 1 + `effect` on a random side."""
    sides = np.random.default_rng(seed + 1).choice([-1.0, 1.0], size=runs)
    truth = math.log1p(effect)
    stops = []
    for side, x in zip(sides, draw(noise, runs=runs, seed=seed, sd=sd), strict=True):
        stop = run_until_decided(x + side * truth, comparisons)
        right, wrong = (Verdict.SLOWER, Verdict.FASTER) if side > 0 else (Verdict.FASTER, Verdict.SLOWER)
        stops.append((stop.verdict is right, stop.verdict is wrong, stop.low <= side * truth <= stop.high, stop.generations))
    right_share, wrong_share, covered, _ = np.mean(np.array(stops, dtype=float), axis=0)
    return Tally(
        decided_right=right_share,
        wrong_direction=wrong_share,
        covered=covered,
        median_generations=float(np.median([generations for *_, generations in stops])),
    )
