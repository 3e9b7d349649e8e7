"""Simulate how often the interval of a metric of a whole set covers, and how often a loss at the limit is admitted.

Each target is planted: plain FP32's scores, and those of one that lost exactly the limit over all rows that there could
be. Rows are units, or clusters of uneven size are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import product
from statistics import NormalDist
from typing import Any

import numpy as np

from lab.common import Bench, Tables
from shootout.apps.judge.accuracy import judge_drop
from shootout.core.contract import Array
from shootout.core.messages import Scores
from shootout.models.metrics import find_metric
from shootout.models.metrics.metrics import WholeSet
from shootout.models.metrics.set_metrics import find_pseudo_values
from shootout.tell.limits import Standing
from shootout.tell.paired import compare_means

UNITS = (30, 100, 1_000)
LIMITS = (0.01, 0.03, 0.1)
AUC_DISTANCE = 2.0
"""Between the mean scores of the two classes, in standard deviations."""
TRUE_SHARE = 0.3
MOST_ADMITTED = 0.05
Draw = tuple[WholeSet, WholeSet, Array]
"""The metric before and after, and the unit of each row."""


def figures(bench: Bench) -> Tables:
    """Simulate sets by the metric, what was lost, and how many units there are."""
    runs, rows = bench.runs or bench.size(400, 4), []
    for (metric, (draw, is_error)), count, limit in product(PLANTED.items(), UNITS, LIMITS):
        some = max(runs // 5, 1) if count == max(UNITS) else runs  # each takes a second
        rows.append(simulate(metric, draw, count, limit, some, bench.seed, is_error=is_error))
        bench.keep({TITLE: rows})
    return {TITLE: rows}


TITLE = "metrics of a whole set, simulated"


def simulate(
    metric: str,
    draw: Callable[[int, float, np.random.Generator], Draw],
    count: int,
    limit: float,
    runs: int,
    seed: int,
    *,
    is_error: bool,
) -> dict[str, Any]:
    """Return how often the interval covers the loss, and how often a loss at the limit is admitted, or a 20th of it."""
    covered = admitted = harmless = 0
    for number in range(runs):
        rng = np.random.default_rng((seed, number, count, round(1_000 * limit)))
        before, after, standing = _judge(draw(count, limit, rng), limit, is_error=is_error)
        change = compare_means(before.rows, after.rows, is_lower_better=is_error, worst=before.worst)
        loss = limit if is_error else -limit
        covered += bool(change and change.low <= loss <= change.high)
        admitted += standing is Standing.MET
        harmless += _judge(draw(count, limit / 20, rng), limit, is_error=is_error)[2] is Standing.MET
    return {
        "metric": metric,
        "units": count,
        "limit": limit,
        "runs": runs,
        "covered": covered / runs,
        "admitted at the limit": admitted / runs,
        "admitted at a 20th of it": harmless / runs,
        "holds": admitted / runs <= MOST_ADMITTED + 2 * math.sqrt(MOST_ADMITTED * (1 - MOST_ADMITTED) / runs),
    }


def _judge(draw: Draw, limit: float, *, is_error: bool) -> tuple[Scores, Scores, Standing]:
    *both, units = draw
    made = [
        Scores(
            name="m",
            rows=tuple(find_pseudo_values(one.value_of, units).tolist()),
            worst=one.worst,
            lower_is_better=is_error,
        )
        for one in both
    ]
    before, after = made
    change = compare_means(before.rows, after.rows, is_lower_better=is_error, worst=before.worst)
    return before, after, judge_drop(change, before, after, limit)[0]


def _open(name: str, output: Array, truth: Array) -> WholeSet:
    metric = find_metric(name)
    assert metric.reduce is not None, "a metric of a whole set"
    return metric.reduce(metric.score(output, truth))


def draw_auc(count: int, loss: float, rng: np.random.Generator, *, is_rare: bool) -> Draw:
    """Draw scores that all got noisier, or those of few rows of one class that became the lowest."""
    truth = rng.random(count) < TRUE_SHARE
    truth[:4] = (True, True, False, False)
    before = rng.normal(size=count) + AUC_DISTANCE * truth
    value = NormalDist().cdf(AUC_DISTANCE / math.sqrt(2))
    if is_rare:
        after = np.where(truth & (rng.random(count) < loss / value), -99.0, before)
    else:
        noise = (AUC_DISTANCE / NormalDist().inv_cdf(value - loss)) ** 2 / 2 - 1
        after = before + rng.normal(0, math.sqrt(noise), count)
    return _open("auc", before, truth), _open("auc", after, truth), np.arange(count)


def draw_f1(count: int, loss: float, rng: np.random.Generator, *, is_rare: bool) -> Draw:
    """Draw hits among few true rows that turn into misses; or also false hits among the others, as many."""
    hit, false = 0.9 * TRUE_SHARE, 0.03
    value = 2 * hit / (hit + false + TRUE_SHARE)
    truth = rng.random(count) < TRUE_SHARE
    truth[0] = True
    before = np.where(truth, rng.random(count) < 0.9, rng.random(count) < false / (1 - TRUE_SHARE))
    wanted = value - loss
    # 2 (hit - x) / (hit - x + false + added x + true) = wanted, where x is the share of rows that turn
    added = 0 if is_rare else 1
    turned = (2 * hit - wanted * (hit + false + TRUE_SHARE)) / (2 - wanted * (1 - added))
    after = before & ~(truth & (rng.random(count) < turned / hit))
    if not is_rare:
        free = 1 - TRUE_SHARE - false
        after = after | (~truth & ~before & (rng.random(count) < turned / free))
    return _open("f1", before.astype(float), truth), _open("f1", after.astype(float), truth), np.arange(count)


def draw_edits(count: int, loss: float, rng: np.random.Generator, *, is_rare: bool) -> Draw:
    """Draw edits of texts of uneven length, more in texts that are hard; few texts lose all, or all lose unevenly."""
    lengths = np.ceil(rng.lognormal(3, 0.6, count))
    before = np.minimum(rng.poisson(lengths * rng.gamma(0.5, 0.1, count)), lengths)
    if is_rare:
        share = loss / 0.95  # of the symbols, 5 % were wrong before
        after = np.where(rng.random(count) < share, lengths, before)
    else:
        after = before + rng.poisson(lengths * rng.gamma(0.3, loss / 0.3, count))
    opener = find_metric("wer").reduce
    assert opener is not None, "a metric of a whole set"
    return *(opener(np.stack([edits, lengths], axis=1)) for edits in (before, after)), np.arange(count)  # type: ignore[return-value]


def draw_clusters(count: int, loss: float, rng: np.random.Generator, *, is_rare: bool) -> Draw:
    """Draw right and wrong rows in clusters of uneven size; few clusters lose all, or all lose unevenly."""
    units = np.repeat(np.arange(count), np.ceil(rng.lognormal(1.5, 0.8, count)).astype(int))
    before = rng.random(len(units)) < rng.beta(9, 1, count)[units]
    lost = rng.random(count) < loss / 0.9 if is_rare else np.minimum(rng.gamma(0.5, loss / 0.45, count), 1)
    after = before & ~(rng.random(len(units)) < lost[units])
    made = [
        WholeSet(value_of=lambda kept, one=one: float(one[kept].mean()), worst=float(one.mean()))  # type: ignore[misc]
        for one in (before, after)
    ]
    return made[0], made[1], units


PLANTED: dict[str, tuple[Callable[[int, float, np.random.Generator], Draw], bool]] = {
    f"{name}, {'few units lose all' if is_rare else 'all lose a bit'}": (partial(draw, is_rare=is_rare), is_error)
    for name, draw, is_error in (
        ("auc", draw_auc, False),
        ("f1", draw_f1, False),
        ("wer", draw_edits, True),
        ("accuracy of clusters", draw_clusters, False),
    )
    for is_rare in (False, True)
}
"""Each draws units, and says whether the metric is an error."""
