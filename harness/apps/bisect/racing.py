"""Race a question's releases until its answer is told, and read what each restart showed."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from shootout.apps.bisect.releases import drop_folders
from shootout.apps.bisect.search import COPY, Logs, Question, Raced, Side, Skipped
from shootout.core.constants import WIDE_BOUND
from shootout.core.contract import Fidelity, NotRun, NotRunKind
from shootout.core.errors import TRIED_AGAIN
from shootout.core.journal.records import Played, Setback
from shootout.core.race.pace import RaceTime
from shootout.core.race.race import Purpose, Race
from shootout.core.results.group import Group
from shootout.core.results.run import Run
from shootout.core.stats.group_evidence import Pair

LEAST_ERROR = 1e-12
"""A smaller relative error is none."""
INFINITE = 50.0
"""The log of an error ÷ its bound if the outputs hold NaN or have another shape."""


def name_python(release: str) -> str:
    """Return what targets call the interpreter that has a release."""
    return "r" + re.sub(r"[^A-Za-z0-9]", "_", release)


@dataclass(slots=True)
class QuestionPurpose(Purpose):
    """End a run when its question is told, whatever else is open."""

    question: Question

    def find_focus(self, race: Race) -> list[str]:
        """Return all arms until the question is told or a release has left, without which no restart tells it."""
        gone = _find_gone(self.question, race.group)
        if gone and _label(race.group, gone[0]) not in race.labels:  # one that was killed once plays again
            return []
        return race.labels if self.question.judge(read_logs(self.question, race.group)) is Side.OPEN else []

    def call_wanted(self, race: Race, out: Path) -> Sequence[Pair]:  # noqa: ARG002
        """Call all arms once more until the question is told."""
        baseline = str(race.rules.baseline)
        return [(label, baseline) for label in self.find_focus(race) if label != baseline]

    def choose_races(self, playing: Sequence[Race], time: RaceTime) -> list[Race]:  # noqa: ARG002
        """Let all arms play each restart: a question takes all, and the run's goal waits for some pairs only."""
        for race in playing:
            race.players = [race.arms[label] for label in self.find_focus(race)]
        return list(playing)


def read_race(question: Question, run: Run) -> Raced | Skipped:
    """Return what a question's run showed, or which release left it and why, if the same command can't try it again."""
    (group,) = run.groups.values()
    if (gone := _find_gone(question, group)) and _is_out(question, run, *gone):
        return Skipped(gone[0], drop_folders(gone[1].reason))
    values = {release: _values(question.kind, group, _label(group, release)) for release in question.releases}
    figures = {release: median(found.values()) for release, found in values.items() if found}
    logs = read_logs(question, group)
    side, folder = question.judge(logs) if logs else None, str(run.folder)
    return Raced(side=side, logs=logs, figures=figures, folder=folder, restarts=group.next_restart)


def read_bound(run: Run) -> float:
    """Return the relative error up to which outputs are right; 0 if none were checked."""
    checked = [one.fidelity for group in run.groups.values() for one in group.checked.values()]
    return (checked[0].error_bound or WIDE_BOUND) if checked else 0.0


def read_files(pythons: Iterable[str]) -> None:
    """Read all files of environments anew: imports, and what of a library is resident, go by how they were cached."""
    for file in (file for python in pythons for file in Path(python).parents[1].rglob("*")):
        with suppress(OSError, AttributeError):  # a system may lack the call
            if file.is_file():
                with file.open("rb") as opened:
                    os.fsync(opened)  # pages that aren't written yet would stay
                    os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                file.read_bytes()


def _label(group: Group, release: str) -> str:
    """Return the label of a release's arm; "" if it has none."""
    name = name_python(release)
    return next((arm.label for arm in group.record.arms if arm.target.python == name and not arm.control), "")


def _find_gone(question: Question, group: Group) -> tuple[str, NotRun] | None:
    """Return the first release that left, and why; outputs that are refused are what is asked about outputs."""
    for release in question.releases:
        label = _label(group, release)
        is_asked = question.kind == "outputs" and _is_refused(group, label)
        if (why := group.setbacks.get(label)) and not is_asked:
            return release, why
    return None


def _is_out(question: Question, run: Run, release: str, why: NotRun) -> bool:
    """Return whether a release that left would leave again: it failed, or it was killed in two restarts in a row.

    A build that is killed is begun again by itself, so it was killed twice. Restarts that had no time tell nothing.
    """
    if why.kind is not NotRunKind.KILLED or question.has_run(release):
        return why.kind not in TRIED_AGAIN
    (group,) = run.groups.values()
    label = _label(group, release)
    was_killed = [  # in each restart that tells, the last one last
        isinstance(line, Setback)
        for line in run.history.of_group(group.record.name)
        if (isinstance(line, Played) and line.arm == label)
        or (isinstance(line, Setback) and line.arm.label == label and line.cause is NotRunKind.KILLED)
    ]
    return why.during == "build" or was_killed[-2:] == [True, True]


def read_logs(question: Question, group: Group) -> Logs:
    """Return the log ratios to the good end in each restart that all played; of outputs, the errors ÷ their bound."""
    labels, kind = {release: _label(group, release) for release in question.releases}, question.kind
    if kind == "outputs":
        found = {release: _log_errors(group, label) for release, label in labels.items()}
    else:
        good = labels.pop(question.good)
        found = {release: _log_ratios(kind, group, label, good) for release, label in labels.items()}
        # The copy shares its imports with the good end: only their times spread as those of two releases.
        if kind == "time" and (copy := _log_ratios(kind, group, group.rules.control or "", good)):
            found[COPY] = copy
    shared = sorted(set.intersection(*({*series} for series in found.values())))
    return {release: [series[g] for g in shared] for release, series in found.items()} if shared else {}


def _log_ratios(kind: str, group: Group, label: str, good: str) -> Mapping[int, float]:
    """Return by restart the log of an arm's figure ÷ the good end's; of times as the run compares them."""
    if kind == "time":
        evidence = group.evidence("end_to_end")
        return evidence.series(label, good) if label and good and evidence.have_met(label, good) else {}
    one, other = _values(kind, group, label), _values(kind, group, good)
    return {g: math.log(one[g] / other[g]) for g in sorted({*one} & {*other})}


def _values(kind: str, group: Group, label: str) -> dict[int, float]:
    """Return by restart an arm's figure in the basic unit: ns of a call, s until it is ready, bytes, error."""
    lines = {line.restart: line for line in group.played.get(label, ())}
    match kind:
        case "time":
            return {g: median(map(float, ns)) for g, ns in group.blocks("end_to_end").get(label, {}).items()}
        case "ready":  # without the start of the process, in which no release has a part
            costs = {g: line.gpu.cost if line.gpu else None for g, line in lines.items()}
            contexts_s = {g: (cost.context_s if cost else None) or 0.0 for g, cost in costs.items()}
            return {g: contexts_s[g] + line.load_s + line.first_call_s for g, line in lines.items()}
        case "memory":  # above that of a bare interpreter with NumPy: the part that a release can change
            known = {g: (line.peak_rss_bytes, line.rss_before_bytes) for g, line in lines.items()}
            return {g: float(max(peak - before, 4096)) for g, (peak, before) in known.items() if peak}
        case _:
            errors = {g: found.relative_l2 for g, found in _fidelities(group, label).items()}
            return {g: error for g, error in errors.items() if error is not None}


def _is_refused(group: Group, label: str) -> bool:
    return label in group.checked and group.checked[label].fidelity.standing == "refused"


def _fidelities(group: Group, label: str) -> dict[int, Fidelity]:
    """Return by restart how an arm's outputs were; one that was refused leaves, so it stands for all restarts."""
    if _is_refused(group, label):
        return dict.fromkeys(range(group.next_restart), group.checked[label].fidelity)
    return {line.restart: line.fidelity for line in group.played.get(label, ())}


def _log_errors(group: Group, label: str) -> Mapping[int, float]:
    """Return by restart the log of an arm's error ÷ its bound: above 0 it is wrong."""
    found = {}
    for g, fidelity in _fidelities(group, label).items():
        if fidelity.relative_l2 is None:
            found[g] = INFINITE
            continue
        log = math.log(max(fidelity.relative_l2, LEAST_ERROR) / (fidelity.error_bound or WIDE_BOUND))
        found[g] = max(log, LEAST_ERROR) if fidelity.standing in ("refused", "tolerated") else log
    return found
