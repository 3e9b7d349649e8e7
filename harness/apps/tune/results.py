"""A tuning run, read from its folder: what its stages measured, what each leaves for the next, and what was found.

It is up to four runs in one folder, each with a journal of its own: every knob `alone`, those that helped `together`,
the winner `confirmed` against the default, and the settings that held, `tuned`, against each other. Pure: it never
measures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from shootout.apps.tune.settings import describe_setting
from shootout.core.constants import SAME_WITHIN
from shootout.core.contract import COULD_RUN, Arm
from shootout.core.errors import NotRunKind, UsageError
from shootout.core.host import environment
from shootout.core.results.run import Run, begun, read_run
from shootout.core.stats.verdicts import Verdict
from shootout.core.study.group import GroupRecord
from shootout.core.units import counted
from shootout.tell.document import Document, Finding, Findings, Ratio, Row, stand, tell_finding
from shootout.tell.limits import FIDELITY, Limit, Standing

T = TypeVar("T")
JudgeStage = Callable[[Path], tuple[Document, Findings]]
"""Reads the document of a stage, and how each timed row stands to its limits."""
ALONE, TOGETHER, CONFIRMED, TUNED = STAGES = ("alone", "together", "confirmed", "tuned")

OF_ROWS = FIDELITY - {Limit.ERROR}
"""The limits that are judged on a split's rows, of which a search sees one and its confirmation the other."""


class TuneOutcome(StrEnum):
    """The result of tuning one target."""

    BETTER = "better"
    OVER_LIMIT = "over the limit"
    NONE_BETTER = "no better setting found"
    CANT_TELL = "can't tell"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A setting that the search raced against the default: its row there, and its ratio if it has one.

    Attributes:
        limits: how it stands to each limit, on the rows that the search looks at; none without limits.
    """

    arm: Arm
    setting: str
    row: Row
    ratio: Ratio | None
    limits: tuple[Finding, ...]

    @property
    def was_refused(self) -> bool:
        """Return True if it ran, and its outputs were refused."""
        return self.row.cause == NotRunKind.FAILED and self.row.fidelity is not None and self.row.end_to_end is None


class Conclusion(NamedTuple):
    """The message on a target; if there is no gain, also the reason and the fix."""

    outcome: TuneOutcome
    reason: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningStage:
    """One of the runs: its groups are by the target that each is about (`tuned` has one, under "").

    Attributes:
        findings: how each timed row stands to the limits; none without limits.
    """

    run: Run
    groups: Mapping[str, GroupRecord]
    document: Document
    findings: Findings = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the machine and the versions that it was begun on."""
        return environment.fingerprint(self.run.facts.environment)

    def limits_of(self, target: str, label: str) -> tuple[Finding, ...]:
        """Return how a setting of a target stands to each limit; none if that isn't known, or there is none."""
        group = self.groups.get(target)
        return tuple(self.findings.get((group.name, label), ())) if group else ()

    def standing(self, target: str, label: str) -> Standing:
        """Return how it stands to all of them; without limits all are met."""
        return Standing.MET if self.run.facts.limits is None else stand(self.limits_of(target, label))

    def rows(self, target: str) -> dict[str, Row]:
        """Return the rows of the target's group by label."""
        group = self.groups.get(target)
        return {row.arm: row for row in self.document.rows if group and row.group == group.name}

    def ratios(self, target: str) -> dict[str, Ratio]:
        """Return each setting's ratio to the default, by label."""
        timed = {label: row.end_to_end for label, row in self.rows(target).items()}
        return {label: timing.ratio for label, timing in timed.items() if timing and timing.ratio}


@dataclass(frozen=True)
class TunedTarget:
    """The findings of the stages so far on one target."""

    target: str
    stages: Mapping[str, TuningStage]

    @property
    def default(self) -> Arm:
        """Return the target as it comes."""
        return self.stages[ALONE].groups[self.target].arms[0]

    @cached_property
    def tried(self) -> tuple[Tried, ...]:
        """Return the settings that the search raced against the default."""
        found = []
        for stage in (self.stages[name] for name in (ALONE, TOGETHER) if name in self.stages):
            rows, ratios = stage.rows(self.target), stage.ratios(self.target)
            arms = stage.groups[self.target].arms[1:] if self.target in stage.groups else ()
            for arm in (arm for arm in arms if not arm.control):
                setting, limits = describe_setting(self.default, arm), stage.limits_of(self.target, arm.label)
                row, ratio = rows[arm.label], ratios.get(arm.label)
                found.append(Tried(arm=arm, setting=setting, row=row, ratio=ratio, limits=limits))
        return tuple(found)

    @cached_property
    def best(self) -> Arm | None:
        """Return the setting that leads the last search that raced it; None where no setting leads.

        One that is known to break a limit doesn't; one that is known to keep them comes before any that may.
        """
        for name in (stage for stage in (TOGETHER, ALONE) if stage in self.stages):
            stage = self.stages[name]
            arms = {arm.label: arm for arm in stage.groups[self.target].arms} if self.target in stage.groups else {}
            found = [(arms[label], ratio) for label, ratio in stage.ratios(self.target).items()]
            if ranked := rank_settings([(arm, ratio, stage.standing(self.target, arm.label)) for arm, ratio in found]):
                return ranked[0]
        return None

    @cached_property
    def row(self) -> Row | None:
        """Return the best setting's row in the confirmation, on restarts that the search never saw."""
        rows = self.stages[CONFIRMED].rows(self.target) if CONFIRMED in self.stages else {}
        return rows.get(self.best.label) if self.best else None

    @cached_property
    def default_row(self) -> Row:
        """Return the default's row in the confirmation; before that, in the first search."""
        rows = self.stages[CONFIRMED].rows(self.target) if CONFIRMED in self.stages else {}
        return rows.get(self.default.label, self._first_row)

    @property
    def gain(self) -> Ratio | None:
        """Return the best setting's time ÷ the default's, as it was confirmed."""
        return self.row.end_to_end.ratio if self.row and self.row.end_to_end else None

    @property
    def limits(self) -> tuple[Finding, ...]:
        """Return how the best setting stands to each limit in the confirmation, on rows that no choice has seen."""
        return self.stages[CONFIRMED].limits_of(self.target, self.best.label) if self.row and self.best else ()

    @property
    def held(self) -> bool:
        """Return True if the best setting was confirmed to be faster and to keep the limits."""
        if not self.best or self.gain is None or self.gain.verdict is not Verdict.FASTER:
            return False
        return self.stages[CONFIRMED].standing(self.target, self.best.label) is Standing.MET

    @property
    def ship(self) -> Arm:
        """Return the setting to use."""
        return self.best if self.best and self.held else self.default

    @property
    def ready(self) -> bool:
        """Return True if that setting ran."""
        return self.held or self._first_row.end_to_end is not None

    @cached_property
    def conclusion(self) -> Conclusion:
        """Return the message on it."""
        first, gain = self._first_row, self.gain
        if first.outcome != "measured" and first.cause not in COULD_RUN:
            outcome = TuneOutcome.FAILED if first.outcome == "failed" else TuneOutcome.SKIPPED
            return Conclusion(outcome, first.reason or "", first.fix or "")
        if self.best is None:
            return self._conclude_without_best()
        if gain is None:
            reason = self.row.reason if self.row else None
            return Conclusion(TuneOutcome.CANT_TELL, reason or "the run ended before the winner was confirmed")
        if self.held:
            return Conclusion(TuneOutcome.BETTER)
        broken, unknown = (
            next((one for one in self.limits if one.standing is standing), None)
            for standing in (Standing.BROKEN, Standing.UNKNOWN)
        )
        if broken:
            where = "on rows that the search did not see: " if broken.limit in OF_ROWS else "when it was confirmed: "
            return Conclusion(TuneOutcome.OVER_LIMIT, where + tell_finding(broken))
        if gain.verdict is Verdict.FASTER:
            why = tell_finding(unknown) if unknown else "what its precision costs isn't known"
            fix = "add rows to the data and add --fresh, or give a looser limit"
            return Conclusion(TuneOutcome.CANT_TELL, f"faster, but {why}", fix)
        if gain.verdict is Verdict.CANT_TELL:
            return Conclusion(TuneOutcome.CANT_TELL, gain.reason or "its interval is too wide yet")
        return Conclusion(TuneOutcome.NONE_BETTER, "what led the search did not hold")

    def _conclude_without_best(self) -> Conclusion:
        """Return why no setting leads: none was measured well enough, is faster, or keeps the limits."""
        first, timed = self._first_row, [one for one in self.tried if one.ratio]
        refused = [one for one in self.tried if one.was_refused]
        is_out = bool(timed or refused) and all(stand(one.limits) is Standing.BROKEN for one in timed)
        is_known = any(one.ratio and one.ratio.low is not None and not one.ratio.reason for one in timed)
        if self.tried and not is_known and not is_out:
            why = first.reason or "no setting was measured well enough"
            return Conclusion(TuneOutcome.CANT_TELL, why, first.fix or "")
        over = [
            (one.setting, broken)
            for one in timed
            if leads(one.ratio) and (broken := next((b for b in one.limits if b.standing is Standing.BROKEN), None))
        ]
        told = [] if self.tried else ["there is nothing to try"]
        if over:
            nearest, broken = min(over, key=lambda one: one[1].excess or 0.0)
            many = counted(len(over), "faster setting")
            told.append(f"{many} over the limit, the nearest is {nearest}: {tell_finding(broken)}")
        if refused:
            told.append(f"outputs of {counted(len(refused), 'setting')} refused")
        return Conclusion(TuneOutcome.NONE_BETTER, "; ".join(told))

    @property
    def _first_row(self) -> Row:
        return self.stages[ALONE].rows(self.target)[self.default.label]


@dataclass(frozen=True)
class Tuning:
    """The stages that a tuning run's folder holds by now."""

    run: str
    stages: Mapping[str, TuningStage]

    @cached_property
    def found(self) -> dict[str, TunedTarget]:
        """Return what the stages have shown, by target; nothing before the first began."""
        targets = self.stages[ALONE].groups if ALONE in self.stages else ()
        return {target: TunedTarget(target, self.stages) for target in targets}

    @property
    def given(self) -> Mapping[str, Any]:
        """Return what no arm tells, as `Header.given`."""
        return self.stages[ALONE].run.facts.given

    @property
    def limits(self) -> Mapping[str, float] | None:
        """Return what settings must keep, by a policy's keys in their basic units; None without limits."""
        return self.stages[ALONE].run.facts.limits if ALONE in self.stages else None

    @property
    def final(self) -> Document | None:
        """Return the race of the settings that held."""
        return self.stages[TUNED].document if TUNED in self.stages else None

    @property
    def complete(self) -> bool:
        """Return True if no stage is left to run."""
        if TUNED in self.stages:
            return self.stages[TUNED].run.history.played_out
        confirmed, together = self.stages.get(CONFIRMED), self.stages.get(TOGETHER)
        if not confirmed and together and not together.run.history.played_out:
            return False
        if any(target.best for target in self.found.values()) and not (confirmed and confirmed.run.history.played_out):
            return False
        ready = {target.ship.label for target in self.found.values() if target.ready}
        return len(ready) < 2 and (self.stages[ALONE].run.history.played_out or confirmed is not None)


def is_tuning(folder: Path) -> bool:
    """Return True if a folder holds a tuning run."""
    return begun(folder / ALONE)


def read_tuning(folder: Path, judge: JudgeStage) -> Tuning:
    """Read the tuning run in `folder`.

    Raises:
        UsageError: there is none.
    """
    if not is_tuning(folder):
        raise UsageError(f"no tuning run in {str(folder)!r}; name a folder made by `shootout tune`")
    return read_stages(folder, judge)


def read_stages(folder: Path, judge: JudgeStage) -> Tuning:
    """Read what `folder` holds of a tuning run, be it nothing."""
    stages = {}
    for name in (stage for stage in STAGES if begun(folder / stage)):
        run = read_run(folder / name)
        groups = {"" if name == TUNED else str(group.arms[0].target): group for group in run.facts.groups}
        document, findings = judge(folder / name)
        stages[name] = TuningStage(run=run, groups=groups, document=document, findings=findings)
    return Tuning(run=str(folder), stages=stages)


def rank_settings(results: Iterable[tuple[T, Ratio | None, Standing]]) -> list[T]:
    """Return the settings that lead and aren't known to break a limit: those known to keep all first, then the faster.

    What is not known to keep a limit may still be found to, on other rows; but a setting that is known to is the surer
    one to confirm.
    """
    leading = [(one, ratio, standing) for one, ratio, standing in results if ratio and leads(ratio)]
    fit = [found for found in leading if found[2] is not Standing.BROKEN]
    return [one for one, _, _ in sorted(fit, key=lambda found: (found[2] is not Standing.MET, found[1].value))]


def leads(ratio: Ratio | None) -> bool:
    """Return True if a setting may be better: at least 1 % faster as far as it was seen, and not known to be otherwise.

    Being wrong here costs time, no truth: what leads is measured again before anything is said of it.
    """
    return ratio is not None and ratio.value < 1 - SAME_WITHIN and ratio.verdict not in (Verdict.SLOWER, Verdict.SAME)
