"""Choose the folder of a run and what it begins with: a new one, or one that goes on; tell what could not be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shootout.core.clock import utc_now
from shootout.core.errors import UsageError
from shootout.core.journal import journal, samples
from shootout.core.journal.folder import find_obstacle
from shootout.core.journal.records import Header
from shootout.core.study.plan import Plan
from shootout.tell.reproduce import find_typed
from shootout.tell.this_machine import bias_floor

MOST_DAMAGED = 20
"""So many damaged lines of a journal are named; of the others there is a count."""


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
    """Yield a warning for each line of the journal that was left out, and of many a count."""
    path = folder / (journal.NAME if (folder / journal.NAME).exists() else journal.PACKED)
    for number in lines[:MOST_DAMAGED]:
        yield f"line {number} of {path} is not as this program wrote it; it is left out"
    if more := len(lines[MOST_DAMAGED:]):
        yield f"{more} more lines of {path} are not as this program wrote them; they are left out"


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
