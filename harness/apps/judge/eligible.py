"""Tell whether a target may be shipped, and why not: the one place that does, for an answer and for a policy. Pure."""

from __future__ import annotations

from typing import Literal

from shootout.apps.judge.cell import Cell, is_plain
from shootout.apps.judge.decide.policy import Policy
from shootout.core.contract import NotRunKind
from shootout.core.stats.readings import LEAST_TAILS
from shootout.core.units import counted
from shootout.tell.document import Row
from shootout.tell.limits import Standing
from shootout.tell.wording import NO_LABELS, RANDOM_INPUTS, tell_metric_limit

Admitted = Literal["fp32", "metric"]
UNJUDGED = "no target's error could be checked against its error bound: random inputs are too insensitive here"
UNCHECKED = "its outputs were compared with no error bound"
UNSCORED = "the metric gave no scores: --full tells why"


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
    if policy and row.cause is NotRunKind.OFF_LIMITS:
        return _find_early_end(policy, row)
    if policy and not policy.asks_time and row.cause in (None, NotRunKind.NOT_REACHED):
        return None
    if row.reason and row.cause is not NotRunKind.NOT_REACHED:  # what it measured in time counts
        return f"failed: {row.reason}" if row.outcome == "failed" else row.reason
    return cell.withheld(row.arm) or (None if policy else _find_broken_p99(row))


def _find_early_end(policy: Policy, row: Row) -> str | None:
    """Explain an arm that left its run by a limit of that run: too few restarts to compare times by."""
    played = row.end_to_end.restarts if row.end_to_end else 0
    if played >= LEAST_TAILS or not policy.asks_time:
        return None
    return f"left its run after {counted(played, 'restart')}, by a limit of that run"


def _find_broken_p99(row: Row) -> str | None:
    if row.serve is None or row.serve.holds:
        return None
    if row.serve.holds is None:
        return "whether its p99 holds the limit isn't known: too few restarts, or too busy a machine"
    if row.serve.searched:
        return "in half of the restarts or more, no rate that was tried held the limit on p99"
    return "its p99 breaks the limit"


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
