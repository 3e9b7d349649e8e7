"""Simulate how often a metric admits a target that loses exactly as much as the limit, and one that loses nothing.

The scores are skewed, and the loss lies in all rows, in few rows, or in some more than in others. What judges them is
what judges a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lab.common import Bench, Table, Tables
from shootout.apps.judge.accuracy import judge_drop
from shootout.core.contract import Array
from shootout.core.messages import Scores
from shootout.tell.limits import Standing
from shootout.tell.paired import compare_means

Draw = Callable[[np.random.Generator, int], Array]
"""Scores of so many rows."""
Change = Callable[[np.random.Generator, Array, float], Array]
"""A function that gives scores which lost such a share of their mean."""
SHARES: dict[str, Draw] = {
    "near 0.9": lambda rng, rows: rng.beta(18, 2, rows),
    "from 0 to 1": lambda rng, rows: rng.beta(2, 2, rows),
    "0 or 1": lambda rng, rows: (rng.random(rows) < 0.9).astype(float),
}
ERRORS: dict[str, Draw] = {"errors, log-normal": lambda rng, rows: rng.lognormal(-2, 1, rows)}
MEANS = {"near 0.9": 0.9, "from 0 to 1": 0.5, "0 or 1": 0.9, "errors, log-normal": float(np.exp(-1.5))}
OF_SHARES: dict[str, Change] = {
    "all of few rows": lambda rng, old, share: np.where(rng.random(old.size) < share, 0.0, old),
    "half of few rows": lambda rng, old, share: np.where(rng.random(old.size) < 2 * share, old / 2, old),
    "little or much of a row": lambda rng, old, share: old * (1 - rng.beta(share, 1 - share, old.size)),
    "some of all rows": lambda rng, old, share: old * (1 - rng.beta(5 * share, 5 * (1 - share), old.size)),
}
OF_ERRORS: dict[str, Change] = {
    "a share of each error": lambda rng, old, share: old * (1 + share * rng.lognormal(-0.72, 1.2, old.size)),
    "as much in few rows": lambda rng, old, share: old + (rng.random(old.size) < share * MEANS["errors, log-normal"]),
    "heavy tails": lambda rng, old, share: old + 1.5 * share * MEANS["errors, log-normal"] * rng.pareto(2.5, old.size),
}
LIMITS = {30: (0.12, 0.15, 0.2), 100: (0.04, 0.05, 0.1), 400: (0.01, 0.02, 0.05), 1_000: (0.005, 0.01, 0.03)}
"""By number of scored rows: shares of the mean."""
OF_ERRORS_TOO = (0.3, 1.0)
"""Errors range over many times their mean, so that smaller limits take more rows."""
HARMLESS: Mapping[str, tuple[str, Callable[[np.random.Generator, Array], Array]]] = {
    "noise of 0.01": ("near 0.9", lambda rng, old: np.clip(old + 0.1 * (1 - old) * rng.normal(size=old.size), 0, 1)),
    "noise of 0.03": ("near 0.9", lambda rng, old: np.clip(old + 0.3 * (1 - old) * rng.normal(size=old.size), 0, 1)),
    "1 row in 100, won or lost": (
        "0 or 1",
        lambda rng, old: np.where(rng.random(old.size) < 0.05, rng.permutation(old), old),
    ),
    "errors change by 5 %": ("errors, log-normal", lambda rng, old: old * (1 + rng.normal(0, 0.05, old.size))),
}
ROWS = (100, 300, 400, 1_000, 3_000)


def figures(bench: Bench) -> Tables:
    """Tabulate false admissions by scores, loss, rows and limit; and how often what loses nothing is admitted."""
    runs = bench.runs or bench.size(2_000, 4)
    cells = [(name, lost, False) for name in SHARES for lost in OF_SHARES]
    cells += [(name, lost, True) for name in ERRORS for lost in OF_ERRORS]
    false: Table = [
        _count_false(name, lost, rows, limit, runs, bench.seed)
        for name, lost, is_error in cells
        for rows, limits in LIMITS.items()
        for limit in (OF_ERRORS_TOO if is_error else limits)
    ]
    right: Table = [_count_right(name, rows, runs // 4 or 1, bench.seed) for name in HARMLESS for rows in ROWS]
    return {"a loss of the limit admitted, simulated": false, "no loss admitted, simulated": right}


def _count_false(scores: str, lost: str, rows: int, limit: float, runs: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, rows, round(1e4 * limit), *map(ord, scores + lost)])
    draw, change = (SHARES | ERRORS)[scores], (OF_SHARES | OF_ERRORS)[lost]
    admitted = 0
    for _ in range(runs):
        before = draw(rng, rows)
        after = change(rng, before, limit)
        admitted += is_admitted(
            before.tolist(), after.tolist(), limit * MEANS[scores], is_lower_better=scores in ERRORS
        )
    return {
        "scores": scores,
        "loses": lost,
        "rows": rows,
        "limit": limit,
        "runs": runs,
        "admitted": admitted / runs,
    }


def _count_right(name: str, rows: int, runs: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, rows, *map(ord, name)])
    scores, change = HARMLESS[name]
    draw, is_error = (SHARES | ERRORS)[scores], scores in ERRORS
    counts = []
    for limit in (0.01, 0.03):
        admitted = 0
        for _ in range(runs):
            before = draw(rng, rows)
            after = change(rng, before)
            admitted += is_admitted(before.tolist(), after.tolist(), limit * MEANS[scores], is_lower_better=is_error)
        counts.append(admitted / runs)
    return {"change": name, "rows": rows, "runs": runs, "admitted at 1 %": counts[0], "admitted at 3 %": counts[1]}


def is_admitted(before: Sequence[float], after: Sequence[float], limit: float, *, is_lower_better: bool) -> bool:
    """Tell whether scores keep a limit on what their mean may lose."""
    change = compare_means(before, after, is_lower_better=is_lower_better)
    old, new = (Scores(name="made", rows=tuple(rows), lower_is_better=is_lower_better) for rows in (before, after))
    return judge_drop(change, old, new, limit)[0] is Standing.MET
