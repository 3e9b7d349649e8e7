"""The merged document: runs on several machines, these its columns. docs/file-formats.md explains each key."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from shootout.results.comparisons import Part, Ratio
from shootout.results.document import Outcome, Row
from shootout.units import counted

SCHEMA = "shootout.merged-document/1"


class Fate(StrEnum):
    """What becomes of the verdict on a pair from one place to another."""

    HOLDS = "holds"  # the same verdict everywhere
    FLIPS = "flips"  # faster here, slower there
    FADES = "fades"  # faster here, the same there
    UNKNOWN = "unknown"  # somewhere there is no verdict


class Place(Part):
    """A run on a machine: a column.

    Attributes:
        name: of the machine; with its key, or the run's folder, where that tells it from another place.
        complete: whether the run came to its end with every verdict.
    """

    name: str
    machine: str
    run: str
    study: str
    created: str
    complete: bool
    environment: dict[str, Any]


class PlacedRow(Row):
    """A row, and where it was measured."""

    place: str
    machine: str
    run: str


class At(Part):
    """One target in one place.

    Attributes:
        outcome: as in its row; null where the run didn't ask for it.
        reason: why there is no time, or none that counts.
        ratio: its time ÷ that of what the place ships; null of that itself, and where there is none.
    """

    place: str
    outcome: Outcome | None
    reason: str | None = None
    median_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None
    ratio: Ratio | None = None


class Target(Part):
    """A line of the table: an arm in every place.

    Attributes:
        worst: its time ÷ that of what a place ships, where that is highest; null unless it may be shipped everywhere.
    """

    arm: str
    at: tuple[At, ...]
    worst: float | None = None


class Shipped(Part):
    """What a place's own answer ships; `reason` is why there is none, or only the fastest so far."""

    place: str
    arm: str | None
    median_ns: float | None = None
    tied: tuple[str, ...] = ()
    reason: str | None = None


class Everywhere(Part):
    """The one arm to ship in all places: its time ÷ that of what each place ships is least where it is highest.

    Attributes:
        place: where that is, and `ratio` how much; null where it is what every place ships.
        near: others whose worst ratio measured within the indifference of its own.
    """

    arm: str
    place: str | None = None
    ratio: Ratio | None = None
    near: tuple[str, ...] = ()


class Pair(Part):
    """How two arms compare in each place that has a time of both: the first one's time ÷ the other's."""

    a: str
    b: str
    fate: Fate
    ratios: dict[str, Ratio]


class MergedCell(Part):
    """One question: the same model with the same inputs at one size.

    Attributes:
        group: as the first place names it.
        places: that asked it.
        reason: why there is no `everywhere`.
    """

    group: str
    places: tuple[str, ...]
    everywhere: Everywhere | None = None
    reason: str | None = None
    ships: tuple[Shipped, ...]
    targets: tuple[Target, ...]
    pairs: tuple[Pair, ...]


class MergedDocument(Part):
    """Runs of several machines."""

    format: str = Field(default=SCHEMA, serialization_alias="schema")
    places: tuple[Place, ...]
    cells: tuple[MergedCell, ...]
    rows: tuple[PlacedRow, ...]
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """How much is in it."""
        return f"<MergedDocument: {counted(len(self.cells), 'cell')} in {counted(len(self.places), 'place')}>"
