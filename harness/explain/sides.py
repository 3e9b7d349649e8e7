"""Choose the two targets of a run that are held side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shootout import backends
from shootout.contract import Precision, Scenario
from shootout.errors import SkippedArm, UsageError, unknown
from shootout.results.analysis import analyse
from shootout.results.document import Answer, Document, Row
from shootout.ship.arm_to_ship import ArmToShip, load_records
from shootout.study.group import find_named, short


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Hold one of the two targets, and why it was chosen; "" if it was named."""

    source: ArmToShip
    why: str


def choose_sides(folder: Path, names: Sequence[str], group: str | None = None) -> tuple[Side, Side]:
    """Choose the two targets: those that are named, or one with what it is best compared with, or none named.

    Without a name, the second is the target of a lower precision that was refused or errs most. The first is then the
    FP32 target of the same backend, or what ships.

    Args:
        names: of at most two targets; a single one is the second.
        group: the name of their group, or the beginning of that name; needed if there are several.

    Raises:
        UsageError: there is no such run, group or target, both are the same, or a target can't be explained.
    """
    if len(names) > 2:
        raise UsageError(f"explain holds two targets side by side, got {len(names)}: {', '.join(names)}")
    document = analyse(folder)
    rows = _rows_of_group(document, names, group)
    second, why_second = (_find_row(rows, names[-1]), "") if names else _choose_worst(rows)
    first, why_first = (_find_row(rows, names[0]), "") if len(names) == 2 else _choose_reference(rows, second, document)
    if first.arm == second.arm:
        raise UsageError(f"{first.arm} is named twice: name two targets")
    sides = [
        Side(source=load_records(folder, document, row), why=why)
        for row, why in ((first, why_first), (second, why_second))
    ]
    for side in sides:
        _refuse(side.source)
    return sides[0], sides[1]


def _rows_of_group(document: Document, names: Sequence[str], group: str | None) -> list[Row]:
    groups = {row.group for row in document.rows}
    if group is not None:
        groups = find_named(groups, group)
        if not groups:
            raise unknown("group", group, {row.group for row in document.rows})
    elif names:
        holding = {one for one in groups if all(_named(_of_group(document, one), name) for name in names)}
        groups = holding or groups
    if len(groups) > 1:
        raise UsageError(f"the run has several groups; name one with --group: {', '.join(map(repr, sorted(groups)))}")
    return _of_group(document, next(iter(groups), ""))


def _of_group(document: Document, group: str) -> list[Row]:
    return [row for row in document.rows if row.group == group]


def _named(rows: Iterable[Row], name: str) -> list[Row]:
    return [row for row in rows if name in (row.arm, short(row.arm))]


def _find_row(rows: Sequence[Row], name: str) -> Row:
    if found := _named(rows, name):
        return found[0]
    raise unknown("target", name, {row.arm for row in rows})


def _choose_worst(rows: Sequence[Row]) -> tuple[Row, str]:
    narrow = [row for row in rows if row.precision != Precision.FP32 and row.fidelity and _can_show(row)]
    if not narrow:
        targets = ", ".join(short(row.arm) for row in rows) or "none"
        raise UsageError(f"no target of a lower precision was checked here: name two of {targets}")
    refused = [row for row in narrow if row.outcome == "failed"]
    worst = max(refused or narrow, key=_error_of)
    return worst, "refused, and errs most" if refused else "errs most of the lower precisions"


def _error_of(row: Row) -> float:
    error = row.fidelity.relative_l2 if row.fidelity else None
    return math.inf if error is None else error


def _can_show(row: Row) -> bool:
    try:
        return hasattr(backends.get(row.backend), "look_inside")
    except (UsageError, SkippedArm):
        return False


def _choose_reference(rows: Sequence[Row], second: Row, document: Document) -> tuple[Row, str]:
    exact = [row for row in rows if row.precision == Precision.FP32 and row.arm != second.arm]
    if own := [row for row in exact if row.backend == second.backend and not row.scheme]:
        return own[0], "the FP32 target of the same backend"
    answers: list[Answer] = [answer for answer in document.answer if answer.group == second.group and answer.ship]
    ships = answers[0].ship.arm if answers and answers[0].ship else ""
    if ships and ships != second.arm:
        return _find_row(rows, ships), "what ships"
    if exact:
        return exact[0], "an FP32 target"
    raise UsageError(f"nothing to hold {second.arm} against: name two targets")


def _refuse(source: ArmToShip) -> None:
    """Refuse what has no fixed graph of inference to look into."""
    if source.arm.scenario is Scenario.TRAIN_STEP:
        raise UsageError("a training step has no layers to compare: explain a run of inference")
    if source.arm.scenario is Scenario.VARYING:
        raise UsageError("sizes that vary have no one graph: explain a run of one size")
    if source.arm.target.folder:
        raise UsageError(f"{source.arm.label} is a shipped folder, which is closed: explain the run that it came from")
