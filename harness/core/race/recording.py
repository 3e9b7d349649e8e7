"""All that a run writes down, in the journal before anything else happens: builds, skips, failures, restarts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.contract import SCALED, Arm, NotRun, NotRunKind, Precision
from shootout.core.errors import TRIED_AGAIN
from shootout.core.journal import samples
from shootout.core.journal.journal import History, Journal
from shootout.core.journal.records import Checked, Played, Prepared, Setback, not_run
from shootout.core.messages import Loaded, Progress, Verified
from shootout.core.race.race import Purpose
from shootout.core.race.restart import Restart
from shootout.core.results.group import Group
from shootout.core.study.target import provider
from shootout.core.worker import availability

NO_TIME = "error not checked: there was no time to predict the error bound of this precision"
UNKNOWN = "error not checked: no error bound could be predicted for this file's own precisions"
NOT_JUDGED = "error not checked: the inputs are random"
PROVES_LITTLE = (
    "weak check: {precision} rounding alone may err by {error_bound:.2g} on this model, and an answer that ignores its "
    "inputs errs by only {spread:.2g}; labeled data would tell"
)
"""Noted if no row is scored by labels or truth."""
BACKEND_STEPS = ("build", "entering")
"""An arm that fails at these may have a library that no longer works, though it worked before."""


@dataclass(kw_only=True)
class Recorder:
    """Keeps what a run has come to: its lines in the journal, and which arms are out.

    Attributes:
        out: the run folder.
        history: what the journal held when this process took over.
        purpose: see `RaceRunner`: an arm that left because of limits that no longer hold goes on.
        installed: by group and label, what its runtime takes on disk, where that is known.
    """

    out: Path
    file: Journal
    history: History
    progress: Progress
    purpose: Purpose = field(default_factory=Purpose)
    _gone: defaultdict[str, dict[str, NotRun]] = field(default_factory=lambda: defaultdict(dict), init=False)
    _hung: set[tuple[str, str]] = field(default_factory=set, init=False)
    _checked: set[tuple[str, str]] = field(default_factory=set, init=False)
    installed: dict[tuple[str, str], int | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for line in self.history.lines:
            if isinstance(line, Setback):
                if line.why.hung:
                    self._hung.add((line.group, line.arm.label))
                if line.why.kind not in TRIED_AGAIN:
                    self._gone[line.group][line.arm.label] = line.why
            elif isinstance(line, Prepared):
                self.installed[line.group, line.arm] = line.install_bytes
            elif isinstance(line, Checked):
                self._checked.add((line.group, line.arm))
            elif isinstance(line, Played):
                self._hung.discard((line.group, line.arm))
        self._readmit_arms()

    def _readmit_arms(self) -> None:
        """Take back the arms that left because of limits that are no more."""
        gone = ((group, label, why) for group, out in self._gone.items() for label, why in out.items())
        left = {(group, label): False for group, label, why in gone if why.kind is NotRunKind.OFF_LIMITS}
        for line in self.history.lines if left else ():
            if isinstance(line, Played) and (key := (line.group, line.arm)) in left:
                left[key] |= self.purpose.find_breach(line, self.installed.get(key)) is not None
        for group, label in (key for key, breaks in left.items() if not breaks):
            del self._gone[group][label]

    def is_out(self, group: str, arm: Arm) -> bool:
        """Tell whether this arm of a group was skipped or failed."""
        return arm.label in self._gone[group]

    def hung(self, group: str, arm: Arm) -> bool:
        """Return whether this arm gave no answer within its part of `--max-time` in an earlier process of the run."""
        return (group, arm.label) in self._hung

    @property
    def begun_on(self) -> dict[tuple[str, str], str]:
        """Return by group and label the key of the export that more times would be added to; none in a finished run."""
        if self.history.complete:
            return {}
        lines = [line for line in self.history.lines if isinstance(line, Prepared)]
        return {(line.group, line.arm): line.exported for line in lines if line.exported}

    @property
    def lacks(self) -> bool:
        """Tell whether an arm is out for want of time or was killed: the same command tries it again."""
        return any(why.kind in TRIED_AGAIN for out in self._gone.values() for why in out.values())

    def of_group(self, group: str) -> dict[str, NotRun]:
        """Return why arms of one group are out, by label; what is noted later is added to it."""
        return self._gone[group]

    def note(self, group: str, arm: Arm, why: NotRun) -> None:
        """Note that an arm is out; only the first reason counts, unless it was killed and tried again."""
        before = self._gone[group].get(arm.label)
        if before and before.kind is not NotRunKind.KILLED:
            return
        if why.failed:
            self.progress.say(f"failed: {arm.label}: {why.reason}")
            if why.during in BACKEND_STEPS:
                availability.forget([provider(arm.target)[0]])
        self._gone[group][arm.label] = why
        self.file.append(not_run(group, arm, why))

    def built(self, group: str, arm: Arm, found: Built, *, runs: bool) -> None:
        """Note that an arm was built; a process that goes on with the run doesn't note it again."""
        if (group, arm.label) not in self.installed:
            self.file.append(_prepared_line(group, arm, found, runs=runs))
        self.installed[group, arm.label] = found.install_bytes

    def checked(self, group: str, arm: Arm, loaded: Loaded, verified: Verified) -> None:
        """Note that an arm was loaded and verified; only once, and not of a copy, which has no row."""
        if arm.control or (group, arm.label) in self._checked:
            return
        self._checked.add((group, arm.label))
        line = Checked(
            group=group,
            arm=arm.label,
            load_s=loaded.load_s,
            first_call_s=loaded.first_call_s,
            executed=verified.executed,
            fidelity=verified.fidelity,
            scores=verified.scores,
        )
        self.file.append(line)

    def restart(self, group: Group, played: Restart) -> list[Played]:
        """Write the restart that a group has just played; its lines go out at once, closed by their `rounds` line.

        Returns:
            A line for each arm that played, in their order.
        """
        turns = [(p.arm.label, p.turns) for p in played.playing]
        samples.write(self.out, played.samples, turns, [(p.arm.label, p.single_ns) for p in played.playing])
        lines = [group.played[p.arm.label][-1] for p in played.playing]
        self.file.append(*lines, group.rounds[-1])
        return lines


def _prepared_line(group: str, arm: Arm, found: Built, *, runs: bool) -> Prepared:
    facts = found.facts
    return Prepared(
        group=group,
        arm=arm.label,
        export_s=found.exported.export_s,
        build_s=found.build_s,
        build_cached=found.cached,
        probe=found.probe,
        artifact_bytes=None if runs else facts.get("artifact_bytes"),
        built_nodes_by_precision=None if runs else facts.get("compute_nodes_by_precision"),
        notes=(*found.exported.notes, *facts.get("notes", ()), *_find_doubts(arm, found, runs=runs)),
        work=found.exported.work,
        exported=found.exported.key,
        install_bytes=found.install_bytes,
    )


def _find_doubts(arm: Arm, found: Built, *, runs: bool) -> tuple[str, ...]:
    """Return what a reader must know: what isn't quantized in a quantized model, and which proof is missing or weak."""
    target, exported = arm.target, found.exported
    rests = backends.capabilities(target.backend).rest
    rest, error_bound = rests.get((target.device, target.precision)), exported.error_bound(target, rests)[0]
    lines = [f"what isn't quantized computes in {rest}"] if rest else []
    if not exported.is_judged(target, rests):
        if error_bound is None and exported.whole_s is not None:
            lines.append(NO_TIME)
        elif error_bound is None and target.precision is Precision.NATIVE:
            lines.append(UNKNOWN)
        else:
            lines.append(NOT_JUDGED + ("; give --inputs" if exported.is_file or exported.source_sha256 else ""))
    elif error_bound is not None and not exported.is_telling(error_bound) and not exported.has_report:
        lines.append(PROVES_LITTLE.format(precision=target.precision, error_bound=error_bound, spread=exported.spread))
    if target.precision in SCALED and runs and not found.probe:
        lines.append("no grid probe could be made, so its precision rests on node counts and error")
    return tuple(lines)
