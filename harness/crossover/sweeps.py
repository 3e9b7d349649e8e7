"""A run's groups as sweeps: one pair of arms along the axis, everything else the same. Pure: from the journal alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shootout.contract import Scenario, Value
from shootout.crossover.brackets import At
from shootout.journal.group import Group, against, withheld
from shootout.messages import Scope
from shootout.stats.evidence import min_restarts
from shootout.stats.leaders import time_ns
from shootout.stats.verdicts import Comparison, Verdict
from shootout.study.group import GroupRecord, Pair, fixed_of, size_of

CHANCES = 5
"""So many restarts beyond the fewest, before the estimate of what a verdict takes is believed."""
HOPELESS = 2
"""A verdict that needs so many times the limit is given up: another size is the better place for the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One pair along the axis.

    Attributes:
        fixed: the parameters, batch and threads that stay the same.
        groups: by size, rising; those that don't ask for this pair are left out.
    """

    model: str
    scenario: Scenario
    fixed: Mapping[str, Value]
    pair: Pair
    groups: Mapping[int, GroupRecord]


Key = tuple[str, Scenario, tuple[tuple[str, Value], ...]]
"""What tells one line of groups along the axis from another."""


def key_of(record: GroupRecord, axis: str) -> Key:
    """The line that a group lies on."""
    first = record.arms[0]
    return first.model, first.scenario, tuple(sorted(fixed_of(first, axis).items()))


def sweeps(records: Iterable[GroupRecord], axis: str) -> list[Sweep]:
    """All sweeps of two sizes or more, in the order of the records."""
    found: dict[tuple[Key, Pair], dict[int, GroupRecord]] = {}
    for record in records:
        for pair in record.pairs:
            along = found.setdefault((key_of(record, axis), pair), {})
            along[size_of(record.arms[0], axis)] = record
    return [
        Sweep(model=model, scenario=scenario, fixed=dict(fixed), pair=pair, groups=dict(sorted(along.items())))
        for ((model, scenario, fixed), pair), along in found.items()
        if len(along) > 1
    ]


def at(group: Group, size: int, pair: Pair, scope: Scope) -> At:
    """What is known of a pair in one group, and whether more restarts could tell more."""
    for label in pair:
        if setback := group.setbacks.get(label):
            return At(size=size, verdict=Verdict.CANT_TELL, reason=f"{label}: {setback.reason}")
    blocks = (group.blocks_of(scope, label) for label in pair)
    a_ns, b_ns = (time_ns(one) if one else None for one in blocks)
    found = against(group, scope, *pair)
    if found is None:
        least = min_restarts(group.rules.comparisons)
        more = _goes_on(group)
        return At(size=size, verdict=Verdict.CANT_TELL, needed=least, open=more, a_ns=a_ns, b_ns=b_ns)
    why = withheld(group, *pair)
    verdict = Verdict.CANT_TELL if why else found.verdict
    return At(
        size=size,
        verdict=verdict,
        ratio=found.value,
        needed=found.restarts_needed,
        open=verdict is Verdict.CANT_TELL and _goes_on(group) and (bool(why) or not _hopeless(found, group)),
        restarts=found.restarts,
        a_ns=a_ns,
        b_ns=b_ns,
        reason=why,
    )


def _goes_on(group: Group) -> bool:
    """Whether further restarts may be played: below the limit, with a baseline and its copy."""
    out = {group.rules.baseline, group.rules.control} & set(group.setbacks)
    return not out and group.next_restart < group.rules.max_restarts


def _hopeless(found: Comparison, group: Group) -> bool:
    if found.restarts < min_restarts(group.rules.comparisons) + CHANCES:
        return False
    return found.restarts_needed is None or found.restarts_needed > HOPELESS * group.rules.max_restarts
