"""Write the sentences below the tables: what a reader must know in addition to the figures.

Arms with the same text share a line.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from rich.text import Text

from shootout.core.contract import NotRunKind, short
from shootout.core.host.noise import DisturbanceKind
from shootout.core.journal.records import Ended, Rounds
from shootout.core.journal.records import Line as JournalLine
from shootout.core.units import counted, duration, size, span
from shootout.tell.answer import REPEAT
from shootout.tell.ceilings import tell_ceilings
from shootout.tell.document import Document, Gpu, GroupSummary, NearestOpen, Row
from shootout.tell.report import Command, Line
from shootout.tell.screen import ANY_WIDTH, name_targets, write_lines
from shootout.tell.skipped import tell_missing
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
    sharing: dict[tuple[str, str, str], list[str]] = {}
    for outcome, subject, reason, fix in reasons:
        sharing.setdefault((outcome, reason, fix), []).append(subject)
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
    if gpu.energy:
        yield f"{gpu.energy.above_idle_mj:.3g} mJ a call above idle ({gpu.energy.per_call_mj:.3g} in all, measured)"


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
    gains_nothing = {no.arm for one in document.answer if one.group == summary.name for no in one.no_gain}
    setbacks = (reason_of(row, row.arm) for row in rows if row.reason)
    lines = (
        *_tell_whys([row for row in timed if row.arm not in gains_nothing]),
        *tell_gpu(timed),
        *(_tell_race(summary, timed) if timed else ()),
        *_of_rows(timed),
    )
    return [*map(Text, lines), *(Text(line, style=STYLES[outcome]) for outcome, line in fold_reasons(setbacks))]


def tell_run(document: Document, *, full: bool, width: int = ANY_WIDTH) -> list[Text]:
    """Write the lines below all tables: what was skipped or not tried, and what is wrong with the run's files.

    Args:
        width: in letters.
        full: then what was set, where the time went, and how the run goes on; a run whose answers don't tell how it
            goes on tells that in any case.
    """
    told = [*write_lines(tell_missing(document.answer, [document]), width)]
    if full:
        told += [Text(line, style="dim") for line in tell_circumstances(document)]
    told += [Text(f"warning: {warning}", style="yellow") for warning in document.warnings]
    if full or not any(answer.next or answer.goes_on for answer in document.answer):
        told += write_lines(tell_end(document), width)
    return told


def tell_circumstances(document: Document) -> Iterator[str]:
    """Tell what of a run is no row's: what was set, what the machine can do, where time went."""
    if variables := document.environment.get("variables"):
        told = ", ".join(f"{name}={value}" for name, value in variables.items())
        yield f"Set in the environment, for all targets: {told}."
    yield from describe_interpreters(document.environment)
    yield from tell_ceilings(document)
    yield from tell_time(document.spent_s)


def _tell_whys(rows: Sequence[Row]) -> Iterator[str]:
    """Tell why each row is or isn't faster than its own FP32; rows with the same reason share a line."""
    arms: dict[str, list[str]] = {}
    for row in rows:
        if row.why:
            arms.setdefault(tell_gain(row.why), []).append(row.arm)
    for text, names in arms.items():
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
    told: dict[str, list[str]] = {}
    for row in rows:
        for text in (*(row.executed or {}).get("fallbacks", ()), *row.notes):
            told.setdefault(text, []).append(row.arm)
    for text, arms in told.items():
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
    """Tell whether the run goes on, and how."""
    if not document.complete:
        stopped = document.budget_s is not None
        why = f"the race stopped after {span(document.budget_s or 0.0)}" if stopped else "this run is unfinished"
        how = "it goes on by" if document.resume else REPEAT
        commands = [Command(text=document.resume)] if document.resume else []
        yield Line("End", [f"{why}; what is built and measured is kept; {how}"], commands)


def tell_nearest(nearest: NearestOpen) -> str:
    """Name the nearest pair that is still open, and what it takes."""
    told = f"{nearest.group}: {' and '.join(map(short, nearest.arms))} are not distinguished yet; "
    if nearest.restarts is not None and nearest.seconds is not None:
        told += f"that would take about {counted(nearest.restarts, 'more restart')}, {span(nearest.seconds)}."
    else:
        told += "nothing tells how much longer that would take."
    if nearest.others:
        told += f" {counted(nearest.others, 'other pair')} {'is' if nearest.others == 1 else 'are'} open too."
    return told


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
