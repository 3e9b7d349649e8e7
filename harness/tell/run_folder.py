"""Choose the folder of a run and what it begins with; tell what could not be read; find an arm of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from shootout.core.clock import utc_now
from shootout.core.contract import Arm
from shootout.core.errors import UsageError, unknown
from shootout.core.journal import journal, samples
from shootout.core.journal.folder import find_obstacle
from shootout.core.journal.records import Header, Prepared
from shootout.core.results.run import Result, Run
from shootout.core.study.group import GroupRecord
from shootout.core.study.plan import Plan
from shootout.tell.document import Document, Row
from shootout.tell.machines import bias_floor
from shootout.tell.report import fold
from shootout.tell.reproduce import find_typed

MOST_DAMAGED = 5
"""Damaged lines of a journal that are named; of the others there is a count."""


def choose_folder(plan: Plan, *, fresh: bool) -> Path:
    """Choose `results/<study>/<time>` under the current folder, or the newest one there that this plan can go on with.

    Args:
        fresh: never an old one.
    """
    parent = Path("results") / plan.study.name
    for journal_file in [] if fresh else sorted(parent.glob(f"*/{journal.NAME}"), reverse=True):
        try:
            history = journal.read(journal_file.parent)
        except UsageError:
            continue
        if not history.complete and not find_obstacle(history, plan.identity):
            return journal_file.parent
    return new_folder(parent)


def make_header(
    plan: Plan,
    facts: Mapping[str, Any],
    *,
    command: Sequence[str] = (),
    on: str = "",
    began_in: str = "",
    has_policy: bool = False,
) -> Header:
    """Make the header that a new journal begins with.

    Args:
        facts: the environment, with the machine's ceilings.
        command, on, began_in, has_policy: see `Header`.
    """
    others = {name: other.facts() for name, other in plan.interpreters.items()}
    raced = sorted({arm.model for group in plan.groups for arm in group.record.arms})
    return Header(
        created=utc_now(),
        study=plan.study.name,
        identity=plan.identity,
        seed=plan.study.seed,
        max_restarts=plan.study.most_restarts,
        bias_floor=bias_floor(),
        named=plan.named,
        groups=tuple(group.record for group in plan.groups),
        environment={**facts, **({"interpreters": others} if others else {})},
        given=plan.study.given,
        command=tuple(command),
        converted={model: own for model in raced if (own := find_typed(model)) != model},
        began_in=began_in,
        on=on,
        has_policy=has_policy,
        limits=None if plan.limits is None else dict(plan.limits),
    )


def new_folder(parent: Path) -> Path:
    """Name a folder under `parent` by the time, with a number if two began in the same second; it isn't made yet."""
    name = utc_now().replace(":", "").replace("+0000", "Z")
    names = (name, *(f"{name}-{count}" for count in range(2, 1_000)))
    return next(folder for folder in map(parent.joinpath, names) if not folder.exists())


def tell_damaged(folder: Path, lines: Sequence[int]) -> Iterator[str]:
    """Yield a warning if lines of the journal were left out, with the numbers of the first ones."""
    path = folder / (journal.NAME if (folder / journal.NAME).exists() else journal.PACKED)
    if lines:
        told = ", ".join(fold(map(str, lines), MOST_DAMAGED))
        yield f"left out of {path}, since this program did not write them so: {told} (lines)"


def tell_lost(folder: Path, files: Sequence[str]) -> Iterator[str]:
    """Yield a warning if files of samples couldn't be read."""
    if files and (folder / journal.PACKED).exists() and not (folder / samples.PACKED).exists():
        yield "packed without its samples, so p99 and counts of samples are missing: `pack --raw` keeps them"
    elif files:
        gone = f"{files[0]} is" if len(files) == 1 else f"{files[0]} and {len(files) - 1} more files are"
        yield (
            f"{gone} gone or damaged, or larger than any run's: their readings are missing from p99 and from the "
            "counts of samples"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RacedArm:
    """An arm of a run that was built.

    Attributes:
        mine: what the run's journal says of the arm.
        prepared: how it was built.
        row: what the run's document says of it.
    """

    run: Run
    document: Document
    mine: Result
    prepared: Prepared
    row: Row

    @classmethod
    def of(cls, run: Run, document: Document, row: Row, **more: Any) -> Self:
        """Return the arm of a row.

        Args:
            document: of that run; the row is one of its rows.

        Raises:
            UsageError: it was never built.
        """
        mine = next(one for one in run.rows if (one.group.record.name, one.label) == (row.group, row.arm))
        if mine.prepared is None:
            raise UsageError(f"{row.arm!r} was never built: {row.reason}")
        return cls(run=run, document=document, mine=mine, prepared=mine.prepared, row=row, **more)

    @property
    def folder(self) -> Path:
        """Return the run's folder."""
        return self.run.folder

    @property
    def arm(self) -> Arm:
        """Return the arm as it was raced."""
        return self.mine.arm

    @property
    def record(self) -> GroupRecord:
        """Return what was planned for its group."""
        return self.mine.group.record


def find_named(names: Iterable[str], asked: str) -> set[str]:
    """Return the groups that a name stands for: the one of exactly that name, else all whose names begin with it."""
    every = {*names}
    return {asked} if asked in every else {name for name in every if name.startswith(f"{asked}, ")}


def find_groups(document: Document, group: str | None) -> set[str]:
    """Find the groups that a name stands for; None: all but those that selected settings, which have no answer.

    Raises:
        UsageError: there is no such group.
    """
    groups = {row.group for row in document.rows}
    if group is None:
        return groups & {answer.group for answer in document.answer} or groups
    if found := find_named(groups, group):
        return found
    raise unknown("group", group, groups)
