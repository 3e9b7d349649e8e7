"""Split the time of one run: the shares of `--max-time` that exports and builds get; `race.pace` parts the rest.

| step | gets at most |
|---|---|
| exports | 60 % of the run's time, and plan with 40 % of that; a model's own part is alike for all that are left |
| builds | 50 % of what is left; 75 % if all that was built before is settled |
| one target, in any step | 50 % of what that step has left, or twice its foreseen time |
"""

from __future__ import annotations

from shootout.core.clock import Deadline

RACING_S = 90.0
"""The longest race for the best target of one group, if no `--max-time` is given."""

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
ONE_ARM_SHARE = 0.5


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


def takes_little(whole_s: float, run: Deadline) -> bool:
    """Return whether an export takes so little of what is left of the run that nothing is gained by less of it."""
    return whole_s < LITTLE * run.left_s


def builds(run: Deadline) -> Deadline:
    """Return when builds must end, so that what is ready can be raced."""
    return run.part(BUILD_SHARE)


def last_builds(run: Deadline) -> Deadline:
    """Return when builds must end that begin when all else is settled, so that two restarts of theirs have time."""
    return run.part(LAST_BUILD_SHARE)


def one_arm_s(step: Deadline, takes_s: float = 0.0) -> float:
    """Return the most seconds that one arm may take of a step, so that the other arms get the rest.

    Args:
        takes_s: the foreseen seconds; the arm may take twice as long, if so much is left.
    """
    return min(step.left_s, max(ONE_ARM_SHARE * step.left_s, 2 * takes_s))
