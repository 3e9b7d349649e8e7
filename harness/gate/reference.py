"""What a candidate is held against: the arm that a run ships, with the words that make it again here."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from shootout.contract import Arm, Scenario
from shootout.decide.candidates import read_question
from shootout.decide.decision import decide
from shootout.decide.policy import Policy
from shootout.errors import UsageError, unknown
from shootout.journal import journal
from shootout.results.analysis import Analysed, analyse_cells
from shootout.results.document import Row
from shootout.study import reproduce
from shootout.study.group import short
from shootout.study.options import RunOptions, flags_of, read_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What the candidate races.

    Attributes:
        place: the folder that it was read from.
        target: as `study.target` reads it.
        given: what else its study needs, by the keywords of `shootout.run`.
        library, version: that it was recorded with; "" where that isn't known.
        libraries: versions of all packages, likewise.
    """

    place: str
    target: str
    given: Mapping[str, Any]
    library: str = ""
    version: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """Its model's name or path."""
        return str(self.given["model"])


def read_reference(folder: Path, arm: str | None = None, policy: Policy | None = None) -> Reference:
    """The reference in a folder.

    Args:
        folder: of a run.
        arm: the one of the run's arms to take; None: what the run ships, by the policy where there is one.

    Raises:
        UsageError: there is no run, it ships nothing or several arms, or has no such arm.
    """
    if not folder.exists():
        raise UsageError(f"there is no reference {str(folder)!r}: name a run folder")
    if not journal.begun(folder):
        raise UsageError(f"{str(folder)!r} is no run folder: name one that `shootout run` wrote")
    run = analyse_cells(folder)
    row = _named(run, arm) if arm else _shipped(run, folder, policy)
    if row.scenario != Scenario.LATENCY:
        raise UsageError(f"{row.arm} was measured by scenario {row.scenario}: a gate races one call after another")
    found = next(one for one in run.groups[row.group].record.arms if one.label == row.arm)
    executed = row.executed or {}
    return Reference(
        place=str(folder),
        target=str(found.target),
        given=_options(found, run.header.given),
        library=str(executed.get("library", "")),
        version=str(executed.get("version", "")),
        libraries=run.header.environment.get("libraries") or {},
    )


def _named(run: Analysed, arm: str) -> Row:
    """The measured row of this name, which may be as short as tables show it."""
    rows = [row for row in run.document.rows if row.end_to_end]
    mine = [row for row in rows if arm in (row.arm, short(row.arm))]
    if not mine:
        raise unknown("measured arm", arm, {row.arm for row in rows})
    return _only(mine, f"{arm!r} was measured")


def _shipped(run: Analysed, folder: Path, policy: Policy | None) -> Row:
    """The row of what the run, or the policy, ships."""
    if policy:
        question = read_question([folder])
        found = decide(policy, question, today=date.today())
        rows = [one.row for one in question.candidates if one.label == found.chosen]
    else:
        wanted = {(one.group, one.ship.arm) for one in run.document.answer if one.ship}
        rows = [row for row in run.document.rows if (row.group, row.arm) in wanted]
    if not rows:
        by = "by the policy" if policy else "of its own"
        raise UsageError(f"{str(folder)!r} has no arm to ship {by}: name one of its arms with --arm")
    return _only(rows, f"{str(folder)!r} ships an arm")


def _only(rows: list[Row], what: str) -> Row:
    if len(rows) > 1:
        groups = ", ".join(repr(row.group) for row in rows)
        raise UsageError(f"{what} in several groups ({groups}): gate a run of one model and batch")
    return rows[0]


def _options(arm: Arm, given: tuple[str, ...]) -> dict[str, Any]:
    """The options of `shootout run` that make this arm again, by keyword, but for the target itself."""
    flags = flags_of(RunOptions)
    by_name = {flag.name: keyword for keyword, flag in flags.items()}
    words: dict[str, Any] = {}
    told = iter(shlex.split(reproduce.words(arm, given)))
    for name in told:
        keyword = by_name[name]
        if flags[keyword].kind is bool:
            words[keyword] = True
        elif flags[keyword].several:
            words.setdefault(keyword, []).append(_home(next(told)))
        else:
            words[keyword] = _home(next(told))
    found = read_words(RunOptions, words)
    del found["backends"]
    return found


def _home(word: str) -> str:
    """As a shell reads a leading tilde, also behind `name=`."""
    name, equals, path = word.rpartition("=")
    return f"{name}{equals}{Path(path).expanduser()}" if path.startswith("~/") else word
