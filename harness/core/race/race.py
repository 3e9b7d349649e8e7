"""Hold a group's race: what its arms have shown, which of them play next, and how long that takes.

A race ends as soon as its goal is reached. An arm leaves earlier, when no open pair has it any more: the others get its
time. Looking after every restart is harmless: see `stats.verdicts`.

A race for the best goes on with the contenders alone after its first restart, until it is settled among these: that is
the answer that people wait for. Then the others play the restarts that they owe, with the baseline, its copy and the
leaders, so that each pair has as many restarts in common as if all had played from the beginning.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shootout.core.adapter import Built
from shootout.core.clock import Stopwatch
from shootout.core.constants import AIMED_RESTARTS
from shootout.core.contract import Arm, Array, NotRun, NotRunKind
from shootout.core.journal.records import Played
from shootout.core.messages import Loaded, Progress, Verified
from shootout.core.race.live_arm import Launcher
from shootout.core.race.pace import RaceTime
from shootout.core.race.restart import Restart
from shootout.core.results.group import Group
from shootout.core.results.run import Run
from shootout.core.scenario import Terms
from shootout.core.stats.group_evidence import GroupEvidence, Pair, Rules
from shootout.core.stats.leaders import find_open, is_unopposed, leader_sets, restarts_left
from shootout.core.stats.readings import LEAST_TAILS
from shootout.core.stats.verdicts import LEAST_RESTARTS

LIMIT_RESTARTS = 60
"""As `AIMED_RESTARTS`, where a limit is asked for, which is far nearer: 5 % from an arm that is as fast. By then that
is known, and 10 % slower likewise, where restarts spread by 6 %."""


@dataclass(kw_only=True, eq=False)
class Race:
    """The race of one group.

    Attributes:
        arms: by label, the control among them.
        group: what the journal holds of it: each restart's lines, and why arms are out.
        index: of its group in the run; the index begins with 0.
        barred: labels that break a limit by what is known so far, so that no restart is spent on ranking them.
        hung: labels of arms that gave no answer in an earlier process of the run, and have not played since.
        killed: labels whose process was killed in the last restart that they entered: they play once more.
        contenders_first: whether contenders may go first; not if there would be no time for the others behind them.
        terms: what the arms are asked; the first restart sets a limit left open.
        purpose: what the run is for: it tells which arms stand back.
        called: pairs that play the next restart, whatever the goal still needs.
        players: the arms of the next restart, as `look` found them; none when the race is over.
        parts_s: what each arm takes of the shortest restart, by label (`Restart.took_s`); empty before this process's
            first.
        recalled: restarts that had been played when this process began.
    """

    arms: Mapping[str, Arm]
    group: Group
    seed: str
    index: int = 0
    barred: set[str] = field(default_factory=set)
    hung: Collection[str] = ()
    killed: set[str] = field(default_factory=set)
    contenders_first: bool = True
    terms: Terms = field(default_factory=Terms)
    purpose: Purpose = field(default_factory=lambda: Purpose())
    called: Collection[Pair] = ()
    players: list[Arm] = field(default_factory=list)
    parts_s: dict[str, float] = field(default_factory=dict)
    recalled: int = field(init=False)
    _left: Sequence[float] | None = None

    def __post_init__(self) -> None:
        self.recalled = self.played

    # What is known so far.

    @property
    def name(self) -> str:
        """Return the name of its group."""
        return self.group.record.name

    @property
    def rules(self) -> Rules:
        """Return what it is judged by."""
        return self.group.rules

    @property
    def blocks(self) -> dict[str, dict[int, Array]]:
        """Return the end-to-end block medians (ns) by label and restart."""
        return self.group.blocks("end_to_end")

    @property
    def played(self) -> int:
        """Return how many restarts there were, those that brought no figure among them."""
        return self.group.next_restart

    @property
    def labels(self) -> list[str]:
        """Return the arms that have not failed, the control included."""
        setbacks, killed = self.group.setbacks.items(), self.killed
        out = {label for label, why in setbacks if label not in killed or why.kind is not NotRunKind.KILLED}
        return [label for label in self.arms if label not in out]

    @property
    def sound(self) -> dict[str, dict[int, Array]]:
        """Return the blocks of the arms that have not failed."""
        return {label: self.blocks[label] for label in self.labels if label in self.blocks}

    @property
    def evidence(self) -> GroupEvidence:
        """Return what the restarts so far say of any two arms."""
        out = self.group.setbacks.items()
        off_limits = {label for label, why in out if why.kind is NotRunKind.OFF_LIMITS}
        return self.group.evidence("end_to_end", self.barred | off_limits)

    @property
    def fewest(self) -> int:
        """Return the fewest restarts that can give a verdict, or that each arm must play whatever is known before."""
        return max(LEAST_RESTARTS, self.rules.least_restarts)

    def _count(self, label: str) -> int:
        return len(self.blocks.get(label, ()))

    def find_leaders(self, labels: Collection[str]) -> list[str]:
        """Return the fastest of these arms that may be the answer, then that in full precision if not all are."""
        arms = {*labels} - {self.rules.control, *self.evidence.out_of_question}
        return [one.fastest for one in leader_sets(self.evidence, arms)]

    # Which arms play next.

    def look(self) -> list[Arm]:
        """Choose the arms that play next, after a restart or when anything else has changed, and return them."""
        self._left = None
        self.players = [self.arms[label] for label in self.find_players()]
        return self.players

    def find_players(self) -> list[str]:
        """Return the labels of the next restart; none if the race is over.

        They are what the goal waits for, with the baseline and its copy; all in the fewest restarts. In a race for the
        best the contenders go first.

        An arm leaves as soon as nothing waits for it, however near its verdict against the baseline is: what loads
        longest is often what is beaten, and the leaders would wait for it. Its pairs stay as they are then: evidence
        stopped early.
        """
        if self.played >= self.rules.max_restarts:
            return []
        if self.terms.rule:
            return list(self.terms.rule(self.labels, self.blocks))
        own = {self.rules.baseline, self.rules.control}
        if self.rules.goal.aim == "limit" and (self.rules.baseline not in self.labels or {*self.labels} <= own):
            return []  # no arm is left to hold to the limit, or none to compare with
        labels = self.purpose.find_focus(self)
        is_alone = is_unopposed(labels, self.rules)
        if self.played < self.fewest:
            return [label for label in labels if not (is_alone and label == self.rules.control)]
        if is_alone or not (waiting := self.find_waiting(labels)):
            return []
        playing = {self.rules.baseline, self.rules.control, *waiting}
        return [label for label in labels if label in playing]

    def find_waiting(self, labels: Collection[str]) -> set[str]:
        """Return which of these arms are in open verdicts or called pairs, stood back, or joined later."""
        late = self.find_late(labels)
        pairs = [*find_open(self.evidence, labels, self.group.unsteady), *self.called]
        waiting = late | {label for pair in pairs if {*pair} <= {*labels} for label in pair}
        if late & self._joined:  # an answer compares the fastest with those
            waiting |= {*self.find_leaders(labels)}
        copies = {*labels} & {self.rules.control}  # another baseline's copy joined later than the others
        return waiting | {label for label in copies if self._count(label) < self.fewest}

    def find_late(self, labels: Collection[str]) -> set[str]:
        """Return which of these arms stood back or joined later, and owe restarts.

        An arm that can't be the answer owes none, unless its first starts were unsteady: the next may be steady.
        """
        evidence = self.evidence
        hopeless = {*evidence.unsound} - self.group.unsteady | {*evidence.barred}
        behind = ({*self.purpose.find_parked(self)} | self._joined) & {*labels} - hopeless
        return {label for label in behind if self._count(label) < self.fewest}

    @property
    def _joined(self) -> set[str]:
        """Return the arms that weren't in the first restart."""
        return {label for label in self.labels if self.played and 0 not in self.blocks.get(label, ())}

    # What a restart brings.

    def play(
        self,
        launcher: Launcher,
        setback: Callable[[Arm, NotRun], None],
        checked: Callable[[Arm, Loaded, Verified], None] = lambda *_: None,
    ) -> Restart:
        """Let the players play a restart, and take what it showed into account; `look` finds the next ones.

        Args:
            setback, checked: as a `Restart` has them.
        """
        killed = set()

        def note(arm: Arm, why: NotRun) -> None:
            if why.kind is NotRunKind.KILLED and arm.label not in self.killed:
                killed.add(arm.label)
            setback(arm, why)
            self.group.setbacks.setdefault(arm.label, why)

        restart = Restart(
            index=self.played,
            arms=self.players,
            launcher=launcher,
            setback=note,
            checked=checked,
            rng=random.Random(f"{self.seed} {self.played}"),
            terms=self.terms,
            baseline=self.rules.baseline,
            tails=self.rules.least_restarts >= LEAST_TAILS,
            hung=self.hung,
            samples=f"samples/g{self.index}-{self.played:03}.npz",
        )
        with Stopwatch() as watch:
            found = restart.run()
        if found.is_cut:
            self.killed |= killed
            return found
        self.killed = killed | (self.killed - {arm.label for arm in self.players})
        self.called = ()
        self.hung = {*self.hung} - {live.arm.label for live in found.playing}
        self.terms = self.terms.after(found.asked)
        self.group.take(*found.lines(self.name, watch.seconds))
        self.parts_s |= found.took_s(self.last_s) if self.terms.is_by_calls else {}
        return found

    def join(self, arms: Iterable[Arm]) -> None:
        """Let arms race that weren't there from the beginning: the first answer is out, so none stands back now."""
        new = {arm.label: arm for arm in arms if arm.label not in self.arms}
        self.arms = {**self.arms, **new}
        self.contenders_first = False
        if new:  # as many restarts as each should play, though the race had its most before
            most = max(self.rules.max_restarts, self.played + self.fewest)
            self.group = replace(self.group, rules=replace(self.rules, max_restarts=most))

    def take_baseline(self, group: Group) -> None:
        """Race against this group's baseline from the next restart on, beside its copy, which is last."""
        old, control = self.rules.control, group.record.arms[-1]
        self.group = group
        self.arms = {label: arm for label, arm in self.arms.items() if label != old} | {control.label: control}

    # How long it takes.

    @property
    def last_s(self) -> float:
        """Return the seconds that the last restart took; 0 before the first."""
        return self.group.rounds[-1].lasting_s if self.group.rounds else 0.0

    @property
    def owed(self) -> int:
        """Return into how many more restarts the time left should be parted."""
        aimed = LIMIT_RESTARTS if self.rules.goal.aim == "limit" else AIMED_RESTARTS
        return aimed - self.played

    @property
    def next_s(self) -> float:
        """Return the seconds of the next restart (`seconds_of`)."""
        return self.seconds_of(self.players)

    def seconds_of(self, arms: Sequence[Arm]) -> float:
        """Return the seconds of a restart of these arms: the least if that is known, else as the last one, by arms."""
        if self.parts_s and all(arm.label in self.parts_s for arm in arms):
            return sum(self.parts_s[arm.label] for arm in arms)
        return self._usual_s(len(arms))

    def _usual_s(self, arms: int) -> float:
        """Return the seconds of a restart of so many arms if each takes as long as in the last one."""
        last_arms = self.group.players(self.played - 1)
        return self.last_s * (arms / last_arms if last_arms else 1.0)

    def open_pairs(self) -> dict[Pair, float]:
        """Return the pairs whose verdict is still open, with the restarts that each may take (inf: unknown).

        While contenders go first, these are theirs.
        """
        left = restarts_left(self.evidence, self.purpose.find_focus(self), self.group.unsteady)
        blocks = self.blocks
        shared = {(one, other): len({*blocks.get(one, ())} & {*blocks.get(other, ())}) for one, other in left}
        return {
            pair: self.fewest - shared[pair] if shared[pair] < self.fewest else count for pair, count in left.items()
        }

    @property
    def _waited_for(self) -> Sequence[float]:
        """Return how many restarts each open verdict may take."""
        if self._left is None:  # an estimate takes a while, and not all races need it
            self._left = [*self.open_pairs().values(), *(1.0 for _ in self.called)]
        return self._left

    @property
    def nearest(self) -> float:
        """Return the restarts until the first verdict that is waited for; inf where that isn't known."""
        return min(self._waited_for, default=math.inf)

    @property
    def left_s(self) -> float:
        """Return the seconds until all that is waited for is known, by what is known so far; 0: not known yet."""
        most, least = self.rules.max_restarts - self.played, self.fewest - self.played
        count = min(most, max(self._waited_for, default=1)) if least <= 0 else most if self.rules.goal.within else least
        return max(1, count) * self._usual_s(len(self.players))

    @property
    def order(self) -> tuple[float, ...]:
        """Return what the races of a run are sorted by: the smaller plays first."""
        if self.played == 0:
            return (0, self.index)
        if self.played < self.fewest:
            return (1, self.index)
        return (2, not self.called, self.nearest, self.index)


def find_next(waiting: Sequence[Race], time: RaceTime) -> Race | None:
    """Return the race that plays the next restart; None: none ends in time.

    One that can have no verdict yet isn't ended by a default budget. An earlier process may have played one arm of
    many. A process that goes on then tries as long a restart as that one, and the restart leaves out what doesn't fit:
    else it would end with most of its time unused.
    """
    open_ = [race for race in waiting if race.played < race.fewest]
    untried = (one for one in open_ if one.played == one.recalled and time.run.allows(one.last_s))
    return first_of(waiting, time.allows) or first_of(open_, time.run.allows) or next(untried, None)


def first_of(waiting: Iterable[Race], allows: Callable[[float], bool]) -> Race | None:
    """Return the race that plays first, since time goes where an answer is near; None: none ends in time.

    First each plays once, so that every cell has a figure. Then each plays the fewest restarts that can give a verdict,
    one race after the other: one restart of everything is a verdict on nothing. From there on the next restart goes to
    the race whose nearest missing verdict takes the fewest.

    Args:
        waiting: races that have players.
        allows: whether there is time for so many seconds.
    """
    allowed = [one for one in waiting if allows(one.next_s)]
    return min(allowed, key=lambda one: one.order) if len(allowed) > 1 else next(iter(allowed), None)


class Purpose:
    """Tell what a run is for: as it stands here, its groups' goals alone, so no arm leaves and none is waited for."""

    def find_breach(self, line: Played, install_bytes: int | None) -> NotRun | None:
        """Return why an arm need play no more, by what one restart shows; None: it goes on.

        Args:
            install_bytes: what the arm's runtime takes on disk, if that is known.
        """

    def find_barred(self, race: Race, out: Path) -> Collection[str]:  # noqa: ARG002
        """Return a race's arms that need no verdict against the others; called after each restart of it.

        Args:
            out: the run folder, with all that the run holds so far.
        """
        return race.barred

    def find_parked(self, race: Race) -> Collection[str]:  # noqa: ARG002
        """Return the arms that stand back while the others, the contenders, play: none."""
        return ()

    def find_focus(self, race: Race) -> list[str]:
        """Return the arms whose question comes first: all that have not failed."""
        return race.labels

    def lacks_answer(self, race: Race) -> bool:  # noqa: ARG002
        """Tell whether targets that take long to build wait for what this race still has to tell: they don't."""
        return False

    def choose_races(self, playing: Sequence[Race], time: RaceTime) -> list[Race]:  # noqa: ARG002
        """Return the races that may play next, after arms have come in or left for want of time: all."""
        return list(playing)

    def call_wanted(self, race: Race, out: Path) -> Sequence[Pair]:  # noqa: ARG002
        """Call the pairs of a race that play once more when nothing is open, and again after those have played.

        Args:
            out: the run folder, with all that the run holds so far.
        """
        return ()

    def tell_standing(self, race: Race) -> str:  # noqa: ARG002
        """Return how a race stands, for the progress of its next restart; "" for nothing."""
        return ""

    def tell(self, race: Race, coming: int) -> str:  # noqa: ARG002
        """Return what people are told of a race after a restart; "" for nothing.

        Args:
            coming: how many of its targets have yet to be built.
        """
        return ""

    def goes_on(self, run: Run) -> bool:  # noqa: ARG002
        """Tell whether a finished run is taken up again."""
        return False

    def greet(self, run: Run, progress: Progress, *, goes_on: bool) -> None:
        """Say what the folder holds already: a run that goes on now, or a finished one."""

    def finish(self, built: Mapping[str, Mapping[str, Built]]) -> None:
        """Do what is left once all is measured, while no other run measures on this machine.

        Args:
            built: by group and label, each arm that can be loaded.
        """
