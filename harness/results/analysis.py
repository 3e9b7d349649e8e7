"""Journal lines → the document. Pure: it never measures, and it works where no framework is installed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from shootout.constants import USEFUL_BOUND
from shootout.contract import COULD_RUN, Arm, Array, BoundStanding, NotRun, NotRunKind
from shootout.journal import journal
from shootout.journal.journal import History
from shootout.journal.records import Checked, Ended, Header, Played, Prepared
from shootout.journal.samples import SINGLE, Samples
from shootout.messages import Scope
from shootout.results import crossovers, footprint, pareto, rates, roofline
from shootout.results.cells import Cell, make_cells
from shootout.results.choice import choose
from shootout.results.comparisons import ratio_of
from shootout.results.crossovers import OCTAVE, At, Kind, Sweep
from shootout.results.crossovers import Outcome as Crossing
from shootout.results.document import (
    SCHEMA,
    Control,
    Crossover,
    Document,
    FidelityFigures,
    GroupSummary,
    Outcome,
    Row,
    SizeVerdict,
    Timing,
)
from shootout.results.group import Group, compare, compare_own, group_of, pooled_sd
from shootout.results.quantization import joined
from shootout.results.questions import find_nearest, find_open
from shootout.results.time_spent import find_time_spent
from shootout.results.vetoes import copy_holds, withheld
from shootout.stats import quantiles
from shootout.stats.verdicts import Verdict
from shootout.study import reproduce
from shootout.study.group import confirming_name, scopes_of
from shootout.units import counted

MISSED = {
    NotRunKind.NOT_REACHED: "the run ended before it was measured",
    NotRunKind.NEVER_HELD: "no rate that was tried held the limit on p99",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """A run's document, and what a decision over several runs asks beside it.

    Attributes:
        cells: by group, those whose figures count.
        groups: by name, all.
    """

    document: Document
    header: Header
    cells: Mapping[str, Cell]
    groups: Mapping[str, Group]


def analyse(folder: Path) -> Document:
    """The document of the run in `folder`.

    Raises:
        UsageError: there is no run, or not one that this version can read.
    """
    return analyse_cells(folder).document


def analyse_cells(folder: Path) -> Analysed:
    """The same, with the cells that its answers rest on.

    Raises:
        UsageError: there is no run, or not one that this version can read.
    """
    history = journal.read(folder)
    header = history.header
    groups = [group_of(history, record) for record in history.groups]
    samples = Samples(folder)
    rows = [row for group in groups for row in _rows(group, samples, history)]
    chose = {confirming_name(record.name): record.name for record in history.groups if record.selects_for is not None}
    summaries = [_summary(group, chose.get(group.record.name)) for group in groups]
    crossed = crossings(groups, header.axis, complete=history.complete)
    resume = reproduce.quote(["shootout", *header.command, "--out", str(folder)]) if header.command else ""
    how: dict[str, Any] = {"complete": history.complete, "given": header.given, "resume": resume}
    cells = dict(make_cells(groups, summaries, rows, crossed, **how))
    answers = tuple(map(choose, cells.values()))
    controls = [one.control for one in summaries if one.baseline] or [one.control for one in summaries]
    worst = min(controls, key=lambda found: (False, None, True).index(found.holds))
    by_name = {group.record.name: group for group in groups}
    document = Document(
        schema_version=SCHEMA,
        run=str(folder),
        study=header.study,
        baseline=next((summary.baseline for summary in summaries if summary.baseline), None),
        complete=history.complete,
        budget_s=history.budget_s,
        answer=answers,
        open_questions=tuple(find_open(by_name, answers, crossed)),
        nearest_open=find_nearest(groups),
        environment=header.environment,
        rows=tuple(rows),
        groups=tuple(summaries),
        control=worst,
        void_share=max(summary.void_share for summary in summaries),
        wall_s=sum(line.wall_s for line in history.lines if isinstance(line, Ended)),
        spent_s=find_time_spent(history.lines),
        warnings=(*history.damaged, *samples.lost),
        crossovers=crossed,
        pareto=pareto.fronts(summaries, rows, {k: v for group in groups for k, v in right_rows(group).items()}),
        holding=history.holding,
    )
    return Analysed(document=document, header=header, cells=cells, groups=by_name)


def _summary(group: Group, confirms: str | None) -> GroupSummary:
    reasons = Counter(reason.category for line in group.rounds for _, why in line.voided for reason in why)
    return GroupSummary(
        name=group.record.name,
        baseline=group.record.baseline,
        control=_control(group),
        void_share=group.void_share,
        void_reasons=dict(reasons),
        sd=pooled_sd(group),
        bias_floor=group.ground(Scope.END_TO_END).bias_floor,
        restarts=len(group.rounds),
        selects=group.record.selects_for is not None,
        confirms=confirms,
    )


def _control(group: Group) -> Control:
    """Compare the hidden copy of the baseline with the baseline."""
    found = compare(group, Scope.END_TO_END, group.rules.control)
    return Control(ratio=ratio_of(found) if found else None, holds=copy_holds(group, found))


def _rows(group: Group, samples: Samples, history: History) -> list[Row]:
    rows = [_row(group, arm, samples, history.complete) for arm in group.record.arms if not arm.control]
    right = {label: kept for (_, label), kept in right_rows(group).items()}
    rows = roofline.with_ceilings(rows, history.header.environment)
    scores = {label: line.scores for label, line in group.checked.items() if line.scores}
    return joined(rows, group.record, right, scores, history.header.environment)


def right_rows(group: Group) -> dict[tuple[str, str], str]:
    """By group and arm, which rows of the report split were right: the first check ran it; older runs repeat it."""
    played = (line for lines in group.played.values() for line in lines)
    lines: list[Checked | Played] = [*group.checked.values(), *played]
    return {(group.record.name, line.arm): line.fidelity.right for line in lines if line.fidelity.right}


def _row(group: Group, arm: Arm, samples: Samples, complete: bool) -> Row:
    """All that is known of an arm, whatever became of it."""
    label = arm.label
    lines, prepared = group.played.get(label, []), group.prepared.get(label)
    facts = {"group": group.record.name} | _identity(arm) | _preparation(prepared)
    known: Sequence[Played | Checked] = lines or [line for name, line in group.checked.items() if name == label]
    facts |= _account(known, prepared) | footprint.readiness(known) | footprint.memory(lines)
    facts["notes"] = (*facts.get("notes", ()), *_doubts(arm, facts.get("fidelity")), *_killed(group, label))
    timings = {scope.value: _timing(group, label, scope, samples) for scope in Scope}
    timed, never_held = timings["end_to_end"], rates.never_held(lines)
    facts |= {"serve": rates.serving(lines, timed, group.void_share), "gpu": footprint.on_gpu(arm, lines)}
    if timed and not never_held:
        facts |= timings | {"items_per_s": rates.items_per_s(arm, lines, timed)}
    timed = facts.get("end_to_end")
    why = group.setbacks.get(label) or (None if timed else _missed(never_held=never_held, complete=complete))
    if why is None:
        return Row(**facts, outcome="measured")
    return Row(**facts, **_left(why, has_time=timed is not None))


def _doubts(arm: Arm, found: FidelityFigures | None) -> Iterator[str]:
    """List what a reader must know about an error that was let pass."""
    if found and found.standing is BoundStanding.NOT_JUDGED and (found.relative_l2 or 0.0) > USEFUL_BOUND:
        yield f"error {found.relative_l2:.1e}: its outputs are nearer to zeros than to right ones"
    if found and found.standing is BoundStanding.TOLERATED:
        error_bound = math.inf if found.error_bound is None else min(found.error_bound, USEFUL_BOUND)
        error = (found.shared_l2 if arm.file else None) or found.relative_l2 or 0.0  # a file beside another: its own
        what = f"error {error:.1e}" if error > error_bound or error_bound == math.inf else "the error of one instance"
        known = "" if error_bound == math.inf else f" ({error_bound:.1e})"
        yield f"{what} is more than {arm.target.precision} explains{known}; within --max-error"


def _killed(group: Group, label: str) -> Iterator[str]:
    if count := sum(line.killed.count(label) for line in group.rounds):
        yield f"its process was killed {counted(count, 'time')} and begun anew; what it measured there doesn't count"


UNTIMED = COULD_RUN | {NotRunKind.SOFTWARE, NotRunKind.OFF_LIMITS}


def _left(why: NotRun, *, has_time: bool) -> dict[str, Any]:
    """What a row says of an arm that left the race, or never came to play."""
    outcome: Outcome = "failed" if why.failed else "not timed" if why.kind in UNTIMED else "skipped"
    if has_time and not why.failed:
        outcome = "measured"
    return {"outcome": outcome, "reason": why.reason, "fix": None if why.failed else why.fix, "cause": why.kind}


def _missed(*, never_held: bool, complete: bool) -> NotRun:
    """Why an arm that nothing kept out has no time."""
    kind = NotRunKind.NEVER_HELD if never_held else NotRunKind.NOT_REACHED
    return NotRun(kind, MISSED[kind], "" if complete else "run the same command again")


def _identity(arm: Arm) -> dict[str, Any]:
    target = arm.target
    told = {field.name for field in fields(Arm)} - {"target", "ordinal", "control", "cold_l2"}
    return {
        "arm": arm.label,
        "backend": str(target) if target.folder else target.backend + (f"+{target.mode}" if target.mode else ""),
        "device": target.device,
        "precision": target.precision,
        "scheme": target.scheme,
        "python": target.python,
        **{name: getattr(arm, name) for name in told},
    }


def _preparation(prepared: Prepared | None) -> dict[str, Any]:
    if prepared is None:
        return {}
    kept = {"export_s", "build_s", "build_cached", "artifact_bytes", "built_nodes_by_precision", "notes", "work"}
    kept |= {"install_bytes"}
    return prepared.model_dump(include=kept)


def _account(lines: Sequence[Played | Checked], prepared: Prepared | None) -> dict[str, Any]:
    """What the runtime said it ran, and how wrong it was; nothing of an arm never loaded."""
    if not lines:
        return {}
    last = lines[-1]
    return {
        "executed": asdict(last.executed),
        "artifact_bytes": last.executed.artifact_bytes,
        "fidelity": _fidelity(lines, prepared.probe if prepared else None),
    }


def _fidelity(lines: Sequence[Played | Checked], probe: str | None) -> FidelityFigures:
    """The worst restart's error and agreement; the accuracy of the first, which alone runs the report split."""
    errors = [line.fidelity for line in lines]
    agreed = [found.top1_agreement for found in errors]
    least = None if None in agreed else min((one for one in agreed if one is not None), default=None)
    worst = asdict(max(errors, key=lambda found: math.inf if found.relative_l2 is None else found.relative_l2))
    del worst["right"]
    accuracy = next((line.fidelity.accuracy for line in lines if line.fidelity.accuracy is not None), None)
    figures: dict[str, Any] = {key: _finite(one) if isinstance(one, float) else one for key, one in worst.items()}
    return FidelityFigures(**(figures | {"top1_agreement": least, "accuracy": accuracy, "probe": probe}))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _timing(group: Group, label: str, scope: Scope, samples: Samples) -> Timing | None:
    blocks = group.blocks(scope).get(label, {})
    if not blocks:
        return None
    medians = np.array([float(np.median(values)) for values in blocks.values()])
    middle = quantiles.median_interval(medians)
    lines = group.played[label]
    calls = samples.of(group.record.name, label, scope, {line.restart: line.samples for line in lines})
    found, own = compare(group, scope, label), compare_own(group, scope, label)
    return Timing(
        median_ns=middle.median,
        low_ns=middle.low,
        high_ns=middle.high,
        confidence=middle.confidence,
        **_tails(_single_calls(group, label, scope, samples, calls)),
        samples=sum(values.size for values in calls.values()),
        restarts=medians.size,
        ratio=ratio_of(found, withheld(group, label, group.rules.baseline)) if found else None,
        own_fp32_ratio=ratio_of(own, withheld(group, label, group.record.references[label])) if own else None,
    )


def _single_calls(
    group: Group, label: str, scope: Scope, samples: Samples, calls: Mapping[int | None, Array]
) -> list[Array]:
    """What each restart read of calls one by one, in its rounds and after them: the mean of several has no tail."""
    lines = group.played[label]
    alone = {line.restart for line in lines if line.per_reading.get(scope, 1) == 1 or _is_offered(line)}
    found: dict[int | None, Array] = {one: calls[one] for one in sorted(alone) if one in calls}
    if scope is Scope.END_TO_END:
        names = {line.restart: line.samples for line in lines if SINGLE in line.per_reading}
        for one, more in samples.of(group.record.name, label, SINGLE, names).items():
            found[one] = np.concatenate([found[one], more]) if one in found else more
    return list(found.values())


def _is_offered(line: Played) -> bool:
    """Whether each reading is a request's, at a given rate; those of a search are of many rates."""
    return line.served is not None and line.served.given_per_s is not None


def _tails(restarts: Sequence[Array]) -> dict[str, float | None]:
    """Upper and lower bound of each percentile, from the calls of each restart, and the highest one's p99."""
    found: dict[str, float | None] = {}
    bounds = None
    for percent in (90, 95, 99):
        bounds = quantiles.percentile_bounds(restarts, percent / 100)
        found[f"p{percent}_low_ns"] = bounds.low if bounds else None
        found[f"p{percent}_ns"] = bounds.high if bounds else None
    return found | {"p99_highest_ns": bounds.highest if bounds else None}


NOTHING_LEFT = "no size in between can be raced here"


def crossings(groups: Sequence[Group], axis: str | None, *, complete: bool) -> tuple[Crossover, ...]:
    """Every sweep's crossings, or why it has none, in both scopes.

    Args:
        axis: the run's; None where it looked for no crossover.
        complete: nothing is left to measure: a wide bracket without anything inside says that it stays so.
    """
    if axis is None:
        return ()
    by_name = {group.record.name: group for group in groups}
    found = crossovers.sweeps([group.record for group in groups], axis)
    lines = ((sweep, scope) for sweep in found for scope in scopes_of(sweep.scenario))
    told = [one for sweep, scope in lines for one in _of_sweep(sweep, by_name, axis, scope)]
    return tuple(_ended(one) for one in told) if complete else tuple(told)


def _of_sweep(sweep: Sweep, groups: Mapping[str, Group], axis: str, scope: Scope) -> list[Crossover]:
    points = [crossovers.at(groups[record.name], size, sweep.pair, scope) for size, record in sweep.groups.items()]
    return [_crossover(sweep, axis, scope, points, outcome) for outcome in crossovers.outcomes(points)]


def _ended(one: Crossover) -> Crossover:
    """As it is; a bracket that was to be narrowed and wasn't tells why."""
    if one.outcome is not Kind.BRACKET or one.reason or one.low is None or one.high is None:
        return one
    return one.model_copy(update={"reason": NOTHING_LEFT}) if one.high > OCTAVE * one.low else one


def _crossover(sweep: Sweep, axis: str, scope: Scope, points: Sequence[At], outcome: Crossing) -> Crossover:
    a, b = sweep.pair
    names: dict[Verdict | None, str] = {Verdict.FASTER: a, Verdict.SLOWER: b, Verdict.SAME: "same"}
    return Crossover(
        model=sweep.model,
        axis=axis,
        fixed=dict(sweep.fixed),
        scenario=sweep.scenario,
        scope=scope,
        a=a,
        b=b,
        outcome=outcome.kind,
        low=outcome.low,
        high=outcome.high,
        below=names.get(outcome.below),
        above=names.get(outcome.above),
        reason=outcome.reason,
        restarts_needed=outcome.needed,
        sizes=tuple(
            SizeVerdict(size=one.size, verdict=one.verdict, ratio=one.ratio, restarts=one.restarts) for one in points
        ),
    )
