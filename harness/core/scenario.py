"""Define what a scenario is: how a model is called while it is timed, and what is made of the readings.

A worker loads the scenario of its arm, so nothing is imported here that it has not loaded anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import getfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from shootout.core import plugins
from shootout.core.adapter import Built, Runner, Session
from shootout.core.constants import BLOCK_NS, COMPUTE_ROUNDS, ROUNDS
from shootout.core.contract import Arm, Array, Capabilities, NotRun
from shootout.core.exported.model import ExportedModel, sha256
from shootout.core.messages import SCOPES, Ask, LoadTestResult, Scope, TimeBin, Tuned, Turn, Verified
from shootout.core.units import measured, number
from shootout.core.worker.blocks import Blocks, Caller
from shootout.core.worker.verification import Claim, verify

if TYPE_CHECKING:  # a worker doesn't load these
    from shootout.core.exported.request import Request
    from shootout.core.study.group import GroupRecord

StoppingRule = Callable[[Sequence[str], Mapping[str, Mapping[int, Array]]], Sequence[str]]
"""A function that returns the labels of a race's next restart, none if it is over, by those that have not failed and
their end-to-end block medians (ns) by label and restart.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOption:
    """Declare a key of studies that means something in some scenarios alone.

    Attributes:
        help: what it is, for the page of a study's keys.
        kind: the type of its value.
        default: its value where a study gives none; with a tuple it is an axis, and takes several.
        above, least, most: limits on each number.
        unit: of a number, as the command line has it behind the number: "ms", "s" or none.
        read: makes its value of what a user gave, as text too, in place of `kind`.
        flag: the command line's; "": it is given by `--set`.
        use: what it is, as it goes on behind its name: "is for requests"; "": its scenario finds faults by itself.
        is_dropped: whether a study's own value has no meaning any more where the command line asks for other scenarios.
        implies: whether a study that has it, and says no scenario, is measured in its.
        is_told: whether the header of a run's journal keeps it, since no arm tells it.
        is_always_hashed: whether the identity of every study counts it, be it given or not, as it did from the start.
        give_sizes: returns the sizes that a value gives to axes, by axis; None: it gives none.
    """

    help: str = ""
    kind: type = float
    default: Any = None
    above: float | None = None
    least: float | None = None
    most: float | None = None
    unit: str = ""
    read: Callable[[Any], Any] | None = None
    flag: str = ""
    use: str = ""
    is_dropped: bool = True
    implies: bool = False
    is_told: bool = True
    is_always_hashed: bool = False
    give_sizes: Callable[[Any], Mapping[str, tuple[int, ...]]] | None = None

    def __post_init__(self) -> None:
        if self.kind not in (bool, int, float, str):
            raise TypeError(f"the kind of an option is bool, int, float or str, got {self.kind!r}")

    def sizes_of(self, value: Any) -> Mapping[str, tuple[int, ...]]:
        """Return the sizes that a study's value gives to axes, by axis."""
        return self.give_sizes(value) if self.give_sizes and value is not None else {}


class Scenario:
    """A way to call a model while it is timed. As it stands here, one call after the other, each read by itself.

    Attributes:
        name: the word of `--scenario`.
        measures: what it measures, for people: "the time of a call".
        options: the keys of a study that mean something in it, of those that do so in some scenarios alone.
        varies: whether calls have several sizes, so that its time is the mean of all in place of a median.
        restarts: that each arm plays, whatever is known before; 0: until its verdicts are in.
        divides_threads: whether it parts a number of threads among sessions, or lets one number stand for a machine.
        scopes: in which arms are compared; `compute` is read in the first rounds of a restart, if it is one of them.
        trains: whether a call is a step of training, so that a backend has to have one.
        selects: whether the settings of a target compete, batches among them, and the best is measured again in a group
            of its own; else each batch is a group.
        fills_turns: whether calls one after the other from one session make up nearly all of a turn.
        is_by_call: whether its end-to-end time is that of a call; else it is the time of an item, or a tail.
        is_one_call: whether that time is of one call of one size by itself, as gates, ceilings and searches take it;
            more calls are read where a p99 is asked for and the rounds of long calls brought too few.
        objective: the objective of a policy that its time answers, "" for none.
        unshippable, unexplainable: why no folder answers as it was measured, or its layers can't be compared; or "".
        block_ns: the least nanoseconds of a reading.
    """

    name: ClassVar[str]
    measures: ClassVar[str]
    options: ClassVar[Mapping[str, StudyOption]] = {}
    varies: ClassVar[bool] = False
    restarts: ClassVar[int] = 0
    divides_threads: ClassVar[bool] = False
    scopes: ClassVar[tuple[Scope, ...]] = SCOPES
    trains: ClassVar[bool] = False
    selects: ClassVar[bool] = False
    fills_turns: ClassVar[bool] = True
    is_by_call: ClassVar[bool] = True
    is_one_call: ClassVar[bool] = True
    objective: ClassVar[str] = "latency"
    unshippable: ClassVar[str] = ""
    unexplainable: ClassVar[str] = ""
    block_ns: ClassVar[int] = BLOCK_NS

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse options that no study could have, where the class is made."""
        super().__init_subclass__(**kwargs)
        every = cls.options.items()
        strange = [name for name, one in every if name.startswith("_") or not isinstance(one, StudyOption)]
        if strange:
            raise TypeError(f"option {strange[0]!r} of {cls.__name__} is no StudyOption with a public name")

    @property
    def compute_rounds(self) -> int:
        """Return in how many rounds of a restart, the first, `compute` is read."""
        return COMPUTE_ROUNDS if "compute" in self.scopes else 0

    def tell_time(self, row: Any) -> str:
        """Write how fast a row with a time is: `median 122 us`; `8,000 items/s` where a rate follows from its time."""
        if row.items_per_s:
            return f"{number(row.items_per_s.value)} items/s"
        return f"median {measured(row.end_to_end.median_ns)}"

    def explain_times(self, rows: Sequence[Any]) -> str:  # noqa: ARG002
        """Explain below a table what the times of these rows are; "" of a call's."""
        return ""

    def items(self, arm: Arm) -> int:  # noqa: ARG002
        """Return how many items its end-to-end time is of; 0: no rate follows from it."""
        return 0

    def ends(self, bins: Sequence[TimeBin]) -> tuple[Sequence[TimeBin], Sequence[TimeBin], float]:
        """Return the bins of a turn's beginning and of its end, which are compared, and how many seconds each lasts."""
        return bins, bins, 0.0

    def find_faults(self, study: Any) -> Iterator[str]:  # noqa: ARG002
        """Yield what makes no sense in a study that asks for this scenario, or has an option of it."""
        yield from ()

    def whole_s(self, options: Mapping[str, Any]) -> float:  # noqa: ARG002
        """Return the seconds that all restarts of a run share; 0: as many as they need."""
        return 0.0

    def check_time(self, options: Mapping[str, Any], restart_s: float, arms: int) -> None:
        """Refuse a time in which nothing can be measured.

        Args:
            restart_s: seconds that the arms of a restart share, so many `arms` in the largest group.

        Raises:
            UsageError: it is too short.
        """

    def arrivals(self, study: Any) -> Arrivals | None:  # noqa: ARG002
        """Return which sizes the calls have, where these vary."""
        return None

    def spread(self, arm: Arm, batches: Sequence[int], options: Mapping[str, Any]) -> list[Arm]:  # noqa: ARG002
        """Return the arm in all settings that compete: as it stands here, in its own alone.

        Args:
            batches: the study's; none: any, since the study names none and the model takes all.
        """
        return [arm]

    def find_obstacle(self, arm: Arm, can: Capabilities, count: Callable[[], int | None]) -> NotRun | None:  # noqa: ARG002
        """Explain why a target can't be measured in it; None if it can.

        Args:
            can: what its backend can do.
            count: returns how many weights the model has; None of a model of the user's own.
        """
        return None

    def shape(self, record: GroupRecord, runnable: Sequence[Arm]) -> GroupRecord:  # noqa: ARG002
        """Return a group as it is raced first: as it stands here, its verdicts are asked for at once."""
        return record

    def tail(
        self,
        done: Sequence[LoadTestResult],  # noqa: ARG002
        time_ns: float,  # noqa: ARG002
        disturbed_share: float = 0.0,  # noqa: ARG002
    ) -> LimitedTail | None:
        """Return how an arm's restarts under requests stand to their limit; None where there were no requests.

        Args:
            done: of each of its restarts, at least one.
            time_ns: its time; inf if it has none.
            disturbed_share: flagged rounds ÷ all rounds of the group.
        """
        return None

    def terms(
        self,
        record: GroupRecord,  # noqa: ARG002
        options: Mapping[str, Any],  # noqa: ARG002
        served: Sequence[LoadTestResult],  # noqa: ARG002
        restart_s: float,  # noqa: ARG002
    ) -> Terms:
        """Return what the arms of a group are asked in each of its restarts.

        Args:
            options: the study's own values for the options of this scenario.
            served: what restarts of the group under requests came to, in an earlier process of the run.
            restart_s: the seconds that the arms of a restart share; 0: as many as they need.
        """
        return Terms()

    def build(self, runner: Runner, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Build the arm's artifact."""
        return runner.build(exported, arm, folder)

    def load(self, runner: Runner, built: Built) -> Session:
        """Load a session, or several behind one."""
        return runner.load(built)

    def open(self, built: Built, sessions: Sequence[Session], seed: int) -> Caller:  # noqa: ARG002
        """Return what makes the calls, in the worker; every input buffer is staged now.

        Args:
            sessions: one for each instance.
            seed: of this arm in this restart.
        """
        exported, on_gpu = built.exported, built.arm.target.device.is_gpu
        sets = exported.input_buffers()
        return Blocks(sessions[0], exported.pick(sets), on_gpu=on_gpu, stream=exported.stream, sets=sets)

    def verify(self, claim: Claim, _caller: Caller, keep: Path | None) -> tuple[Verified, Claim]:
        """Verify what is called, and judge what the arm tells of itself.

        Returns:
            The first fault, or the worst error; and the claim that later answers are checked by.
        """
        return verify(claim, keep), claim

    def values_ns(self, turns: Sequence[Turn]) -> tuple[float, ...]:
        """Return what the turns of a restart come to end to end: a time for each, or one for all; shorter is better."""
        readings = (turn.latency_ns.get("end_to_end") for turn in turns)
        return tuple(float(np.median(ns)) for ns in readings if ns is not None)

    def find_next_group(
        self,
        record: GroupRecord,  # noqa: ARG002
        blocks: Mapping[str, Mapping[int, Array]],  # noqa: ARG002
    ) -> GroupRecord | None:
        """Return a group that is measured behind one whose race is over, by what that showed; None: there is none.

        Args:
            blocks: end-to-end block medians (ns), by label and restart, of those of its arms that have not failed.
        """
        return None

    def read_after(self, live: Player, left_s: float, tail: tuple[int, int]) -> Array:  # noqa: ARG002
        """Return calls end to end (ns) that are read one by one after the rounds: as it stands here, none.

        Args:
            left_s: what is left of the run's time.
            tail: how many calls, those of the rounds among them, have a p99, and how many are wanted for it; 0: none.
        """
        return np.array([])

    def counts_rounds(self, turns: Sequence[Turn]) -> bool:  # noqa: ARG002
        """Tell whether each of these times is of one round, so that it doesn't count if its round is flagged."""
        return True


class Arrivals(Protocol):
    """The sizes that calls have, where these vary along one axis."""

    @property
    def axis(self) -> str:
        """Return `batch`, a parameter, or a free axis of a file."""

    @property
    def sizes(self) -> Sequence[int]:
        """Return the size of each call, in order."""

    @property
    def span(self) -> str:
        """Write the least and the largest for people."""

    def runs(self, bucket: int | None) -> Mapping[int, int]:
        """Return, by size, the size that runs it: itself, or the next multiple of the bucket."""

    def find_bad_sizes(self, asked: Request, arms: Sequence[Arm]) -> dict[str, NotRun]:
        """Explain by label why arms can't run the model at all sizes that calls have."""

    def compose(self, models: Mapping[int, ExportedModel], bucket: int | None, *, is_open: bool) -> ExportedModel:
        """Make the exported model of all sizes of those of each, that inputs are padded to among them.

        Raises:
            ModelError: they are of different models, or have the same inputs.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedTail:
    """Tell how an arm's restarts under requests stand to the limit on their p99.

    Attributes:
        given_per_s: the rate that requests came at; None: the highest that held was searched.
        most_per_s: the upper end of a rate that was searched; None if it may be any higher.
        p99_ns: at that rate, given or found; inf if it is longer than anything measured.
        highest_ns: the highest restart's, an upper bound; None if it isn't known.
        unknown: why it isn't, in a few words.
        holds: whether the limit holds; None where it didn't, but too little is there to show it.
        breaks: whether a race need wait for the arm no more, since it can't be the answer.
        never_held: whether none of the rates that were searched held in any restart.
        only_disturbed: whether no failure is known to be the arm's own, since most rounds were disturbed.
    """

    given_per_s: float | None
    most_per_s: float | None
    p99_ns: float
    highest_ns: float | None
    unknown: str
    holds: bool | None
    breaks: bool
    never_held: bool
    only_disturbed: bool


class Player(Protocol):
    """An arm in one restart, as far as it has played."""

    arm: Arm
    turns: list[Turn]
    tuned: Tuned

    @property
    def call_ns(self) -> float:
        """Return the nanoseconds of a call end to end, as measured when it was warm."""

    def warm(self, calls: int, ns: int) -> Array:
        """Make so many calls one after the other, or for so long; return the nanoseconds of each."""


@dataclass(slots=True, kw_only=True)
class Terms:
    """Tell what the arms of a group do in its restarts, round by round; as it stands here, blocks of calls.

    Attributes:
        least, most: rounds with which a restart counts, and after which it ends; None: by how long calls take.
        round_s: seconds of a round, where that is set or has no meaning; None: as long as the one before.
        rule: chooses the arms of each restart in place of the group's goal; None: the goal does.
    """

    least: int | None = None
    most: int | None = None
    round_s: float | None = None
    rule: StoppingRule | None = None

    @property
    def fewest(self) -> int:
        """Return the rounds of the shortest restart whose calls are short."""
        return self.least or ROUNDS

    @property
    def turn_s(self) -> float:
        """Return the seconds of an arm's shortest turn, however short its calls are; 0: by its calls."""
        return 0.0

    @property
    def least_s(self) -> float:
        """Return the seconds of an arm's shortest restart, however short its calls are."""
        return 0.0

    @property
    def is_by_calls(self) -> bool:
        """Tell whether a restart takes as long as its arms' calls, so that slow arms may leave where time is short."""
        return True

    def begin(self, arms: Sequence[Player], baseline: str | None, restart: int, rng: Random) -> Terms:  # noqa: ARG002
        """Return the terms of one restart, now that its arms are warm.

        Args:
            baseline: the label of the arm whose calls may set a limit; it may be missing.
            restart: its number, from 0.
            rng: of the restart.
        """
        return self

    def after(self, begun: Terms) -> Terms:  # noqa: ARG002
        """Return the terms of the restarts that follow one that was begun: what it has fixed, stays."""
        return self

    def rest_s(self, beside: int) -> float:  # noqa: ARG002
        """Return the seconds of rest before each turn, of so many in the round."""
        return 0.0

    def ask(self, live: Player, scopes: tuple[Scope, ...], flagged: Collection[int], beside: int) -> Ask:  # noqa: ARG002
        """Return what an arm is asked in its next turn.

        Args:
            scopes: that the others are asked for in this round, in the same order.
            flagged: the numbers of its turns whose rounds are flagged.
            beside: how many arms play the round.

        Raises:
            SkippedArm: there is nothing left to ask of it.
        """
        return Ask(scopes=scopes)

    def needed_s(self, ask: Ask, live: Player, left: int) -> float:  # noqa: ARG002
        """Return the seconds that an arm needs for so many rounds, of which this is the first; 0: by its calls."""
        return 0.0

    def result(self, live: Player, flagged: Collection[int]) -> LoadTestResult | None:  # noqa: ARG002
        """Return what an arm did under requests, for the journal; None where there were none."""
        return None


def scenario_of(arm: Arm) -> Scenario:
    """Return the scenario that an arm is measured in."""
    return find_scenario(arm.scenario)


def own_build(arm: Arm) -> list[str]:
    """Return the name and the code's hash of a scenario with a `build` of its own; nothing of one without."""
    made_by = type(scenario_of(arm))
    return [arm.scenario, sha256(Path(getfile(made_by)))] if made_by.build is not Scenario.build else []


@cache
def find_scenario(name: str) -> Scenario:
    """Return the scenario of a name: one that ships, or a third party's by an entry point.

    Raises:
        UsageError: there is none; says the nearest name. Or it can't be loaded.
    """
    return plugins.find(plugins.SCENARIOS, name, Scenario)  # of which a worker needs the one alone


@cache
def scenario_names() -> tuple[str, ...]:
    """Return the names of all scenarios that can be loaded, those that ship first."""
    return tuple(plugins.usable(plugins.SCENARIOS, Scenario))
