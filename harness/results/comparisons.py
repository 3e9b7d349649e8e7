"""How the document shows a comparison of two arms, in time and in accuracy; rows and answers are made of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from shootout.errors import UsageError, unknown
from shootout.journal import journal
from shootout.messages import Scope
from shootout.results.group import Group, against, group_of
from shootout.results.vetoes import withheld
from shootout.stats.paired import Change, MeanChange
from shootout.stats.verdicts import Comparison, Verdict
from shootout.study.group import short


class Part(BaseModel):
    """Any part of the document: frozen, and without a key that isn't declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __str__(self) -> str:
        """As `repr`, which is short for what holds much."""
        return repr(self)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Ratio(Comparison):
    """This arm's time ÷ another one's; bounds are null while infinite, `reason` says why a verdict was withheld."""

    restarts: Annotated[int, Field(exclude=True)] = 0
    reason: str | None = None

    def __repr__(self) -> str:
        """`<Ratio 0.111 [0.0873, 0.15] faster>`."""
        low, high = ("?" if end is None else f"{end:.3g}" for end in (self.low, self.high))
        return f"<Ratio {self.value:.3g} [{low}, {high}] {self.verdict}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyChange(Change):
    """Accuracy on the report split less that of the arm `against`, row by row."""

    against: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricChange(MeanChange):
    """The mean score less that of the arm `against`, row by row."""

    against: str


class Metric(Part):
    """The user's own metric: the mean of its scores over the report split.

    Attributes:
        low, high: its 95 % interval; null where all scores are the same.
        rows: how many have one.
        change: null of the plain FP32 arm, where that has no scores, and where both have one score for all rows.
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    rows: int
    lower_is_better: bool
    change: MetricChange | None = None


def ratio_of(found: Comparison, withheld: str | None = None) -> Ratio:
    """A comparison as the document shows it; `withheld` says why its verdict may not be given."""
    verdict = Verdict.CANT_TELL if withheld else found.verdict
    return Ratio(**asdict(replace(found, verdict=verdict)), reason=withheld)


def compare_arms(folder: Path, arm: str, other: str, group: str | None = None) -> Ratio:
    """One arm's end-to-end time ÷ another's, from the restarts that both played; see `shootout.api.Run.verdict`."""
    history = journal.read(folder)
    groups = {record.name: group_of(history, record) for record in history.groups}
    if group is not None and group not in groups:
        raise unknown("group", group, groups)
    mine = [one for name, one in groups.items() if group in (None, name)]
    labels = _label(arm, mine), _label(other, mine)
    if labels[0] == labels[1]:
        raise UsageError(f"{arm!r} and {other!r} are one arm; a target that is given twice to a run races itself")
    raced = [one for one in mine if set(labels) <= set(_labels(one))]
    if not raced:
        raise UsageError(f"{labels[0]!r} and {labels[1]!r} are in no group together, so they raced in none")
    if len(raced) > 1:
        names = ", ".join(repr(one.record.name) for one in raced)
        raise UsageError(f"{labels[0]!r} and {labels[1]!r} raced in several groups; name one: {names}")
    return _ratio(raced[0], *labels)


def _ratio(group: Group, arm: str, other: str) -> Ratio:
    found = against(group, Scope.END_TO_END, arm, other)
    if found is not None:
        return ratio_of(found, withheld(group, arm, other))
    for label in (arm, other):
        if why := group.setbacks.get(label):
            raise UsageError(f"{label!r} has no time to compare: {why.reason}")
    raise UsageError(f"{arm!r} and {other!r} were never timed in the same restart")


def _labels(group: Group) -> list[str]:
    return [arm.label for arm in group.record.arms if not arm.control]


def _label(name: str, groups: Sequence[Group]) -> str:
    """An arm's label, which may be given as short as tables show it.

    Raises:
        UsageError: there is none of that name.
    """
    labels = {label for one in groups for label in _labels(one)}
    by_name = {short(label): label for label in labels} | {label: label for label in labels}
    if name not in by_name:
        raise unknown("arm", name, labels)
    return by_name[name]
