"""The answer, a cell at a time: what to ship, how sure that is, and what would change it. How it is found: `choice`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shootout.constants import INDIFFERENT
from shootout.contract import NotRunKind
from shootout.results.comparisons import AccuracyChange, Part, Ratio

Chosen = Literal["smaller install", "smaller artifact", "shorter start", "lower time"]


class Shipped(Part):
    """The arm to ship.

    Attributes:
        admitted: why it may be: plain `fp32`; `accuracy`, which it is known to keep; or `alone`: no arm of the cell is
            known to keep the model's accuracy, so that speed alone chose.
        ratio: to the group's baseline; null where it is the baseline.
        ready_s: of its row.
    """

    arm: str
    admitted: Literal["fp32", "accuracy", "alone"]
    median_ns: float
    ratio: Ratio | None
    artifact_bytes: int | None
    ready_s: float | None
    relative_l2: float | None
    accuracy: float | None
    accuracy_change: AccuracyChange | None


class Rival(Part):
    """Another arm; `ratio` is its time ÷ the shipped one's, from the restarts that both played."""

    arm: str
    ratio: Ratio | None


class Passed(Part):
    """An arm that is not to be shipped.

    Attributes:
        because: it is `slower`; it is not known to keep the `accuracy`; or it has no sound time. `reason` tells
            why it has none, or that nothing was held against its error.
        against: the arm that beat it: the shipped one, or another that isn't distinguished from that.
        ratio: its time ÷ that of `against`; null where there is none.
        relative_l2: its error against the FP64 reference outputs.
    """

    arm: str
    because: Literal["slower", "accuracy", "unsound"]
    against: str | None
    ratio: Ratio | None
    reason: str | None = None
    relative_l2: float | None = None
    accuracy_change: AccuracyChange | None = None


class NotRaced(Part):
    """Arms that have no time, for the same reason; `cause` is what kind of reason it is."""

    arms: tuple[str, ...]
    cause: NotRunKind
    reason: str
    fix: str | None


class WouldChange(Part):
    """What else would be shipped, and when.

    Attributes:
        when: `size`: along `axis`, from `at_least` or up to `at_most`; `looser`: if its error were no matter;
            `tighter`: if plain FP32 alone counted.
        ratio: its time ÷ the shipped one's, here; null for another size.
    """

    when: Literal["size", "looser", "tighter"]
    arm: str
    axis: str | None = None
    at_least: int | None = None
    at_most: int | None = None
    ratio: Ratio | None = None
    relative_l2: float | None = None
    accuracy_change: AccuracyChange | None = None


class Step(Part):
    """A smaller artifact than the shipped one's, and what it costs; each next one is smaller and slower."""

    arm: str
    artifact_bytes: int
    ratio: Ratio | None
    relative_l2: float | None
    accuracy_change: AccuracyChange | None


class Sure(Part):
    """How well founded the choice is.

    Attributes:
        restarts: of the cell.
        control_holds: whether the baseline's hidden copy came out like the baseline; null where there is none.
        told_apart: how many other arms that may be shipped are known to be slower.
        nearest: of the arms that aren't distinguished from the shipped one, the one that takes the fewest more.
        restarts_needed: about, in all, to know which of the two is faster, or that either may be shipped: in this
            run where it goes on, else in a race of the two alone; null where that can't be told.
        command: what measures that. Null where no race would last so long, or the words of a run that goes on aren't
            known, as from Python.
    """

    restarts: int
    control_holds: bool | None
    told_apart: int = 0
    nearest: str | None = None
    restarts_needed: int | None = None
    command: str | None = None


class Answer(Part):
    """Of one cell, which is a group of arms that raced each other.

    Attributes:
        ship: null where nothing that may be shipped was measured, or the figures can't be trusted.
        reason: why `ship` is null, or only the fastest so far; null where a verdict stands behind it.
        tied: arms that may be as fast, within the indifference as far as measured; the choice among them and the
            shipped one is by `chosen_by`.
        unsettled: arms that measured slower, but aren't known to be.
        passed: all others with a time.
        same_within: a ratio in it is `same` up to this difference; in a row of the document, up to 0.01.
        smaller: what less size costs; of cells that compare precisions with their own FP32 only.
    """

    group: str
    same_within: float = INDIFFERENT
    ship: Shipped | None
    reason: str | None = None
    tied: tuple[Rival, ...] = ()
    chosen_by: tuple[Chosen, ...] = ()
    unsettled: tuple[Rival, ...] = ()
    sure: Sure
    passed: tuple[Passed, ...] = Field(default=(), serialization_alias="not")
    not_raced: tuple[NotRaced, ...] = ()
    would_change: tuple[WouldChange, ...] = ()
    smaller: tuple[Step, ...] = ()

    def __repr__(self) -> str:
        """`<Answer toy, batch 1: ship numpy:cpu:fp32>`."""
        ships = f"ship {self.ship.arm}" if self.ship else "none"
        return f"<Answer {self.group}: {', '.join(filter(None, [ships, self.reason]))}>"
