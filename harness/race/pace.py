"""How a race spends the time that is left: how long a restart may be, and who plays where not all have time. Pure.

Restarts are the replicates, so a race that is short of time plays several short ones rather than a long one: fewer
calls to warm up and fewer rounds, never fewer than a restart counts with. Where not even those of all arms fit, the
slowest stay out: a verdict takes two restarts of the fastest ones, and one of everything is a verdict on nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shootout.constants import (
    BLOCK_CALLS,
    BLOCK_NS,
    FIRST_SHARE,
    LEAD_IN_CALLS,
    LEAST_CALLS,
    LEAST_LONG_CALLS,
    LONG_CALL_NS,
    MIN_ROUNDS,
)
from shootout.contract import Arm, Array
from shootout.messages import Tuned
from shootout.race.loading import Entrance
from shootout.race.protocols import Performance
from shootout.race.serving import Terms, least_s
from shootout.stats.leaders import time_ns
from shootout.stats.verdicts import Rules


def restart_s(left_s: float, owed: Iterable[int]) -> float:
    """Seconds that a restart should take.

    Args:
        left_s: of all groups together.
        owed: restarts that each group which waits should have yet (`Race.owed`).
    """
    return left_s / max(1, sum(max(2, count) for count in owed))


def foreseen_s(entrance: Entrance, terms: Terms | None) -> float:
    """Seconds of an arm's shortest way through a restart; a first call that compiles is no call's time."""
    loaded, verified = entrance.loaded, entrance.verified
    if entrance.error or loaded is None:
        return 0.0
    verify_s = entrance.spent_s.get("verify", loaded.first_call_s) / (verified.calls if verified else 1)
    call_s = min(loaded.first_call_s, verify_s)
    calls_s = call_s * (LEAST_LONG_CALLS if call_s * 1e9 > LONG_CALL_NS else LEAST_CALLS)
    return max(calls_s, least_s(terms) if terms else 0.0)


def least_rounds_s(tuned: Tuned) -> float:
    """Seconds of an arm's turns in the fewest rounds that count."""
    return MIN_ROUNDS * sum(_block_ns(ns) for ns in tuned.call_ns.values()) / 1e9


def entering_s(performances: Sequence[Performance]) -> float:
    """Seconds until one more arm may play, as long as the slowest of these took."""
    return max((sum(one.spent_s.values()) for one in performances), default=0.0)


def _block_ns(call_ns: float) -> float:
    """Of a block with its lead-in."""
    if call_ns > LONG_CALL_NS:
        return 2 * call_ns
    return max((LEAD_IN_CALLS + BLOCK_CALLS) * call_ns, BLOCK_NS)


def leavers(
    arms: Sequence[Arm], needs_s: Mapping[str, float], baseline: str | None, left_s: float, *, is_first: bool
) -> list[Arm]:
    """Who stays out of a restart, the slowest first.

    One rival stays beside the baseline and the copy that vouches for it, as long as these fit. Where they don't, the
    copy goes first: in one restart it vouches for nothing.

    Args:
        needs_s: seconds of each arm, by label.
        is_first: whether there is no restart yet: then the second one needs its part of the time too.
    """
    share = FIRST_SHARE if is_first and any(arm.control for arm in arms) else 1.0
    order = sorted(arms, key=lambda arm: (arm.control, needs_s[arm.label]), reverse=True)
    rivals = [arm for arm in order if not arm.control and arm.label != baseline]
    out = list[Arm]()

    def takes_s() -> float:
        return sum(needs_s[arm.label] for arm in order)

    while len(rivals) > 1 and takes_s() > share * left_s:
        out.append(rivals.pop(0))
        order.remove(out[-1])
    while order and takes_s() > left_s:
        out.append(order.pop(0))
    return out


def took_s(performances: Sequence[Performance], rounds: int, wall_s: float) -> dict[str, float]:
    """By label, each arm's part of a restart that took so long, had it had the fewest rounds that count."""
    before = {one.arm.label: sum(one.spent_s.values()) for one in performances}
    calls = {one.arm.label: sum(_called_s(turn.latency_ns.values()) for turn in one.turns) for one in performances}
    scale = wall_s / (sum(before.values()) + sum(calls.values()) or 1.0)
    shortest = min(1.0, MIN_ROUNDS / max(rounds, 1))
    return {label: scale * (spent + shortest * calls[label]) for label, spent in before.items()}


def _called_s(latencies_ns: Iterable[Array]) -> float:
    return sum(float(one.sum()) for one in latencies_ns) / 1e9


def thinned(
    players: Sequence[Arm],
    needs_s: Mapping[str, float],
    blocks: Mapping[str, Mapping[int, Array]],
    rules: Rules,
    left_s: float,
) -> list[Arm]:
    """Those of the players that have time for their next restart: the baseline, its copy and the fastest so far.

    The fastest one in full precision is the last to go, whatever is faster. Where it isn't known of all what they take,
    all play.

    Args:
        needs_s: by label, see `took_s`.
        blocks: end-to-end block medians by label and restart.
    """
    if not all(arm.label in needs_s for arm in players):
        return list(players)
    rivals = [arm for arm in players if not arm.control and arm.label != rules.baseline]
    rivals.sort(key=lambda arm: time_ns(blocks.get(arm.label, {})))
    first = next((arm for arm in rivals if arm.label in rules.exact), None)
    rivals.sort(key=lambda arm: arm is not first)
    out = list[str]()
    while len(rivals) > 1 and sum(needs_s[arm.label] for arm in players if arm.label not in out) > left_s:
        out.append(rivals.pop().label)
    return [arm for arm in players if arm.label not in out]
