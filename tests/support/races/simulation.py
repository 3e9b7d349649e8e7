"""Seeded worlds in which the truth is known, for the tests of the statistics and for `lab/simulate.py`.

They draw the log ratio of each restart directly, so thousands of runs of 20 restarts take seconds. The package's own
functions are called on them; for many groups at once, C alone is counted by a copy for arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma

from shootout.core.constants import ALPHA, BIAS_FLOOR, MAX_RESTARTS, ROUNDS
from shootout.core.contract import Arm, Array, Target
from shootout.core.race.race import Race as PackageRace
from shootout.core.stats.group_evidence import Blocks, GroupEvidence, Rules
from shootout.core.stats.verdicts import LEAST_OPEN, LEAST_SD, Verdict, find_bearable, find_reach

from .groups import group_of_rules, take

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How far the arms of a simulated group spread.

    Attributes:
        uneven: SD of the log of the arms' own SDs.
        wild: the first row's own SD instead, if it isn't 0.
        baseline: the baseline's SD in units of the others'.
    """

    uneven: float = 0.0
    wild: float = 0.0
    baseline: float = 1.0


def draw_times(
    noise: str, groups: int, rows: int, rng: np.random.Generator, *, sd: float, spread: Spread, ar: float = 0.0
) -> Array:
    """Log times of the baseline, the rows and the baseline's copy, all truly equal, (groups, rows + 2, 20).

    Args:
        sd: of the typical log ratio.
        ar: see `tapes`.
    """
    own = np.exp(spread.uneven * rng.standard_normal((groups, rows + 2, 1))) * sd / math.sqrt(2)
    own[:, 0] *= spread.baseline
    if spread.wild:
        own[:, 1] = spread.wild
    own[:, -1] = own[:, 0]  # the copy spreads as its baseline does
    return own * tapes(noise, (groups, rows + 2), rng, sd=1.0, ar=ar)


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """One pair of every group, at each look from the second restart on; arrays of shape (groups, looks).

    It is `interval.PairEvidence` for arrays, where all arms play on.
    """

    mean: Array
    own: Array
    typical: Array
    others: int

    @property
    def n(self) -> Array:
        """Restarts at each look."""
        return np.arange(2, self.mean.shape[-1] + 2)

    def reach(self, comparisons: float | Array) -> Array:
        """How far the intervals reach."""
        return find_reach(self.n, self.own, self.typical, self.others, comparisons)

    def bearable(self) -> Array:
        """With how many questions they would still be told from equal."""
        return find_bearable(self.mean, self.n, self.own, self.typical, self.others)


def look(times: Array, pairs: Iterable[tuple[int, int]]) -> Iterator[Looks]:
    """Look at pairs of arms after each restart.

    Args:
        times: see `draw_times`.
    """
    n = np.arange(2, times.shape[-1] + 1)
    beside = np.log(_running(times[:, 1:] - times[:, :1])[1]) - (digamma((n - 1) / 2) - np.log((n - 1) / 2))
    for one, other in pairs:
        rest = [arm for arm in range(beside.shape[1]) if arm + 1 not in (one, other)]
        mean, own = _running(times[:, one] - times[:, other])
        typical = np.exp(beside[:, rest].mean(axis=1)) if rest else np.ones_like(own)
        yield Looks(mean=mean, own=own, typical=typical, others=len(rest))


def _running(x: Array) -> tuple[Array, Array]:
    """Mean and variance after each restart from the second on."""
    n = np.arange(1, x.shape[-1] + 1)
    away = x - x[..., :1]
    mean = np.cumsum(away, axis=-1) / n
    squares = np.maximum(np.cumsum(away**2, axis=-1) - n * mean**2, 0.0)
    own = np.maximum(squares[..., 1:] / (n[1:] - 1), LEAST_SD**2)
    return mean[..., 1:] + x[..., :1], own


def find_false(times: Array, *, truths: Array | None = None, best: bool = False) -> Array:
    """Whether each group has a false verdict at each look, (groups, looks); no bias floor helps.

    Args:
        times: see `draw_times`.
        truths: the true log ratios of the rows to the baseline; all 0 unless given.
        best: the arm that is fastest at a look is compared with each other one, too.
    """
    rows = times.shape[1] - 2
    true = np.concatenate([[0.0], np.zeros(rows) if truths is None else truths, [0.0]])
    pairs, seen, bears, asked = _look_at_race(times + true[:, None], best=best)
    bears = np.where(asked, bears, 0.0)
    wrong = [one.mean * (true[a] - true[b]) <= 0 for (a, b), one in zip(pairs, seen, strict=True)]
    told = bears > open_questions(bears, count_questions(rows, best=best))[..., None]
    return np.asarray((told & np.stack(wrong, axis=-1)).any(axis=-1))


def find_unseated(times: Array, *, truths: Array | None = None) -> Array:
    """Whether either of the first two rows, truly the fastest, is no leader at each look, (groups, looks).

    Args:
        times, truths: see `find_false`; a leader is an arm that none is told to beat.
    """
    rows = times.shape[1] - 2
    true = np.concatenate([[0.0], np.zeros(rows) if truths is None else truths, [0.0]])
    pairs, seen, bears, asked = _look_at_race(times + true[:, None], best=True)
    told = bears > open_questions(np.where(asked, bears, 0.0), count_questions(rows, best=True))[..., None]
    beaten = [
        ((a in (1, 2)) & (one.mean > 0)) | ((b in (1, 2)) & (one.mean < 0))
        for (a, b), one in zip(pairs, seen, strict=True)
    ]
    return np.asarray((told & np.stack(beaten, axis=-1)).any(axis=-1))


def _look_at_race(times: Array, *, best: bool) -> tuple[list[tuple[int, int]], list[Looks], Array, Array]:
    """The pairs of a race, what is seen of each, what each bears, and whether it is asked for at that look."""
    rows = times.shape[1] - 2
    pairs = [(one, other) for one in range(1, rows + 1) for other in range(one) if best or other == 0]
    fastest = np.cumsum(times[:, :-1], axis=-1)[..., 1:].argmin(axis=1)
    seen = list(look(times, pairs))
    asked = [(fastest == one) | (fastest == other) | (other == 0) for one, other in pairs]
    return pairs, seen, np.stack([one.bearable() for one in seen], axis=-1), np.stack(asked, axis=-1)


def find_missed(times: Array, truths: Array) -> Array:
    """Whether any row's printed interval misses its truth at each look, (groups, looks), as C stands at that look.

    Args:
        times, truths: see `find_false`.
    """
    times = times + np.concatenate([[0.0], truths, [0.0]])[:, None]
    seen = list(look(times, [(row + 1, 0) for row in range(len(truths))]))
    counted = open_questions(np.stack([one.bearable() for one in seen], axis=-1), len(truths))
    missed = [np.abs(one.mean - true) > one.reach(counted) for one, true in zip(seen, truths, strict=True)]
    return np.asarray(np.any(missed, axis=0))


def restarts_to_tell(times: Array, *, best: bool = False) -> Array:
    """After how many restarts the first row of each group is told, beyond the bias floor; 99: at no look.

    The floor is the stored one, or the distance of the baseline's copy from it if that is more, as in a race.

    Args:
        times: see `draw_times`; no question is answered before.
    """
    rows = times.shape[1] - 2
    seen, copy = look(times, [(1, 0), (rows + 1, 0)])
    floor = np.maximum(np.abs(copy.mean), math.log1p(BIAS_FLOOR))
    told = np.abs(seen.mean) - seen.reach(count_questions(rows, best=best)) > floor
    return np.where(told.any(axis=1), told.argmax(axis=1) + 2, 99)


def count_questions(rows: int, *, best: bool) -> int:
    """The pairs of rows with the baseline; and, for the best, those of the others with the fastest."""
    return rows * 2 - 1 if best else rows


def open_questions(bearable: Array, questions: int) -> Array:
    """C of many groups at many looks, as `interval.count_open` counts it for one; bearable: (…, questions)."""
    least, order = min(questions, LEAST_OPEN), -np.sort(-bearable, axis=-1)
    limits = np.maximum(questions - np.arange(order.shape[-1]), least)
    told = np.cumprod(order > limits, axis=-1).sum(axis=-1)
    return np.asarray(np.maximum(questions - told, least))


def told_apart(x: Array) -> Array:
    """The looks after which each group has a first false verdict, as restarts; 0 where it has none.

    Args:
        x: log ratios of arms as fast as the baseline, (groups, arms, restarts); the last arm is the control.
    """
    found = find_false(np.concatenate([np.zeros_like(x[:, :1]), x], axis=1))
    return np.where(found.any(axis=1), found.argmax(axis=1) + 2, 0)


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
    players, group = labels, group_of_rules(rules)
    there = {label: Arm(target=Target(backend="b"), model="m") for label in labels}
    while found := PackageRace(arms={label: there[label] for label in players}, group=group, seed="").find_players():
        players = found if leaving else labels
        row = tape[group.next_restart]
        take(group, {label: row[labels.index(label)][None] for label in players})
    blocks = group.blocks("end_to_end")
    return Race(
        restarts=tuple(len(blocks[label]) for label in labels),
        verdicts=tuple(verdict_on(blocks, label, labels[0], rules) for label in labels[1:]),
    )


def verdict_on(blocks: Mapping[str, Blocks], label: str, other: str, rules: Rules) -> Verdict:
    """The verdict on two arms that share a restart."""
    found = GroupEvidence(blocks, rules).compare(label, other)
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
