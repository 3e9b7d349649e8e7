"""Write the sentences below the tables: what a reader must know in addition to the figures.

Arms with the same text share a line.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shootout.core.contract import Device, NotRunKind, OutputError, short
from shootout.core.host.noise import DisturbanceKind
from shootout.core.journal.records import Ended, Line, Rounds
from shootout.core.scenario import find_scenario
from shootout.core.stats.verdicts import MAX_ESTIMATE, Verdict
from shootout.core.units import counted, duration, size, span
from shootout.tell.ceilings import Ceilings, ceilings_of_run
from shootout.tell.columns import Cell, error, make_table
from shootout.tell.document import Document, Gpu, GroupSummary, NearestOpen, Ratio, Row
from shootout.tell.grid import list_next
from shootout.tell.screen import ANY_WIDTH, INDENT, fold, labeled, name_targets, typed
from shootout.tell.wording import BUSY_SHARE, tell_controls

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
_UNSYNCHRONIZED = "a timer that doesn't wait for the GPU would show"
_NEARLY = 0.9
"""From this share of the time on, the work is nearly done when the call returns: some libraries wait by themselves."""
LEFT = "left the race"
STYLES = {"not timed": "yellow", "skipped": "dim", "failed": "red", LEFT: "yellow"}
"""Style of a line on an arm, by its first word."""
MOST_OUTPUTS = 8
"""So many outputs are listed with their errors; `--json` has all."""
UNKNOWN_BOUND = "-"
NO_CEILINGS = "run `shootout ceilings` once for each row's share of what this machine can do"


def kind_of(category: str) -> DisturbanceKind:
    """Return the kind that a `Disturbance.category` names."""
    return cast("DisturbanceKind", category.partition(": ")[0])


class Reason(NamedTuple):
    """The reason why one arm was skipped or failed.

    Attributes:
        outcome: see `word_of`; it begins the line.
        subject: the arm, and what concerns it alone.
    """

    outcome: str
    subject: str
    reason: str
    fix: str


def word_of(row: Row) -> str:
    """Return the word for the outcome of a row that has a reason."""
    if row.outcome == "measured":
        return LEFT
    return "not timed" if row.outcome == "skipped" and row.fidelity else row.outcome


def reason_of(row: Row, subject: str) -> Reason:
    """Return why a row has no time; the remedy for too little time is told once, at the end (`tell_end`)."""
    fix = "" if row.cause is NotRunKind.NOT_REACHED else row.fix or ""
    return Reason(word_of(row), subject, row.reason or "", fix)


def fold_reasons(reasons: Iterable[Reason], *, full: bool = True) -> Iterator[tuple[str, str]]:
    """Write (outcome, line) for each distinct reason, in their order; `full`: with every target's name."""
    sharing: dict[tuple[str, str, str], list[str]] = {}
    for outcome, subject, reason, fix in reasons:
        sharing.setdefault((outcome, reason, fix), []).append(subject)
    for (outcome, reason, fix), arms in sharing.items():
        yield outcome, f"{outcome}: {name_targets(arms, full=full)}: {reason}" + (f". Fix: {fix}" if fix else "")


def tell_errors_by_output(rows: Iterable[Row]) -> Iterator[str]:
    """List each output's error, the worst first, and the row that is furthest off; of models with several outputs."""
    for row in rows:
        errors = row.fidelity.by_output if row.fidelity else ()
        wrong = sorted((one for one in errors if one.rank > (0, 0)), key=lambda one: one.rank, reverse=True)
        if len(errors) > 1 and wrong:
            yield f"{row.arm}, error by output: {', '.join(fold(map(_tell_error_of_output, wrong), MOST_OUTPUTS))}."


def tell_flips(rows: Iterable[Row]) -> Iterator[str]:
    """Tell how many whole numbers of each output differ, since a class or an index has no small error."""
    told = [
        f"{short(row.arm)} {one.mismatches:,} of {one.elements:,} in {one.name}"
        for row in rows
        for one in (row.fidelity.by_output if row.fidelity else ())
        if one.elements and one.mismatches and one.relative_l2 is not None
    ]
    if told:
        yield f"Whole numbers that differ from the reference's: {', '.join(fold(told, MOST_OUTPUTS))}."


def tell_errors_by_step(rows: Iterable[Row]) -> Iterator[str]:
    """List the errors of the first calls of a stream's clips, and what each precision explains so soon."""
    told = [(row.arm, row.fidelity.by_step) for row in rows if row.fidelity and row.fidelity.by_step]
    if told:
        marks = ", ".join(f"{one.step:,}" for one in told[0][1])
        yield f"Error in a clip's first {marks} calls, and their bounds ({UNKNOWN_BOUND}: no useful one is known):"
    for arm, steps in told:
        errors = ", ".join("NaN" if one.relative_l2 is None else error(one.relative_l2) for one in steps)
        bounds = ", ".join(UNKNOWN_BOUND if one.error_bound is None else error(one.error_bound) for one in steps)
        yield f"  {arm}: {errors} (bound {bounds})"


def _tell_error_of_output(one: OutputError) -> str:
    told = f"{counted(one.mismatches, 'element')} that differ" if one.mismatches else error(one.relative_l2 or 0.0)
    return f"{one.name} {'NaN or infinity' if one.relative_l2 is None else told} (row {one.row})"


def tell_gpu(rows: Sequence[Row]) -> Iterator[str]:
    """Write a line for each row with readings of the GPU; one more if the unsynchronized timer was asked for."""
    for row in rows:
        if row.gpu and (parts := [*_list_steps(row.gpu), *_list_usage(row.gpu)]):
            yield f"{row.arm} on the GPU: {', '.join(parts)}."
        for fault in row.gpu.faults if row.gpu else ():
            yield f"{row.arm}: the GPU's {fault}."
        if times := _times_without_waiting(row):
            shown, waited = map(duration, times)
            right = times[0] >= _NEARLY * times[1]
            words = f"nearly the {waited} of one that waits" if right else f"no latency: waited for, it takes {waited}"
            yield f"{row.arm}: {_UNSYNCHRONIZED} {shown}, {words}."


def tell_unsynchronized(axis: str, rows: Sequence[tuple[int, Row]]) -> Iterator[str]:
    """Tell for a sweep what the unsynchronized timer shows at each size, a line for each arm.

    Args:
        rows: each with its size.
    """
    shown: dict[str, list[str]] = {}
    for at, row in sorted(rows, key=lambda sized: sized[0]):
        if times := _times_without_waiting(row):
            wrong, waited = map(duration, times)
            shown.setdefault(row.arm, []).append(f"{wrong} of {waited} at {at}")
    for arm, figures in shown.items():
        yield f"{arm}: by {axis}, {_UNSYNCHRONIZED} {', '.join(figures)}."


def _times_without_waiting(row: Row) -> tuple[float, float] | None:
    """Return the nanoseconds that a timer shows without waiting, and those of the same work when waited for."""
    if row.gpu is None or row.gpu.dispatch_ns is None or row.gpu.compute_ns is None:
        return None
    return row.gpu.dispatch_ns, row.gpu.compute_ns


def _list_steps(gpu: Gpu) -> Iterator[str]:
    """List the parts of a call's time."""
    if gpu.event_ns is not None:
        yield f"on the device {duration(gpu.event_ns)} (events)"
    elif gpu.compute_ns is not None:
        yield f"compute {duration(gpu.compute_ns)} (host clock)"
    if gpu.stage_ns is not None and gpu.fetch_ns is not None:
        kind = f" ({gpu.copies})" if gpu.copies else ""
        yield f"copies in {duration(gpu.stage_ns)}, out {duration(gpu.fetch_ns)}{kind}"


def _list_usage(gpu: Gpu) -> Iterator[str]:
    """List memory, clock and energy."""
    if gpu.context_bytes is not None:
        yield f"context {size(gpu.context_bytes)}"
    if gpu.loaded_bytes is not None:
        yield f"loaded {size(gpu.loaded_bytes)}"
    if gpu.sm_clock_mhz is not None:
        yield f"{gpu.sm_clock_mhz:,} MHz"
    if gpu.energy:
        yield f"{gpu.energy.above_idle_mj:.3g} mJ a call above idle ({gpu.energy.per_call_mj:.3g} in all, measured)"


def tell_ceilings(document: Document) -> list[str]:
    """Write the ceilings that the document's shares refer to; or how to get them, if the run found none."""
    on_cpu = [row for row in document.rows if row.device == Device.CPU and find_scenario(row.scenario).is_one_call]
    asked = sorted({row.threads for row in on_cpu if row.compute} - {0})
    if "ceilings" not in document.environment:
        return []
    ceilings = ceilings_of_run(document.environment)
    lines = [_ceilings_line(ceilings[threads]) for threads in asked if threads in ceilings]
    missing = [threads for threads in asked if threads not in ceilings]
    explained = ["of peak: the share of these that a call reaches, and which of them takes half of its time or more."]
    advice = [f"{NO_CEILINGS} ({', '.join(f'--threads {threads}' for threads in missing)})."]
    return [*lines, *(explained if lines else []), *(advice if missing else [])]


def _ceilings_line(ceilings: Ceilings) -> str:
    rates = [f"{name} {rate_of(name, peak.giga_ops)} ({peak.source})" for name, peak in ceilings.peaks.items()]
    memory = [f"{level.level} {level.best_gbs:.3g} GB/s" for level in ceilings.bandwidth]
    return f"Ceilings at {threads_of(ceilings.threads)}: {', '.join(rates)}; {', '.join(memory)}."


RATES, MEMORY = ("precision", "peak", "reached by"), ("memory", "holds", "read", "copy")


def render_ceilings(ceilings: Ceilings) -> RenderableType:
    """Render two tables: rates and bandwidth."""
    rates = [
        {"precision": precision, "peak": rate_of(precision, peak.giga_ops), "reached by": peak.source}
        for precision, peak in ceilings.peaks.items()
    ]
    memory = [
        {
            "memory": level.level,
            "holds": size(level.holds_bytes) if level.holds_bytes else "",
            "read": f"{level.read_gbs:.3g} GB/s",
            "copy": f"{level.copy_gbs:.3g} GB/s",
        }
        for level in ceilings.bandwidth
    ]
    cpus = ", ".join(map(str, ceilings.cpus))
    title = f"ceilings at {threads_of(ceilings.threads)}, on CPU {cpus}, measured {ceilings.measured}"
    words = "The best of several blocks each; a copy counts bytes read and written. See docs/explain.md."
    return Group(
        Text(title, style="bold"),
        _make_left_table(RATES, rates),
        Text(),
        _make_left_table(MEMORY, memory),
        Text(words),
        *map(Text, ceilings.notes),
    )


def _make_left_table(headers: Sequence[str], lines: Sequence[Mapping[str, Cell]]) -> Table:
    return make_table(headers, lines, left=headers)


def rate_of(precision: str, giga_ops: float) -> str:
    """Write a rate with its unit: operations on integers are no floating-point operations."""
    return f"{giga_ops:,.0f} {'GOP/s' if precision.startswith('int') else 'GFLOP/s'}"


def threads_of(count: int) -> str:
    """Write `1 thread` or `2 threads`."""
    return f"{count} thread{'s' * (count != 1)}"


_DISTURBED_BY = {
    "steal": "by other guests of the host",
    "foreign CPU time": "by other programs",
    "cgroup throttled": "by the container's CPU quota",
    "SM clock": "by a lower GPU clock",
    "GPU throttled": "by a GPU that was held down",
    "foreign GPU process": "by other programs on the GPU",
}
"""Causes of disturbed rounds, in words."""
NOISY_SHARE = 0.05
"""From this share of flagged rounds on, advice is given."""
_WHAT_HELPS = {
    "foreign CPU time": ("met other programs on the same CPUs", "close them"),
    "steal": ("lost CPU time to other guests of the host", "use a host alone"),
    "cgroup throttled": ("were throttled by the container", "raise its CPU quota"),
    "SM clock": ("met a lower GPU clock", "lock the clock (sudo nvidia-smi -lgc MHZ)"),
    "GPU throttled": ("met a GPU that was held down", "see to its cooling (nvidia-smi -q)"),
    "foreign GPU process": ("met other programs on the GPU", "close them"),
}


def tell_noise(summaries: Sequence[GroupSummary]) -> list[str]:
    """Tell in a line what disturbed these groups most, and what helps; nothing if little did."""
    share = max(summary.void_share for summary in summaries)
    reasons = Counter[DisturbanceKind]()
    for category, count in (item for summary in summaries for item in summary.void_reasons.items()):
        reasons[kind_of(category)] += count
    if share >= NOISY_SHARE and reasons:
        some = "up to " if len(summaries) > 1 else ""
        most, _ = reasons.most_common(1)[0]
        told = [f"Noise: {some}{100 * share:.0f} % of the rounds {_tell_what_helps(most, share)}."]
        return [*told, *_tell_throttling(summaries)]
    return _tell_throttling(summaries)


def _tell_throttling(summaries: Sequence[GroupSummary]) -> list[str]:
    """Tell how often the quota held the race back: the wait is a part of the calls' times."""
    count = sum(summary.throttled for summary in summaries)
    rounds = sum(summary.void_reasons.get("cgroup throttled", 0) for summary in summaries)
    if not count:
        return []
    return [f"The CPU quota throttled the race {counted(count, 'time')}, in {counted(rounds, 'round')}; calls waited."]


def _tell_what_helps(kind: DisturbanceKind, share: float) -> str:
    what, helps = _WHAT_HELPS[kind]
    if share > BUSY_SHARE:  # then these are what counts, and more of them tell no more of a quiet machine
        where = "under this quota" if kind == "cgroup throttled" else "of a busy machine"
        return f"{what}: times and ratios are those {where}; {helps}"
    return f"{what}: intervals are wider because of it; {helps}"


def tell_time(spent_s: Mapping[str, float]) -> list[str]:
    """Tell in a line where the seconds of the run went."""
    parts = (f"{STEPS[name]} {spent:.1f} s" for name, spent in spent_s.items())
    return [f"Where the time went: {', '.join(parts)}."] if spent_s else []


def tell_trust(
    summary: GroupSummary, rows: Sequence[Row], *, full: bool, is_told: bool = False, has_ship: bool = False
) -> Iterator[str]:
    """Tell how one group was raced and how far to trust it.

    Args:
        rows: those with a time.
        is_told: the answer above tells restarts, disturbed rounds and the control.
        has_ship: the rows are compared with what is shipped; else with the baseline.
    """
    noise = tell_noise([summary])
    if not is_told:
        yield _tell_race(summary, full=full, why=full or not noise)
    yield from noise
    if summary.control.ratio is None or summary.control.holds is not False:
        yield from _without_verdict(rows)
    if full or not has_ship:
        yield from _tell_undecided(rows)
    yield from _of_rows(rows, full=full)
    if rows and (told := find_scenario(rows[0].scenario).explain_times(rows)):
        yield told


def _tell_race(summary: GroupSummary, *, full: bool, why: bool) -> str:
    counts = ", ".join(f"{count} {_name_cause(reason)}" for reason, count in sorted(summary.void_reasons.items()))
    spread = "" if summary.sd is None or not full else f", SD between restarts {summary.sd:.1%}"
    told = f"{counted(summary.restarts, 'restart')}, {summary.void_share:.0%} of the rounds disturbed"
    told += (f" ({counts})" if counts and why else "") + f"{spread}."
    told = told.replace("%", " %")
    if summary.control.ratio is None:
        return told
    control = tell_controls([summary])
    return f"{told} {control[0].upper()}{control[1:]}."


def _name_cause(category: str) -> str:
    _, colon, causes = category.partition(": ")
    return _DISTURBED_BY[kind_of(category)] + colon + causes


def _without_verdict(rows: Sequence[Row]) -> Iterator[str]:
    """Tell why ratios have no verdict; a row that left the race has its own line."""
    timings = [row.end_to_end for row in rows if row.end_to_end and not row.reason]
    ratios = [ratio for timing in timings for ratio in (timing.ratio, timing.ship_ratio)]
    for reason in sorted({ratio.reason for ratio in ratios if ratio and ratio.reason}):
        yield f"No verdict: {reason}."


def _tell_undecided(rows: Sequence[Row]) -> Iterator[str]:
    """Tell how many more restarts each row needs for a verdict against the baseline; some rows left early."""
    open_ = [
        f"{short(row.arm)} {_tell_restarts_left(ratio)}"
        for row in rows
        if row.end_to_end
        and not row.end_to_end.own_fp32_ratio
        and (ratio := row.end_to_end.ratio)
        and ratio.verdict is Verdict.CANT_TELL
        and ratio.sd is not None
        and not ratio.reason
    ]
    if open_:
        yield f"Restarts needed for a verdict against the baseline: {', '.join(open_)}."


def _tell_restarts_left(ratio: Ratio) -> str:
    if ratio.restarts_needed is None:
        return f"over {MAX_ESTIMATE:,}"
    return f"about {max(ratio.restarts_needed - ratio.restarts, 1)} more"


def _of_rows(rows: Sequence[Row], *, full: bool) -> Iterator[str]:
    """Tell what runtimes and quantizers say of single rows; rows with the same text share a line."""
    told: dict[str, list[str]] = {}
    for row in rows:
        for text in (*(row.executed or {}).get("fallbacks", ()), *row.notes):
            told.setdefault(text, []).append(row.arm)
    for text, arms in told.items():
        subject = "all" if len(arms) == len(rows) > 1 else name_targets(arms, full=full)
        yield f"{subject}: {text}."
    if full and any(row.build_cached for row in rows):
        yield "* built earlier, taken from the cache."


def tell_end(document: Document, width: int = ANY_WIDTH, above: Sequence[str] | None = None) -> Iterator[str]:
    """Tell whether the run goes on, how, and which pair would be decided first.

    Args:
        width: in letters; a command that needs more is broken into lines that a shell takes as one.
        above: the commands that stand above; None: those of the document's answers.
    """
    if not document.complete and _is_settled(document):
        yield _tell_settled(document)
        return
    if not document.complete:
        stopped = document.budget_s is not None
        why = f"The race stopped after {span(document.budget_s or 0.0)}" if stopped else "This run is unfinished"
        above = _list_commands(document) if above is None else above
        yield from _tell_how_to_go_on(f"{why}; what is built and measured is kept.", document, width, above)
    if document.nearest_open and not _is_told_above(document):
        yield tell_nearest(document.nearest_open)


def _is_settled(document: Document) -> bool:
    """Return whether all that an unfinished run has open is between targets that can't be the answer."""
    waits = any(group.cause is NotRunKind.NOT_REACHED for answer in document.answer for group in answer.not_raced)
    return (
        document.nearest_open is not None
        and bool(document.answer)
        and not waits
        and all(one.ship and not (one.reason or one.alone or one.sure.nearest) for one in document.answer)
    )


def _tell_settled(document: Document) -> str:
    """Tell that the choice is settled, which pairs are open all the same, and how to go on with those."""
    nearest = document.nearest_open
    assert nearest is not None, "a run that has nothing open is complete"
    takes = "" if nearest.seconds is None else f" (about {span(nearest.seconds)} more)"
    more = f" and {counted(nearest.others, 'other pair')}" if nearest.others else ""
    pair = " against ".join(map(short, nearest.arms))
    return (
        f"The choice is settled. Open, without effect on it: {pair}{takes}{more}; "
        "the same command with --out and more --max-time goes on."
    )


def _list_commands(document: Document) -> list[str]:
    """List the commands that the answers show: of several groups the first ones."""
    if len(document.answer) == 1:
        (answer,) = document.answer
        return [command for command in (answer.next, None if answer.reason else answer.sure.command) if command]
    return list_next(document.answer)


def _tell_how_to_go_on(why: str, document: Document, width: int, above: Sequence[str]) -> Iterator[str]:
    if not document.resume:
        yield f"{why} To continue it, repeat the command that began it, with the same --out and --max-time 5m."
    elif any(_without_time(document.resume) == _without_time(command) for command in above):
        yield f"{why} The command above continues it."
    elif len(line := f"{why} To continue it, run: {document.resume}") <= width:
        yield line
    else:
        yield f"{why} To continue it, run:"
        yield from (line.plain for line in labeled("", [typed(document.resume, width - INDENT)], width))


def _without_time(command: str) -> str:
    return command.rpartition(" ")[0]


def _is_told_above(document: Document) -> bool:
    """Return whether the only answer already names the command; an answer without a verdict doesn't."""
    return len(document.answer) == 1 and bool(document.answer[0].sure.command) and not document.answer[0].reason


def tell_nearest(nearest: NearestOpen) -> str:
    """Name the nearest pair that is still open, and what it takes."""
    told = f"{nearest.group}: {' and '.join(map(short, nearest.arms))} are not distinguished yet; "
    if nearest.restarts is not None and nearest.seconds is not None:
        told += f"that would take about {counted(nearest.restarts, 'more restart')}, {span(nearest.seconds)}."
    else:
        told += "nothing tells how much longer that would take."
    if nearest.ended_at is not None:
        told += f" This race ended after its {nearest.ended_at} restarts; raise max_restarts in a study file."
    if nearest.others:
        told += f" {counted(nearest.others, 'other pair')} {'is' if nearest.others == 1 else 'are'} open too."
    return told


def find_time_spent(lines: Iterable[Line]) -> dict[str, float]:
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
            for name, seconds in line.spent_s.items():
                steps[name] += seconds
            steps["racing"] += line.wall_s - sum(line.spent_s.values())
    return {name: steps[name] for name in STEPS if steps[name] > 0}
