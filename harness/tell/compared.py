"""A group's rows in the order of its table, with what they are compared with, for tables and figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from shootout.core.contract import short
from shootout.core.scenario import find_scenario
from shootout.tell.answer import name_metric_verdict
from shootout.tell.columns import BASELINE, SHIP, choose_unit, write_time
from shootout.tell.document import Answer, Document, GroupSummary, Ratio, Row

LONGEST_NOTE = 40
"""Letters; a longer reason stands in the answer only."""
LONGEST_TITLE = 40
"""Letters; a longer title gives no name."""
SHIPS, REFUSED = "▸", "×"
"""The marks before the target that ships or leads, and before those that may not be shipped."""
MARKS = {"Ship": "ships", "Leads": "leads", "Fastest": "fastest"}
"""The meaning of the first mark, by the word that the answer begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A group's rows in the order of its table, and what they are compared with.

    Attributes:
        rows: what may be shipped by time, then what may not; without an answer, all by time.
        answer: the group's; None if it has none, as a group that selects settings.
        unit: of all times in its table.
    """

    summary: GroupSummary
    rows: tuple[Row, ...]
    answer: Answer | None
    unit: str = "ms"

    @property
    def ship(self) -> str | None:
        """Return the arm that is shipped, or that leads."""
        return self.answer.ship.arm if self.answer and self.answer.ship else None

    @property
    def titles(self) -> dict[str, str]:
        """Return the titles of the comparisons' columns, with the names of what the rows are compared with."""
        ship = f"against {short(self.ship)}" if self.ship else SHIP
        baseline = f"against {short(self.summary.baseline)}" if self.summary.baseline else BASELINE
        ship = ship if len(ship) <= LONGEST_TITLE else f"against {SHIPS}"
        varies = any(find_scenario(row.scenario).varies for row in self.rows)
        return {SHIP: ship, BASELINE: baseline, "time": "mean time" if varies else "time"}

    def is_refused(self, row: Row) -> bool:
        """Tell whether a row with a time may not be shipped."""
        return bool(self.ship and row.end_to_end and self.answer and row.arm not in self.answer.eligible)

    @property
    def reference(self) -> str | None:
        """Return the arm that the rows are compared with: what is shipped, else the baseline."""
        return self.ship or self.summary.baseline

    def ratio(self, row: Row) -> Ratio | None:
        """Return a row's time over that of the reference; None of the reference, and if they share no restart."""
        timing = row.end_to_end
        return (timing.ship_ratio if self.ship else timing.ratio) if timing else None

    def time_ns(self, row: Row) -> float:
        """Return the time that is shown: the reference's × the row's ratio, so that the two agree."""
        assert row.end_to_end is not None, "only measured rows have a time"
        reference = next((other.end_to_end for other in self.rows if other.arm == self.reference), None)
        if reference and (ratio := self.ratio(row)):
            return reference.median_ns * ratio.value
        return row.end_to_end.median_ns

    def write_time(self, row: Row) -> str:
        """Write the time that is shown."""
        return write_time(self.time_ns(row), self.unit)

    def tell_refusal(self, row: Row) -> str:
        """Tell in a few words why a row may not be shipped; "" if it may, or if the group has no answer."""
        if not self.is_refused(row) or self.answer is None:
            return ""
        passed = next((passed for passed in self.answer.passed if passed.arm == row.arm), None)
        if passed and passed.because == "unsound":
            reason = (passed.reason or "").removeprefix(row.arm).strip()
            return reason if len(reason) <= LONGEST_NOTE else "no sound time"
        figures = row.fidelity
        if figures is None:
            return "accuracy unknown"
        if figures.metric:
            return name_metric_verdict(figures.metric)
        if figures.standing == "tolerated":
            return "error above its bound"
        return "outputs unchecked" if figures.standing == "not judged" else "accuracy unknown"


def name_time(scenarios: Iterable[str]) -> str:
    """Name what a time of these scenarios is."""
    found = [find_scenario(name) for name in {*scenarios}]
    if any(scenario.varies for scenario in found):
        return "mean time"
    return "median" if all(scenario.is_one_call or scenario.trains for scenario in found) else "time"


def compare_rows(summary: GroupSummary, document: Document) -> Compared:
    """Put a group's rows in the order of its table: those with a time, then those with other figures."""
    answer = next((answer for answer in document.answer if answer.group == summary.name), None)
    rows = tuple(row for row in document.rows_of(summary.name) if row.end_to_end or row.fidelity or row.serve)
    found = Compared(summary=summary, rows=rows, answer=answer)
    timed = sorted((row for row in rows if row.end_to_end), key=lambda row: (found.is_refused(row), found.time_ns(row)))
    shown = next((row for row in timed if row.arm == found.reference), None)
    times = {row.arm: found.time_ns(row) for row in timed}
    unit = choose_unit(times[shown.arm] if shown else min(times.values(), default=1e6))
    return replace(found, rows=(*timed, *(row for row in rows if not row.end_to_end)), unit=unit)
