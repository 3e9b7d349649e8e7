"""Write the lines below the tables: what has no time and why, what was not tried, and how a run was measured.

Arms with the same text share a line.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import distributions
from typing import Any, NamedTuple, cast

from rich.text import Text

from shootout.core import backends
from shootout.core.contract import Device, NotRunKind, Precision, short
from shootout.core.errors import FAILURES, shorten
from shootout.core.host.noise import DisturbanceKind
from shootout.core.install import SENT, install
from shootout.core.journal.records import Ended, Rounds
from shootout.core.journal.records import Line as JournalLine
from shootout.core.scenario import find_scenario
from shootout.core.units import counted, duration, size, span
from shootout.tell import registered
from shootout.tell.answer import REPEAT, leads, tell_ranking
from shootout.tell.document import Answer, Document, Gpu, GroupSummary, NotRaced, Row
from shootout.tell.machines import ceilings_of_run, rate_of
from shootout.tell.report import ANY_WIDTH, NAMED, Command, Line, fold, gather, name_targets, write_lines
from shootout.tell.wording import tell_controls, tell_gain

STEPS = {
    "planning": "planning",
    "preparing": "exports and builds",
    "load": "loading",
    "warm_up": "warm-up",
    "rounds": "rounds",
    "hand_off": "hand-off",
    "leave": "leaving",
    "hung": "waiting for targets that hung",
    "racing": "the rest of the race",
}
"""The steps of a run in their order: name in journals and documents → for people."""
LEFT = "left the race"
STYLES = {"not timed": "yellow", "skipped": "dim", "failed": "red", LEFT: "yellow"}
"""Style of a line on an arm, by its first word."""


def kind_of(category: str) -> DisturbanceKind:
    """Return the kind that a `Disturbance.category` names."""
    return cast("DisturbanceKind", category.partition(": ")[0])


class Reason(NamedTuple):
    """The reason why one arm was skipped or failed.

    Attributes:
        outcome: the word that begins the line.
        subject: the arm, and what concerns it alone.
    """

    outcome: str
    subject: str
    reason: str
    fix: str


def reason_of(row: Row, subject: str) -> Reason:
    """Return why a row has no time, or left; the remedy for too little time is told once, at the end (`tell_end`)."""
    outcome = "not timed" if row.outcome == "skipped" and row.fidelity else row.outcome
    fix = "" if row.cause is NotRunKind.NOT_REACHED else row.fix or ""
    return Reason(LEFT if outcome == "measured" else outcome, subject, row.reason or "", fix)


def fold_reasons(reasons: Iterable[Reason], *, full: bool = True) -> Iterator[tuple[str, str]]:
    """Write (outcome, line) for each distinct reason, in their order; `full`: with every target's name."""
    sharing = gather(((outcome, reason, fix), subject) for outcome, subject, reason, fix in reasons)
    for (outcome, reason, fix), arms in sharing.items():
        yield outcome, f"{outcome}: {name_targets(arms, full=full)}: {reason}" + (f". Fix: {fix}" if fix else "")


def tell_gpu(rows: Sequence[Row]) -> Iterator[str]:
    """Write a line for each row with readings of the GPU."""
    for row in rows:
        if row.gpu and (parts := [*_list_gpu_figures(row.gpu)]):
            yield f"{row.arm} on the GPU: {', '.join(parts)}."
        for fault in row.gpu.faults if row.gpu else ():
            yield f"{row.arm}: the GPU's {fault}."


def _list_gpu_figures(gpu: Gpu) -> Iterator[str]:
    """List the parts of a call's time, then memory, clock and energy."""
    if gpu.event_ns is not None or gpu.compute_ns is not None:
        yield f"computes {duration(gpu.event_ns or gpu.compute_ns or 0.0)}"
    if gpu.dispatch_ns is not None:
        yield f"{duration(gpu.dispatch_ns)} by a timer that doesn't wait for the GPU, which is no latency"
    if gpu.stage_ns is not None and gpu.fetch_ns is not None:
        yield f"copies in {duration(gpu.stage_ns)}, out {duration(gpu.fetch_ns)}"
    if gpu.context_bytes is not None and gpu.loaded_bytes is not None:
        yield f"context {size(gpu.context_bytes)}, loaded {size(gpu.loaded_bytes)}"
    if gpu.sm_clock_mhz is not None:
        yield f"{gpu.sm_clock_mhz:,} MHz"
    if gpu.call_mj is not None:
        yield f"{gpu.above_idle_mj or 0.0:.3g} mJ a call above idle ({gpu.call_mj:.3g} in all, measured)"


NOISY_SHARE = 0.05
"""From this share of flagged rounds on, advice is given."""
_CAUSES = {
    "foreign CPU time": ("by other programs", "close them"),
    "steal": ("by other guests of the host", "use a host alone"),
    "cgroup throttled": ("by the container's CPU quota", "raise it"),
    "SM clock": ("by a lower GPU clock", "lock it (sudo nvidia-smi -lgc MHZ)"),
    "GPU throttled": ("by a GPU that was held down", "see to its cooling (nvidia-smi -q)"),
    "foreign GPU process": ("by other programs on the GPU", "close them"),
}
"""Causes of disturbed rounds in words, and what helps."""


def tell_noise(summary: GroupSummary) -> Iterator[str]:
    """Tell in a line what disturbed a group most, and what helps; then how often the CPU quota held it back."""
    reasons = Counter[DisturbanceKind]()
    for category, count in summary.void_reasons.items():
        reasons[kind_of(category)] += count
    if summary.void_share >= NOISY_SHARE and reasons:
        disturbed, helps = _CAUSES[reasons.most_common(1)[0][0]]
        share = f"{100 * summary.void_share:.0f} %"
        yield f"Noise: {share} of the rounds disturbed, most {disturbed}: wider intervals; {helps}."
    if summary.throttled:
        rounds = counted(summary.void_reasons.get("cgroup throttled", 0), "round")
        yield f"The CPU quota throttled the race {counted(summary.throttled, 'time')}, in {rounds}; calls waited."


def tell_time(spent_s: Mapping[str, float]) -> list[str]:
    """Tell in a line where the seconds of the run went."""
    parts = (f"{STEPS[name]} {spent:.1f} s" for name, spent in spent_s.items())
    return [f"Where the time went: {', '.join(parts)}."] if spent_s else []


def tell_group(summary: GroupSummary, document: Document) -> list[Text]:
    """Write the notes on one group: why not faster, what runtimes tell, what is out and why, how it was raced."""
    rows = document.rows_of(summary.name)
    timed = [row for row in rows if row.end_to_end]
    setbacks = (reason_of(row, row.arm) for row in rows if row.reason)
    lines = (
        *_tell_whys(timed),
        *(f"{line}." for line in _tell_ranking(summary, document)),
        *tell_gpu(timed),
        *(_tell_race(summary, timed) if timed else ()),
        *_of_rows(timed),
    )
    return [*map(Text, lines), *(Text(line, style=STYLES[outcome]) for outcome, line in fold_reasons(setbacks))]


def _tell_ranking(summary: GroupSummary, document: Document) -> Iterator[str]:
    """Tell whether a ranking changes under sustained load; the answer of a single group does."""
    if summary.ranking and len(document.answer) > 1:
        yield from tell_ranking(summary.ranking, document.rows_of(summary.name))


def tell_run(document: Document, *, full: bool, width: int = ANY_WIDTH) -> list[Text]:
    """Write the lines below all tables: what was skipped or not tried, and what is wrong with the run's files.

    Args:
        width: in letters.
        full: then what was set and where the time went.
    """
    told = [*write_lines(tell_missing(document.answer, [document]), width)]
    if full:
        told += [Text(line, style="dim") for line in tell_circumstances(document)]
    told += [Text(f"warning: {warning}", style="yellow") for warning in document.warnings]
    return [*told, *write_lines(tell_end(document), width)]


def tell_circumstances(document: Document) -> Iterator[str]:
    """Tell what of a run is no row's: what was set, what the machine can do, where time went."""
    if variables := document.environment.get("variables"):
        told = ", ".join(f"{name}={value}" for name, value in variables.items())
        yield f"Set in the environment, for all targets: {told}."
    yield from describe_interpreters(document.environment)
    yield from tell_ceilings(document)
    yield from tell_time(document.spent_s)


def tell_ceilings(document: Document) -> Iterator[str]:
    """Write the ceilings that the document's shares refer to."""
    ceilings = ceilings_of_run(document.environment)
    for threads in sorted({row.threads for row in document.rows if row.ceiling} & {*ceilings}):
        found = ceilings[threads]
        rates = [f"{name} {rate_of(name, peak.giga_ops)} ({peak.source})" for name, peak in found.peaks.items()]
        memory = [f"{level.level} {level.best_gbs:.3g} GB/s" for level in found.bandwidth]
        yield f"Ceilings at {counted(threads, 'thread')}: {', '.join(rates)}; {', '.join(memory)}."


def _tell_whys(rows: Sequence[Row]) -> Iterator[str]:
    """Tell why a row isn't faster than its own FP32; rows with the same reason share a line."""
    for text, names in gather((tell_gain(row.why), row.arm) for row in rows if row.why).items():
        yield f"{name_targets(names, full=True)}: {text}."


def _tell_race(summary: GroupSummary, rows: Sequence[Row]) -> Iterator[str]:
    """Tell how a group was raced and how far to trust it; `rows` are those with a time."""
    counts = ", ".join(f"{count} {_name_cause(reason)}" for reason, count in sorted(summary.void_reasons.items()))
    spread = "" if summary.sd is None else f", SD between restarts {100 * summary.sd:.1f} %"
    told = f"{counted(summary.restarts, 'restart')}, {100 * summary.void_share:.0f} % of the rounds disturbed"
    told += f"{f' ({counts})' if counts else ''}{spread}."
    if summary.control.ratio:
        control = tell_controls([summary])
        told += f" {control[0].upper()}{control[1:]}."
    yield told
    yield from tell_noise(summary)
    ratios = [ratio for row in rows if row.end_to_end for ratio in (row.end_to_end.ratio, row.end_to_end.ship_ratio)]
    if summary.control.ratio is None or summary.control.holds is not False:
        for reason in sorted({ratio.reason for ratio in ratios if ratio and ratio.reason}):
            yield f"No verdict: {reason}."


def _name_cause(category: str) -> str:
    _, colon, causes = category.partition(": ")
    return _CAUSES[kind_of(category)][0] + colon + causes


def _of_rows(rows: Sequence[Row]) -> Iterator[str]:
    """Tell what runtimes and quantizers say of single rows; rows with the same text share a line."""
    told = ((text, row.arm) for row in rows for text in (*(row.executed or {}).get("fallbacks", ()), *row.notes))
    for text, arms in gather(told).items():
        yield f"{'all' if len(arms) == len(rows) > 1 else name_targets(arms, full=True)}: {text}."


def describe_interpreters(facts: Mapping[str, Any]) -> list[str]:
    """Describe each other interpreter in a record's environment in one line: what differs from ours there."""
    ours = {"Python": facts["python"]["version"], **facts["libraries"]} if facts.get("interpreters") else {}
    lines = []
    for name, other in facts.get("interpreters", {}).items():
        theirs = {"Python": other["python"], **other["libraries"]}
        changed = [
            f"{key} {theirs[key]} (ours {ours[key]})" for key in theirs if ours.get(key, "") not in ("", theirs[key])
        ]
        lines.append(f"@{name} is {other['path']}: {', '.join(changed) or 'the same versions as ours'}.")
    return lines


def tell_end(document: Document) -> Iterator[Line]:
    """Tell how a run goes on that isn't finished, unless an answer's next command measures more."""
    if not document.complete and not any(one.goes_on or (leads(one) and one.next) for one in document.answer):
        stopped = document.budget_s is not None
        why = f"the race stopped after {span(document.budget_s or 0.0)}" if stopped else "this run is unfinished"
        how = "it goes on by" if document.resume else REPEAT
        commands = [Command(text=document.resume)] if document.resume else []
        yield Line("End", [f"{why}; what is built and measured is kept; {how}"], commands)


def find_time_spent(lines: Iterable[JournalLine]) -> dict[str, float]:
    """Return seconds by step, in the order in which they come; steps that took none are left out.

    `planning` is finding out what works here; `preparing` all outside of restarts: ceilings, exports, builds;
    `load`, `warm_up`, `rounds`, `hand_off` and `leave` are steps of restarts, `hung` the wait in them for arms that
    gave no answer, and `racing` what no step accounts for.
    """
    steps = defaultdict[str, float](float)
    for line in lines:
        if isinstance(line, Ended):
            steps["planning"] += line.planning_s
            steps["preparing"] += line.wall_s
        elif isinstance(line, Rounds):
            steps["preparing"] -= line.wall_s
            for name, spent_s in line.spent_s.items():
                steps[name] += spent_s
            steps["racing"] += line.wall_s - sum(line.spent_s.values())
    return {name: steps[name] for name in STEPS if steps[name] > 0}


SHOWN_REASONS = 4
LONGEST_REASON = 80
"""Letters; `--full` and the page have all of a longer reason."""
_ABSENT = (NotRunKind.UNAVAILABLE, NotRunKind.BUILT_ONLY, NotRunKind.NOT_INSTALLED)
_PLACES = {**dict.fromkeys(FAILURES, 0), **dict.fromkeys(_ABSENT, 2)}
"""The place of a reason among others by its kind; of all other kinds it is 1."""
_FILE = re.compile(r"\(([^()]+\.onnx)\)")
"""The file in a target's label."""
_CUT_LAST = re.compile(r"; its( last( words| step( was)?)?:?)?…$")
"""The beginning of a reason's last part, of which nothing is left."""
_IN_BRACKETS = re.compile(r" \([^()]*\)$")


def tell_missing(answers: Sequence[Answer], documents: Sequence[Document], among: str = "group") -> Iterator[Line]:
    """Name the targets without a time and the backends that were not tried, a line for each.

    Args:
        documents: the whole runs.
        among: what each answer is of: a group, or a run.
    """
    yield Line("Skipped", [*_tell_skipped(answers, documents, among)])
    never, absent = _find_untried(documents)
    names = fold((name for name in never if name not in absent), NAMED)
    yield Line("Untried", [f"{', '.join(names)} (add with --backends)"] if names else ())


def _tell_skipped(answers: Sequence[Answer], documents: Sequence[Document], among: str) -> Iterator[str]:
    """Name the targets without a time, by reason: failures first, missing devices last; then one command to install."""
    told = [(group, arm) for answer in answers for group in answer.not_raced for arm in group.arms]
    told.sort(key=lambda one: (_PLACES.get(one[0].cause, 1), not one[1].endswith(f":{Precision.FP32}")))
    everywhere = Counter(arm for group, arm in told if group.cause is NotRunKind.NOT_INSTALLED)
    extras = {arm: _find_extra(arm, group) for group, arm in told if everywhere[arm] == len(answers)}
    counts = Counter((_tell_cause(group), arm) for group, arm in told if not extras.get(arm))
    arms = gather(((why, count), arm) for (why, arm), count in counts.items())
    some = {count: f" (in {count} of {counted(len(answers), among)})" for count in range(1, len(answers))}
    lines = (f"{_tell_out(mine, why)}{some.get(count, '')}" for (why, count), mine in arms.items())
    yield from fold(lines, SHOWN_REASONS)
    rows = [row for document in documents for row in document.rows]
    timed = {row.backend.partition("+")[0] for row in rows if row.end_to_end}
    names = {arm: arm.partition(":")[0].partition("+")[0] for arm in extras}
    lacking = {short(arm) if names[arm] in timed else names[arm]: extra for arm, extra in extras.items() if extra}
    if wanted := lacking | {name: backends.entry(name).extra for name in _find_untried(documents)[1]}:
        command = install(",".join(_gather_extras(wanted.values())))
        yield f"not installed: {', '.join(fold(wanted, 2 * NAMED))} ({command})"


def _tell_out(arms: Sequence[str], why: str) -> str:
    """Tell why targets are out; what is wrong with one of several files is told of the file, not of each target."""
    files = {found[1] if (found := _FILE.search(arm)) else "" for arm in arms}
    file = files.pop() if len(files) == 1 else ""
    if file and why.startswith(file):
        return why
    return f"{file if file and len(arms) > 1 else name_targets(arms)}: {why}"


def _gather_extras(extras: Iterable[str]) -> list[str]:
    """Return the extras to install, each once, and `cpu` in place of most of what it stands for."""
    own = next(iter(distributions(name="shootout")), None)
    several = re.search(r"\[([^]]+)\].*extra == ['\"]cpu['\"]", "\n".join(own.requires or ()) if own else "")
    members, wanted = {*(several[1].split(",") if several else ())}, [*dict.fromkeys(extras)]
    if len(members & {*wanted}) <= len(members) / 2 or (own and own.read_text(SENT)):
        return wanted
    return ["cpu", *(extra for extra in wanted if extra not in members)]


def _find_extra(arm: str, group: NotRaced) -> str:
    """Return the extra that installs an arm's backend; "" if what would run it is another command."""
    name = arm.partition(":")[0].partition("+")[0]
    extra = backends.shipped()[name].extra if name in backends.shipped() else ""
    return extra if extra and group.fix == install(extra) else ""


def _tell_cause(group: NotRaced) -> str:
    if group.cause is NotRunKind.NOT_INSTALLED and group.fix:
        return f"not installed ({group.fix})"
    failed = "failed: " if group.cause in FAILURES else ""
    return failed + _CUT_LAST.sub("…", shorten(tell_why(group.reason), LONGEST_REASON))


def tell_why(reason: str) -> str:
    """Return a reason without the brackets at its end; `--full` has all of it."""
    return _IN_BRACKETS.sub("", reason)


def _find_untried(documents: Sequence[Document]) -> tuple[list[str], list[str]]:
    """Return the backends that weren't asked for, first those that could win; and those of these to install for it.

    The packages are those of the machines that measured, not those of the reading machine.
    """
    every = [row for document in documents for row in document.rows]
    packages: set[str] = set().union(*(document.environment.get("libraries") or {} for document in documents))
    asked = {row.backend.partition("+")[0] for row in every}
    never = [name for name in backends.names() if name not in asked and not backends.entry(name).own_files]
    never = [name for name in never if name in backends.shipped() or registered.is_installed(name, packages)]
    converted = {row.model for row in every if registered.reads_own_files(row.backend)}
    if converted and converted >= {row.model for row in every}:  # whose files few runtimes read
        never = [name for name in never if name in backends.shipped() and backends.capabilities(name).classical]
    fit = {name for name in never if _could_win(name, every)}
    absent = [name for name in never if name in fit and not registered.is_installed(name, packages)]
    return sorted(never, key=lambda name: name not in fit), absent


def _could_win(name: str, rows: Sequence[Row]) -> bool:
    """Return whether a shipped backend runs on a device that has a time, or on the CPU, and trains if all rows do."""
    if name not in backends.shipped():
        return False  # only a process of its own could say
    can = backends.capabilities(name)
    devices = {row.device for row in rows if row.device == Device.CPU or row.end_to_end}
    return not devices.isdisjoint(can.devices) and (can.trains or not any(map(_trains, rows)))


def _trains(row: Row) -> bool:
    return find_scenario(row.scenario).trains
