"""Choose the two targets of a run that are held side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shootout.core.contract import Precision, short
from shootout.core.errors import UsageError, unknown
from shootout.core.results.run import Run
from shootout.core.scenario import scenario_of
from shootout.core.schemes import is_exact
from shootout.core.study.group import own_fp32
from shootout.tell import registered
from shootout.tell.document import Document, Row
from shootout.tell.raced import RacedArm, find_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Hold one of the two targets, and why it was chosen; "" if it was named."""

    source: RacedArm
    why: str


def choose_sides(run: Run, document: Document, names: Sequence[str], group: str | None = None) -> tuple[Side, Side]:
    """Choose the two targets: those that are named, or one with what it is best compared with, or none named.

    Without a name, the second is the target of a lower precision that was refused or errs most. The first is then the
    FP32 target of the same backend, or what ships.

    Args:
        document: of the run.
        names: of at most two targets; a single one is the second.
        group: the name of their group, or the beginning of that name; needed if there are several.

    Raises:
        UsageError: there is no such group or target, both are the same, or a target can't be explained.
    """
    if len(names) > 2:
        raise UsageError(f"explain holds two targets side by side, got {len(names)}: {', '.join(names)}")
    rows = _rows_of_group(document, names, group)
    row, why = (_find_row(rows, names[-1]), "") if names else _choose_worst(rows)
    second = Side(source=RacedArm.of(run, document, row), why=why)
    row, why = (_find_row(rows, names[0]), "") if len(names) == 2 else _choose_reference(rows, second.source)
    first = Side(source=RacedArm.of(run, document, row), why=why)
    if first.source.row.arm == second.source.row.arm:
        raise UsageError(f"{row.arm} is named twice: name two targets")
    for side in (first, second):
        _refuse(side.source)
    return first, second


def _rows_of_group(document: Document, names: Sequence[str], group: str | None) -> list[Row]:
    groups = find_groups(document, group)
    holding = {one for one in groups if all(_named(_of_group(document, one), name) for name in names)}
    for name in names:
        if not any(_named(_of_group(document, one), name) for one in groups):
            raise unknown("target", name, {row.arm for row in document.rows if row.group in groups})
    if not holding and groups:
        raise UsageError(f"{' and '.join(names)} ran in different groups: name two targets of one")
    if len(holding) > 1:
        raise UsageError("the run has several groups", sorted(holding))
    return _of_group(document, next(iter(holding), ""))


def _of_group(document: Document, group: str) -> list[Row]:
    return [row for row in document.rows if row.group == group]


def _named(rows: Iterable[Row], name: str) -> list[Row]:
    return [row for row in rows if name in (row.arm, short(row.arm))]


def _find_row(rows: Sequence[Row], name: str) -> Row:
    if found := _named(rows, name):
        return found[0]
    raise unknown("target", name, {row.arm for row in rows})


def _choose_worst(rows: Sequence[Row]) -> tuple[Row, str]:
    narrow = [
        row
        for row in rows
        if not is_exact(row.precision, row.scheme, row.file) and row.fidelity and registered.shows_inside(row.backend)
    ]
    if not narrow:
        targets = ", ".join(short(row.arm) for row in rows) or "none"
        raise UsageError(f"no target of a lower precision was checked here: name two of {targets}")
    refused = [row for row in narrow if row.outcome == "failed"]
    worst = max(refused or narrow, key=_error_of)
    return worst, "refused, and errs most" if refused else "errs most of the lower precisions"


def _error_of(row: Row) -> float:
    error = row.fidelity.relative_l2 if row.fidelity else None
    return math.inf if error is None else error


def _choose_reference(rows: Sequence[Row], second: RacedArm) -> tuple[Row, str]:
    """Choose what the second is held against, of what was built and didn't fail."""
    built = {*second.mine.group.prepared} - {second.row.arm}
    usable = {row.arm: row for row in rows if row.arm in built and row.outcome not in ("failed", "skipped")}
    if own := own_fp32([arm for arm in second.record.arms if arm.label in usable], second.arm):
        named = "the file as it is" if own.target.precision is Precision.NATIVE else "the FP32 target"
        return usable[own.label], f"{named} of the same backend"
    answers = [answer.ship.arm for answer in second.document.answer if answer.group == second.row.group and answer.ship]
    if ships := [usable[arm] for arm in answers if arm in usable]:
        return ships[0], "what ships"
    if exact := [row for row in usable.values() if is_exact(row.precision, row.scheme, row.file)]:
        return exact[0], "a target of full precision"
    raise UsageError(f"nothing to hold {second.row.arm} against: name two targets")


def _refuse(source: RacedArm) -> None:
    """Refuse what has no fixed graph of inference to look into."""
    if why := scenario_of(source.arm).unexplainable:
        raise UsageError(why)
    if source.arm.target.folder:
        raise UsageError(f"{source.arm.label} is a shipped folder, which is closed: explain the run that it came from")
