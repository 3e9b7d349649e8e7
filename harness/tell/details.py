"""Tell what stands behind the answer of one group: all that is held back or doesn't gain, and smaller files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from shootout.core.contract import short
from shootout.core.errors import FAILURES
from shootout.core.units import size
from shootout.tell.answer import find_faster, leads, tell_no_gain
from shootout.tell.document import Answer, NoGain, Passed, SmallerStep, WouldChange
from shootout.tell.limits import Standing
from shootout.tell.ratios import NEVER_TOGETHER, tell_ratio
from shootout.tell.report import Command, Line
from shootout.tell.screen import fold
from shootout.tell.wording import NO_LABELS, RANDOM_INPUTS, tell_error, tell_metric, tell_metric_limit

EXPLAIN, MIX = "layer by layer:", "leave some in float:"
MOST_NAMED = 4
"""The number of targets with the same job that a line names; the table has them all."""


def tell_details(answer: Answer) -> Iterator[Line]:
    """Tell what stands below the answer with `--full`: all that is held back or doesn't gain, and smaller files."""
    held = find_faster(answer)
    if not leads(answer) and answer.sure.command and answer.sure.nearest:
        needed = f"about {answer.sure.restarts_needed} restarts would distinguish {short(answer.sure.nearest)}"
        yield Line("Settle", [needed], [Command(text=answer.sure.command)])
    for number, line in enumerate(tell_faster(answer)):
        yield Line("" if number else "Held", [line])
    yield Line("", commands=[*list_ways_in(held), *(Command(label=MIX, text=one.mix) for one in held[:1] if one.mix)])
    for number, line in enumerate(fold(map(tell_no_gain, answer.no_gain), MOST_NAMED)):
        yield Line("" if number else "No gain", [line])
    yield Line("", commands=list(list_ways_in(answer.no_gain)))
    yield Line("Not", list(tell_unsound(answer)))
    yield Line("", commands=list(list_ways_in_refused(answer)))
    yield Line("Smaller", list(map(tell_step, answer.smaller)))
    yield Line("FP32", list(tell_changes(answer.would_change)))
    if answer.elsewhere:
        yield Line("Other", ["on all other runtimes"], [Command(text=answer.elsewhere)])


def tell_faster(answer: Answer) -> Iterator[str]:
    """Tell how much faster each one is, and why it may not be shipped; a reason that all share is told once."""
    faster, than = find_faster(answer), short(answer.ship.arm) if answer.ship else ""
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


def list_ways_in(some: Sequence[NoGain | WouldChange]) -> Iterator[Command]:
    """List what to type to see the first of these that can be looked into, layer by layer."""
    if first := next((one for one in some if one.explain), None):
        yield Command(label=EXPLAIN, text=first.explain or "")


def list_ways_in_refused(answer: Answer) -> Iterator[Command]:
    """List what to type to find the layer of the first target whose outputs were refused, and to spare such layers."""
    failed = [group for group in answer.not_raced if group.cause in FAILURES]
    if fix := next((group.fix for group in failed if group.fix), None):
        yield Command(label=EXPLAIN, text=fix)
    if mix := next((group.mix for group in failed if group.mix), None):
        yield Command(label=MIX, text=mix)


def tell_unsound(answer: Answer) -> Iterator[str]:
    """Name the targets that have no sound time, and why."""
    unsound = [passed for passed in answer.passed if passed.because == "unsound"]
    told = (f"{short(passed.arm)}: {(passed.reason or '').removeprefix(passed.arm).strip()}" for passed in unsound)
    yield from fold(told, MOST_NAMED)


def tell_cost(change: Passed | WouldChange | SmallerStep) -> str:
    """Tell what it does to the outputs."""
    if change.metric:
        metric = change.metric
        return tell_metric(metric) if metric.standing is Standing.MET else tell_metric_limit(metric)
    if change.relative_l2 is None:
        return "error unknown"
    return f"its outputs differ by {tell_error(change.relative_l2)}"


def tell_step(step: SmallerStep) -> str:
    """Describe a smaller artifact than that of the arm to ship, and what it costs."""
    time = tell_ratio(step.ratio) if step.ratio else NEVER_TOGETHER
    return f"{short(step.arm)}: model {size(step.artifact_bytes)}, {time}, {tell_cost(step)}"


def tell_changes(changes: Iterable[WouldChange]) -> Iterator[str]:
    """Tell what would be shipped if nothing but plain FP32 counted."""
    for change in changes:
        name = short(change.arm)
        if change.when == "tighter":
            yield f"if only plain FP32 may ship: {name}{f', {tell_ratio(change.ratio)}' if change.ratio else ''}"
