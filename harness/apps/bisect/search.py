"""Search releases, oldest first, for the one that brought most of the difference between the first and the last.

Each question is one race in which both ends play again, since the machine drifts. With x_r the log of a release's
figure ÷ the good end's in one restart, and s the direction of the difference of the ends (+1 or −1), it is judged by
one contrast:

| question | contrast | answers |
|---|---|---|
| do the ends differ? | x_bad | beyond the limit: yes; wholly within it: no |
| has most of the difference come by this suspect? | s·(x_suspect − ½·x_bad) | above 0: yes; below: no |
| the same, half way | the same contrast | wholly within a tenth of the difference: neither |
| did most of it come between these neighbors? | s·(x_later − x_earlier − ½·x_bad) | above 0: yes; below: no |

A race goes on until the product's interval of its contrast (`core.stats.verdicts`) answers, and the race shows the
difference of the ends again. Here the interval takes its share of the error from `chance`: all of it in the first and
the last question, and 1/⌈log2(n − 1)⌉ of it in each question between. So a range is wrong with at most `chance` (union
bound). A release is named after a last race of it and its neighbor, with data of its own, so a wrong name takes a wrong
range and a wrong last race. If one of the two is an end, the race that told the other is that race.
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
_LOOKS = math.fsum(1 / (n + 1) for n in range(LEAST_RESTARTS, MOST_RESTARTS + 1))
"""The looks' shares of the error, of which `find_reach` adds up those of 17 restarts to 2."""
COPY = "copy"
"""The good end's hidden copy among the logs of a race: its spread says how far other releases may spread."""
Logs = Mapping[str, Sequence[float]]
"""By release, or `COPY`, the log of its figure ÷ the good end's, in each restart that all played."""


class Side(StrEnum):
    """Say what a question came to: `BAD` is yes, `GOOD` is no, `HALF` that it is about half."""

    GOOD, BAD, HALF, OPEN = "good", "bad", "half", "open"


@dataclass(frozen=True, slots=True)
class Skipped:
    """Say why a release can't be measured, in one line without a full stop."""

    release: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Ask about releases that race together.

    Attributes:
        suspects: between the ends; none: do the ends differ; one: has most of the difference come by it; two
            neighbors: did most of it come between them.
        chance: of a wrong answer, at most.
        limit: a difference of the ends up to this (0.05 is 5 %) is none.
        sign: 1 if the bad end's figure is the larger one, else −1.
    """

    good: str
    bad: str
    suspects: tuple[str, ...] = ()
    chance: float = CHANCE
    limit: float = LIMIT
    sign: int = 1

    @property
    def releases(self) -> tuple[str, ...]:
        """Return all that race, the good end first."""
        return (self.good, *self.suspects, self.bad)


Judge = Callable[[Question, Logs], Side]
"""Tell the answer of a question after any restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raced:
    """Hold what a race showed.

    Attributes:
        figures: by release, its median over restarts in the basic unit.
        folder: of the run.
        is_complete: the same question gets no more restarts.
    """

    logs: Logs
    figures: Mapping[str, float] = field(default_factory=dict)
    folder: str = ""
    is_complete: bool = True


Ask = Callable[[Question], Raced | Skipped]
"""Race the releases of a question until its answer is told or its time is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Hold what the last race that held a release, and told its question, says of it.

    Attributes:
        figure: time: ns a call; ready: s; memory: bytes; outputs: relative L2 error. None: not measured.
        ratio: to the good end of the same race.
        side: of the cut; of an end, its own.
        folder: of the run that says so.
    """

    release: str
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Hold what a search found.

    Attributes:
        between: releases after `last_good` and before `first_bad`: skipped, or not told.
        sign: 1 if the later figures are larger, −1 if smaller, 0 if that isn't told.
        ratio: of `first_bad` to `last_good`, which raced together; of the bad end to the good one if none is named.
        whole: the ratio of the bad end to the good one, in the race of these two.
        skipped: by release, why it couldn't be measured.
        questions: races that were needed.
        is_spent: more time would tell no more, since each race that is open has had its restarts.
    """

    outcome: Outcome
    last_good: str
    first_bad: str
    between: tuple[str, ...] = ()
    sign: int = 0
    ratio: Comparison = NO_RATIO
    whole: float = 1.0
    readings: Mapping[str, Reading] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
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


def judge_ratios(question: Question, logs: Logs) -> Side:
    """Judge a question by its contrast; `OPEN` as long as the interval holds 0, or an end's limit."""
    bad = np.asarray(logs.get(question.bad, ()))
    if not bad.size:
        return Side.OPEN
    if not question.suspects:
        mean, reach = find_interval(bad, _list_others(logs), question.chance / 2)  # it may err to either side
        edge = math.log1p(question.limit)
        if abs(mean) - reach > edge:
            return Side.BAD
        return Side.GOOD if abs(mean) + reach < edge else Side.OPEN
    mean, reach = find_interval(question.sign * bad, _list_others(logs), question.chance)
    if mean <= reach:
        return Side.OPEN  # half of a difference that this race doesn't show is nothing to be beyond of
    *earlier, last = (np.asarray(logs[one]) for one in question.suspects)
    x = question.sign * (last - (earlier[0] if earlier else 0.0) - bad / 2)
    # Of arms that spread alike, this has the spread of a ratio of two: so the others' spread can stand for its own.
    scale = math.sqrt(2.0 / (2.5 if earlier else 1.5))
    mean, reach = find_interval(scale * x, _list_others(logs, question.bad), question.chance)
    if earlier and x.size < LEAST_LAST:
        return Side.OPEN
    if abs(mean) > reach:
        return Side.BAD if mean > 0 else Side.GOOD
    return Side.HALF if abs(mean) + reach < scale * ABOUT_HALF * abs(float(bad.mean())) else Side.OPEN


def _list_others(logs: Logs, *more: str) -> list[Sequence[float]]:
    return [logs[one] for one in (COPY, *more) if one in logs]


@dataclass(slots=True)
class _Search:
    """Ask questions, and keep what they show.

    Attributes:
        races: by suspects, the questions that were raced and what they showed.
        lacks_time: a question was left for another time.
    """

    ask: Ask
    judge: Judge
    chance: float
    limit: float
    readings: dict[str, Reading] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    races: dict[tuple[str, ...], tuple[Question, Raced]] = field(default_factory=dict)
    lacks_time: bool = False

    def put(self, question: Question) -> Side | None:
        """Race a question, note what each of its releases showed, and return the answer; None: it wasn't raced.

        Then one of its releases is skipped, or the time is over.
        """
        raced = self.ask(question)
        if isinstance(raced, Skipped):
            self.skipped[raced.release] = raced.reason
            return None
        side = self.judge(question, raced.logs) if raced.logs else None
        if side is None or (side is Side.OPEN and not raced.is_complete):
            self.lacks_time = True
        if side is None:
            return None
        self.races[question.suspects] = question, raced
        sides = {question.good: Side.GOOD, question.bad: Side.BAD}
        if len(question.suspects) == 2:
            sides |= dict(zip(question.suspects, (Side.GOOD, Side.BAD), strict=True))
        for release in question.releases:
            if side is Side.OPEN and release in self.readings:
                continue  # an earlier race has told more of it
            self.readings[release] = Reading(
                release=release,
                figure=raced.figures.get(release),
                ratio=self.compare(question.suspects, release, question.good),
                side=sides.get(release, side),
                folder=raced.folder,
            )
        return side

    def compare(self, suspects: tuple[str, ...], one: str, other: str) -> Comparison:
        """Return the ratio of two releases that raced together: beyond 1, or the same within the limit."""
        question, raced = self.races[suspects]
        zeros = np.zeros(len(raced.logs[question.bad]))
        x = np.asarray(raced.logs.get(one, zeros)) - np.asarray(raced.logs.get(other, zeros))
        mean, reach = find_interval(x, _list_others(raced.logs), self.chance / 2) if one != other else (0.0, 0.0)
        verdict = Verdict.SLOWER if mean > reach else Verdict.FASTER if mean < -reach else Verdict.CANT_TELL
        verdict = Verdict.SAME if abs(mean) + reach <= math.log1p(self.limit) else verdict
        low, high = ratio_at(mean - reach), ratio_at(mean + reach)
        return replace(NO_RATIO, value=math.exp(mean), low=low, high=high, verdict=verdict, restarts=x.size)


def search(
    releases: Sequence[str], ask: Ask, *, judge: Judge = judge_ratios, chance: float = CHANCE, limit: float = LIMIT
) -> Found:
    """Search for the release that brought most of the difference between the ends.

    Args:
        releases: at least two, oldest first. The first is the good end, the last the bad one; an end that can't be
            measured is left out.
        ask: races a question until `judge` answers it, or until its time is over.
        chance: of naming a wrong release, at most.
        limit: a difference of the ends up to this is none.

    Raises:
        NothingMeasured: fewer than two releases can be measured.
    """
    state, line = _Search(ask, judge, chance, limit), list(releases)
    while len(line) > 1:
        ends = Question(good=line[0], bad=line[-1], chance=chance, limit=limit)
        side = state.put(ends)
        if gone := [release for release in (ends.good, ends.bad) if release in state.skipped]:
            line.remove(gone[0])
            continue
        found = _search_between(state, line, ends, side)
        found = replace(found, readings=state.readings, skipped=state.skipped, questions=len(state.races))
        return replace(found, is_spent=found.outcome in UNTOLD and not state.lacks_time)
    why = "; ".join(f"{release}: {reason}" for release, reason in state.skipped.items())
    raise NothingMeasured(f"fewer than two releases can be measured: {why}")


def _search_between(state: _Search, line: Sequence[str], ends: Question, side: Side | None) -> Found:
    """Search between the ends if they differ."""
    found = Found(outcome=Outcome.OPEN, last_good=ends.good, first_bad=ends.bad)
    if side is None:
        return found
    ratio = state.compare((), ends.bad, ends.good)
    found = replace(found, ratio=ratio, whole=ratio.value)
    if side is not Side.BAD:
        return replace(found, outcome=Outcome.NONE if side is Side.GOOD else Outcome.OPEN)
    sign = 1 if ratio.value > 1 else -1
    return _name(state, replace(ends, sign=sign), _narrow(state, line, replace(ends, sign=sign), found))


def _narrow(state: _Search, line: Sequence[str], ends: Question, found: Found) -> Found:
    """Halve the range until each release in it is skipped or stays open, or the time is over."""
    untold = set[str]()
    share = state.chance / max(1, math.ceil(math.log2(len(line) - 1)))
    while inside := [one for one in _list_between(line, found) if one not in {*untold, *state.skipped}]:
        suspect = inside[len(inside) // 2]
        side = state.put(replace(ends, suspects=(suspect,), chance=share))
        if side is None and suspect not in state.skipped:
            break
        if side is Side.GOOD:
            found = replace(found, last_good=suspect)
        elif side is Side.BAD:
            found = replace(found, first_bad=suspect)
        elif side is not None:
            untold.add(suspect)
    return replace(found, outcome=Outcome.RANGE, sign=ends.sign, between=_list_between(line, found))


def _list_between(line: Sequence[str], found: Found) -> tuple[str, ...]:
    return tuple(line[line.index(found.last_good) + 1 : line.index(found.first_bad)])


def _name(state: _Search, ends: Question, found: Found) -> Found:
    """Race the two ends of a range that holds no release to ask, beside the ends, and name the later one.

    If one of the two is an end itself, the race that told the other's side has told it.
    """
    if untold := {*found.between} - {*state.skipped}:
        sides = {state.readings[one].side for one in untold if one in state.readings}
        return replace(found, outcome=Outcome.DRIFT) if Side.HALF in sides else found
    suspects = tuple(one for one in (found.last_good, found.first_bad) if one not in (ends.good, ends.bad))
    side = state.put(replace(ends, suspects=suspects)) if len(suspects) == 2 else Side.BAD
    if side is not Side.BAD:
        return replace(found, outcome=Outcome.DRIFT) if side in (Side.GOOD, Side.HALF) else found
    ratio = state.compare(suspects, found.first_bad, found.last_good)
    return replace(found, outcome=Outcome.NAMED, ratio=ratio)
