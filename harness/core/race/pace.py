"""How a race spends the time that is left: how long a restart may be, and which arms play if not all have time. Pure.

Restarts are the replicates, so a race that is short of time plays several short ones rather than a long one: fewer
calls to warm up and fewer rounds, never fewer than a restart counts with. Where not even those of all arms fit, the
slowest stay out: a verdict takes two restarts of the fastest ones, and one of everything is a verdict on nothing.

`Caps` foresees which calls would take too long, from what smaller cells of the same target took.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shootout.core import budget
from shootout.core.constants import (
    BLOCK_CALLS,
    BLOCK_NS,
    LEAD_IN_CALLS,
    LONG_CALL_NS,
    LONG_COMPUTE_ROUNDS,
    LONG_ROUNDS,
    MIN_ROUNDS,
    SLOW_CALL_NS,
)
from shootout.core.contract import Arm, Array, NotRun
from shootout.core.exported.request import find_model
from shootout.core.journal.records import Line, Played
from shootout.core.messages import Scope, Tuned
from shootout.core.race.arm_process import skip_slow, tell_seconds
from shootout.core.race.live_arm import LiveArm
from shootout.core.scenario import scenario_of
from shootout.core.stats.group_evidence import Rules
from shootout.core.stats.leaders import time_ns
from shootout.core.study.group import GroupRecord, exact_of


def restart_s(left_s: float, owed: Iterable[int]) -> float:
    """Return the seconds that a restart should take.

    Args:
        left_s: of all groups together.
        owed: restarts that each group which waits should have yet (`Race.owed`).
    """
    return left_s / max(1, sum(max(2, count) for count in owed))


def foreseen_s(live: LiveArm, least_s: float) -> float:
    """Return the seconds of a loaded arm's shortest way through a restart, which takes `least_s` at least.

    A first call that compiles is no measure.
    """
    return 0.0 if live.error else max(budget.least_calls_s(live.checked_call_s), least_s)


def least_rounds_s(tuned: Tuned) -> float:
    """Return the seconds of an arm's turns in the fewest rounds that count."""
    rounds, computes = least_rounds([tuned]), least_compute_rounds([tuned], MIN_ROUNDS)
    blocks_ns = {scope: _block_ns(ns) for scope, ns in tuned.call_ns.items()}
    return sum((computes if scope is Scope.COMPUTE else rounds) * ns for scope, ns in blocks_ns.items()) / 1e9


def least_rounds(tuned: Iterable[Tuned]) -> int:
    """Return the fewest rounds of these arms that count."""
    return LONG_ROUNDS if any(map(_is_long, tuned)) else MIN_ROUNDS


def least_compute_rounds(tuned: Iterable[Tuned], rounds: int) -> int:
    """Return in how many of so many rounds `compute` is read: fewer of long calls."""
    return min(rounds, LONG_COMPUTE_ROUNDS) if any(map(_is_long, tuned)) else rounds


def _is_long(tuned: Tuned) -> bool:
    return tuned.call_ns[Scope.END_TO_END] > LONG_CALL_NS


def entering_s(arms: Sequence[LiveArm]) -> float:
    """Return the seconds until one more arm may play, as long as the slowest of these took."""
    return max((sum(live.spent_s.values()) for live in arms), default=0.0)


def _block_ns(call_ns: float) -> float:
    """Return the nanoseconds of a block with its lead-in."""
    if call_ns > LONG_CALL_NS:
        return (1 if call_ns > SLOW_CALL_NS else 2) * call_ns
    return max((LEAD_IN_CALLS + BLOCK_CALLS) * call_ns, BLOCK_NS)


def leavers(
    arms: Sequence[Arm], needs_s: Mapping[str, float], baseline: str | None, left_s: float, *, is_first: bool
) -> list[Arm]:
    """Return the arms that stay out of a restart, the slowest first.

    One rival stays beside the baseline and the copy that vouches for it, as long as these fit: the fastest in full
    precision, which may be shipped whatever is known of errors. Where they don't, the copy goes first: in one restart
    it vouches for nothing. A rival that rounds goes next.

    Args:
        needs_s: seconds of each arm, by label.
        is_first: whether there is no restart yet: then the second one needs its part of the time too.
    """
    restart_s = budget.restart_s(left_s, is_first=is_first and any(arm.control for arm in arms))
    order = sorted(arms, key=lambda arm: (arm.control, needs_s[arm.label]), reverse=True)
    rivals = [arm for arm in order if not arm.control and arm.label != baseline]
    exact = exact_of(rivals)
    last = next((arm for arm in reversed(rivals) if arm.label in exact), None)
    rivals.sort(key=lambda arm: arm is last)
    out = list[Arm]()

    def takes_s() -> float:
        return sum(needs_s[arm.label] for arm in order)

    while len(rivals) > 1 and takes_s() > restart_s:
        out.append(rivals.pop(0))
        order.remove(out[-1])
    order.sort(key=lambda arm: (arm.control, arm.label not in {*exact, baseline}, needs_s[arm.label]), reverse=True)
    while order and takes_s() > left_s:
        out.append(order.pop(0))
    return out


def took_s(arms: Sequence[LiveArm], wall_s: float) -> dict[str, float]:
    """Return each arm's part of a restart that took so long, by label, had it had the fewest rounds that count."""
    before = {live.arm.label: sum(live.spent_s.values()) for live in arms}
    turns = {
        live.arm.label: [sum(float(ns.sum()) for ns in turn.latency_ns.values()) / 1e9 for turn in live.turns]
        for live in arms
    }
    scale = wall_s / (sum(before.values()) + sum(map(sum, turns.values())) or 1.0)
    return {label: scale * (spent + sum(turns[label][:MIN_ROUNDS])) for label, spent in before.items()}


def thinned(
    players: Sequence[Arm],
    needs_s: Mapping[str, float],
    blocks: Mapping[str, Mapping[int, Array]],
    rules: Rules,
    left_s: float,
    last: Collection[str] = (),
) -> list[Arm]:
    """Return the arms that have time for their next restart: the baseline, its copy and the fastest so far.

    The fastest one in full precision is the last to go, whatever is faster. Where it isn't known of all what they take,
    all play.

    Args:
        needs_s: by label, see `took_s`.
        blocks: end-to-end block medians by label and restart.
        last: those that go first, however fast: a restart brings them nothing.
    """
    if not all(arm.label in needs_s for arm in players):
        return list(players)
    rivals = [arm for arm in players if not arm.control and arm.label != rules.baseline]
    rivals.sort(key=lambda arm: time_ns(blocks.get(arm.label, {})))
    first = next((arm for arm in rivals if arm.label in rules.exact), None)
    rivals.sort(key=lambda arm: (arm is not first, arm.label in last))
    out = list[str]()
    while len(rivals) > 1 and sum(needs_s[arm.label] for arm in players if arm.label not in out) > left_s:
        out.append(rivals.pop().label)
    return [arm for arm in players if arm.label not in out]


APART = 2.0
"""Two cells tell how time grows when one has at least so many times the work of the other."""
STEEPEST = 3.0
"""Time grows with no higher power of the work: what looks steeper is noise, or a cache that has just been outgrown."""
Numbers = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """What calls of a cell took: all its numbers, the batch among them, since not all that costs time is work."""

    numbers: Numbers
    work: float
    seconds: float

    def shared(self, numbers: Numbers) -> int:
        """Count how many of its numbers are these."""
        return sum(self.numbers[name] == value for name, value in numbers.items())


def work_of(arm: Arm) -> float:
    """Return what an arm's time grows with: weights × batch, or the numbers among its parameters if it has none."""
    weights = find_model(arm.model).count_weights(arm.parameters)
    sizes = (abs(float(value)) for value in arm.parameters.values() if _is_number(value) and value)
    return float(arm.batch) * float(weights or math.prod(sizes))


def comparable(cells: Iterable[GridCell], numbers: Numbers) -> dict[float, float]:
    """Return by work the seconds of the cells that tell how long one with these numbers takes.

    Steps of a recurrence or an image's side cost time and have no weights. So no cell counts that is larger in any
    number. The most alike of the others, and of these the one with the most work, gives the time; the slope comes from
    cells that differ from it in one number alone.
    """
    within = [one for one in cells if all(one.numbers[name] <= value for name, value in numbers.items())]
    if not within:
        return {}
    top = max(within, key=lambda one: (one.shared(numbers), one.work, one.seconds))
    beside = (one for one in within if one.work < top.work and one.shared(top.numbers) == len(numbers) - 1)
    return {**{one.work: one.seconds for one in beside}, top.work: top.seconds}


def predicted_s(known: Mapping[float, float], work: float) -> float | None:
    """Return the seconds that a call will take, on the line through two smaller cells in log-log axes; None: unknown.

    One smaller cell alone tells only where its calls are long: then time grows with the work, while a short call is
    mostly overhead, which doesn't grow.

    Args:
        known: work → seconds of a call.
    """
    smaller = sorted(one for one in known if one < work)
    if not smaller:
        return None
    top = smaller[-1]
    below = [one for one in smaller if one * APART <= top]
    if below:
        slope = math.log(known[top] / known[below[-1]]) / math.log(top / below[-1])
    elif known[top] * 1e9 >= LONG_CALL_NS:
        slope = 1.0
    else:
        return None
    return known[top] * float((work / top) ** min(max(slope, 0.0), STEEPEST))


@dataclass(slots=True)
class Caps:
    """What calls took so far, and which cells are better left out.

    Args:
        max_call_s: the study's cap; 0: there is none.
    """

    max_call_s: float
    _known: dict[tuple[Any, ...], dict[tuple[float, ...], GridCell]] = field(default_factory=dict, init=False)

    def recall(self, groups: Iterable[GroupRecord], lines: Iterable[Line]) -> None:
        """Take over what a journal holds."""
        arms = {(group.name, arm.label): arm for group in groups for arm in group.arms}
        for line in lines:
            if isinstance(line, Played) and (arm := arms.get((line.group, line.arm))):
                self.note(arm, line)

    def note(self, arm: Arm, played: Played) -> None:
        """Remember how long its calls took; a later restart takes the place of an earlier one."""
        blocks = played.block_median_ns.get(Scope.END_TO_END, ())
        if blocks and scenario_of(arm).is_foreseen:
            cell = GridCell(numbers=_numbers(arm), work=work_of(arm), seconds=float(np.median(blocks)) / 1e9)
            self._known.setdefault(_kind_of(arm), {})[tuple(cell.numbers.values())] = cell

    def setback(self, arm: Arm) -> NotRun | None:
        """Return why this arm is left out; None if it may take part."""
        known = self._known.get(_kind_of(arm), {})
        if not self.max_call_s or not known:
            return None
        seconds = predicted_s(comparable(known.values(), _numbers(arm)), work_of(arm))
        if seconds is None or seconds <= self.max_call_s:
            return None
        return skip_slow(f"a call would take about {tell_seconds(seconds)}", self.max_call_s)


def _kind_of(arm: Arm) -> tuple[Any, ...]:
    """Return all that must be alike for two arms' times to lie on one line."""
    words = sorted((name, None if _is_number(value) else value) for name, value in arm.parameters.items())
    knobs = sorted(arm.options.items())
    return (arm.target, arm.model, arm.threads, arm.scenario, arm.instances, tuple(words), tuple(knobs))


def _numbers(arm: Arm) -> dict[str, float]:
    """Return the batch and the numbers among the parameters, in a fixed order."""
    numbers = {name: float(value) for name, value in sorted(arm.parameters.items()) if _is_number(value)}
    return {"batch": float(arm.batch), **{f"parameter {name}": value for name, value in numbers.items()}}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
