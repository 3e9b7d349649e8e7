"""How a race spends the time that is left: how long a restart may be, and which arms play if not all have time. Pure.

Restarts are the replicates, so a race that is short of time plays several short ones rather than a long one: fewer
calls to warm up and fewer rounds, never fewer than a restart counts with. Where not even those of all arms fit, the
slowest stay out: a verdict takes two restarts of the fastest ones, and one of everything is a verdict on nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

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
from shootout.core.contract import Arm, Array
from shootout.core.messages import Scope, Tuned
from shootout.core.race.live_arm import LiveArm
from shootout.core.stats.group_evidence import Rules
from shootout.core.stats.leaders import time_ns
from shootout.core.study.group import exact_of


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
