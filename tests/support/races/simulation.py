"""Seeded worlds in which the truth is known, for the tests of the statistics and for `lab/simulate.py`.

They draw the log ratio of each restart directly (what it would hand to `evidence.compare`), so thousands of runs of
20 restarts take seconds. The package's own functions are called on them, never a faster copy of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from shootout.constants import ALPHA, BIAS_FLOOR, MAX_RESTARTS, ROUNDS, SAME_WITHIN
from shootout.contract import Array
from shootout.race.stopping import GroupState, next_players
from shootout.stats.evidence import (
    LEAST_RESTARTS,
    SIGN_WEIGHT,
    PairEvidence,
    bonferroni,
    min_restarts,
    outer_evidence,
    sign_evidence,
)
from shootout.stats.group_evidence import Blocks, GroupEvidence, Rules
from shootout.stats.spread import PRIOR, scale_likelihood
from shootout.stats.verdicts import Verdict, judge

SD = 0.003
"""The restart SD to which the power targets refer."""
PINNED_SD = 0.006
"""The restart SD that pinned arms had on the machine where the method was tried (0.5 to 0.65 %)."""
Noise = Callable[[Array, np.random.Generator], Array]


def _bad_restarts(z: Array, rng: np.random.Generator) -> Array:
    return z * np.where(rng.random(z.shape) < 0.07, 10.0, 1.0)


def _bad_and_slower(z: Array, rng: np.random.Generator) -> Array:
    return z + np.where(rng.random(z.shape) < 0.07, rng.uniform(3, 30, z.shape), 0.0)


def _loaded_midway(z: Array, rng: np.random.Generator) -> Array:
    n = z.shape[-1]
    return z * np.where(np.arange(n) < rng.integers(n, size=(*z.shape[:-1], 1)), 1.0, 10.0)


def _skewed(z: Array, rng: np.random.Generator) -> Array:
    return np.expm1(0.3142 * z) / 0.3142


NOISES: dict[str, Noise] = {
    "gaussian": lambda z, rng: z,
    "7 % bad restarts": _bad_restarts,
    "7 % bad, all slower": _bad_and_slower,
    "loaded midway": _loaded_midway,
    "skewness 1": _skewed,
    "Student t, 3 df": lambda z, rng: z / np.sqrt(rng.chisquare(3, z.shape) / 3),
}
"""Noise out of Gaussian noise: median 0, in units of the SD of good restarts; bad ones are ten times as wide.
"""


def tapes(noise: str, shape: tuple[int, ...], rng: np.random.Generator, *, sd: float = SD, ar: float = 0.0) -> Array:
    """Log ratios whose true value is 0, shape (*shape, 20).

    Args:
        ar: autocorrelation of one restart's Gaussian with the one before it.
    """
    z = rng.standard_normal((*shape, MAX_RESTARTS))
    for g in range(1, MAX_RESTARTS) if ar else ():
        z[..., g] = ar * z[..., g - 1] + math.sqrt(1 - ar * ar) * z[..., g]
    return sd * NOISES[noise](z, rng)


def draw(noise: str, *, runs: int, seed: int, sd: float = SD) -> Iterator[Array]:
    """`runs` tapes of 20 log ratios whose true value is 0."""
    yield from tapes(noise, (runs,), np.random.default_rng(seed), sd=sd)


def group_of_nine(runs: int, noise: str, rng: np.random.Generator, **spread: float) -> Array:
    """Log ratios of nine arms and a copy to their baseline, shape (runs, 10, 20), all truly equal.

    Args:
        sd: of the typical ratio.
        uneven: SD of the log of the arms' own SDs.
        wild: one arm's own SD instead.
        baseline: the baseline's SD in units of the others'.
    """
    sds = np.exp(spread.get("uneven", 0.0) * rng.standard_normal((runs, 11, 1))) * spread["sd"] / math.sqrt(2)
    sds[:, 0] *= spread.get("baseline", 1.0)
    if "wild" in spread:
        sds[:, 1] = spread["wild"]
    sds[:, -1] = sds[:, 0]  # the copy spreads as its baseline does
    times = sds * NOISES[noise](rng.standard_normal((runs, 11, MAX_RESTARTS)), rng)
    return times[:, 1:] - times[:, :1]


def told_apart(x: Array) -> Array:
    """The restarts after which each group has a first false verdict; 0 where it has none at any of its looks.

    The hardest case: all evidence against a ratio of exactly 1 counts, as if there were no bias floor.

    Args:
        x: groups of arms that are as fast as the baseline, shape (groups, arms, restarts). The last arm is the
            control, which is asked for no verdict.
    """
    limit, first = 1 / bonferroni(x.shape[-2] - 1), np.zeros(len(x), dtype=int)
    for n in range(LEAST_RESTARTS, x.shape[-1] + 1):
        first[(first == 0) & np.any(evidence_against_equal(x[..., :n]) >= limit, axis=-1)] = n
    return first


def evidence_against_equal(x: Array) -> Array:
    """E against a ratio of 1 of each arm but the control, shape (groups, arms − 1).

    As `GroupEvidence` has it where all arms play on, but for one thing: E isn't held to what it is further out. That
    only takes from it, so the errors counted here are no fewer.

    Args:
        x: see `told_apart`.
    """
    n = x.shape[-1]
    squares, arms = n * x.var(axis=-1), x[:, :-1]
    scales = scale_likelihood(n - 1, squares)
    weights = PRIOR + scales.sum(axis=1, keepdims=True) - scales[:, :-1]
    outer = outer_evidence(n, np.abs(arms.mean(axis=-1)), squares[:, :-1], weights)
    return cast(Array, SIGN_WEIGHT * sign_evidence(n)[np.sum(arms > 0, axis=-1)] + outer)


def share(events: Iterable[bool]) -> float:
    """How often they are true."""
    return float(np.mean(list(events)))


def t_test_ever_rejects(x: Array) -> bool:
    """The drill: a t-test for a fixed sample, looked at after each restart until p < α."""
    from scipy.stats import ttest_1samp

    return any(ttest_1samp(x[:n], 0.0).pvalue < ALPHA for n in range(4, x.size + 1))


def rounds_as_restarts(restarts: Array, rng: np.random.Generator) -> Array:
    """The other drill: each restart's rounds as if each were a restart, shape (…, restarts × rounds)."""
    rounds = restarts[..., None] + SD * rng.standard_normal((*restarts.shape, ROUNDS))
    return rounds.reshape(*restarts.shape[:-1], -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Where one run ended: its restarts, interval (log ratios) and verdict."""

    restarts: int
    low: float
    high: float
    verdict: Verdict


def run_until_decided(x: Array, comparisons: int = 1) -> Stop:
    """Look after each restart and stop at the first verdict, or at the end of the tape."""
    alpha, floor, same = bonferroni(comparisons), math.log1p(BIAS_FLOOR), math.log1p(SAME_WITHIN)
    for n in range(min_restarts(comparisons), x.size + 1):
        pair = PairEvidence(x[:n])
        apart = max(pair.evidence_above(floor), pair.evidence_below(-floor))
        if max(apart, min(pair.evidence_above(-same), pair.evidence_below(same))) >= 1 / alpha:
            break
    low, high = pair.interval(alpha)
    verdict = judge(low, high, bias_floor=BIAS_FLOOR)
    return Stop(restarts=n, low=low, high=high, verdict=verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Shares over many runs with one true effect, and the median restarts to the stop."""

    right: float
    wrong_direction: float
    same: float
    covered: float
    median_restarts: float


def tally(noise: str, *, effect: float, runs: int, seed: int, comparisons: int = 1, sd: float = SD) -> Tally:
    """Run the stopping rule on tapes whose true ratio is 1 + `effect`, or its inverse, on a random side.

    `right` counts the verdict on the side of the effect (any side's first, slower, where the effect is 0).
    """
    sides = np.random.default_rng(seed + 1).choice([-1, 1], size=runs)
    truths = sides * math.log1p(effect)
    tapes = draw(noise, runs=runs, seed=seed, sd=sd)
    stops = [run_until_decided(x + truth, comparisons) for x, truth in zip(tapes, truths, strict=True)]
    toward = [(Verdict.FASTER, Verdict.SLOWER)[::side] for side in sides]
    return Tally(
        right=share(stop.verdict is right for stop, (_, right) in zip(stops, toward, strict=True)),
        wrong_direction=share(stop.verdict is wrong for stop, (wrong, _) in zip(stops, toward, strict=True)),
        same=share(stop.verdict is Verdict.SAME for stop in stops),
        covered=share(stop.low <= truth <= stop.high for stop, truth in zip(stops, truths, strict=True)),
        median_restarts=float(np.median([stop.restarts for stop in stops])),
    )


CLOSE_RIVAL_MS = (1.0, 0.99, 1.08, 1.2, 1.35, 1.6)
"""Six arms, the baseline first: one rival 1 % faster than it, four clearly slower ones. This is what racing is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """One group's run: restarts each arm played, and the verdicts against the baseline (the first arm)."""

    restarts: tuple[int, ...]
    verdicts: tuple[Verdict, ...]

    def calls(self, times_ms: Sequence[float]) -> int:
        """Timed calls: blocks of 10 ms or 5 calls, whichever is more, 12 in a restart."""
        blocks = (max(5, math.ceil(10 / ms)) for ms in times_ms)
        return sum(ROUNDS * block * n for block, n in zip(blocks, self.restarts, strict=True))


def race(times_ms: Sequence[float], *, seed: int, leaving: bool, sd: float = PINNED_SD) -> Race:
    """Run a group by the package's stopping rule; with `leaving=False` nobody leaves early, which is plain round-robin.

    Both play the same seeded tape until all verdicts are in, so that both ask for the same confidence.
    """
    noise = np.random.default_rng(seed).standard_normal((MAX_RESTARTS, len(times_ms)))
    tape = np.array(times_ms) * np.exp(sd / math.sqrt(2) * noise)
    labels = [f"arm {i}" for i in range(len(times_ms))]
    rules = Rules(
        baseline=labels[0],
        control=None,
        comparisons=len(labels) - 1,
        max_restarts=MAX_RESTARTS,
        bias_floor=BIAS_FLOOR,
    )
    blocks: dict[str, dict[int, Array]] = {label: {} for label in labels}
    players, played = labels, 0
    while found := next_players(GroupState(evidence=GroupEvidence(blocks, rules), labels=players, played=played)):
        players = found if leaving else labels
        for label in players:
            blocks[label][played] = tape[played, labels.index(label)][None]
        played += 1
    return Race(
        restarts=tuple(len(blocks[label]) for label in labels),
        verdicts=tuple(verdict_on(blocks, label, labels[0], rules) for label in labels[1:]),
    )


def verdict_on(blocks: Mapping[str, Blocks], label: str, other: str, rules: Rules) -> Verdict:
    """The verdict on two arms that share a restart."""
    found = GroupEvidence(blocks, rules).compare(label, other, estimate=False)
    assert found is not None
    return found.verdict


def race_share(times_ms: Sequence[float], *, runs: int, seed: int, sd: float = PINNED_SD) -> tuple[float, float]:
    """The calls of a race as a share of those of round-robin, and how often both give the same verdicts."""
    seeds = range(seed, seed + runs)
    races = [(race(times_ms, seed=s, leaving=True, sd=sd), race(times_ms, seed=s, leaving=False, sd=sd)) for s in seeds]
    raced, plain = (sum(pair[i].calls(times_ms) for pair in races) for i in (0, 1))
    return raced / plain, share(a.verdicts == b.verdicts for a, b in races)


STEADY = (
    "constant",
    "outliers 1 %",
    "outliers up to x50",
    "bimodal",
    "periodic",
    "coarse clock",
    "skewed",
    "AR(1)",
)
"""Tapes of `latencies` that are steady from the first call."""


def latencies(kind: str, *, calls: int, seed: int) -> Array:
    """A warm-up tape: int64 ns for each call, 3 % lognormal noise around 170 us unless its name says otherwise."""
    rng, at = np.random.default_rng(seed), np.arange(calls)
    noise = np.exp(0.03 * rng.standard_normal(calls))
    outlier = rng.random(calls) < 0.01
    shapes: dict[str, Callable[[], Array]] = {
        "constant": lambda: noise,
        "outliers 1 %": lambda: noise * np.where(outlier, rng.uniform(1.5, 5, calls), 1),
        "outliers up to x50": lambda: noise * np.where(outlier, rng.uniform(1.5, 50, calls), 1),
        "bimodal": lambda: noise * np.where(rng.random(calls) < 0.3, 1.2, 1),
        "periodic": lambda: noise * np.where(at % 8 == 0, 1.2, 1),
        "coarse clock": lambda: np.round(noise * 17) / 17,
        "skewed": lambda: 1 + 0.05 * np.exp(rng.standard_normal(calls)),
        "AR(1)": lambda: np.exp(np.convolve(0.03 * rng.standard_normal(calls), 0.5 ** np.arange(30))[:calls]),
        "cold first call": lambda: noise * np.where(at < 1, 30, 1),
        "20 % step at 1/4": lambda: noise * np.where(at < calls / 4, 1.2, 1),
        "20 % step at 1/4 with outliers": lambda: noise * np.where(at < calls / 4, 1.2, 1) * np.where(outlier, 3, 1),
        "20 % step at 3/4": lambda: noise * np.where(at < calls * 3 / 4, 1.2, 1),
        "5 % step at 3/4": lambda: noise * np.where(at < calls * 3 / 4, 1.05, 1),
        "slow start": lambda: noise * (1 + 0.5 * np.exp(-at / (calls / 10))),
        "start as long as the tape": lambda: noise * (1 + 0.5 * np.exp(-at / (calls / 2))),
        "20 % drift": lambda: noise * (1 + 0.2 * at / calls),
        "random walk": lambda: noise * np.exp(np.cumsum(0.02 * rng.standard_normal(calls))),
    }
    return np.round(170_000 * shapes[kind]()).astype(np.int64)
