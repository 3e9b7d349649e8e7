"""Own the time of a run's races: nothing else in core decides by seconds how long a step takes, or which arms have it.

Restarts are the replicates, so a race that is short of time plays several short ones rather than a long one: fewer
calls to warm up and fewer rounds, never fewer than a restart counts with. Where not even those of all arms fit, the
slowest stay out: a verdict takes two restarts of the fastest ones, and one of everything is a verdict on nothing.

| step | gets at most |
|---|---|
| exports (`exported.request`) | 40 % of the run's time, and plan with 60 % of that; each model left gets as much |
| builds (`build.preparation`) | 50 % of what is left; 75 % if all that was built before is settled |
| racing | what exports and builds leave; 90 s a group without `--max-time`, less what they took beyond 25 s |
| a first restart | 60 % of the racing, if not every target fits |
| loading, in each restart | 50 % of what is left, in a first one of its part; there what loads soonest goes first |
| warming up, in each restart | 25 % of that restart's time; 50 % of the run's if the calls aren't steady by then |
| one target, in any step | 50 % of what that step has left, or twice its foreseen time |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shootout.core import backends
from shootout.core.clock import Deadline
from shootout.core.constants import (
    BLOCK_CALLS,
    BLOCK_NS,
    LEAD_IN_CALLS,
    LEAST_CALLS,
    LEAST_LONG_CALLS,
    LEAST_SLOW_CALLS,
    LONG_CALL_NS,
    LONG_COMPUTE_ROUNDS,
    LONG_ROUNDS,
    MIN_ROUNDS,
    SLOW_CALL_NS,
)
from shootout.core.contract import Arm, NotRun, NotRunKind
from shootout.core.messages import Tuned
from shootout.core.study.group import exact_of
from shootout.core.units import seconds, span

PREPARING_S = 25.0
"""Seconds for planning, exports and builds. What they take beyond these comes off the race, so that all takes 120 s at
most if they take 55 s or less.
"""
LEAST_RACING = 2 / 3
"""The part of the race's time that stays, however long the preparation took."""
LOADING_SHARE = 0.5
FIRST_RESTART_SHARE = 0.6
"""The second restart, that of the fastest targets, gets the rest."""
WARMING_SHARE = 0.25
GRACE_S, LOADING_GRACE = 3.0, 0.1
"""A process that hasn't answered so long after the end of its time is ended; one that loads after this part of what is
left, if that is less.
"""
MORE_TIME = "run the same command again, with more time"
TOO_LATE = ("--max-time was over before it could be measured", MORE_TIME, NotRunKind.NOT_REACHED)
"""The reason of what had no time left, with its fix and kind."""


@dataclass(slots=True, kw_only=True)
class RaceTime:
    """Tell how many seconds each step of the races may take, and which arms have none.

    Attributes:
        run: when all of the run's time is over.
        most_s: the most seconds that the racing may take; None: no limit of its own.
        planning_s: what the plan took, before `run` was set.
        racing: when the racing's own time is over.
        restart: when the restart that plays should be over: then it has no more rounds than it needs to count.
        loaded_by: when its arms must be loaded, for those that are to have time to play.
        has_later: tells whether targets are built later: racing now leaves them half of the time.
    """

    run: Deadline = field(default_factory=lambda: Deadline(None))
    most_s: float | None = None
    planning_s: float = 0.0
    racing: Deadline = field(default_factory=lambda: Deadline(None))
    restart: Deadline = field(default_factory=lambda: Deadline(None))
    loaded_by: Deadline = field(init=False)
    has_later: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self.loaded_by = self.run.part(LOADING_SHARE)

    def begin_racing(self) -> None:
        """Begin the racing's own time, now that what races first is built."""
        self.racing = Deadline(self._racing_s(self.run.elapsed_s))

    def note_builds(self, seconds: float) -> None:
        """Take over that builds between restarts took so many seconds: these were no racing."""
        self.racing.put_off(seconds)
        self.racing.seconds = self._racing_s(self.preparing_s)

    def _racing_s(self, preparing_s: float) -> float | None:
        spent_s = self.planning_s + preparing_s
        return self.most_s and max(LEAST_RACING * self.most_s, self.most_s - max(0.0, spent_s - PREPARING_S))

    @property
    def preparing_s(self) -> float:
        """Return the seconds that exports and builds took, before the race and between its restarts."""
        return self.run.elapsed_s - self.racing.elapsed_s

    @property
    def left_s(self) -> float:
        """Return the seconds that racing may take now."""
        return min(self.run.left_s, self.racing.left_s) / self._parts

    def allows(self, seconds: float) -> bool:
        """Tell whether so many seconds of racing still end in time."""
        return self.run.allows(self._parts * seconds) and self.racing.allows(self._parts * seconds)

    @property
    def _parts(self) -> int:
        return 2 if self.has_later() else 1

    # One restart.

    def begin_restart(self, owed: Iterable[int], *, is_first: bool = False) -> None:
        """Set when the next restart should be over, and when its arms must be loaded.

        Args:
            owed: restarts that each group which waits should have yet (`Race.owed`).
            is_first: whether it is its group's first: then the second one needs its part of the time too.
        """
        self.restart = Deadline(max(0.0, self.left_s) / max(1, sum(max(2, count) for count in owed)))
        self.loaded_by = self.run.part(LOADING_SHARE * (FIRST_RESTART_SHARE if is_first else 1.0))

    def answer_s(self, takes_s: float = 0.0, *, loads: bool = False) -> float:
        """Return how many seconds to wait for an arm's answer before its process is ended: others get the rest.

        Args:
            takes_s: about what the answer takes.
            loads: whether it is a step of loading.
        """
        grace_s = min(GRACE_S, LOADING_GRACE * self.run.left_s) if loads else GRACE_S
        return max(0.0, (self.loaded_by if loads else self.run).one_arm_s(takes_s) + grace_s)

    def place_of(self, arm: Arm, *, baseline: str | None, is_first: bool) -> tuple[float, ...]:
        """Return what arms are sorted by before they load: all are alike, but in the first restart of a limited run.

        There the baseline is first, then what loads soonest by rule of thumb, then what a third party's package
        brings, of which none is known: what is late is left out.
        """
        row = backends.entry(arm.target.backend) if is_first and self.run.seconds is not None else None
        return (arm.label != baseline, bool(row.package), row.ready_s) if row else ()

    def is_over(self, *, loads: bool = False) -> bool:
        """Tell whether the run's time is over, or that of loading."""
        return not (self.loaded_by if loads else self.run).allows(0.0)

    def warm_up_s(self, waiting: int) -> tuple[float, float]:
        """Return the most seconds that one arm may warm up, and those after which one of steady calls is warm enough.

        Args:
            waiting: how many arms have yet to warm up, this one included.
        """
        return max(0.0, self.run.left_s / 2 / waiting), max(0.0, WARMING_SHARE * self.restart.left_s / waiting)

    def find_leavers(
        self, arms: Sequence[Arm], needs_s: Mapping[str, float], baseline: str | None, *, is_first: bool = False
    ) -> dict[str, NotRun]:
        """Return why arms stay out of a restart that has no time for them, by label, the slowest first.

        One rival stays beside the baseline and the copy that vouches for it, as long as these fit: the fastest in full
        precision, which may be shipped whatever is known of errors. Where they don't, the copy goes first: in one
        restart it vouches for nothing. A rival that rounds goes next.

        Args:
            needs_s: seconds of each arm, by label.
            is_first: whether there is no restart yet: then the second one needs its part of the time too.
        """
        left_s, whole_s = self.run.left_s, sum(needs_s[arm.label] for arm in arms)
        restart_s = left_s * (FIRST_RESTART_SHARE if is_first and any(arm.control for arm in arms) else 1.0)
        order = sorted(arms, key=lambda arm: (arm.control, needs_s[arm.label]), reverse=True)
        rivals = [arm for arm in order if not arm.control and arm.label != baseline]
        exact = exact_of(rivals)
        last = next((arm for arm in reversed(rivals) if arm.label in exact), None)
        rivals.sort(key=lambda arm: arm is last)
        out: dict[str, NotRun] = {}

        def keep_out(arm: Arm) -> None:
            nonlocal whole_s
            more = ", and a verdict takes two" if is_first and whole_s <= left_s else ""
            leaves = f"{'; ' if more else ', and '}--max-time leaves {span(left_s)}"
            needs = f"a restart with it takes {seconds(whole_s)} at least{more}{leaves}"
            out[arm.label] = NotRun(NotRunKind.NOT_REACHED, needs if left_s > 0 else TOO_LATE[0], MORE_TIME)
            whole_s -= needs_s[arm.label]
            order.remove(arm)

        while len(rivals) > 1 and whole_s > restart_s:
            keep_out(rivals.pop(0))
        order.sort(key=lambda arm: (arm.control, arm.label not in {*exact, baseline}, needs_s[arm.label]), reverse=True)
        while order and whole_s > left_s:
            keep_out(order[0])
        return out


def least_calls_s(call_s: float) -> float:
    """Return the seconds of the fewest calls of an arm in a restart, once it is verified."""
    calls = LEAST_LONG_CALLS if call_s * 1e9 > LONG_CALL_NS else LEAST_CALLS
    return call_s * (LEAST_SLOW_CALLS if call_s * 1e9 > SLOW_CALL_NS else calls)


def least_rounds_s(tuned: Tuned) -> float:
    """Return the seconds of an arm's turns in the fewest rounds that count."""
    rounds, computes = least_rounds([tuned]), least_compute_rounds([tuned], MIN_ROUNDS)
    blocks_ns = {scope: _block_ns(ns) for scope, ns in tuned.call_ns.items()}
    return sum((computes if scope == "compute" else rounds) * ns for scope, ns in blocks_ns.items()) / 1e9


def least_rounds(tuned: Iterable[Tuned]) -> int:
    """Return the fewest rounds of these arms that count."""
    return LONG_ROUNDS if any(map(_is_long, tuned)) else MIN_ROUNDS


def least_compute_rounds(tuned: Iterable[Tuned], rounds: int) -> int:
    """Return in how many of so many rounds `compute` is read: fewer of long calls."""
    return min(rounds, LONG_COMPUTE_ROUNDS) if any(map(_is_long, tuned)) else rounds


def _is_long(tuned: Tuned) -> bool:
    return tuned.call_ns["end_to_end"] > LONG_CALL_NS


def _block_ns(call_ns: float) -> float:
    """Return the nanoseconds of a block with its lead-in."""
    if call_ns > LONG_CALL_NS:
        return (1 if call_ns > SLOW_CALL_NS else 2) * call_ns
    return max((LEAD_IN_CALLS + BLOCK_CALLS) * call_ns, BLOCK_NS)
