"""What an interval of log ratios means for someone who must choose: faster, slower, the same, or can't tell.

Two arms of a group are compared by their block medians, by rules that all comparisons of the group share.

Verdict limits are symmetric in the log, so that swapping the two arms swaps `faster` and `slower` and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache, partial
from typing import cast

import numpy as np

from shootout.constants import SAME_WITHIN
from shootout.contract import Array
from shootout.stats.evidence import (
    GUARD_SD,
    LEAST_RESTARTS,
    bonferroni,
    checked,
    e_value,
    interval,
    own_holds,
    prior_holds,
)
from shootout.stats.goals import Goal
from shootout.stats.quantiles import median

MAX_ESTIMATE = 1_000
"""Beyond so many restarts "can't tell" says no number: nobody would wait for them."""
_VISIBLE_STEP = 1e-5


class Verdict(StrEnum):
    """What an interval says about an arm beside its baseline."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    CANT_TELL = "can't tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """An arm's time over its baseline's, with how sure we are.

    Attributes:
        value: the ratio: exp of the median log ratio between restarts; always inside the interval.
        low: the interval's lower end, a ratio; None while it is infinite.
        high: its upper end, likewise.
        sd: standard deviation of the log ratio between restarts; None with fewer than two.
        restarts: how many were compared.
        restarts_needed: for `can't tell`, the total it would take if the rest were like these; None beyond 1,000.
    """

    value: float
    low: float | None
    high: float | None
    verdict: Verdict
    restarts_needed: int | None
    sd: float | None
    restarts: int

    @property
    def decided(self) -> bool:
        """Tell whether there is a verdict, so that no further restart is needed for it."""
        return self.verdict is not Verdict.CANT_TELL


def judge(low: float, high: float, *, bias_floor: float, same_within: float = SAME_WITHIN) -> Verdict:
    """Return the verdict on an interval of log ratios: first tested against the bias floor, then `same_within`.

    No arms are the `same` where the floor isn't below `same_within`: the bias could hide a difference as large.

    Args:
        low: the interval's lower end, a log ratio; may be −inf.
        high: its upper end; may be inf.
        bias_floor: differences up to this (0.005 = 0.5 %) could be the harness's own.
        same_within: differences up to this are nothing to choose by.
    """
    floor, same = math.log1p(bias_floor), math.log1p(same_within)
    if low > floor:
        return Verdict.SLOWER
    if high < -floor:
        return Verdict.FASTER
    return Verdict.SAME if floor < same and -same <= low and high <= same else Verdict.CANT_TELL


def compare(
    log_ratios: Array,
    *,
    alpha: float,
    bias_floor: float,
    same_within: float = SAME_WITHIN,
    prior: bool = True,
    estimate: bool = True,
) -> Comparison:
    """Return what the restarts so far say about an arm; may be asked after every restart.

    The ratio is the median's, not the mean's: one bad restart moves a mean by more than most differences, and the
    median is always inside the interval.

    Args:
        log_ratios: log(arm / baseline) of each restart, shape (n,), n ≥ 1, finite.
        alpha: this comparison's share of the error probability, see `bonferroni`.
        bias_floor: see `judge`.
        same_within: see `judge`.
        prior: see `evidence.prior_holds`; these restarts' own spread must allow it as well (`evidence.own_holds`).
        estimate: whether to find out `restarts_needed`.

    Raises:
        ValueError: no restart, or a value that isn't finite.
    """
    x = checked(log_ratios)
    if x.size == 0:
        raise ValueError("a comparison needs at least one restart, received none")
    prior = prior and bool(own_holds(x)[-1])
    low, high = interval(x, alpha, prior=prior)
    verdict, middle = judge(low, high, bias_floor=bias_floor, same_within=same_within), median(x)
    sd = float(np.std(x, ddof=1)) if x.size > 1 else None
    needed = None
    if estimate and verdict is Verdict.CANT_TELL and sd is not None:
        foresee = partial(foreseen, middle, sd, alpha=alpha, bias_floor=bias_floor, same_within=same_within)
        needed = _restarts_needed(x.size, partial(foresee, prior=prior))
    return Comparison(
        value=math.exp(middle),
        low=math.exp(low) if math.isfinite(low) else None,
        high=math.exp(high) if math.isfinite(high) else None,
        verdict=verdict,
        sd=sd,
        restarts=x.size,
        restarts_needed=needed,
    )


def foreseen(
    middle: float,
    sd: float,
    restarts: int,
    *,
    alpha: float,
    bias_floor: float,
    same_within: float = SAME_WITHIN,
    prior: bool = True,
) -> Verdict:
    """Return the verdict on so many restarts that look as Gaussian as they can, with this middle and SD.

    E then rises from the middle to both sides, so it is asked at the limits of `judge` alone: no interval is sought.
    """
    if restarts < LEAST_RESTARTS:
        return Verdict.CANT_TELL
    values, squares = middle + sd * _normal_scores(restarts), (restarts - 1) * sd**2

    def left(shift: float) -> bool:
        above = int(np.sum(values > shift))
        return e_value(restarts, above, abs(shift - middle), squares, prior=prior) < 1 / alpha

    floor, same = math.log1p(bias_floor), math.log1p(same_within)
    gone = [limit for limit in (-same, -floor, floor, same) if not left(limit)]
    low = max((np.nextafter(limit, math.inf) for limit in gone if limit < middle), default=-math.inf)
    high = min((np.nextafter(limit, -math.inf) for limit in gone if limit > middle), default=math.inf)
    return judge(low, high, bias_floor=bias_floor, same_within=same_within)


class Standing(StrEnum):
    """On which side of a limit an interval lies."""

    MET = "met"
    BROKEN = "broken"
    UNKNOWN = "unknown"


def judge_limit(low: float | None, high: float | None, limit: float, *, at_most: bool = True) -> Standing:
    """Judge an interval against a limit: met or broken if it lies wholly on one side.

    Args:
        low, high: None if that end isn't known.
        at_most: the limit is an upper one; else a lower one.
    """
    worst, best = (high, low) if at_most else (low, high)
    if worst is not None and (worst <= limit if at_most else worst >= limit):
        return Standing.MET
    if best is not None and (best > limit if at_most else best < limit):
        return Standing.BROKEN
    return Standing.UNKNOWN


def smallest_visible(sd: float, restarts: int, *, alpha: float, bias_floor: float) -> float | None:
    """Return the difference (0.02 = 2 %) that so many restarts call `slower` about every second time, at this SD.

    Args:
        sd: standard deviation of the log ratio between restarts.
        alpha: see `bonferroni`.
        bias_floor: see `judge`.

    Returns:
        None where even a doubling gets no verdict.
    """

    def seen(share: float) -> bool:
        found = foreseen(math.log1p(share), sd, restarts, alpha=alpha, bias_floor=bias_floor, prior=sd <= GUARD_SD)
        return found is Verdict.SLOWER

    hidden, share = 0.0, 1.0
    if not seen(share):
        return None
    while share - hidden > _VISIBLE_STEP:
        middle = (hidden + share) / 2
        hidden, share = (hidden, middle) if seen(middle) else (middle, share)
    return share


@lru_cache(maxsize=1_024)
def _normal_scores(n: int) -> Array:
    """`n` values that look as Gaussian as `n` can: quantiles at (i−½)/n, scaled to a standard deviation of 1."""
    from statistics import NormalDist

    scores = np.array([NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)])
    return cast(Array, scores / np.std(scores, ddof=1))


def _restarts_needed(n: int, verdict_at: Callable[[int], Verdict]) -> int | None:
    """Return the first total beyond `n` with a verdict, by doubling the step and then halving it; None if too many."""
    undecided, step = n, 1
    while verdict_at(total := min(undecided + step, MAX_ESTIMATE)) is Verdict.CANT_TELL:
        if total == MAX_ESTIMATE:
            return None
        undecided, step = total, step * 2
    while total - undecided > 1:
        middle = (total + undecided) // 2
        if verdict_at(middle) is Verdict.CANT_TELL:
            undecided = middle
        else:
            total = middle
    return total


Blocks = Mapping[int, Array]
"""Restart → block medians (ns) of its valid rounds, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a group's race is judged by.

    Attributes:
        baseline: the label that ratios refer to, or None.
        control: the label of the baseline's hidden copy, or None.
        comparisons: how many verdicts the group was asked for (for Bonferroni).
        goal: what must be known before the race ends.
        exact: arms that compute in full precision. Which of these is fastest is a question of its own: what a faster
            arm rounds away may be too much.
        references: arm → another arm that it must have a verdict against as well.
        selects: whether the arms are settings of which only each target's best is looked for, without verdicts.
        pairs: arms whose crossover is looked for; whether their verdict here matters depends on the other sizes.
        narrows: whether the group is there for its pairs alone, and owes no other verdict.
        least_restarts: that each arm plays, whatever is known before.
    """

    baseline: str | None
    control: str | None
    comparisons: int
    max_restarts: int
    bias_floor: float
    goal: Goal = field(default_factory=Goal)
    exact: Collection[str] = ()
    references: Mapping[str, str] = field(default_factory=dict)
    pairs: Collection[tuple[str, str]] = ()
    selects: bool = False
    narrows: bool = False
    least_restarts: int = 0

    def crosses(self, one: str, other: str | None) -> bool:
        """Tell whether a crossover of these two is looked for."""
        return (one, other) in self.pairs or (other, one) in self.pairs


def control_limit(rules: Rules) -> float:
    """Return how far the control may lie from its baseline: if it surely lies further, no verdict of the group stands.

    `results.vetoes` withholds the verdicts, and `stats.leaders` keeps the race open until the control is in.
    """
    return rules.bias_floor


def log_ratios(arm: Blocks, baseline: Blocks) -> Array:
    """x_g = median over rounds of log(arm / baseline), for each restart both played, shape (n,)."""
    return np.array(list(_log_ratios(arm, baseline).values()), dtype=np.float64)


def _log_ratios(arm: Blocks, baseline: Blocks) -> dict[int, float]:
    return {g: median(np.log(arm[g] / baseline[g])) for g in sorted(set(arm) & set(baseline))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What all verdicts of a group stand on: what its restarts so far say of the machine and of the harness.

    Attributes:
        prior: whether evidence may rest on how far restarts usually spread: see `evidence.prior_holds`. It is the
            spread of all arms, the control too, beside the baseline; beside the first by name where there is none.
        bias_floor: the stored one, or how far the control's median is from its baseline's, whichever is more.
    """

    prior: bool
    bias_floor: float


def ground_of(blocks: Mapping[str, Blocks], rules: Rules) -> Ground:
    """Return the ground of a group, from the blocks of all its arms."""
    played = {label: arm for label, arm in blocks.items() if arm}
    copy = log_ratios(played.get(rules.control or "", {}), played.get(rules.baseline or "", {}))
    seen = math.expm1(abs(median(copy))) if copy.size else 0.0
    return Ground(prior=_find_prior(played, rules.baseline), bias_floor=max(rules.bias_floor, seen))


def _find_prior(played: dict[str, Blocks], baseline: str | None) -> bool:
    if len(played) < 2:
        return True
    centre = played.pop(baseline if baseline and baseline in played else min(played))
    restarts = sorted(centre)
    found = [_log_ratios(arm, centre) for arm in played.values()]
    return bool(prior_holds(np.array([[one.get(g, math.nan) for g in restarts] for one in found]))[-1])


def comparison(
    blocks: Mapping[str, Blocks],
    label: str,
    against: str,
    rules: Rules,
    *,
    same_within: float = SAME_WITHIN,
    ground: Ground | None = None,
    estimate: bool = True,
) -> Comparison:
    """Return one arm against another, at the group's share of α.

    Args:
        blocks: of all arms of the group, since its ground is theirs.
        same_within, estimate: see `compare`.
        ground: `ground_of` the blocks, where it is known already.
    """
    ground = ground or ground_of(blocks, rules)
    is_control = {label, against} == {rules.control, rules.baseline}
    x = log_ratios(blocks.get(label, {}), blocks.get(against, {}))
    return compare(
        x,
        alpha=bonferroni(rules.comparisons),
        bias_floor=control_limit(rules) if is_control else ground.bias_floor,
        same_within=same_within,
        prior=ground.prior,
        estimate=estimate,
    )


def compare_with_limit(
    blocks: Mapping[str, Blocks], label: str, against: str, rules: Rules, *, limit: float, estimate: bool = True
) -> Comparison:
    """Compare one arm's time with another's × (1 + limit): `slower` is beyond the limit, `faster` below it.

    It is the interval of `comparison` that lies on one side of the limit, or not: a limit is no claim of the harness,
    so its bias widens nothing. No arm is the `same` as a limit.
    """
    return compare(
        log_ratios(blocks.get(label, {}), blocks.get(against, {})) - math.log1p(limit),
        alpha=bonferroni(rules.comparisons),
        bias_floor=0.0,
        same_within=0.0,
        prior=ground_of(blocks, rules).prior,
        estimate=estimate,
    )
