"""Compare arms over a mix of sizes: what one group's evidence is, over all sizes together.

Each size was raced by itself. The k-th restart of two arms at every size makes the k-th restart of the mix: what a call
of the mix costs there, its mean time or its p99, is one figure for each arm, and so is their ratio. These ratios are as
independent of each other as the restarts are, so all rules of a group hold for them.

Of a size that was raced for longer only the first restarts count, as many as the least raced size has. That the races
end whenever they know enough does no harm: the k-th restarts would have been the same if others had ended sooner or
later, so the evidence over all k that there might have been bounds the evidence over those that there are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations

import numpy as np

from shootout.contract import Array
from shootout.stats.evidence import PairEvidence
from shootout.stats.group_evidence import Blocks, GroupEvidence, Rules
from shootout.stats.leaders import time_ns
from shootout.stats.quantiles import median, own_calls
from shootout.stats.verdicts import Comparison, compare

ROUTER_GAIN = 0.05
"""A router is worth a line if it surely gains more than this share of what the best single arm costs."""
P99 = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Send calls to one of two arms, by their size.

    Attributes:
        below: takes the sizes up to that of the number `last`, counted from 0.
        above: takes all others.
    """

    below: str
    above: str
    last: int

    def over(self, sizes: int) -> list[str]:
        """Return the arm of each of so many sizes."""
        return [self.below if size <= self.last else self.above for size in range(sizes)]


@dataclass(frozen=True, eq=False)
class MixEvidence(GroupEvidence):
    """Hold what the restarts at several sizes say of any two arms over their mix.

    Attributes:
        parts: of each size, rising, by label and restart: block medians (ns), or for a p99 the times of single calls.
        weights: of each size, the share of calls; their sum is 1.
        is_p99: a call of the mix costs the 99th percentile of all calls, else their mean.
    """

    parts: Sequence[Mapping[str, Blocks]] = ()
    weights: Sequence[float] = ()
    is_p99: bool = False
    _series: dict[tuple[str, str], Mapping[int, float]] = field(default_factory=dict, init=False)

    def have_met(self, one: str, other: str | None) -> bool:
        """Tell whether both have a cost in any one restart of the mix."""
        return other is not None and {one, other} <= set(self.blocks) and bool(self.series(one, other))

    def series(self, label: str, against: str) -> Mapping[int, float]:
        """Return the log ratio of two arms' costs in each restart of the mix that both played."""
        if (label, against) not in self._series:
            sizes = len(self.parts)
            found = {k: math.log(one / other) for k, (one, other) in self._costs([label] * sizes, [against] * sizes)}
            self._series[label, against] = found
        return self._series[label, against]

    def cost_ns(self, arms: Sequence[str]) -> float:
        """Return what a call of the mix costs, given the arm of each size; inf if that isn't known."""
        if not self.is_p99:
            return sum(part.get(arm, math.inf) for part, arm in zip(self._weighted_ns, arms, strict=True))
        costs = [one for _, (one, _) in self._costs(arms, arms)]
        return median(np.array(costs)) if costs else math.inf

    def find_route(self, arms: Collection[str]) -> Route | None:
        """Return the route between two of these arms that costs the least; None if there is none."""
        sizes = len(self.parts)
        if self.is_p99:  # which takes a while, so only between arms that are the fastest at any size
            arms = {min(arms, key=lambda arm: part.get(arm, math.inf)) for part in self._weighted_ns}
        routes = (
            Route(below=below, above=above, last=last)
            for below, above in permutations(sorted(arms), 2)
            for last in range(sizes - 1)
        )
        return min(routes, key=lambda route: self.cost_ns(route.over(sizes)), default=None)

    def compare_route(
        self, route: Route, against: str, arms: int, *, estimate: bool = True
    ) -> tuple[Comparison, Comparison] | None:
        """Compare what a route costs with one arm, and with that less `ROUTER_GAIN`; None if no restart has both.

        Args:
            arms: how many the route was chosen from. That some route gains so much is one of the mix's comparisons, and
                its share of α is shared by all routes that there are between so many arms.
            estimate: see `verdicts.compare`; of the second one.
        """
        sizes = len(self.parts)
        found = [math.log(one / other) for _, (one, other) in self._costs(route.over(sizes), [against] * sizes)]
        if not found:
            return None
        alpha = self.alpha / (arms * (arms - 1) * (sizes - 1))
        weights = self._log_weights((route.below, route.above, against), len(found) - 1)
        pair = PairEvidence(np.array(found), weights)
        limit = PairEvidence(pair.log_ratios - math.log1p(-ROUTER_GAIN), weights)
        return (
            compare(pair, alpha=alpha, bias_floor=self.bias_floor, estimate=False),
            compare(limit, alpha=alpha, bias_floor=0.0, same_within=0.0, estimate=estimate),
        )

    @cached_property
    def _weighted_ns(self) -> list[dict[str, float]]:
        """Return by size what each arm's calls there add to the mean."""
        return [
            {label: weight * time_ns(blocks) for label, blocks in part.items()}
            for weight, part in zip(self.weights, self.parts, strict=True)
        ]

    def _costs(self, arms: Sequence[str], others: Sequence[str]) -> Iterator[tuple[int, tuple[float, float]]]:
        """Yield the number of each restart of the mix, and the costs (ns) of both, given the arms of each size."""
        by_size = []
        for part, arm, other in zip(self.parts, arms, others, strict=True):
            mine, theirs = part.get(arm, {}), part.get(other, {})
            by_size.append([(mine[g], theirs[g]) for g in sorted(set(mine) & set(theirs))])
        for k, pairs in enumerate(zip(*by_size, strict=False)):
            if not self.is_p99:
                yield k, self._paired_means(pairs)
            elif all(has_p99(self.weights, calls) for calls in zip(*pairs, strict=True)):
                one, other_ns = (mixed_p99_ns(self.weights, calls) for calls in zip(*pairs, strict=True))
                yield k, (one, other_ns)

    def _paired_means(self, pairs: Sequence[tuple[Array, Array]]) -> tuple[float, float]:
        """Return the weighted means of both; at each size their ratio is the median of the rounds, as in a group."""
        ratios = np.array([median(np.log(one / other)) for one, other in pairs])
        middles = np.array([median(np.log(one * other)) for one, other in pairs])
        ends = (float(np.dot(self.weights, np.exp((middles + side * ratios) / 2))) for side in (1, -1))
        return next(ends), next(ends)


def make_mix_evidence(
    parts: Sequence[Mapping[str, Blocks]],
    weights: Sequence[float],
    rules: Rules,
    *,
    unsound: Collection[str] = (),
    is_p99: bool = False,
) -> MixEvidence:
    """Return the evidence over a mix, of the arms that have a cost there.

    Args:
        parts, weights, is_p99: see `MixEvidence`; the weights may have any sum above 0.
        rules: what the mix is judged by, the question of a router not counted.
        unsound: see `GroupEvidence`.
    """
    shares = [weight / math.fsum(weights) for weight in weights]
    rules = replace(rules, comparisons=rules.comparisons + (len(parts) > 1))
    known = MixEvidence({}, rules, unsound, parts=parts, weights=shares, is_p99=is_p99)
    sizes = len(parts)
    costs = {
        label: {k: np.array([one]) for k, (one, _) in known._costs([label] * sizes, [label] * sizes)}
        for label in dict.fromkeys(label for part in parts for label in part)
    }
    return replace(known, blocks={label: blocks for label, blocks in costs.items() if blocks})


def has_p99(weights: Sequence[float], calls: Sequence[Array]) -> bool:
    """Tell whether the calls of one restart have a p99 over the mix: none of them weighs over 1 % of it."""
    return all(array.size >= math.ceil(weight * own_calls(P99)) for weight, array in zip(weights, calls, strict=True))


def mixed_p99_ns(weights: Sequence[float], calls: Sequence[Array]) -> float:
    """Return the p99 (ns) of calls of several sizes, each size's weighing as much together as its share."""
    times = np.concatenate(calls)
    shares = np.concatenate(
        [np.full(array.size, weight / array.size) for weight, array in zip(weights, calls, strict=True)]
    )
    order = np.argsort(times)
    reached = np.searchsorted(np.cumsum(shares[order]), P99 - 1e-9)
    return float(times[order[min(int(reached), times.size - 1)]])
