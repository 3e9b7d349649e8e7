"""Tell what stands behind the answer of one group: all that is held back or doesn't gain."""

from __future__ import annotations

from collections.abc import Iterator

from shootout.core.contract import short
from shootout.core.errors import FAILURES
from shootout.tell.answer import leads, tell_no_gain
from shootout.tell.document import Answer, Passed, WouldChange
from shootout.tell.limits import Standing
from shootout.tell.ratios import NEVER_TOGETHER, tell_ratio
from shootout.tell.report import Command, Line
from shootout.tell.screen import fold
from shootout.tell.wording import NO_LABELS, RANDOM_INPUTS, tell_error, tell_metric, tell_metric_limit

EXPLAIN = "layer by layer:"
MOST_NAMED = 4
"""The number of targets with the same job that a line names; the table has them all."""


def tell_details(answer: Answer) -> Iterator[Line]:
    """Tell what stands below the answer with `--full`: all that is held back or doesn't gain."""
    if not leads(answer) and answer.sure.command and answer.sure.nearest:
        needed = f"about {answer.sure.restarts_needed} restarts would distinguish {short(answer.sure.nearest)}"
        yield Line("Settle", [needed], [Command(text=answer.sure.command)])
    for number, line in enumerate(tell_faster(answer)):
        yield Line("" if number else "Held", [line])
    for number, line in enumerate(fold(map(tell_no_gain, answer.no_gain), MOST_NAMED)):
        yield Line("" if number else "No gain", [line])
    yield Line("Not", list(tell_unsound(answer)))
    refused = (group.fix for group in answer.not_raced if group.cause in FAILURES and group.fix)
    yield Line("", commands=[Command(label=EXPLAIN, text=fix) for fix in [*refused][:1]])


def tell_faster(answer: Answer) -> Iterator[str]:
    """Tell how much faster each one is, and why it may not be shipped; a reason that all share is told once."""
    faster, than = answer.would_change, short(answer.ship.arm) if answer.ship else ""
    reasons = {change.why or "" for change in faster}
    is_shared = len(reasons) == 1 < len(faster)
    for change in faster[:MOST_NAMED]:
        told = tell_ratio(change.ratio, than) if change.ratio else NEVER_TOGETHER
        told += f", {tell_cost(change)}" if change.why in (NO_LABELS, RANDOM_INPUTS) else ""
        why = "" if is_shared else f": {change.why}"
        yield f"{short(change.arm)} is {told}{why}"
    if len(faster) > MOST_NAMED:
        yield f"{len(faster) - MOST_NAMED} more, which the table has"
    if is_shared:
        yield f"each: {reasons.pop()}"


def tell_unsound(answer: Answer) -> Iterator[str]:
    """Name the targets that have no sound time, and why."""
    unsound = [passed for passed in answer.passed if passed.because == "unsound"]
    told = (f"{short(passed.arm)}: {(passed.reason or '').removeprefix(passed.arm).strip()}" for passed in unsound)
    yield from fold(told, MOST_NAMED)


def tell_cost(change: Passed | WouldChange) -> str:
    """Tell what it does to the outputs."""
    if change.metric:
        metric = change.metric
        return tell_metric(metric) if metric.standing is Standing.MET else tell_metric_limit(metric)
    if change.relative_l2 is None:
        return "error unknown"
    return f"its outputs differ by {tell_error(change.relative_l2)}"
