"""Hold what is said of several runs: merged, machines its columns, or compared. docs/reference/keys.md has each key."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from shootout.core.units import counted
from shootout.tell.document import Answer, Part, Ratio, Row

SCHEMA, COMPARED = "shootout.merged-document/4", "shootout.compared/4"


Fate = Literal["flips", "holds", "unknown"]
"""What becomes of the verdict on a pair from one place to another: faster here and slower there; the same verdict
everywhere; or somewhere another verdict, none, or no time of both.
"""


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


class Everywhere(Part):
    """The one arm to ship in all places: its time ÷ that of what each place ships is least where it is highest.

    Attributes:
        place: where that is, as measured, and `ratio` how much; null where it is what every place ships.
        unsettled: others that aren't known to cost more.
        reason: why it is the best so far only: a place's own answer is.
    """

    arm: str
    place: str | None = None
    ratio: Ratio | None = None
    unsettled: tuple[str, ...] = ()
    reason: str | None = None


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
        answers: of each place that asked it, by the place; its `group` is that of the place's rows.
        reason: why there is no `everywhere`.
        worst: of each arm that may be shipped everywhere, its time ÷ that of what a place ships, where that is
            highest; each end is the highest of all places' ends, and `high` null where some place knows none.
    """

    group: str
    answers: dict[str, Answer]
    everywhere: Everywhere | None = None
    reason: str | None = None
    worst: dict[str, Ratio]
    pairs: tuple[Pair, ...]


class MergedDocument(Part):
    """Runs of several machines; a row's `end_to_end.ship_ratio` is to what its place ships."""

    format: str = Field(default=SCHEMA, serialization_alias="schema")
    places: tuple[Place, ...]
    cells: tuple[MergedCell, ...]
    rows: tuple[PlacedRow, ...]
    warnings: tuple[str, ...] = ()

    def rows_of(self, cell: MergedCell) -> dict[str, dict[str, PlacedRow]]:
        """Return the rows of a question by place and arm."""
        found: dict[str, dict[str, PlacedRow]] = {place: {} for place in cell.answers}
        for row in self.rows:
            if row.place in found and row.group == cell.answers[row.place].group:
                found[row.place][row.arm] = row
        return found

    def __repr__(self) -> str:
        """Say how much is in it."""
        return f"<MergedDocument: {counted(len(self.cells), 'cell')} in {counted(len(self.places), 'place')}>"


class RunChange(Part):
    """One thing that is another in the second run; `-` where a run had none."""

    what: str
    a: str
    b: str


class Moved(Part):
    """An arm that both sessions timed.

    Attributes:
        changes: of the arm itself; without any it is unchanged.
        control: the unchanged arm that it is held against; null where there is none.
        floor: how far the two move apart though nothing changed, in 95 of 100 cases; `sessions` that it was learned
            from, 0: assumed.
        ratio: its time ÷ the control's in the second run, ÷ the same in the first, with a 95 % interval for all arms
            together, the floor in it.
        reason: why there is no ratio, or no verdict.
    """

    arm: str
    a_ns: float
    b_ns: float
    changes: tuple[RunChange, ...]
    control: str | None = None
    floor: float | None = None
    sessions: int = 0
    ratio: Ratio | None = None
    reason: str | None = None


class SessionComparison(Part):
    """One question in two sessions on one machine.

    Attributes:
        answers: of either session, by `A` and `B`.
        only_a, only_b: arms with a time in one of them.
    """

    group: str
    answers: dict[str, Answer]
    moved: tuple[Moved, ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()


class ComparedDocument(Part):
    """What may be said of two runs.

    Attributes:
        level: 1: one machine, two sessions; 2: two machines, of which no time is called slower.
        sessions: at level 1, a question each.
        merged: at level 2, both runs as one document.
        settle: what would tell, where something isn't told at level 1; its PATH is an interpreter's.
        only_a, only_b: groups that the other run doesn't have.
    """

    format: str = Field(default=COMPARED, serialization_alias="schema")
    level: Literal[1, 2]
    a: Place
    b: Place
    changes: tuple[RunChange, ...]
    sessions: tuple[SessionComparison, ...] = ()
    merged: MergedDocument | None = None
    settle: str | None = None
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return which runs, and on what level."""
        return f"<ComparedDocument {self.a.run!r}, {self.b.run!r}: level {self.level}>"
