"""How far a pair's restarts spread, learned from the whole group: a Bayes factor, and a 95 % interval to read.

Two or three restarts of one pair hardly show how far its restarts spread, but the other arms of its group were started
beside it, on the same machine. So the variance of a pair's log ratio has a prior with the group's own scale in it, and
that scale has a prior from recorded runs: it is near 3 %, mostly between 1 and 15 %. Most pairs spread about as the
group does, one in ten three times as far, one in a hundred by 40 % whatever the group does. That last share is what
keeps a wild arm among quiet ones from being believed.

`bayes_factor` is evidence against a shift, under "the true log ratio is any other". `find_reach` is how far the
ratio may lie from the mean, under the same prior.

Sources: an inverse gamma prior whose scale is learned from the other series is Smyth's (2004, limma); an e-value that
mixes over effects in units of the variance is Lai's (1976). The constants were fitted to 96 recorded groups
(docs/statistics.md says what is proven of this, and what is simulated).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import cast

import numpy as np

from shootout.contract import Array

_SCALES = np.array([0.002, 0.0035, 0.006, 0.01, 0.0175, 0.03, 0.05, 0.09, 0.15, 0.26, 0.45, 0.8])
"""The SDs that a group's typical pair may have."""
_CENTER, _WIDTHS = 0.032, ((0.85, 0.7), (0.15, 1.5))
"""The prior on the log of that SD: two Gaussians around 3.2 %, a share and a width each."""
_COMPONENTS = ((0.89, 8.0, 1.0, None), (0.10, 4.0, 3.0, None), (0.01, 2.0, None, 0.40))
"""The prior on a pair's variance, given the group's SD: a share, its degrees of freedom, and an SD in units of the
group's, or of its own.
"""
_EFFECTS = ((0.5, 10.0, True), (0.4, 1.0, False), (0.1, 100.0, False))
"""The sizes by which a true ratio may be off: a share, and a variance in units of the pair's own variance, or of its
own."""
_NEAR = 1e-12
"""The share by which `find_reach` may miss the tail that it looks for."""

_log, _lgamma = np.log, np.vectorize(math.lgamma, otypes=[float])


def _log_sum(logs: Array) -> Array:
    """Return the log of the sum of exp(logs) along the last axis; `np.logaddexp.reduce` takes five times as long."""
    most = logs.max(axis=-1, keepdims=True)
    return cast(Array, _log(np.exp(logs - most).sum(axis=-1)) + most[..., 0])


def _make_terms() -> tuple[Array, Array, Array]:
    """Return log shares, degrees of freedom and SDs of all components at all scales, each of shape (scales, 3)."""
    shape = (_SCALES.size, len(_COMPONENTS))
    shares, degrees, sds = (np.empty(shape) for _ in range(3))
    for column, (share, freedom, relative, own) in enumerate(_COMPONENTS):
        shares[:, column], degrees[:, column] = math.log(share), freedom
        sds[:, column] = own if relative is None else relative * _SCALES
    return shares, degrees, sds


_LOG_SHARE, _DEGREES, _SD = _make_terms()
_PRIOR_SQUARES = _DEGREES * _SD**2


def _make_prior() -> Array:
    """Return the log weight of each scale before anything was measured, shape (scales,)."""
    shares, widths = np.array(_WIDTHS).T[..., None]
    gaussians = -0.5 * ((_log(_SCALES) - math.log(_CENTER)) / widths) ** 2
    return _log_sum((_log(shares) + gaussians - _log_sum(gaussians)[:, None]).T)


PRIOR = _make_prior()
"""The weights of the scales for a pair of which no group is known, as logs, shape (scales,)."""


def scale_likelihood(degrees: int, squares: float | Array) -> Array:
    """Return the log likelihood of each scale for series beside the baseline, whatever their means; (…, scales).

    Args:
        degrees: their restarts less one, at least 1.
        squares: Σ(x−mean)² of a series' log ratios, shape (…).
    """
    return _log_sum(_LOG_SHARE + _log_density(degrees, squares))


def _log_density(degrees: int, squares: float | Array) -> Array:
    """Return the log density of a series' spread under each term, shape (…, scales, 3)."""
    total, within = (degrees + _DEGREES) / 2, _PRIOR_SQUARES + np.asarray(squares)[..., None, None]
    constant = _lgamma(total) - _lgamma(_DEGREES / 2) - degrees / 2 * math.log(math.pi)
    return cast(Array, constant + _DEGREES / 2 * _log(_PRIOR_SQUARES) - total * _log(within))


def bayes_factor(n: int, distances: Array, squares: float | Array, log_weights: Array) -> Array:
    """Return the evidence against shifts at these distances from the mean of `n` log ratios, shape (…).

    It is a likelihood ratio under its own prior, so that on average over groups as the prior draws them it reaches 1/α
    with a probability of at most α, however often one looks.

    Args:
        n: restarts, at least 1.
        distances: not negative; shape (…).
        squares: Σ(x−mean)² of the pair's log ratios; one for all, or shape (…).
        log_weights: of the scales, from the group's other arms or `PRIOR`; shape (scales,) or (…, scales).
    """
    spread, power, constant, effects = _find_factors(n)
    shift = n * np.square(distances)[..., None]
    within = spread + np.asarray(squares)[..., None]
    weights = constant + np.repeat(log_weights, len(_COMPONENTS), axis=-1)
    null = weights - power * _log(within + shift)
    other = [weights + log_share - power * _log(within + shift / r) for log_share, r in effects]
    found = _log_sum(np.concatenate(other, axis=-1)) - _log_sum(null)
    return cast(Array, np.exp(np.minimum(found, 700.0)))


@lru_cache(maxsize=256)
def _find_factors(n: int) -> tuple[Array, Array, Array, tuple[tuple[Array, Array], ...]]:
    """Return what a Bayes factor of `n` restarts needs of each term: prior squares, power, constant and effects.

    An effect is a log share, less half the log of r, and r = 1 + n · its variance ÷ that of the pair.
    """
    spread, degrees, share, sd = (part.ravel() for part in (_PRIOR_SQUARES, _DEGREES, _LOG_SHARE, _SD))
    power = (n + degrees) / 2
    constant = share + _lgamma(power) - _lgamma(degrees / 2) + degrees / 2 * _log(spread)
    effects = []
    for part, variance, relative in _EFFECTS:
        r = np.full_like(sd, 1 + n * variance) if relative else 1 + n * variance / sd**2
        effects.append((math.log(part) - 0.5 * _log(r), r))
    return spread, power, constant, tuple(effects)


def find_reach(n: int, squares: float, log_weights: Array, alpha: float) -> float:
    """Return how far from the mean of `n` log ratios the true one lies, but for the share `alpha`.

    It is half of the central interval of a mixture of Student t distributions, one for each term, weighted by how well
    the term explains the pair's own spread. It holds for one pair at one look.

    Args:
        n: restarts, at least 1.
        squares, log_weights: as in `bayes_factor`.
        alpha: how often the interval may miss the truth.
    """
    from scipy.special import stdtr  # here: scipy takes 0.1 s to import, and a worker needs none of it

    log_share = log_weights[:, None] + _LOG_SHARE + _log_density(n - 1, squares)
    share = np.exp(log_share - _log_sum(log_share.ravel()))
    freedom = n - 1 + _DEGREES
    unit = np.sqrt((_PRIOR_SQUARES + squares) / (n * freedom))

    if alpha >= 1:
        return 0.0

    def excess(reach: float) -> float:
        return math.log(float(np.sum(share * stdtr(freedom, -reach / unit))) / (alpha / 2))

    low = high = float(2 * np.sum(share * unit))
    while (above := excess(low)) <= 0:
        low /= 2
    while (below := excess(high)) > 0:
        low, above, high = high, below, 2 * high
    # Tails are nearly straight lines in logarithms, so a chord meets the limit after few steps. An end that stays twice
    # is worth half as much (the Illinois method), else the other end would creep.
    reach, found = high, below
    while high - low > _NEAR * high and abs(found) > _NEAR:
        before, reach = found, low * (high / low) ** (above / (above - below))
        found = excess(reach)
        stays = 0.5 if (found > 0) == (before > 0) else 1.0
        if found > 0:
            low, above, below = reach, found, below * stays
        else:
            high, below, above = reach, found, above * stays
    return reach
