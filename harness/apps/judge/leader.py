"""Tell which targets may be shipped and which of these is: of those that none beats the smaller, then the sooner. Pure.

The answer of a run and the decision by a policy both go by it; docs/measurement.md has it in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from shootout.apps.judge.cell import Cell, is_plain
from shootout.apps.judge.decide.policy import Policy
from shootout.core.constants import INDIFFERENT
from shootout.core.contract import Array, NotRunKind
from shootout.core.stats.leaders import Compare, find_leaders, is_indifferent
from shootout.core.stats.readings import LEAST_TAILS
from shootout.core.stats.verdicts import Comparison, Verdict
from shootout.core.units import counted
from shootout.tell.document import Choice, Chosen, Ratio, Rival, Row
from shootout.tell.limits import Standing
from shootout.tell.wording import NO_LABELS, RANDOM_INPUTS, tell_metric_limit

AS_SMALL = 1.05
"""Artifacts within 5 % of the smallest count as equally small."""
AS_SOON, AS_SOON_S = 1.2, 0.05
"""Arms that are ready within 20 %, or 50 ms, of the soonest count as ready equally soon."""
Admitted = Literal["fp32", "metric"]
UNJUDGED = "no target's error could be checked against its error bound: random inputs are too insensitive here"
UNCHECKED = "its outputs were compared with no error bound"
UNSCORED = "the metric gave no scores: --full tells why"


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """Hold what the rule says of those that may be shipped, by their names.

    Attributes:
        first: the one to ship.
        choice: what is told of it; of those that may be as good, the nearest first.
        beaten: each other one → the best of those that are known to beat it.
    """

    first: str
    choice: Choice
    beaten: Mapping[str, str]

    @property
    def open(self) -> list[str]:
        """Return the others that none is known to beat."""
        return [one.arm for one in (*self.choice.tied, *self.choice.unsettled)]


def choose_among(
    rows: Mapping[str, Row],
    order: Mapping[str, float],
    compare: Compare,
    ratio: Callable[[str, str], Ratio | None],
    *,
    indifferent: float = INDIFFERENT,
    beside: Iterable[str] = (),
    unvouched: str | None = None,
) -> Led:
    """Choose one of those that may be shipped.

    As long as nothing is distinguished the best so far leads, however small another one is.

    Args:
        rows: those that may be shipped, by name; one at least.
        order: by name, what is to be least.
        compare: the first one's figure ÷ the second's, by which they are ordered.
        ratio: the same, as it is told.
        indifferent: two that measured within this share of each other may be as good; known to be, none beats the
            other.
        beside: more names, whose comparisons with the first show as well that something is distinguished.
        unvouched: why no verdict stands; None where they stand.
    """

    is_near = partial(_is_near, compare, indifferent)
    find_untold = partial(_find_untold, compare, dict.fromkeys([*rows, *beside]), unvouched)
    leaders = find_leaders(order, partial(_judge, compare, indifferent))
    close = [name for name in leaders.tied if name == leaders.fastest or is_near(name, leaders.fastest)]
    first, chosen_by = _narrow({name: rows[name] for name in close})
    if chosen_by and find_untold(first):
        first, chosen_by = leaders.fastest, ()
    compared = {name: compare(name, first) for name in leaders.tied if name != first}
    others = sorted(compared, key=lambda name: found.value if (found := compared[name]) else math.inf)
    rivals = [Rival(arm=name, ratio=ratio(name, first)) for name in others]
    choice = Choice(
        reason=find_untold(first),
        tied=tuple(one for one in rivals if is_near(one.arm, first)),
        chosen_by=chosen_by,
        unsettled=tuple(one for one in rivals if not is_near(one.arm, first)),
    )
    return Led(first=first, choice=choice, beaten=leaders.beaten)


def _judge(compare: Compare, indifferent: float, one: str, other: str) -> Comparison | None:
    """Compare two; known to be within the indifference, they are the same."""
    found = compare(one, other)
    return replace(found, verdict=Verdict.SAME) if found and is_indifferent(found, indifferent) else found


def _is_near(compare: Compare, indifferent: float, one: str, other: str) -> bool:
    """Return whether two measured within the indifference of each other."""
    found = compare(one, other)
    return found is not None and 1 / (1 + indifferent) <= found.value <= 1 + indifferent


def _find_untold(compare: Compare, names: Iterable[str], unvouched: str | None, first: str) -> str | None:
    """Return why a first place is only the best so far: no verdict stands, or no other's interval has an end.

    Beside what takes nothing, one that takes more has no end either, and yet a verdict.
    """
    rivals = [compare(name, first) for name in names if name != first]
    if unvouched or not rivals or any(ratio and (ratio.decided or ratio.ends != (None, None)) for ratio in rivals):
        return unvouched
    most = max(ratio.restarts if ratio else 0 for ratio in rivals)
    return f"nothing is distinguished after {counted(most, 'restart')}"


def _narrow(close: Mapping[str, Row]) -> tuple[str, tuple[Chosen, ...]]:
    """Return which of those that may be as good is shipped, and by what; they come in their order."""
    size, sizes = find_sizes([*close.values()])
    starts_s = np.array([usual_start_s(row) for row in close.values()])
    is_small, is_soon = narrow_tie(np.ones(len(close), dtype=np.bool_), np.array(sizes), starts_s)
    decided: dict[Chosen, bool] = {
        size: not is_small.all(),
        "shorter start": is_soon.sum() < is_small.sum(),
        "lower time": is_soon.sum() > 1,
    }
    return [*close][int(is_soon.argmax())], tuple(how for how, did in decided.items() if did)


def narrow_tie(near: Array, sizes: Array, starts_s: Array) -> tuple[Array, Array]:
    """Narrow arms that may be equally good down to the smallest, and these to those that are ready soonest.

    Args:
        near: whether an arm is as good as the best, shape (arms,) or (arms, draws).
        sizes, starts_s: see `find_sizes` and `usual_start_s`; shapes that broadcast to that of `near`.

    Returns:
        Two masks like `near`: as small as the smallest; of these, ready as soon as the soonest.
    """
    small = near & (sizes <= AS_SMALL * np.where(near, sizes, np.inf).min(axis=0))
    soonest = np.where(small, starts_s, np.inf).min(axis=0)
    return small, small & (starts_s <= np.maximum(AS_SOON * soonest, soonest + AS_SOON_S))


def usual_start_s(row: Row) -> float:
    """Return the seconds until a row is usually ready: context, load and first call, the medians.

    The slowest start grows with the number of restarts, which isn't the same for all.
    """
    context_s = row.gpu.context_s if row.gpu else None
    return sum(seconds or 0.0 for seconds in (context_s, row.load_s, row.first_call_s))


def find_sizes(rows: Sequence[Row]) -> tuple[Chosen, list[int]]:
    """Return what each row takes where it runs, and what the smaller is called.

    It is the artifact and the packages that run it, or the artifact alone if the packages aren't known of all.
    """
    artifacts, packages = ([getattr(row, name) for row in rows] for name in ("artifact_bytes", "install_bytes"))
    if None in packages:
        return "smaller artifact", [count or 0 for count in artifacts]
    return "smaller install", [(one or 0) + other for one, other in zip(artifacts, packages, strict=True)]


def ratios_to_baseline(rows: Mapping[str, Row], baseline: str | None) -> dict[str, float] | None:
    """Return by name the rows' times ÷ the baseline's, from restarts that they shared; None if one has none."""
    ratios = {name: row.end_to_end.ratio if row.end_to_end else None for name, row in rows.items()}
    if any(ratios[name] is None and row.arm != baseline for name, row in rows.items()):
        return None
    return {name: ratio.value if ratio and rows[name].arm != baseline else 1.0 for name, ratio in ratios.items()}


def admits(row: Row) -> Admitted | None:
    """Return why a row may be shipped without a word about its error; None: it may not."""
    if is_plain(row):
        return "fp32"
    metric = row.fidelity.metric if row.fidelity else None
    return "metric" if metric and metric.standing is Standing.MET else None


def find_fault(cell: Cell, row: Row, policy: Policy | None = None) -> str | None:
    """Return why a row's time is no ground to ship it; None where it is one.

    Args:
        policy: it decides by limits of its own in place of the run's, and may ask for no time at all.
    """
    if policy and row.cause is NotRunKind.OFF_LIMITS:  # with too few restarts to compare times by
        played = row.end_to_end.restarts if row.end_to_end else 0
        told = f"left its run after {counted(played, 'restart')}, by a limit of that run"
        return told if played < LEAST_TAILS and policy.asks_time else None
    if policy and not policy.asks_time and row.cause in (None, NotRunKind.NOT_REACHED):
        return None
    if row.reason and row.cause is not NotRunKind.NOT_REACHED:  # what it measured in time counts
        return f"failed: {row.reason}" if row.outcome == "failed" else row.reason
    if (why := cell.withheld(row.arm)) or policy or row.serve is None or row.serve.holds:
        return why
    is_known = row.serve.holds is not None
    return "its p99 breaks the limit" if is_known else "whether its p99 holds the limit isn't known"


def why_unknown(cell: Cell, row: Row) -> str | None:
    """Return why nothing tells whether a row keeps the model, if that is more than a want of labels."""
    if cell.is_scored and not (row.fidelity and row.fidelity.metric):
        return UNSCORED
    return None if row.is_judged else UNCHECKED


def tell_refusal(cell: Cell, row: Row) -> str:
    """Tell why a row may not be shipped: what it lost and the limit, or that nothing tells what it lost."""
    if row.fidelity and (metric := row.fidelity.metric):
        return tell_metric_limit(metric)
    return why_unknown(cell, row) or (NO_LABELS if "inputs" in cell.begun.given else RANDOM_INPUTS)
