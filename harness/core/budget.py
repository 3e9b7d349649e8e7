"""Split the time of one run between its steps: every share of `--max-time` stands here, in the order of the steps.

| step | gets at most |
|---|---|
| exports | 60 % of the run's time, and plan with 40 % of that; a model's own part is alike for all that are left |
| builds | 50 % of what is left; 75 % if all that was built before is settled |
| racing | the rest; 90 s a group without `--max-time`, less what planning, exports and builds took beyond 25 s |
| a first restart | 60 % of the racing, if not every target fits |
| loading, in each restart | 50 % of what is left |
| warming up, in each restart | 25 % of that restart's time; 50 % of the run's if the calls aren't steady by then |
| one target, in any step | 50 % of what that step has left, or twice its foreseen time |
"""

from __future__ import annotations

from shootout.core.clock import Deadline
from shootout.core.constants import LEAST_CALLS, LEAST_LONG_CALLS, LEAST_SLOW_CALLS, LONG_CALL_NS, SLOW_CALL_NS

RACING_S = 90.0
"""The longest race for the best target of one group, if no `--max-time` is given."""
PREPARING_S = 25.0
"""Seconds for planning, exports and builds. What they take beyond these comes off the race, so that all takes 120 s at
most if they take 55 s or less.
"""
LEAST_RACING = 2 / 3
"""The part of the race's time that stays, however long the preparation took."""

EXPORT_SHARE = 0.6
EXPORT_PLANS = 0.4
"""An export plans with this part of its share: a torch module of a user's file takes some 7 s that are not foreseen,
and the race tells more with the rest than six more sets of inputs do.
"""
LONGEST_EXPORT_S = 60.0
LITTLE = 0.2
"""An export that takes less than this part of the time left is made whole."""
BUILD_SHARE = 0.5
LAST_BUILD_SHARE = 0.75
LOADING_SHARE = 0.5
ONE_ARM_SHARE = 0.5
FIRST_RESTART_SHARE = 0.6
"""The second restart, that of the fastest targets, gets the rest."""
WARMING_SHARE = 0.25
GRACE_S = 3.0
"""A process that hasn't answered so long after the end of its time is ended."""


def exports(run: Deadline) -> Deadline:
    """Return when a run's exports must end."""
    return run.part(EXPORT_SHARE)


def planned_exports(run: Deadline) -> Deadline:
    """Return when a run's exports should end: what doesn't fit before is left out."""
    return run.part(EXPORT_SHARE * EXPORT_PLANS)


def is_export_whole(whole_s: float, run: Deadline, plan: Deadline) -> bool:
    """Return whether an export is made whole: it ends by `plan`, or takes little of what is left of the run.

    In a run without a limit that is an export of a minute: what a longer one adds is never waited for.

    Args:
        whole_s: seconds that the whole export takes.
    """
    if run.seconds is None:
        return whole_s <= LONGEST_EXPORT_S
    return takes_little(whole_s, run) or plan.allows(whole_s)


def export_s(run: Deadline, plan: Deadline) -> float:
    """Return the seconds in which an export is made that isn't whole; arguments as in `is_export_whole`."""
    return LONGEST_EXPORT_S if run.seconds is None else max(plan.left_s, 0.0)


def takes_little(whole_s: float, run: Deadline) -> bool:
    """Return whether an export takes so little of what is left of the run that nothing is gained by less of it."""
    return whole_s < LITTLE * run.left_s


def small_export(run: Deadline) -> Deadline:
    """Return when an export that `takes_little` should end: in twice the time that counts as little."""
    return run.part(2 * LITTLE)


def next_export(plan: Deadline, models: int, others_s: float) -> Deadline:
    """Return when the next of several exports should end; each model left gets as much.

    Args:
        models: how many are left, this one included.
        others_s: seconds that go to short exports, which the harness makes of models of its own.
    """
    left_s = max(plan.left_s, others_s, 1e-9)
    return plan.part((1 - others_s / left_s) / models)


def builds(run: Deadline) -> Deadline:
    """Return when builds must end, so that what is ready can be raced."""
    return run.part(BUILD_SHARE)


def last_builds(run: Deadline) -> Deadline:
    """Return when builds must end that begin when all else is settled, so that two restarts of theirs have time."""
    return run.part(LAST_BUILD_SHARE)


def run_s(builds_s: float, race_s: float) -> float:
    """Return the seconds of a run whose builds end in their share of it, and which has so much left for the race."""
    return max(builds_s / BUILD_SHARE, builds_s + race_s)


def loading(run: Deadline) -> Deadline:
    """Return when a restart's arms must be loaded and checked."""
    return run.part(LOADING_SHARE)


def one_arm_s(step: Deadline, takes_s: float = 0.0) -> float:
    """Return the most seconds that one arm may take of a step, so that the other arms get the rest.

    Args:
        takes_s: the foreseen seconds; the arm may take twice as long, if so much is left.
    """
    return min(step.left_s, max(ONE_ARM_SHARE * step.left_s, 2 * takes_s))


def one_answer_s(step: Deadline, takes_s: float = 0.0) -> float:
    """Return how many seconds to wait for an arm's answer before its process is ended; as `one_arm_s`, with grace."""
    return max(0.0, one_arm_s(step, takes_s) + GRACE_S)


def race_s(most_s: float | None, spent_s: float) -> float | None:
    """Return the seconds of a race without `--max-time`; None, without end.

    Args:
        most_s: the most that it may have; None, without end.
        spent_s: what planning, exports and builds took.
    """
    return None if most_s is None else max(LEAST_RACING * most_s, most_s - max(0.0, spent_s - PREPARING_S))


def least_calls_s(call_s: float) -> float:
    """Return the seconds of the fewest calls of an arm in a restart, once it is verified."""
    calls = LEAST_LONG_CALLS if call_s * 1e9 > LONG_CALL_NS else LEAST_CALLS
    return call_s * (LEAST_SLOW_CALLS if call_s * 1e9 > SLOW_CALL_NS else calls)


def restart_s(left_s: float, *, is_first: bool) -> float:
    """Return the seconds that the arms of a restart may take together, if not all of them have time."""
    return FIRST_RESTART_SHARE * left_s if is_first else left_s


def most_warm_up_s(run: Deadline, waiting: int) -> float:
    """Return the most seconds that one arm may warm up: half of the run's time, parted between those that wait.

    Args:
        waiting: how many arms have yet to warm up, this one included.
    """
    return max(0.0, run.left_s / 2 / waiting)


def warm_up_pace_s(restart: Deadline, waiting: int) -> float:
    """Return the seconds after which an arm of steady calls is warm enough; `waiting` as in `most_warm_up_s`."""
    return max(0.0, WARMING_SHARE * restart.left_s / waiting)
