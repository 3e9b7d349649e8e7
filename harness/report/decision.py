"""A decision's first screen: what to ship by a policy, what proves it, and why the others aren't."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from shootout.contract import Scenario
from shootout.decide.candidates import Question
from shootout.decide.decision import Decision, Judged
from shootout.decide.limits import FIDELITY, tell_finding
from shootout.decide.objective import Cost, Flip
from shootout.decide.options import Limit
from shootout.decide.policy import Objective
from shootout.report.answer import (
    CHOICES,
    SHOWN,
    tell_machine,
    tell_metric,
    tell_not_raced,
    tell_sizes,
    tell_speed,
    tell_within,
    write_head,
)
from shootout.report.columns import known, share
from shootout.report.screen import INDENT, NAMED, fold, labelled, typed
from shootout.results.document import Ratio, Row
from shootout.stats.verdicts import Standing, Verdict
from shootout.study.group import short
from shootout.units import counted, duration, number, size

STABLE = 0.995
"""From this share on, a choice counts as the same in all resamples."""


def render(decision: Decision, question: Question, width: int) -> list[Text]:
    """Render the screen in so many columns."""
    chosen = decision.of(decision.chosen) if decision.chosen else None
    rows = {candidate.label: candidate.row for candidate in question.candidates}
    environments = {document.environment.get("machine"): document.environment for document in question.documents}
    lines = [
        *write_head(
            _tell_outcome(decision), " · ".join(_list_title_parts(decision, rows, list(environments.values()))), width
        ),
        *labelled("     ", _tell_figures(decision, chosen, rows, _find_baselines(question)), width),
        *labelled("Met  ", _tell_met_limits(decision, chosen), width),
        *labelled("Cost ", _tell_chosen_cost(decision, chosen), width),
        *labelled("Tied ", _tell_ties(decision), width),
        *labelled("Sure?", [_tell_trust(decision, question, width - INDENT)], width),
        *labelled("Not  ", fold(_tell_passed(decision), SHOWN), width),
        *labelled("Unknown", fold(_tell_unknown(decision), SHOWN), width),
        *labelled("Nearest", _tell_nearest_miss(decision), width),
        *labelled(
            "Not raced",
            tell_not_raced(question.answers, [row for document in question.documents for row in document.rows]),
            width,
        ),
        *labelled("Would change it", _tell_changes(decision), width),
    ]
    return [
        *lines,
        *(Text(f"note: {note}") for note in _list_notes_on_rows(decision, rows)),
        *(Text(f"warning: {warning}", style="yellow") for warning in decision.warnings),
        Text(),
    ]


def _tell_outcome(decision: Decision) -> str:
    if decision.chosen:
        return decision.chosen
    return "nothing: no candidate meets every limit" if decision.outcome == "infeasible" else "undecided"


def _list_title_parts(
    decision: Decision, rows: Mapping[str, Row], environments: Sequence[Mapping[str, Any]]
) -> list[str]:
    """List model, batch, threads and machine; or the number of machines."""
    threads = sorted({row.threads for row in rows.values()})
    told = [f"{'/'.join(map(str, threads))} thread{'' if threads == [1] else 's'}"] if threads else []
    machines = [" · ".join(tell_machine(environments[0]))] if len(environments) == 1 else []
    return [*decision.title, *told, *(machines or [counted(len(environments), "machine")])]


def _tell_figures(
    decision: Decision, chosen: Judged | None, rows: Mapping[str, Row], baselines: Mapping[str, str]
) -> Iterator[str]:
    """List the chosen one's objective and what it takes, or why there is none."""
    if chosen is None:
        if decision.outcome == "undecided" and decision.reason:
            yield decision.reason
        return
    row, objective = rows[chosen.candidate], decision.policy.objective
    timing = row.end_to_end
    if objective is Objective.LATENCY and baselines.get(row.group) and timing and timing.ratio:
        yield tell_speed(timing.ratio, short(baselines[row.group]), None)
    if objective not in (Objective.SIZE, Objective.INSTALL):
        yield tell_objective(decision, chosen)
    if timing and row.scenario == Scenario.LATENCY and objective is not Objective.LATENCY:
        yield f"{duration(timing.median_ns)} a call"
    if sizes := [*tell_sizes(row)]:
        yield " + ".join(sizes)
    if row.ready_s is not None:
        yield f"ready in {row.ready_s:.2g} s"
    if row.fidelity and row.fidelity.metric:
        yield tell_metric(row.fidelity.metric)
    elif row.fidelity and row.fidelity.accuracy is not None:
        yield f"accuracy {share(row.fidelity.accuracy)}"


def _find_baselines(question: Question) -> dict[str, str]:
    """Return the arm that each cell's ratios refer to."""
    groups = [group for document in question.documents for group in document.groups]
    return {group.name: group.baseline for group in groups if group.baseline}


def tell_objective(decision: Decision, judged: Judged) -> str:
    """Write a candidate's objective with its unit."""
    value = judged.objective or 0.0
    told = {
        Objective.LATENCY: lambda: f"{duration(value)}{' p99 under the load' if decision.policy.load else ''}",
        Objective.RATE: lambda: f"{number(1 / value)}/s",
        Objective.COST: lambda: f"{value:.3g} {decision.policy.currency} an hour",
        Objective.SIZE: lambda: f"artifact of {size(round(value))}",
        Objective.INSTALL: lambda: f"{size(round(value))} installed",
    }
    return told[decision.policy.objective]()


def _tell_met_limits(decision: Decision, chosen: Judged | None) -> Iterator[str]:
    """List the policy's own limits."""
    for finding in chosen.limits if chosen else ():
        alone = finding.limit is Limit.P99 and decision.policy.load is None
        if not finding.implied:
            yield tell_finding(finding) + (" one call after another" if alone else "")


def _tell_chosen_cost(decision: Decision, chosen: Judged | None) -> Iterator[str]:
    if chosen is None or chosen.cost is None:
        return
    yield tell_cost(chosen.cost, decision.policy.load or 0.0)
    cost = chosen.cost
    yield f"{cost.price:g} {cost.currency} an hour each ({cost.source}, {cost.as_of})"


def tell_cost(cost: Cost, load: float) -> str:
    """Write the machines, their cost an hour, and the cost of a million requests."""
    rate = f"{number(cost.rate_low)}/s each at {cost.utilisation:.0%} utilisation"
    return (
        f"{counted(cost.machines, 'machine')} for {number(load)}/s ({rate}): {cost.per_hour:.3g} {cost.currency} "
        f"an hour, {cost.per_million:.3g} a million requests"
    )


def _tell_ties(decision: Decision) -> Iterator[str]:
    if not decision.tied or not decision.chosen:
        return
    told = f"{', '.join(fold((short(rival.arm) for rival in decision.tied), SHOWN))}: {tell_within(decision.tied)}."
    if decision.chosen_by:
        told += f" Chosen by: {', then '.join(CHOICES[criterion] for criterion in decision.chosen_by)}."
    yield told


def _tell_trust(decision: Decision, question: Question, room: int) -> str:
    counts = sorted({answer.sure.restarts for answer in question.answers if answer.sure.restarts})
    restarts = "No restart"
    if counts:
        restarts = counted(counts[0], "restart") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} restarts"
    held = {answer.sure.control_holds for answer in question.answers}
    control = ", control FAILED" if False in held else ", control passed" if held == {True} else ""
    told = [f"{restarts}{control}."]
    if decision.stability:
        told.append(_tell_stability(decision))
    if decision.settle:
        told.append(f"This would settle it:  {typed(decision.settle, room)}")
    return " ".join(told)


def _tell_stability(decision: Decision) -> str:
    parts = [(label, often) for label, often in decision.stability.items() if often >= 1 - STABLE]
    if decision.stability.get(decision.chosen or "", 0.0) >= STABLE:
        return "Chosen in all of 1,000 resamples of the restarts."
    told = ", ".join(f"{short(label)} in {often:.0%}" for label, often in parts[:NAMED])
    return f"Of 1,000 resamples of the restarts, chosen: {told}."


def _tell_passed(decision: Decision) -> Iterator[str]:
    """Name the candidates that are out, and why: a fault, a broken limit, or a lost comparison."""
    tied = {rival.arm for rival in decision.tied}
    for judged in decision.candidates:
        if judged.candidate == decision.chosen or judged.candidate in tied or judged.standing is Standing.UNKNOWN:
            continue
        broken = [finding for finding in judged.limits if finding.standing is Standing.BROKEN]
        if judged.fault:
            yield f"{short(judged.candidate)}: {judged.fault}"
        elif broken:
            yield f"{short(judged.candidate)} {', '.join(map(tell_finding, broken))}"
        elif judged.ratio and decision.chosen:
            yield f"{short(judged.candidate)} {_name_disadvantage(decision, judged.ratio)} {_tell_ratio(judged.ratio)}"


def _tell_ratio(ratio: Ratio) -> str:
    return f"{ratio.value:.3g}" if ratio.low == ratio.high else known(ratio)


def _name_disadvantage(decision: Decision, ratio: Ratio) -> str:
    """Name what is worse; a candidate that never ran beside the chosen one isn't called slower."""
    if decision.policy.objective in (Objective.LATENCY, Objective.RATE) and not ratio.restarts:
        return "never side by side,"
    worse = {Objective.LATENCY: "slower", Objective.RATE: "slower", Objective.COST: "dearer"}
    return worse.get(decision.policy.objective, "larger")


def _tell_unknown(decision: Decision) -> Iterator[str]:
    """Name the candidates that may meet every limit, by what isn't known."""
    why: dict[str, list[str]] = {}
    for judged in decision.candidates:
        if judged.standing is Standing.UNKNOWN:
            reasons = [tell_finding(finding) for finding in judged.limits if finding.standing is Standing.UNKNOWN]
            if judged.unmeasured:
                known_of = "" if judged.objective is not None else f"{decision.policy.objective}: "
                reasons.append(f"{known_of}{judged.unmeasured}")
            why.setdefault("; ".join(reasons), []).append(short(judged.candidate))
    for reason, labels in why.items():
        yield f"{', '.join(fold(labels, NAMED))} ({reason})"


def _list_notes_on_rows(decision: Decision, rows: Mapping[str, Row]) -> list[str]:
    """List what the runs say of candidates whose outputs aren't known to be good enough: how many rows judge them."""
    unknown = [
        judged.candidate
        for judged in decision.candidates
        if any(one.limit in FIDELITY and one.standing is Standing.UNKNOWN for one in judged.limits)
    ]
    return list(dict.fromkeys(note for label in unknown for note in rows[label].notes))


def _tell_nearest_miss(decision: Decision) -> Iterator[str]:
    """Name the candidate that misses by least, if none is chosen."""
    if decision.outcome == "infeasible" and decision.misses:
        miss = decision.misses[0]
        finding = next(other for other in decision.of(miss.candidate).limits if other.limit is miss.limit)
        excess = f"{miss.excess:.0%} beyond it" if miss.excess < 1 else f"{1 + miss.excess:.3g}x the limit"
        yield f"{short(miss.candidate)}: {tell_finding(finding)}, {excess}"


def _tell_changes(decision: Decision) -> Iterator[str]:
    """Name the candidates that one looser limit would let in; if one is chosen, only those that are better."""
    letting: dict[str, list[str]] = {}
    for miss in decision.misses:
        ratio = decision.of(miss.candidate).ratio
        if miss.alone and (decision.outcome == "infeasible" or (ratio and ratio.verdict is Verdict.FASTER)):
            letting.setdefault(miss.limit, []).append(short(miss.candidate) + (f" {known(ratio)}" if ratio else ""))
    for limit, labels in letting.items():
        yield f"a looser {limit} ({'; '.join(fold(labels, NAMED))})"
    yield from _tell_needed_proofs(decision)
    for flip in decision.flips:
        yield from _tell_flip(flip, decision.policy.currency)


def _tell_flip(flip: Flip, currency: str) -> Iterator[str]:
    """Tell at which load and at which price another machine would cost less."""
    who = short(flip.candidate)
    if flip.load_from[0]:
        yield f"a load of over {_tell_bracket(*flip.load_from)}/s ({who})"
    if flip.load_to[0]:
        yield f"a load of at most {_tell_bracket(flip.load_to[1], flip.load_to[0])}/s ({who})"
    yield f"under {_tell_bracket(*flip.price)} {currency} an hour for its machine ({who})"


def _tell_bracket(low: float | None, high: float | None) -> str:
    ends = [number(end) for end in (low, high) if end is not None]
    return " to ".join(dict.fromkeys(ends))


def _tell_needed_proofs(decision: Decision) -> Iterable[str]:
    """Name candidates that are better than the chosen one and aren't known to meet every limit."""
    better = [
        f"{short(judged.candidate)} {known(judged.ratio)}"
        for judged in decision.candidates
        if judged.standing is Standing.UNKNOWN and judged.ratio and judged.ratio.verdict is Verdict.FASTER
    ]
    return [f"proof that the limits hold ({'; '.join(fold(better, NAMED))})"] if better else []
