"""Choose the folder of a run: a new one, or one that goes on."""

from __future__ import annotations

from pathlib import Path

from shootout.core.clock import utc_now
from shootout.core.errors import UsageError
from shootout.core.journal import journal
from shootout.core.journal.folder import find_obstacle
from shootout.core.study.plan import Plan


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


def new_folder(parent: Path) -> Path:
    """Name a folder under `parent` by the time, with a number if two began in the same second; it isn't made yet."""
    name = utc_now().replace(":", "").replace("+0000", "Z")
    names = (name, *(f"{name}-{count}" for count in range(2, 1_000)))
    return next(folder for folder in map(parent.joinpath, names) if not folder.exists())


def can_go_on(out: Path, plan: Plan) -> bool:
    """Return whether a plan can go on with the run in a folder."""
    return not find_obstacle(journal.read(out), plan.identity)
