"""Long turns, without a pause between calls: how the time of a call changes while the machine grows hot."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from shootout.core import clock
from shootout.core.adapter import Built, Session
from shootout.core.constants import BLOCK_TIMEOUT_FACTOR, BLOCK_TIMEOUT_S
from shootout.core.errors import UsageError
from shootout.core.messages import Ask, Scope, TimeBin, Turn
from shootout.core.scenario import Scenario, StudyOption, Terms
from shootout.core.units import span
from shootout.core.worker.blocks import Blocks

if TYPE_CHECKING:
    from shootout.core.study.schema import Study

SUSTAINED_S = 1_800.0
"""Turns under sustained load share so much time if none is given."""
SUSTAINED_TURNS = 3
"""Turns of each arm: two are the fewest that show a spread, a third keeps one disturbed turn from being half of all."""
SUSTAINED_REST = 1 / 6
"""Share of an arm's time in which the machine rests before its turn: it cools down from the turn before."""
SUSTAINED_LEAST_S = 6.0
"""A shorter turn has no beginning and end to tell apart."""
BIN_S = 1.0
MOST_BINS = 200
"""A turn keeps its time per call in bins of `BIN_S`; in longer ones if these were more."""
FIRST_S = 60.0
"""The beginning of a turn, and its end; a third of a turn that is shorter than three of them."""


class Sustained(Scenario):
    """One call after the other, for minutes: the last of these count, and are compared with the first."""

    name = "sustained"
    measures = "the time of a call at the beginning and at the end of long turns"
    options: ClassVar = {
        "sustained_s": StudyOption(
            help="time that the turns of all targets share, in seconds; by default (0) half an hour.",
            default=0.0,
            least=0.0,
            most=1e6,
            unit="s",
            flag="--for",
            use="is the time of turns under sustained load",
        ),
    }
    restarts = SUSTAINED_TURNS
    divides_threads = True
    scopes = ("end_to_end",)
    is_one_call = False
    objective = ""

    def explain_times(self, rows: Sequence[Any]) -> str:
        """Explain which part of a turn its time is of."""
        timed = [row.over_time for row in rows if row.over_time]
        if not timed:
            return ""
        window = span(min(one.window_s for one in timed))
        return (
            f"time is wall time per call in the last {window} of a turn, `at first` in its first {window}; verdicts "
            "are of the last."
        )

    def find_faults(self, study: Study) -> Iterator[str]:
        """Yield that its turns have no time of their own."""
        if self.name in study.all_scenarios and len(study.all_scenarios) > 1:
            yield "scenario sustained shares its whole time among its own turns: give it a run of its own"

    def whole_s(self, options: Mapping[str, Any]) -> float:
        """Return the seconds that all turns share."""
        return options["sustained_s"] or SUSTAINED_S

    def check_time(self, options: Mapping[str, Any], restart_s: float, arms: int) -> None:
        """Refuse turns that are too short to have a beginning and an end."""
        turn_s, whole_s = (1 - SUSTAINED_REST) * restart_s / max(arms, 1), self.whole_s(options)
        if turn_s < SUSTAINED_LEAST_S:
            needed_s = math.ceil(whole_s * SUSTAINED_LEAST_S / turn_s)
            raise UsageError(
                f"--for {span(whole_s)} leaves each turn {turn_s:.2g} s, and one needs {SUSTAINED_LEAST_S:.0f} s: give "
                f"--for {needed_s}s or more, or name fewer targets"
            )

    def terms(self, _record: object, _options: Mapping[str, Any], _served: object, restart_s: float) -> LongTurns:
        """Return the time that the arms of each restart share."""
        return LongTurns(round_s=restart_s)

    def values_ns(self, turns: Sequence[Turn]) -> tuple[float, ...]:
        """Return the time per call at the end of each turn."""
        return tuple(TimeBin.call_ns(self.ends(turn.bins)[1]) for turn in turns)

    def ends(self, bins: Sequence[TimeBin]) -> tuple[Sequence[TimeBin], Sequence[TimeBin], float]:
        """Return the bins of the first minute and of the last, one at least; of a short turn, of a third of it."""
        length_s = bins[-1].at_s + bins[-1].seconds
        window_s = min(FIRST_S, length_s / 3)
        first = [one for one in bins if one.at_s + one.seconds <= window_s] or bins[:1]
        end = [one for one in bins if one.at_s >= length_s - window_s] or bins[-1:]
        return first, end, window_s

    def open(self, built: Built, sessions: Sequence[Session], _seed: int) -> LongBlocks:
        """Return what calls without a pause."""
        exported, on_gpu = built.exported, built.arm.target.device.is_gpu
        sets = exported.input_buffers()
        return LongBlocks(sessions[0], exported.pick(sets), on_gpu=on_gpu, stream=exported.stream, sets=sets)


@dataclass(slots=True, kw_only=True)
class LongTurns(Terms):
    """Let every arm of a restart play one long turn, the machine at rest before each: restarts are the replicates.

    Attributes:
        round_s: seconds that the arms of a restart share, their rests included.
    """

    least: int | None = 1
    most: int | None = 1

    def rest_s(self, beside: int) -> float:
        """Return how long the machine cools down from the turn before: all arms are held meanwhile."""
        return SUSTAINED_REST * (self.round_s or 0.0) / beside

    def ask(self, _live: object, _scopes: tuple[Scope, ...], _flagged: Collection[int], beside: int) -> LongTurn:
        """Return an arm's turn: its share of the time without the rest."""
        return LongTurn(seconds=(1 - SUSTAINED_REST) * (self.round_s or 0.0) / beside)


@dataclass(frozen=True, slots=True, kw_only=True)
class LongTurn(Ask):
    """Hold how many seconds an arm is to call without a pause."""

    seconds: float

    def takes_s(self, call_s: float) -> float:  # noqa: ARG002 - of short calls or long
        """Return the seconds of the turn."""
        return self.seconds

    def most_s(self, call_s: float) -> float:
        """Return the seconds after which no answer is waited for: of the turn, and of one call."""
        return self.seconds + BLOCK_TIMEOUT_FACTOR * call_s + BLOCK_TIMEOUT_S


class LongBlocks(Blocks):
    """Reads a session's calls in long turns."""

    def turn(self, ask: Ask) -> Turn:
        """Call without a pause."""
        assert isinstance(ask, LongTurn), "an arm under sustained load takes long turns"
        bins = self.sustain(ask.seconds)
        return Turn(latency_ns={"end_to_end": np.array([1e9 * one.seconds / one.calls for one in bins])}, bins=bins)

    def sustain(self, seconds: float) -> tuple[TimeBin, ...]:
        """Call end to end, one call after the other, for so many seconds; return them in bins.

        A bin keeps the mean, not the median: a quota or a hypervisor takes the CPU away in slices, and most calls fall
        between them.
        """
        assert self._tuned is not None, "tune comes first"
        k, bin_s, bins = self._tuned.per_reading["end_to_end"], max(BIN_S, seconds / MOST_BINS), list[TimeBin]()
        turn = clock.Deadline(seconds)
        while not bins or turn.allows(bin_s / 2):
            clock.quiet_collector()  # nothing else collects, and minutes of calls may leave much
            at_s, calls, ns = turn.elapsed_s, 0, 0
            end = clock.Deadline(min(bin_s, turn.left_s))
            while not calls or end.left_s > 0:  # short calls fill the readings before the bin is over
                left_ns = max(0, round(1e9 * end.left_s))
                block = self._read_calls("end_to_end", self._readings, per_reading=k, block_ns=left_ns, min_calls=1)
                calls, ns = calls + k * block.size, ns + int(block.sum())
            bins.append(TimeBin(at_s=at_s, seconds=ns / 1e9, calls=calls))
        return tuple(bins)
