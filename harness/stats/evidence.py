"""Anytime-valid evidence about ratios between arms: runs stop as soon as they know, so looking early must do no harm.

The unit is the process restart: one log ratio x_g each. E(x − δ), a mean of three e-values, measures the evidence
against "the true log ratio is δ". Under that null, however often one looks, it reaches 1/α with a probability of at
most α: so the δ with E < 1/α form an interval that holds at any stopping time (Ville's inequality). Each part has its
own assumption. E_sign holds where x is symmetric about δ, so bad restarts can't fool it; E_t where x is Gaussian,
whatever its variance; E_H (`spread.bayes_factor`) on average over a prior on that variance, which the other arms of
the group sharpen, so that two restarts already distinguish what is far apart. How often E_H errs at one given variance
is simulated, not proven: docs/statistics.md has the table.

Source: E_sign is the Krichevsky–Trofimov mixture (Beta(½, ½) prior on the share of positive signs); E_t the Gaussian
mixture t statistic with the right-Haar prior on the scale (Lai 1976; Wang and Ramdas 2023).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import cast

import numpy as np

from shootout.constants import ALPHA
from shootout.contract import Array
from shootout.stats import quantiles
from shootout.stats.spread import PRIOR, bayes_factor, find_reach

H_WEIGHT, SIGN_WEIGHT, T_WEIGHT = 0.5, 0.25, 0.25
T_EFFECT = 9.0
"""g: the prior variance of the difference in E_t, in units of the variance between restarts; wide, as ours are."""
LEAST_RESTARTS = 2
"""One restart shows no spread."""
_DISTANCES = np.append(np.geomspace(1e-4, 25.0, 64), 1e9)
"""E_H falls again here and there as a shift moves away. At these distances from the mean it is held to the least of
what it is further out: then E only grows with the distance. The last stands for a shift that is infinitely far."""
_REFINED, _REFINEMENTS = 17, 5
"""A gap between two distances is parted so finely, so many times: an end is found to 1e-7 of itself."""
_TINY = 1e-300


def bonferroni(comparisons: int, alpha: float = ALPHA) -> float:
    """Return the error probability that each of `comparisons` verdicts may have, if all together keep to `alpha`."""
    return alpha / max(comparisons, 1)


@lru_cache(maxsize=1_024)
def ceiling(n: int) -> float:
    """Return the most that E can reach with `n` restarts that show no spread at all."""
    return PairEvidence(np.zeros(n)).at(_DISTANCES[-1])


def min_restarts(comparisons: int) -> int:
    """Return the fewest restarts for a verdict, if it is one of so many."""
    n = LEAST_RESTARTS
    while ceiling(n) <= 1 / bonferroni(comparisons):
        n += 1
    return n


@dataclass(frozen=True, eq=False)
class PairEvidence:
    """One pair's log ratios, a value for each restart that both played.

    Attributes:
        log_ratios: shape (n,), n ≥ 1, finite.
        log_weights: what the group's other arms say of the spread, see `spread`.

    Raises:
        ValueError: no restart, or a value that isn't finite.
    """

    log_ratios: Array
    log_weights: Array = field(default_factory=lambda: PRIOR)

    def __post_init__(self) -> None:
        x = np.asarray(self.log_ratios, dtype=float)
        if x.ndim != 1 or x.size == 0 or not np.isfinite(x).all():
            raise ValueError(f"log ratios must be one finite number for each restart, received {self.log_ratios!r}")
        object.__setattr__(self, "log_ratios", np.sort(x))

    @property
    def n(self) -> int:
        """Return how many restarts there are."""
        return self.log_ratios.size

    @cached_property
    def median(self) -> float:
        """Return the median of the log ratios."""
        return quantiles.median(self.log_ratios)

    @cached_property
    def mean(self) -> float:
        """Return the mean, taken from the median, so that equal values give exactly no spread."""
        return self.median + float(np.mean(self.log_ratios - self.median))

    @cached_property
    def squares(self) -> float:
        """Return Σ(x−mean)²."""
        return float(np.sum((self.log_ratios - self.mean) ** 2))

    def at(self, shift: float) -> float:
        """Return E against one shift; ties are counted on whichever sides make the evidence weakest."""
        above, equal = int(np.sum(self.log_ratios > shift)), int(np.sum(self.log_ratios == shift))
        weakest = min(max(self.n // 2, above), above + equal)
        outer = self._outer(np.array([abs(shift - self.mean)]))[0]
        return float(SIGN_WEIGHT * sign_evidence(self.n)[weakest] + outer)

    def evidence_above(self, limit: float) -> float:
        """Return the least of E against all shifts up to `limit`; 0 unless median and mean lie above it.

        One restart is no evidence.
        """
        return self.at(limit) if self.n >= LEAST_RESTARTS and min(self.median, self.mean) > limit else 0.0

    def evidence_below(self, limit: float) -> float:
        """Return the least of E against all shifts from `limit` on; likewise."""
        return self.at(limit) if self.n >= LEAST_RESTARTS and max(self.median, self.mean) < limit else 0.0

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return the hull of {shift: E < 1/alpha}, as log ratios; it always holds the median.

        In each gap between two neighboring values, and at each value itself, the sign part is constant and the others
        grow with the distance from the mean. So a gap has shifts that are left if the nearest to the mean is, and where
        its farthest isn't, the end lies between the two.

        Args:
            alpha: how often the interval may miss the truth, at any stopping time.

        Returns:
            Lower and upper end; an end is infinite where no shift on its side is excluded. Both are where no shift at
            all is left: then the values contradict symmetry itself, which is no evidence about the ratio.
        """
        if self.n < LEAST_RESTARTS:
            return -math.inf, math.inf
        above, lower, upper = _split_pieces(self.log_ratios)
        nearest = np.minimum(np.maximum(self.mean, lower), upper)
        room = 1 / alpha - SIGN_WEIGHT * sign_evidence(self.n)[above]
        left = np.flatnonzero(self._outer(np.abs(nearest - self.mean)) < room)
        if left.size == 0:
            return -math.inf, math.inf

        def end(edges: Array, side: int) -> float:
            piece = max(left, key=lambda piece: (side * nearest[piece], side * edges[piece]))
            start, edge = float(nearest[piece]), float(edges[piece])
            if start == edge:
                return edge
            return self.mean + side * self._find_reach(abs(start - self.mean), abs(edge - self.mean), room[piece])

        return min(self.median, end(lower, -1)), max(self.median, end(upper, 1))

    def reading(self) -> tuple[float, float]:
        """Return the 95 % interval of this pair alone, at this look, as log ratios; it always holds the median."""
        reach = self.reach(ALPHA)
        return min(self.median, self.mean - reach), max(self.median, self.mean + reach)

    def reach(self, alpha: float) -> float:
        """Return how far from the mean the true log ratio lies, but for the share `alpha`; inf of one restart."""
        return find_reach(self.n, self.squares, self.log_weights, alpha) if self.n >= LEAST_RESTARTS else math.inf

    def _outer(self, distances: Array) -> Array:
        """Return E but for its sign part, held to what it is further out: it grows with the distance from the mean."""
        distances = np.minimum(distances, _DISTANCES[-1])
        further = self._least_further_out[np.searchsorted(_DISTANCES[:-1], distances)]
        return np.minimum(outer_evidence(self.n, distances, self.squares, self.log_weights), further)

    @cached_property
    def _least_further_out(self) -> Array:
        found = outer_evidence(self.n, _DISTANCES, self.squares, self.log_weights)
        return np.minimum.accumulate(found[::-1])[::-1]

    def _find_reach(self, near: float, far: float, room: float) -> float:
        """Return the distance at which `_outer`, less than `room` at `near`, gets there; `far` where it doesn't."""
        edges = np.append(_DISTANCES[(near < _DISTANCES) & (far > _DISTANCES)], min(far, _DISTANCES[-1]))
        for _ in range(1 + _REFINEMENTS):
            enough = np.flatnonzero(self._outer(edges) >= room)
            if enough.size == 0:
                return far
            near, reached = (edges[enough[0] - 1] if enough[0] else near), edges[enough[0]]
            edges = np.linspace(near, reached, _REFINED)[1:]
        return float(reached)


def outer_evidence(n: int, distances: Array, squares: float | Array, log_weights: Array) -> Array:
    """Return E but for its sign part, as it is, for one pair at many shifts or for many pairs; `bayes_factor` has the
    arguments.
    """
    evidence = bayes_factor(n, distances, squares, log_weights)
    return H_WEIGHT * evidence + T_WEIGHT * _t_evidence(n, distances, squares)


@lru_cache(maxsize=4_096)
def sign_evidence(n: int) -> Array:
    """Return E_sign for k = 0 … n values above the shift: 2ⁿ Γ(k+½) Γ(n−k+½) / (π Γ(n+1)), shape (n+1,)."""
    halves = np.array([math.lgamma(k + 0.5) for k in range(n + 1)])
    with np.errstate(over="ignore"):
        return cast(Array, np.exp(n * math.log(2) + halves + halves[::-1] - math.log(math.pi) - math.lgamma(n + 1)))


def _t_evidence(n: int, distances: Array, squares: float | Array) -> Array:
    """Return E_t: r^(−½) [(1+q) / (1+q/r)]^(n/2), with r = 1 + n·g and q = n·distance² / squares; 0 / 0 counts as 0."""
    r, shift = 1 + n * T_EFFECT, n * np.square(distances)
    within = (squares + _TINY) / (squares + shift + _TINY)
    with np.errstate(over="ignore"):
        return cast(Array, (r / (1 + (r - 1) * within)) ** (n / 2) / math.sqrt(r))


def _split_pieces(ordered: Array) -> tuple[Array, Array, Array]:
    """Return the gaps between the values, then the values themselves: how many lie above, lower and upper edge of each.

    A value that equals the shift has no sign: ties are counted on whichever sides make the evidence weakest.
    """
    n = ordered.size
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    values, equal = ordered[starts], np.diff(starts, append=n)
    above = n - starts - equal
    at_values = np.clip(n // 2, above, above + equal)
    lower, upper = np.concatenate([[-np.inf], values, values]), np.concatenate([values, [np.inf], values])
    return np.concatenate([[n], above, at_values]), lower, upper
