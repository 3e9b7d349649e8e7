"""Race the releases of one question of `shootout bisect`, and read what each restart showed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

from shootout.apps.bisect.errors import judge_errors
from shootout.apps.bisect.releases import Environment, drop_folders
from shootout.apps.bisect.screen import Asked
from shootout.apps.bisect.search import (
    COPY,
    MOST_RESTARTS,
    Found,
    Judge,
    Logs,
    Question,
    Raced,
    Side,
    Skipped,
    judge_ratios,
    search,
)
from shootout.apps.judge.racing import AnswerPurpose
from shootout.commands import selection
from shootout.commands.run import measure
from shootout.core.clock import Deadline
from shootout.core.constants import WIDE_BOUND
from shootout.core.contract import Fidelity, NotRun, NotRunKind
from shootout.core.journal.records import Played
from shootout.core.race.pace import RaceTime
from shootout.core.race.race import Race
from shootout.core.results.group import Group
from shootout.core.results.run import Run, begun, read_run
from shootout.core.stats.group_evidence import Pair
from shootout.core.study.plan import Plan, make_plan
from shootout.core.units import span
from shootout.tell.progress import ProgressDisplay
from shootout.tell.study_options import DEFAULT

ANY_ERROR = 1e6
"""Outputs that err by less stay in the race, so that their error is known in each restart."""
LEAST_ERROR = 1e-12
"""A smaller relative error is none."""
PROCESS_S = 4.0
"""Two restarts of the first race take about so long for each process, its export and builds included."""
INFINITE = 50.0
"""The log of an error ÷ its bound if the outputs hold NaN or have another shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """Say how the questions of a search are raced.

    Attributes:
        out: the folder that gets a run folder for each question.
        deadline: when all of it ends.
        races_s: seconds of two restarts in the races so far, of each process.
    """

    asked: Asked
    out: Path
    deadline: Deadline
    progress: ProgressDisplay
    races_s: list[float] = field(default_factory=list)

    def has_time(self, question: Question) -> bool:
        """Return whether there is time for two restarts of a race, which tell nothing if they are fewer."""
        processes, left_s = len(question.releases) + 1, self.deadline.left_s
        takes_s = processes * max(self.races_s, default=PROCESS_S)
        if 0 < left_s < takes_s:
            self.progress.say(
                f"no race of {_name(question)} yet: --max-time leaves {span(left_s)}, and two restarts take about "
                f"{span(takes_s)}"
            )
        return left_s >= takes_s

    @property
    def judge(self) -> Judge:
        """Return what answers a question."""
        return judge_errors if self.asked.kind == "outputs" else judge_ratios


Environments = Callable[[str], Environment | Skipped | None]
"""Give the environment of a release; None if there is no time to make it."""


def find_release(measuring: Measuring, releases: Sequence[str], environments: Environments) -> Found:
    """Search for the release that brought most of the difference between the first and the last.

    What an earlier call measured into the same folder is read, and what is open there goes on.

    Raises:
        NothingMeasured: fewer than two releases can be measured.
        Interrupted: Ctrl-C or SIGTERM; what was measured is on disk.
        UsageError: an option, or the model, can't be used.
    """
    ask, asked = partial(_ask, measuring, environments), measuring.asked
    return search(releases, ask, judge=measuring.judge, chance=asked.chance, limit=asked.limit)


def name_of(release: str) -> str:
    """Return what targets call the interpreter that has a release."""
    return "r" + re.sub(r"[^A-Za-z0-9]", "_", release)


def _ask(measuring: Measuring, environments: Environments, question: Question) -> Raced | Skipped:
    """Race a question's releases until it is told, or time is over, in a run folder of their own."""
    out = measuring.out / ("-".join(question.suspects) or f"{question.good}-{question.bad}")
    known = read_run(out) if begun(out) else None
    if not (known and known.complete) and measuring.has_time(question):
        found = {release: environments(release) for release in question.releases}
        if gone := next((one for one in found.values() if isinstance(one, Skipped)), None):
            return gone
        pythons = {name_of(one): env.python for one, env in found.items() if isinstance(env, Environment)}
        if len(pythons) == len(found) and measuring.has_time(question):
            if measuring.asked.kind in ("ready", "memory"):
                _read_files(pythons.values())
            known = _race(measuring, question, _plan(measuring, pythons), out)
    if known is None:
        return Raced(logs={})
    return _read(measuring.asked.kind, question, known)


def _read_files(pythons: Iterable[str]) -> None:
    """Read all files once: imports, and what of a library is resident, go by what the system has cached."""
    for file in (file for python in pythons for file in Path(python).parents[1].rglob("*")):
        with suppress(OSError):
            if file.is_file():
                file.read_bytes()


def _plan(measuring: Measuring, pythons: Mapping[str, str]) -> Plan:
    """Plan the run that races a question's releases.

    Raises:
        UsageError: an option, or the model, can't be used.
    """
    asked = measuring.asked
    backend, *rest = asked.target.split(":")
    targets = [":".join([f"{backend}@{name}", *rest]) for name in pythons]
    options = {**asked.run, "model": asked.model, "backends": targets, "pythons": dict(pythons)}
    if asked.kind == "outputs":
        options["max_error"] = ANY_ERROR
    study = selection.choose(DEFAULT, options)
    more = {"name": "bisect", "goal": "baseline", "ceilings": False, "max_restarts": MOST_RESTARTS}
    return make_plan(study.model_copy(update=more), targets, progress=measuring.progress)


def _race(measuring: Measuring, question: Question, plan: Plan, out: Path) -> Run:
    part = measuring.deadline.part()
    purpose = BisectPurpose(measuring, question)
    measuring.progress.say(f"racing {_name(question)} of {question.good} to {question.bad}")
    before = _count_restarts(read_run(out)) if begun(out) else 0
    measure(plan, out, fresh=False, limit=part, progress=measuring.progress, purpose=purpose)
    measuring.deadline.put_off(part.waited_s)
    run = read_run(out)
    if (restarts := _count_restarts(run) - before) > 0:
        measuring.races_s.append(2 * part.elapsed_s / restarts / (len(question.releases) + 1))
    return run


def _name(question: Question) -> str:
    return " and ".join(question.suspects) or "the ends"


def _count_restarts(run: Run) -> int:
    return max((group.next_restart for group in run.groups.values()), default=0)


@dataclass(slots=True)
class BisectPurpose(AnswerPurpose):
    """A run that ends when its question is told, whatever else is open."""

    measuring: Measuring
    question: Question

    def find_focus(self, race: Race) -> list[str]:
        """Return all arms until the question is told or a release has left, without which no restart tells it."""
        asked = self.measuring.asked.kind, self.question, race.group
        is_open = not _find_gone(*asked) and self.measuring.judge(self.question, read_logs(*asked)) is Side.OPEN
        return race.labels if is_open else []

    def call_wanted(self, race: Race, out: Path) -> Sequence[Pair]:  # noqa: ARG002
        """Call all arms once more until the question is told."""
        baseline = str(race.rules.baseline)
        return [(label, baseline) for label in self.find_focus(race) if label != baseline]

    def choose_races(self, playing: Sequence[Race], time: RaceTime) -> list[Race]:  # noqa: ARG002
        """Let all arms play each restart: a question takes all, and the run's goal waits for some pairs only."""
        for race in playing:
            race.players = [race.arms[label] for label in self.find_focus(race)]
        return list(playing)

    def lacks_answer(self, race: Race) -> bool:  # noqa: ARG002
        """Return that nothing waits."""
        return False

    def tell_standing(self, race: Race) -> str:  # noqa: ARG002
        """Return nothing."""
        return ""


def _label(group: Group, release: str) -> str | None:
    """Return the label of a release's arm."""
    name = name_of(release)
    return next((arm.label for arm in group.record.arms if arm.target.python == name and not arm.control), None)


def _find_gone(kind: str, question: Question, group: Group) -> tuple[str, NotRun] | None:
    """Return the first release that left, and why; outputs that are refused are what is asked about outputs."""
    for release in question.releases:
        label = _label(group, release) or ""
        why, checked = group.setbacks.get(label), group.checked.get(label)
        is_refused = checked is not None and checked.fidelity.standing == "refused"
        if why and not (is_refused and kind == "outputs"):
            return release, why
    return None


def _read(kind: str, question: Question, run: Run) -> Raced | Skipped:
    (group,) = run.groups.values()
    if (gone := _find_gone(kind, question, group)) and gone[1].kind is not NotRunKind.NOT_REACHED:
        return Skipped(gone[0], drop_folders(gone[1].reason))
    values = {release: [*_values(kind, group, _label(group, release)).values()] for release in question.releases}
    figures = {release: median(found) for release, found in values.items() if found}
    logs = read_logs(kind, question, group)
    return Raced(logs=logs, figures=figures, folder=str(run.folder), is_complete=run.complete)


def read_logs(kind: str, question: Question, group: Group) -> Logs:
    """Return the log ratios to the good end in each restart that all played; of outputs, the errors ÷ their bound."""
    labels = {release: _label(group, release) for release in question.releases}
    if kind == "outputs":
        found = {release: _log_errors(group, label) for release, label in labels.items()}
    else:
        good = labels.pop(question.good)
        found = {release: _log_ratios(kind, group, label, good) for release, label in labels.items()}
        # The copy shares its imports with the good end: only their times spread as those of two releases.
        if kind == "time" and (copy := _log_ratios(kind, group, group.rules.control, good)):
            found[COPY] = copy
    shared = sorted(set.intersection(*({*series} for series in found.values())))
    return {release: [series[g] for g in shared] for release, series in found.items()} if shared else {}


def _log_ratios(kind: str, group: Group, label: str | None, good: str | None) -> Mapping[int, float]:
    """Return by restart the log of an arm's figure ÷ the good end's; of times as the run compares them."""
    if kind == "time":
        evidence = group.evidence("end_to_end")
        return evidence.series(label, good) if label and good and evidence.have_met(label, good) else {}
    one, other = _values(kind, group, label), _values(kind, group, good)
    return {g: math.log(one[g] / other[g]) for g in sorted({*one} & {*other})}


def _values(kind: str, group: Group, label: str | None) -> dict[int, float]:
    """Return by restart an arm's figure in the basic unit: ns of a call, s until it is ready, bytes, error."""
    lines = group.played.get(label or "", ())
    match kind:
        case "time":
            return {g: median(map(float, ns)) for g, ns in group.blocks("end_to_end").get(label or "", {}).items()}
        case "ready":
            return {line.restart: _ready_s(line) for line in lines}
        case "memory":  # above that of a bare interpreter with NumPy: the part that a release can change
            known = {line.restart: line.peak_rss_bytes for line in lines if line.peak_rss_bytes}
            before = {line.restart: line.rss_before_bytes for line in lines}
            return {g: float(max(peak - before[g], 4096)) for g, peak in known.items()}
        case _:
            return {
                g: found.relative_l2 for g, found in _fidelities(group, label).items() if found.relative_l2 is not None
            }


def _ready_s(line: Played) -> float:
    """Return the seconds until the first answer, without the start of the process, in which no release has a part."""
    context_s = line.gpu.cost.context_s if line.gpu and line.gpu.cost else None
    return (context_s or 0.0) + line.load_s + line.first_call_s


def _fidelities(group: Group, label: str | None) -> dict[int, Fidelity]:
    """Return by restart how an arm's outputs were; one that was refused leaves, so it stands for all restarts."""
    checked = group.checked.get(label or "")
    if checked and checked.fidelity.standing == "refused":
        return dict.fromkeys(range(group.next_restart), checked.fidelity)
    return {line.restart: line.fidelity for line in group.played.get(label or "", ())}


def _log_errors(group: Group, label: str | None) -> Mapping[int, float]:
    """Return by restart the log of an arm's error ÷ its bound: above 0 it is wrong."""
    found = {}
    for g, fidelity in _fidelities(group, label).items():
        if fidelity.relative_l2 is None:
            found[g] = INFINITE
            continue
        log = math.log(max(fidelity.relative_l2, LEAST_ERROR) / (fidelity.error_bound or WIDE_BOUND))
        found[g] = max(log, LEAST_ERROR) if fidelity.standing in ("refused", "tolerated") else log
    return found
