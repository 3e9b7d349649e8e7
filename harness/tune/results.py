"""What a tuning run found, read from its folder: the stages are in `tuning_stages`. Pure: it never measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from shootout.contract import COULD_RUN, Arm
from shootout.errors import UsageError
from shootout.journal import journal
from shootout.results.document import Document, Ratio, Row
from shootout.stats.verdicts import Verdict
from shootout.study.group import GroupRecord
from shootout.tune import knobs
from shootout.tune.tuning_stages import ALONE, CONFIRMED, STAGES, TOGETHER, TUNED, Stage, shipped, stage_of, winner


class Outcome(StrEnum):
    """What became of one target."""

    BETTER = "better"
    NONE_BETTER = "no better setting found"
    CANT_TELL = "can't tell"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A setting that the search raced against the default: its ratio, or why it has none."""

    setting: str
    ratio: Ratio | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found for one target.

    Attributes:
        best: the setting that led the search; None where none did.
        gain: its time ÷ the default's, on generations that the search never saw; None before it was confirmed.
        ship: the setting to use: `best` where it was confirmed, else the default.
        reason, fix: why there is no gain to tell.
        row, default_row: the confirmation's, for error and accuracy.
    """

    target: str
    outcome: Outcome
    default: Arm
    best: Arm | None
    gain: Ratio | None
    ship: Arm
    tried: tuple[Tried, ...]
    reason: str = ""
    fix: str = ""
    row: Row | None = None
    default_row: Row | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """A whole tuning run; `final` is the race of the settings that held, `given` what its arms don't tell."""

    run: str
    complete: bool
    stages: Mapping[str, Stage]
    found: tuple[Found, ...]
    final: Document | None
    given: tuple[str, ...]


def is_tuning(folder: Path) -> bool:
    """Whether a folder holds a tuning run."""
    return journal.begun(folder / ALONE)


def read(folder: Path) -> Tuning:
    """The tuning run in `folder`.

    Raises:
        UsageError: there is none.
    """
    stages = {name: stage for name in STAGES if (stage := stage_of(folder, name))}
    if ALONE not in stages:
        raise UsageError(f"no tuning run in {str(folder)!r}; name a folder made by `shootout tune`")
    final = stages.get(TUNED)
    return Tuning(
        run=str(folder),
        complete=_is_complete(stages),
        stages=stages,
        found=tuple(_found(stages, target, group) for target, group in stages[ALONE].groups.items()),
        final=final.document if final else None,
        given=stages[ALONE].given,
    )


def _is_complete(stages: Mapping[str, Stage]) -> bool:
    """Whether no stage is left to run."""
    if TUNED in stages:
        return stages[TUNED].complete
    targets = stages[ALONE].groups
    if any(winner(stages, target) for target in targets) and not (CONFIRMED in stages and stages[CONFIRMED].complete):
        return False
    ready = {arm.label for target in targets if (arm := shipped(stages, target))}
    return len(ready) < 2 and (stages[ALONE].complete or CONFIRMED in stages)


def _found(stages: Mapping[str, Stage], target: str, group: GroupRecord) -> Found:
    default, best = group.arms[0], winner(stages, target)
    row = stages[ALONE].rows(target)[default.label]
    tried = [one for name in (ALONE, TOGETHER) if name in stages for one in _tried(stages[name], target, default)]
    rows = stages[CONFIRMED].rows(target) if CONFIRMED in stages else {}
    gain = stages[CONFIRMED].ratios(target).get(best.label) if best and rows else None
    outcome, reason, fix = _outcome(row, tried, best, gain, rows)
    return Found(
        target=target,
        outcome=outcome,
        default=default,
        best=best,
        gain=gain,
        ship=shipped(stages, target) or default,
        tried=tuple(tried),
        reason=reason,
        fix=fix,
        row=rows.get(best.label) if best else None,
        default_row=rows.get(default.label, row),
    )


def _tried(stage: Stage, target: str, default: Arm) -> list[Tried]:
    group, rows, ratios = stage.groups.get(target), stage.rows(target), stage.ratios(target)
    arms = [arm for arm in group.arms[1:] if not arm.sentinel] if group else []
    return [
        Tried(
            setting=knobs.setting(default, arm),
            ratio=ratios.get(arm.label),
            reason=rows[arm.label].reason or "",
        )
        for arm in arms
    ]


def _outcome(
    row: Row, tried: Sequence[Tried], best: Arm | None, gain: Ratio | None, rows: Mapping[str, Row]
) -> tuple[Outcome, str, str]:
    """What to say of a target, why, and the fix.

    Args:
        row: the default's, from the first search.
        rows: the confirmation's.
    """
    if row.outcome != "measured" and row.cause not in COULD_RUN:
        return Outcome(row.outcome), row.reason or "", row.fix or ""
    if best is None:
        bounded = [one for one in tried if one.ratio and one.ratio.low is not None and one.ratio.reason is None]
        if tried and not bounded:
            return Outcome.CANT_TELL, row.reason or "no setting was measured well enough", row.fix or ""
        return Outcome.NONE_BETTER, "" if tried else "there is nothing to try", ""
    if gain is None:
        why = rows[best.label].reason if best.label in rows else None
        return Outcome.CANT_TELL, why or "the run ended before the winner was confirmed", ""
    if gain.verdict is Verdict.FASTER:
        return Outcome.BETTER, "", ""
    if gain.verdict is Verdict.CANT_TELL:
        return Outcome.CANT_TELL, gain.reason or "its interval is too wide yet", ""
    return Outcome.NONE_BETTER, "what led the search did not hold", ""
