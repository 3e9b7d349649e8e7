"""Search releases, oldest first, for the one that brought most of the difference between the first and the last.

Each question is one race in which both ends play again, since the machine drifts. It goes on, restart by restart, until
it is told. docs/evidence/bisect.md has the contrasts, each one's share of the error, and the odds of wrong outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from shootout.core.constants import ALPHA
from shootout.core.contract import Array
from shootout.core.errors import NothingMeasured
from shootout.core.stats.verdicts import LEAST_RESTARTS, Comparison, Verdict, find_reach, make_pair, ratio_at

CHANCE, LIMIT = 0.05, 0.05
MOST_RESTARTS = 60
"""A question that is open after so many stays open: more seldom tell."""
ABOUT_HALF = 0.1
"""A suspect by which 40 to 60 % of the difference have come lies half way: more restarts would tell nothing more."""
LEAST_LAST = 5
"""The last race goes on for so long, since its ratio is what people read."""
RIGHT_RESTARTS = 10
"""The ends are the same once neither erred in so many restarts: an error at random needs more than two to show."""
SAME_ERROR = 1e-3
"""Errors that differ by less than this share are one error."""
_LOOKS = math.fsum(1 / (n + 1) for n in range(LEAST_RESTARTS, MOST_RESTARTS + 1))
"""The looks' shares of the error, of which `find_reach` adds up those of 17 restarts to 2."""
COPY = "copy"
"""The good end's hidden copy among the logs of a race: its spread says how far other releases may spread."""
Logs = Mapping[str, Sequence[float]]
"""By release, or `COPY`, the log of its figure ÷ the good end's, in each restart that all played.

For outputs, the good end among them, the log of its error ÷ its bound: above 0 is wrong.
"""


class Side(StrEnum):
    """Say what a question came to: `BAD` is yes, `GOOD` is no, `HALF` that it is about half."""

    GOOD, BAD, HALF, OPEN = "good", "bad", "half", "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Ask about releases that race together.

    Attributes:
        suspects: between the ends; none: do the ends differ; one: has most of the difference come by it; two
            neighbors: did most of it come between them.
        kind: the word of `--for`.
        chance: of a wrong answer, at most.
        limit: a difference of the ends up to this (0.05 is 5 %) is none.
        sign: 1 if the bad end's figure is the larger one, else −1.
    """

    good: str
    bad: str
    suspects: tuple[str, ...] = ()
    kind: str = "time"
    chance: float = CHANCE
    limit: float = LIMIT
    sign: int = 1

    @property
    def releases(self) -> tuple[str, ...]:
        """Return all that race, the good end first."""
        return (self.good, *self.suspects, self.bad)

    @property
    def subject(self) -> str:
        """Return what a race of it is called."""
        return " and ".join(self.suspects) or "the ends"

    def has_run(self, release: str) -> bool:
        """Return whether a release is an end that ran in an earlier race: what makes it leave a later one may pass."""
        return bool(self.suspects) and release in (self.good, self.bad)

    def judge(self, logs: Logs) -> Side:
        """Judge it by the logs of its race; `OPEN` as long as they don't tell."""
        return _judge_errors(self, logs) if self.kind == "outputs" else _judge_ratios(self, logs)


@dataclass(frozen=True, slots=True)
class Skipped:
    """Say why a release can't be measured, in one line without a full stop."""

    release: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Raced:
    """Hold what a race showed.

    Attributes:
        side: the answer of its question; None: there was no time for it.
        figures: by release, its median over restarts: ns a call, s until ready, bytes, or the relative L2 error.
        folder: of the run.
        restarts: that it has had.
    """

    side: Side | None = None
    logs: Logs = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    folder: str = ""
    restarts: int = 0

    @property
    def is_over(self) -> bool:
        """Return whether more restarts would tell nothing more."""
        return self.side not in (None, Side.OPEN) or self.restarts >= MOST_RESTARTS

    def compare(self, one: str, other: str, question: Question) -> Comparison:
        """Return the ratio of two releases of the race: beyond 1, or the same within the question's limit."""
        zeros = np.zeros(len(self.logs[question.bad]))
        x = np.asarray(self.logs.get(one, zeros)) - np.asarray(self.logs.get(other, zeros))
        others = [self.logs[name] for name in self.logs if name == COPY]
        mean, reach = find_interval(x, others, question.chance / 2) if one != other else (0.0, 0.0)
        verdict = Verdict.SLOWER if mean > reach else Verdict.FASTER if mean < -reach else Verdict.CANT_TELL
        verdict = Verdict.SAME if abs(mean) + reach <= math.log1p(question.limit) else verdict
        low, high = ratio_at(mean - reach), ratio_at(mean + reach)
        return replace(NO_RATIO, value=math.exp(mean), low=low, high=high, verdict=verdict, restarts=x.size)


@dataclass(frozen=True, slots=True)
class Reading:
    """Hold what the last race that held a release, and told its question, says of it.

    Attributes:
        figure: see `Raced`; None: not measured.
        ratio: to the good end of the same race.
        side: of the cut; of an end, its own.
        folder: of the run that says so.
    """

    figure: float | None
    ratio: Comparison
    side: Side
    folder: str


class Outcome(StrEnum):
    """Name how a search ended.

    `NAMED`: most of the difference came with `first_bad`. `NONE`: the ends differ by no more than the limit. `RANGE`:
    it lies after `last_good`, up to `first_bad`. `DRIFT`: no single release brought most of it. `OPEN`: it isn't told
    whether the ends differ.
    """

    NAMED, NONE, RANGE, DRIFT, OPEN = "named", "none", "range", "drift", "open"


UNTOLD = (Outcome.RANGE, Outcome.OPEN)
"""The outcomes that more time may change."""
NO_RATIO = Comparison(
    value=1.0, low=None, high=None, verdict=Verdict.CANT_TELL, restarts_needed=None, sd=None, restarts=0
)
"""Stands for a race that there was no time for."""


@dataclass(slots=True, kw_only=True)
class Found:
    """Hold what a search has found.

    Attributes:
        between: releases after `last_good` and before `first_bad`: skipped, or not told.
        sign: 1 if the later figures are larger, −1 if smaller, 0 if that isn't told.
        ratio: of `first_bad` to `last_good`, which raced together; of the bad end to the good one if none is named.
        whole: the ratio of the bad end to the good one, in the race of these two.
        skipped: by release, why it couldn't be measured.
        questions: races that were needed.
        is_spent: more time would tell no more, since each race that is open has had its restarts.
    """

    outcome: Outcome = Outcome.OPEN
    last_good: str = ""
    first_bad: str = ""
    between: tuple[str, ...] = ()
    sign: int = 0
    ratio: Comparison = NO_RATIO
    whole: float = 1.0
    readings: dict[str, Reading] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    questions: int = 0
    is_spent: bool = False


def find_interval(x: Sequence[float] | Array, others: Sequence[Sequence[float]], chance: float) -> tuple[float, float]:
    """Return the middle of log ratios and how far their interval reaches; inf of one restart.

    Args:
        others: log ratios of the race's other pairs, whose spread lends restarts.
        chance: that the interval, at any look up to `MOST_RESTARTS`, ever lies beyond the truth to a given side.
    """
    pair = make_pair(x, others)
    if pair.n < LEAST_RESTARTS:
        return pair.mean, math.inf
    reach = find_reach(pair.n, pair.own, pair.typical, pair.others, ALPHA * _LOOKS / (4 * chance))
    return pair.mean, float(reach)


def _judge_ratios(question: Question, logs: Logs) -> Side:
    """Judge a question by its contrast; `OPEN` as long as the interval holds 0, or an end's limit."""
    bad, others = np.asarray(logs.get(question.bad, ())), [logs[one] for one in logs if one == COPY]
    if not bad.size:
        return Side.OPEN
    if not question.suspects:
        mean, reach = find_interval(bad, others, question.chance / 2)  # it may err to either side
        edge = math.log1p(question.limit)
        if abs(mean) - reach > edge:
            return Side.BAD
        return Side.GOOD if abs(mean) + reach < edge else Side.OPEN
    mean, reach = find_interval(question.sign * bad, others, question.chance)
    if mean <= reach:
        return Side.OPEN  # half of a difference that this race doesn't show is nothing to be beyond of
    *earlier, last = (np.asarray(logs[one]) for one in question.suspects)
    before = earlier[0] if earlier else np.zeros(last.size)
    # Of arms that spread alike, this has the spread of a ratio of two: so the others' spread can stand for its own.
    scale = math.sqrt(2.0 / (2.5 if earlier else 1.5))
    x = question.sign * (last - before - bad / 2)
    mean, reach = find_interval(scale * x, [*others, logs[question.bad]], question.chance)
    if earlier and x.size < LEAST_LAST:
        return Side.OPEN
    if abs(mean) > reach:
        side = Side.BAD if mean > 0 else Side.GOOD
        step = bad - last if side is Side.GOOD else last - before
        mean, reach = find_interval(question.sign * step, others, question.chance / 2)
        # A name is told with the ratio of this step: beside it, that may not be open.
        return side if mean > reach or (earlier and side is Side.GOOD) else Side.OPEN
    return Side.HALF if abs(mean) + reach < scale * ABOUT_HALF * abs(float(bad.mean())) else Side.OPEN


def _judge_errors(question: Question, logs: Logs) -> Side:
    """Judge a question about outputs; `OPEN` as long as no two releases are told apart that must be."""
    restarts = min((len(logs.get(release, ())) for release in question.releases), default=0)
    if restarts < LEAST_RESTARTS:
        return Side.OPEN
    held = {release: logs[release][:restarts] for release in question.releases}
    repeats = all(max(x) - min(x) < SAME_ERROR for x in held.values())

    def differ(one: str, other: str) -> bool:
        pairs = [x > 0 for x, y in zip(held[one], held[other], strict=True) if (x > 0) != (y > 0)]
        odds = 2.0 ** len(pairs) / ((len(pairs) + 1) * math.comb(len(pairs), sum(pairs)))
        return bool(pairs) if repeats else odds >= 1 / question.chance

    good, *suspects, bad = question.releases
    if not suspects:
        is_same = not differ(good, bad) and restarts >= RIGHT_RESTARTS
        return Side.BAD if differ(good, bad) else Side.GOOD if is_same else Side.OPEN
    if len(suspects) == 2:
        return Side.BAD if differ(*suspects) else Side.OPEN
    told = [side for side, end in ((Side.BAD, good), (Side.GOOD, bad)) if differ(suspects[0], end)]
    return told[0] if len(told) == 1 else Side.OPEN


@dataclass(slots=True)
class _Search:
    """Ask questions about a line of releases, and note what they show; `ends`: do these differ."""

    ask: Callable[[Question], Raced | Skipped]
    line: Sequence[str]
    ends: Question
    found: Found
    races: dict[tuple[str, ...], Raced] = field(default_factory=dict)

    @property
    def inside(self) -> tuple[str, ...]:
        """Return the releases inside the range."""
        return tuple(self.line[self.line.index(self.found.last_good) + 1 : self.line.index(self.found.first_bad)])

    def put(self, *suspects: str, parts: int = 1) -> Side | None:
        """Race a question, note what each of its releases showed, and return the answer; None: it wasn't raced.

        Then one of its releases is skipped, the time is over, or an end has left that ran in an earlier race.

        Args:
            parts: the chance of a wrong answer is divided by so many.
        """
        question, found = replace(self.ends, suspects=suspects, chance=self.ends.chance / parts), self.found
        raced = self.ask(question)
        if isinstance(raced, Skipped) and not question.has_run(raced.release):
            found.skipped[raced.release] = raced.reason
            return None
        found.is_spent &= isinstance(raced, Raced) and raced.is_over
        if isinstance(raced, Skipped) or (side := raced.side) is None:
            return None
        self.races[suspects] = raced
        found.questions = len(self.races)
        sides = {question.good: Side.GOOD, question.bad: Side.BAD} | dict.fromkeys(suspects, side)
        if len(suspects) == 2:
            sides |= dict(zip(suspects, (Side.GOOD, Side.BAD), strict=True))
        for release in question.releases:
            if side is Side.OPEN and release in found.readings:
                continue  # an earlier race has told more of it
            ratio = raced.compare(release, question.good, self.ends)
            found.readings[release] = Reading(raced.figures.get(release), ratio, sides[release], raced.folder)
        return side

    def narrow(self) -> None:
        """Halve the range until each release in it is skipped or stays open, or the time is over."""
        found, untold, parts = self.found, set[str](), max(1, math.ceil(math.log2(len(self.line) - 1)))
        while asked := [one for one in self.inside if one not in {*untold, *found.skipped}]:
            suspect = asked[len(asked) // 2]
            match self.put(suspect, parts=parts):
                case Side.GOOD:
                    found.last_good = suspect
                case Side.BAD:
                    found.first_bad = suspect
                case None if suspect not in found.skipped:
                    break
                case _:
                    untold.add(suspect)
        found.between = self.inside

    def name(self) -> None:
        """Race the two ends of a range that holds no release to ask, beside the ends, and name the later one.

        If one of the two is an end itself, the race that told the other's side has told it.
        """
        found, ends = self.found, self.ends
        if untold := {*found.between} - {*found.skipped}:
            if any(one in found.readings and found.readings[one].side is Side.HALF for one in untold):
                found.outcome = Outcome.DRIFT
            return
        suspects = tuple(one for one in (found.last_good, found.first_bad) if one not in (ends.good, ends.bad))
        side = self.put(*suspects) if len(suspects) == 2 else Side.BAD
        if side is Side.BAD:
            found.outcome = Outcome.NAMED
            found.ratio = self.races[suspects].compare(found.first_bad, found.last_good, ends)
        elif side in (Side.GOOD, Side.HALF):
            found.outcome = Outcome.DRIFT


def search(
    releases: Sequence[str],
    ask: Callable[[Question], Raced | Skipped],
    *,
    kind: str = "time",
    chance: float = CHANCE,
    limit: float = LIMIT,
) -> Found:
    """Search for the release that brought most of the difference between the ends.

    Args:
        releases: at least two, oldest first. The first is the good end, the last the bad one; an end that can't be
            measured is left out.
        ask: races a question until its answer is told, or until its time is over.
        kind, limit: see `Question`.
        chance: of naming a wrong release, at most.

    Raises:
        NothingMeasured: fewer than two releases can be measured.
    """
    skipped, line = dict[str, str](), list(releases)
    while len(line) > 1:
        ends = Question(good=line[0], bad=line[-1], kind=kind, chance=chance, limit=limit)
        found = Found(last_good=ends.good, first_bad=ends.bad, skipped=skipped, is_spent=True)
        state = _Search(ask, line, ends, found)
        side = state.put()
        if gone := [release for release in (ends.good, ends.bad) if release in skipped]:
            line.remove(gone[0])
            continue
        if side is not None:
            found.ratio = state.races[()].compare(ends.bad, ends.good, ends)
            found.whole = found.ratio.value
        if side is Side.GOOD:
            found.outcome = Outcome.NONE
        elif side is Side.BAD:
            found.outcome, found.sign = Outcome.RANGE, 1 if found.whole > 1 else -1
            state.ends = replace(ends, sign=found.sign)
            state.narrow()
            state.name()
        found.is_spent &= found.outcome in UNTOLD
        return found
    why = "; ".join(f"{release}: {reason}" for release, reason in skipped.items())
    raise NothingMeasured(f"fewer than two releases can be measured: {why}")
