"""The crossovers of a finished or unfinished run, for the document. Pure: from the journal alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shootout.crossover import brackets, sweeps
from shootout.crossover.brackets import OCTAVE, At, Kind, Outcome
from shootout.crossover.sweeps import Sweep
from shootout.journal.group import Group
from shootout.messages import Scope
from shootout.results.document import Crossover, SizeVerdict
from shootout.stats.verdicts import Verdict
from shootout.study.group import scopes_of

NOTHING_LEFT = "no size in between can be raced here"


def crossings(groups: Sequence[Group], axis: str | None, *, complete: bool) -> tuple[Crossover, ...]:
    """Every sweep's crossings, or why it has none, in both scopes.

    Args:
        axis: the run's; None where it looked for no crossover.
        complete: nothing is left to measure: a wide bracket without anything inside says that it stays so.
    """
    if axis is None:
        return ()
    by_name = {group.record.name: group for group in groups}
    found = sweeps.sweeps([group.record for group in groups], axis)
    lines = ((sweep, scope) for sweep in found for scope in scopes_of(sweep.scenario))
    told = [one for sweep, scope in lines for one in _of_sweep(sweep, by_name, axis, scope)]
    return tuple(_ended(one) for one in told) if complete else tuple(told)


def _of_sweep(sweep: Sweep, groups: Mapping[str, Group], axis: str, scope: Scope) -> list[Crossover]:
    points = [sweeps.at(groups[record.name], size, sweep.pair, scope) for size, record in sweep.groups.items()]
    return [_crossover(sweep, axis, scope, points, outcome) for outcome in brackets.outcomes(points)]


def _ended(one: Crossover) -> Crossover:
    """As it is; a bracket that was to be narrowed and wasn't tells why."""
    if one.outcome is not Kind.BRACKET or one.reason or one.low is None or one.high is None:
        return one
    return one.model_copy(update={"reason": NOTHING_LEFT}) if one.high > OCTAVE * one.low else one


def _crossover(sweep: Sweep, axis: str, scope: Scope, points: Sequence[At], outcome: Outcome) -> Crossover:
    a, b = sweep.pair
    names: dict[Verdict | None, str] = {Verdict.FASTER: a, Verdict.SLOWER: b, Verdict.SAME: "same"}
    return Crossover(
        model=sweep.model,
        axis=axis,
        fixed=dict(sweep.fixed),
        scenario=sweep.scenario,
        scope=scope,
        a=a,
        b=b,
        outcome=outcome.kind,
        low=outcome.low,
        high=outcome.high,
        below=names.get(outcome.below),
        above=names.get(outcome.above),
        reason=outcome.reason,
        generations_needed=outcome.needed,
        sizes=tuple(
            SizeVerdict(size=one.size, verdict=one.verdict, ratio=one.ratio, generations=one.generations)
            for one in points
        ),
    )
