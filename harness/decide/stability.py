"""How stable a choice is: decided again on resamples of the restarts that it rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np

from shootout.contract import Array
from shootout.decide.candidates import Candidate
from shootout.decide.objective import ObjectiveValue
from shootout.decide.policy import Policy
from shootout.messages import Scope
from shootout.results.choice import find_sizes, narrow_tie, usual_start_s
from shootout.stats.quantiles import median
from shootout.stats.verdicts import Comparison, Verdict

DRAWS = 1_000
SEED = 0


def find_stability(
    policy: Policy,
    candidates: Sequence[Candidate],
    measures: Mapping[str, ObjectiveValue],
    compared: Callable[[str, str], Comparison],
) -> dict[str, float]:
    """Return how often each candidate is chosen, by label, the most often first; those never chosen are left out.

    Whole restarts are drawn with replacement, for all arms of a cell alike, since they share what disturbs them.
    Limits stay as they are, and so does what is known of each pair; a candidate that isn't timed keeps its figure.

    Args:
        compared: how the first of two candidates compares with the second, as the choice itself has it.
    """
    seeds = _seed_cells(measures)
    values = np.array([_draw_objectives(policy, measures[one.label], seeds) for one in candidates])
    sizes = np.array(find_sizes([one.row for one in candidates])[1], dtype=np.float64)
    starts = np.array([usual_start_s(one.row) for one in candidates])
    beaten = _find_beaten([one.label for one in candidates], compared)
    near = (values <= values.min(axis=0) * (1 + policy.indifferent)) & ~beaten[:, values.argmin(axis=0)]
    _, soon = narrow_tie(near, sizes[:, None], starts[:, None])
    chosen = np.where(soon, values, np.inf).argmin(axis=0)
    counts = Counter(candidates[index].label for index in chosen.tolist())
    return {label: count / DRAWS for label, count in counts.most_common()}


def _find_beaten(labels: Sequence[str], compared: Callable[[str, str], Comparison]) -> Array:
    """Return a matrix: whether the arm of a row is known to be worse than that of a column."""
    found = np.zeros((len(labels), len(labels)), dtype=np.bool_)
    for one, other in combinations(range(len(labels)), 2):
        verdict = compared(labels[one], labels[other]).verdict
        found[one, other], found[other, one] = verdict is Verdict.SLOWER, verdict is Verdict.FASTER
    return found


def _seed_cells(measures: Mapping[str, ObjectiveValue]) -> dict[int, int]:
    """Return a seed for each cell, so that its arms draw the same restarts."""
    cells = dict.fromkeys(id(one.play.cell) for one in measures.values() if one.play)
    return {cell: SEED + index for index, cell in enumerate(cells)}


def _draw_objectives(policy: Policy, found: ObjectiveValue, seeds: Mapping[int, int]) -> Array:
    """Return a candidate's objective in each resample, shape (DRAWS,)."""
    if found.play is None:
        return np.full(DRAWS, found.value)
    play = found.play
    blocks = play.group.blocks(Scope.END_TO_END)
    centre = blocks.get(play.cell.baseline or "", {})
    restarts = sorted({g for arm in blocks.values() for g in arm})
    mine = blocks.get(play.row.arm, {})
    against = {g: median(centre[g]) for g in centre}
    missing = np.nan if against.keys() & mine.keys() else 1.0  # without any to hold them against: times as they are
    x = np.array([np.log(median(mine[g]) / against.get(g, missing)) if g in mine else np.nan for g in restarts])
    rng = np.random.default_rng(seeds[id(play.cell)])
    drawn = x[rng.integers(len(restarts), size=(DRAWS, len(restarts)))]
    lost = np.isnan(drawn).all(axis=1)
    drawn[lost] = np.nanmedian(x)
    middle = np.nanmedian(drawn, axis=1)
    usual = float(np.nanmedian(x))
    slower = np.exp(middle - usual)
    if found.cost is None:
        return found.value * slower  # type: ignore[no-any-return]
    capacity = found.cost.rate_low * found.cost.utilisation / slower
    return np.maximum(np.ceil((policy.load or 0.0) / capacity), 1.0) * found.cost.price  # type: ignore[no-any-return]
