"""The stages of a tuning run, read from their folders, and what each leaves for the next. Pure: it never measures.

A tuning run is up to four runs in one folder, each with a journal of its own: every knob `alone`, those that helped
`together`, the winner `confirmed` against the default, and the settings that held, `tuned`, against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shootout.constants import SAME_WITHIN
from shootout.contract import Arm
from shootout.host import environment
from shootout.journal import journal
from shootout.results import analysis
from shootout.results.document import Document, Ratio, Row
from shootout.stats.verdicts import Verdict
from shootout.study.group import GroupRecord

ALONE, TOGETHER, CONFIRMED, TUNED = STAGES = ("alone", "together", "confirmed", "tuned")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One of the runs: its document, and its groups by the target that each is about (`tuned` has one, under "").

    Attributes:
        fingerprint: of the machine and the versions that it was begun on.
        given: options that no arm tells.
    """

    identity: str
    fingerprint: str
    given: tuple[str, ...]
    complete: bool
    groups: Mapping[str, GroupRecord]
    document: Document

    def rows(self, target: str) -> dict[str, Row]:
        """The rows of the target's group by label."""
        group = self.groups.get(target)
        return {row.arm: row for row in self.document.rows if group and row.group == group.name}

    def ratios(self, target: str) -> dict[str, Ratio]:
        """By label, how each setting compares with the default."""
        found = {label: row.end_to_end.ratio for label, row in self.rows(target).items() if row.end_to_end}
        return {label: ratio for label, ratio in found.items() if ratio}


def stage_of(folder: Path, name: str) -> Stage | None:
    """One stage of a tuning run; None before it began."""
    if not journal.begun(folder / name):
        return None
    history = journal.read(folder / name)
    groups = {"" if name == TUNED else str(one.arms[0].target): one for one in history.header.groups}
    return Stage(
        identity=history.header.identity,
        fingerprint=environment.fingerprint(history.header.environment),
        given=history.header.given,
        complete=history.complete,
        groups=groups,
        document=analysis.analyse(folder / name),
    )


def leads(ratio: Ratio | None) -> bool:
    """Whether a setting may be better: at least 1 % faster as far as it was seen, and not known to be otherwise.

    Being wrong here costs time, no truth: what leads is measured again before anything is said of it.
    """
    return ratio is not None and ratio.value < 1 - SAME_WITHIN and ratio.verdict not in (Verdict.SLOWER, Verdict.SAME)


def winner(stages: Mapping[str, Stage], target: str) -> Arm | None:
    """The setting that leads the last search that raced it; None where no setting leads."""
    for name in (TOGETHER, ALONE):
        stage = stages.get(name)
        ratios = stage.ratios(target) if stage else {}
        if stage and (leading := [label for label, ratio in ratios.items() if leads(ratio)]):
            best = min(leading, key=lambda label: ratios[label].value)
            return next(arm for arm in stage.groups[target].arms if arm.label == best)
    return None


def shipped(stages: Mapping[str, Stage], target: str) -> Arm | None:
    """The setting to use: the winner where it was confirmed to be faster, else the default; None if that never ran."""
    default = stages[ALONE].groups[target].arms[0]
    best, confirmed = winner(stages, target), stages.get(CONFIRMED)
    ratio = confirmed.ratios(target).get(best.label) if confirmed and best else None
    if ratio and ratio.verdict is Verdict.FASTER:
        return best
    return default if stages[ALONE].rows(target)[default.label].end_to_end else None
