"""Write a decision's screen: what to ship by a policy, what shows it, and why the others aren't shipped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from rich.text import Text

from shootout.apps.judge.choice import find_usual, is_faster
from shootout.apps.judge.decide.candidates import ONE_BY_ONE, Question
from shootout.apps.judge.decide.decision import Decision, Judged
from shootout.apps.judge.decide.limits import judge_limits
from shootout.apps.judge.decide.policy import BY_RATE, EXACT, Objective, Policy, read_limit, read_policy, write_policy
from shootout.apps.judge.next_steps import describe_refused, option_to_accept, ship_from, why_no_folder
from shootout.core.contract import Precision, short
from shootout.core.scenario import find_scenario
from shootout.core.stats.verdicts import Verdict
from shootout.core.units import counted, duration, number, seconds, size
from shootout.tell import reproduce
from shootout.tell.answer import (
    SHOWN,
    compare_rival,
    find_measure,
    label_accept,
    measure_loss,
    name_usual,
    remark_accept,
    tell_choice,
    tell_machine,
    tell_race,
    tell_threads_beside,
    write_head,
)
from shootout.tell.columns import error_of
from shootout.tell.document import Finding, Ratio, Row, WouldChange, tell_finding
from shootout.tell.limits import FIDELITY, LIMITS, Limit, Standing, accept_option
from shootout.tell.ratios import NEVER_TOGETHER, PRICE, SMALLNESS, SPEED, inverse, tell_factor, tell_lead, tell_ratio
from shootout.tell.report import Command, Line
from shootout.tell.screen import INDENT, NAMED, bold, fold, labeled, typed, write_lines
from shootout.tell.skipped import tell_missing
from shootout.tell.wording import tell_metric

STABLE = 0.995
"""From this share on, a choice counts as the same in all resamples."""
LEAST_RESAMPLED = 5
"""Resamples of fewer restarts tell nothing."""
WORDS = {
    Objective.LATENCY: SPEED,
    Objective.RATE: SPEED,
    Objective.CPU: PRICE,
    Objective.COST: PRICE,
    Objective.SIZE: SMALLNESS,
    Objective.INSTALL: SMALLNESS,
}
"""The words for the two directions of an objective."""
BETTER = {objective: f"{words.less.capitalize()}, not shipped" for objective, words in WORDS.items()}
"""The label of what is better than the chosen one and may not be shipped; it stands on a line of its own."""
NEXT = "Next"
"""The label of commands."""
READING = "(a to b): holds for all comparisons together at 95 %; sure if it excludes 1"
"""The line that explains the brackets."""


def render(decision: Decision, question: Question, width: int, *, has_table: bool = False) -> list[Text]:
    """Render the screen in so many columns; a table that follows has the legend of the brackets."""
    title = " · ".join(list_title_parts(decision, question))
    return [
        *write_head(tell_outcome(decision), title, width),
        *write_support(decision, question, width, has_table=has_table),
        Text(),
    ]


def write_support(decision: Decision, question: Question, width: int, *, has_table: bool = False) -> list[Text]:
    """Write what supports a decision."""
    lines = list[Text]()
    for label, items in tell_parts(decision, question):
        if label == BETTER[decision.policy.objective]:
            lines += [bold(label, len(label)), *(line for item in items for line in labeled("", [item], width))]
            lines += write_lines([Line("", commands=[*list_ways_out(decision, question)])], width)
        elif label == NEXT:  # each command begins a line, so that it can be pasted
            for number, item in enumerate(items):
                lines += labeled("" if number else label, [typed(item, width - INDENT)], width)
        else:
            lines += labeled(label, items, width)
    missing = tell_missing(question.answers, question.documents, _name_parts(question))
    return [
        *lines,
        *(write_lines(missing, width) if not has_table else ()),
        *(Text(f"note: {note}") for note in list_notes_on_rows(decision, question)),
        *(Text(f"{line}.", style="dim") for line in _tell_reading(decision) if not has_table),
    ]


def tell_parts(decision: Decision, question: Question) -> Iterator[tuple[str, list[str]]]:
    """Tell all but the first line: labels, and the items of each."""
    chosen = decision.of(decision.chosen) if decision.chosen else None
    rows = _rows_by_candidate(question)
    parts: list[tuple[str, Iterable[str]]] = [
        ("", _tell_figures(decision, chosen, rows, question)),
        ("Met", _tell_met_limits(decision, chosen)),
        ("Tied", _tell_ties(decision)),
        ("Unsure", _tell_unsettled(decision)),
        ("Sure" if chosen else "Noise", _tell_trust(decision, question)),
        (BETTER[decision.policy.objective], _tell_better(decision, question)),
        ("Not", fold(_tell_passed(decision), SHOWN)),
        ("Unknown", fold(_tell_unknown(decision, question), SHOWN)),
        ("Nearest", _tell_nearest_miss(decision)),
        ("Changes", _tell_changes(decision, question)),
        ("Folder", _why_no_folder(decision, question)),
        (NEXT, _list_next(decision, question)),
    ]
    for label, found in parts:
        if items := list(found):
            yield label, items


def _rows_by_candidate(question: Question) -> dict[str, Row]:
    return {candidate.label: candidate.row for candidate in question.candidates}


def tell_outcome(decision: Decision) -> str:
    """Tell what to ship, or that nothing meets every limit, or that it is undecided."""
    if decision.chosen:
        return decision.chosen
    return "nothing: no candidate meets every limit" if decision.outcome == "infeasible" else "undecided"


def list_title_parts(decision: Decision, question: Question) -> list[str]:
    """List model, batch, threads and machine; or the number of machines."""
    by_machine = {document.environment.get("machine"): document.environment for document in question.documents}
    environments = list(by_machine.values())
    told = tell_threads_beside(decision.title, (candidate.row for candidate in question.candidates))
    machines = [" · ".join(tell_machine(environments[0]))] if len(environments) == 1 else []
    return [*decision.title, *told, *(machines or [counted(len(environments), "machine")])]


def _tell_figures(
    decision: Decision, chosen: Judged | None, rows: Mapping[str, Row], question: Question
) -> Iterator[str]:
    """List the chosen one's objective and what it takes, or why there is none."""
    if chosen is None:
        if decision.outcome == "undecided" and decision.reason:
            yield decision.reason
        return
    row, objective = rows[chosen.candidate], decision.policy.objective
    timing = row.end_to_end
    if objective not in EXACT:
        is_bound = objective in BY_RATE and row.serve is not None and row.serve.may_do_more
        told, side = tell_objective(decision, chosen), "most" if objective is Objective.COST else "least"
        yield f"at {side} {told}: higher rates failed in disturbed rounds alone" if is_bound else told
    if against := _tell_against_usual(decision, chosen, rows, question):
        yield against
    if timing and find_scenario(row.scenario).objective == ONE_BY_ONE and objective is not Objective.LATENCY:
        yield f"{duration(timing.median_ns)} a call"
    if row.artifact_bytes:
        yield f"model {size(row.artifact_bytes)}"
    if row.install_bytes:
        yield f"runtime {size(row.install_bytes)}"
    if row.ready_s is not None:
        yield f"ready in {seconds(row.ready_s)}"
    if row.fidelity and row.fidelity.metric:
        is_bounded = any(one.limit in OF_METRIC and one.low != one.high for one in chosen.limits)
        apart = dict.fromkeys(("low", "high", "change", "standing")) if is_bounded else {}  # the limit stands under Met
        yield tell_metric(row.fidelity.metric.model_copy(update=apart))


OF_METRIC = frozenset({Limit.AGREEMENT, Limit.METRIC, Limit.MOST_METRIC, Limit.DROP})


def _tell_against_usual(decision: Decision, chosen: Judged, rows: Mapping[str, Row], question: Question) -> str:
    """Compare the chosen one with what an expert would take otherwise on the same machine."""
    here = {
        judged.candidate: rows[judged.candidate].model_copy(update={"arm": judged.candidate})
        for judged in decision.candidates
        if judged.machine == chosen.machine and not judged.fault
    }
    baselines = {group.baseline for document in question.documents for group in document.groups}
    mine = [judged for judged in decision.candidates if judged.candidate in here]
    baseline = next((judged.candidate for judged in mine if judged.arm in baselines), None)
    usual = find_usual(here.values(), here[chosen.candidate], baseline)
    ratio = decision.of(usual.arm).ratio if usual else None
    if usual is None or ratio is None:
        return ""
    return tell_ratio(inverse(ratio), name_usual(usual.arm, chosen.candidate), WORDS[decision.policy.objective])


def tell_objective(decision: Decision, judged: Judged) -> str:
    """Write a candidate's objective with its unit."""
    value = judged.objective or 0.0
    told = {
        Objective.LATENCY: lambda: f"{duration(value)} {'p99 under the load' if decision.policy.load else 'a call'}",
        Objective.RATE: lambda: f"{number(1 / value)}/s",
        Objective.CPU: lambda: f"{duration(value)} of CPU time a call",
        Objective.COST: lambda: f"{value:.3g} per million at {number(decision.policy.cost_at(value))}/s",
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


def _tell_ties(decision: Decision) -> Iterator[str]:
    if not decision.tied or not decision.chosen:
        return
    words = WORDS[decision.policy.objective]
    yield from fold((compare_rival(rival, words) for rival in decision.tied), SHOWN)
    if decision.chosen_by:
        yield f"chosen by {tell_choice(decision.chosen_by)}"


def _tell_unsettled(decision: Decision) -> Iterator[str]:
    """Name the candidates that measured worse, but aren't significantly worse."""
    if decision.chosen:
        yield from fold((compare_rival(rival, WORDS[decision.policy.objective]) for rival in decision.unsettled), SHOWN)


def _name_parts(question: Question) -> str:
    """Return what each answer is of: a run, if each run has one, else a group."""
    return "run" if 1 < len(question.answers) == len(question.documents) else "group"


def _tell_trust(decision: Decision, question: Question) -> Iterator[str]:
    names = {answer.group for answer in question.answers if answer.sure.restarts}
    groups = [group for document in question.documents for group in document.groups if group.name in names]
    yield from _tell_comparisons(decision, question)
    if groups:
        yield from tell_race(groups, _name_parts(question))
    else:
        yield "no restart was timed"
    if decision.stability and min((group.restarts for group in groups), default=0) >= LEAST_RESAMPLED:
        yield _tell_stability(decision)


def _tell_comparisons(decision: Decision, question: Question) -> Iterator[str]:
    """Tell how many of the other candidates are significantly worse, of those that meet every limit."""
    if decision.chosen is None:
        return
    rivals = [
        (judged, judged.ratio)
        for judged in decision.candidates
        if judged.standing is Standing.MET and judged.ratio and judged.ratio.restarts  # else not measured together
    ]
    if not rivals:
        if len(decision.candidates) == 1:
            yield "no other target was measured, so nothing was compared"
        return
    beaten = [(short(one.candidate), ratio) for one, ratio in rivals if ratio.verdict is Verdict.SLOWER]
    rows = _rows_by_candidate(question)
    met = [rows[label].precision for label in (decision.chosen, *(judged.candidate for judged, _ in rivals))]
    kind = "FP32" if {*met} == {Precision.FP32} else "eligible"
    closest = min(beaten, key=lambda one: one[1].value, default=None)
    those = f"{kind} target{'' if len(rivals) == 1 else 's'}{' of its run' if len(decision.runs) > 1 else ''}"
    yield tell_lead(short(decision.chosen), len(beaten), len(rivals), those, closest, WORDS[decision.policy.objective])


def _tell_reading(decision: Decision) -> Iterator[str]:
    """Explain the brackets, if there are any."""
    ratios = [judged.ratio for judged in decision.candidates if judged.ratio]
    if any(ratio.low != ratio.high and ratio.verdict is not Verdict.CANT_TELL for ratio in ratios):
        yield READING


def _tell_stability(decision: Decision) -> str:
    parts = [(label, often) for label, often in decision.stability.items() if often >= 1 - STABLE]
    if decision.stability.get(decision.chosen or "", 0.0) >= STABLE:
        return "chosen in all of 1,000 resamples of the restarts"
    told = ", ".join(f"{short(label)} in {often:.0%}" for label, often in parts[:NAMED])
    return f"of 1,000 resamples of the restarts, chosen: {told}"


def _list_next(decision: Decision, question: Question) -> Iterator[str]:
    """List the commands that come next: what settles the decision, then what ships it."""
    if decision.settle:
        yield decision.settle
        is_resumed = decision.settle in {document.resume for document in question.documents}
        has_policy = any(play.cell.begun.has_policy for one in question.candidates for play in one.plays)
        if is_resumed and not has_policy and (options := write_policy(decision.policy)):
            yield _write_decide(decision, question, options)  # the run's command knows none of them
    if decision.chosen:
        candidate = next(one for one in question.candidates if one.label == decision.chosen)
        if candidate.row.threads and not _why_no_folder(decision, question):
            target = reproduce.quote([candidate.row.arm])
            yield ship_from(candidate.play.cell, f"--target {target}")


def _why_no_folder(decision: Decision, question: Question) -> list[str]:
    """Tell why no folder can be made of the chosen one, and what to do with it; nothing if one can."""
    row = _rows_by_candidate(question).get(decision.chosen or "")
    why = why_no_folder(row) if row else ""
    return [f"none: {why}"] if why else []


def _list_better(decision: Decision) -> list[tuple[Judged, Ratio]]:
    """List what is better than the chosen one and may not be shipped, the best first."""
    found = [
        (judged, judged.ratio)
        for judged in decision.candidates
        if judged.ratio and judged.standing is not Standing.MET and not judged.fault and is_faster(judged.ratio)
    ]
    return sorted(found, key=lambda one: one[1].value)[:SHOWN] if decision.chosen else []


def _tell_better(decision: Decision, question: Question) -> Iterator[str]:
    """Tell what is better than the chosen one and may not be shipped: how much, what it costs, and the reason."""
    rows = _rows_by_candidate(question)
    told = [
        (judged, compare_objective(decision, ratio), ", ".join(_list_reasons(decision, judged, question)))
        for judged, ratio in _list_better(decision)
    ]
    is_shared = len({why for _, _, why in told}) == 1 < len(told)
    for judged, compared, why in told:
        fidelity = rows[judged.candidate].fidelity
        cost = f", error {error_of(fidelity)}" if fidelity and any(map(_lacks_figure, judged.limits)) else ""
        yield f"{short(judged.candidate)}  {compared}{cost}{'' if is_shared else f': {why}'}"
    if is_shared:
        yield f"each: {told[0][2]}"


def _lacks_figure(finding: Finding) -> bool:
    """Return whether a limit that the policy doesn't give, that of accuracy, has no figure to go by."""
    return finding.implied and finding.standing is Standing.UNKNOWN and finding.value is None


def _list_reasons(decision: Decision, judged: Judged, question: Question) -> Iterator[str]:
    """List why a candidate may not be shipped, or isn't known to be eligible."""
    for finding in judged.limits:
        if finding.standing is judged.standing:
            is_missing = _lacks_figure(finding)
            yield _refused(decision, judged, question).why or "" if is_missing else tell_finding(finding)
    if judged.unmeasured:
        known_of = "" if judged.objective is not None else f"{decision.policy.objective}: "
        yield f"{known_of}{judged.unmeasured}"


def _refused(decision: Decision, judged: Judged, question: Question) -> WouldChange:
    """Describe a candidate of unknown accuracy as the answer of its run would."""
    plays = {one.label: one.play for one in question.candidates}
    play = plays[judged.candidate]
    mine = [plays[decision.chosen]] if decision.chosen else []
    beside = [one.row.arm for one in mine if one.cell is play.cell]
    return describe_refused(play.cell, play.row, judged.ratio, [*beside, play.row.arm])


def list_ways_out(decision: Decision, question: Question) -> Iterator[Command]:
    """List what to type so that a better candidate can be shipped: to measure the accuracy, and to accept the error."""
    better = [judged for judged, _ in _list_better(decision)]
    unknown = [_refused(decision, one, question) for one in better if any(map(_lacks_figure, one.limits))]
    measure = next(filter(None, map(find_measure, unknown)), None)
    if measure:
        yield measure
    rows = _rows_by_candidate(question)
    if any(one.limit in FIDELITY and one.standing is not Standing.MET for judged in better for one in judged.limits):
        lost = {one.candidate: measure_loss(known) for one in better if (known := rows[one.candidate].fidelity)}
        better.sort(key=lambda one: lost.get(one.candidate, math.inf))
    for judged in better:
        if options := _find_options_to_accept(decision, question, judged):
            name = short(judged.candidate) if len(better) > 1 else ""
            what = "loss" if any("-drop " in option or "--min-" in option for option in options) else "error"
            label = label_accept(what, beside=measure is not None)
            text = _decide_with(decision, question, options)
            yield Command(label=label, text=text, remark=remark_accept(what, name))
            return


_TRIES = 5
"""Limits of a sample share the chance of an error anew once one is looser, so that it may have to be looser yet."""


def _find_options_to_accept(decision: Decision, question: Question, judged: Judged) -> list[str]:
    """Return the options with which a decision finds that a candidate meets every limit; none if there are none."""
    rows = _rows_by_candidate(question)
    refused = [finding for finding in judged.limits if finding.standing is judged.standing]
    accepting = [_accept(finding, rows[judged.candidate], rows.values()) for finding in refused]
    options = {option.split()[0]: option for option in accepting if option}
    if judged.unmeasured or not refused or len(options) < len(refused):
        return []
    for _ in range(_TRIES):
        findings = judge_limits(_loosen(decision.policy, options.values()), question.candidates)[judged.candidate]
        open_ = [finding for finding in findings if finding.standing is not Standing.MET]
        if not open_:
            return [*options.values()]
        for finding in open_:
            worst = _find_worst(finding)
            if f"--{finding.limit}" not in options or worst is None or worst <= 0:
                return []
            options[f"--{finding.limit}"] = accept_option(finding.limit, worst)
    return []


def _loosen(policy: Policy, options: Iterable[str]) -> Policy:
    """Return a policy with these options on top."""
    given = {Limit(option.split()[0].removeprefix("--")): option.split()[1] for option in options}
    limits = {limit: read_limit(limit, value) for limit, value in given.items()}
    return policy.model_copy(update={"limits": {**policy.limits, **limits}, "shares": policy.shares - given.keys()})


def _find_worst(finding: Finding) -> float | None:
    """Return the bound of a figure that a limit has to meet."""
    return finding.high if LIMITS[finding.limit].side == "most" else finding.low


def _accept(finding: Finding, row: Row, among: Iterable[Row]) -> str:
    """Return the option with which a limit is met; "" if the figure isn't known well enough.

    Args:
        among: the rows of all candidates.
    """
    if _lacks_figure(finding):
        return option_to_accept(row) or ""
    worst = _find_worst(finding)
    if finding.standing is not Standing.BROKEN or worst is None or worst <= 0:
        return ""
    if finding.limit is Limit.DROP:
        return option_to_accept(row, among) or ""
    return accept_option(finding.limit, worst)


def _decide_with(decision: Decision, question: Question, options: Iterable[str]) -> str:
    """Return the command that decides by further options; a policy of one's own is only known to its user."""
    if decision.policy != read_policy(None, {}):
        return f"the same command with {' '.join(options)}"
    return _write_decide(decision, question, options)


def _write_decide(decision: Decision, question: Question, options: Iterable[str]) -> str:
    """Return the command that decides on the same runs by these options."""
    cells = {id(play.cell): play.cell for one in question.candidates for play in one.plays}.values()
    groups = {cell.group for cell in cells}
    is_named = len(groups) == 1 and any(cell.named for cell in cells)
    group = ["--group", reproduce.quote(groups)] if is_named else []
    return " ".join(["shootout decide", reproduce.quote(decision.runs), *group, *options])


def _tell_passed(decision: Decision) -> Iterator[str]:
    """Name the candidates that are out, and why: a fault, a broken limit, or a lost comparison."""
    tied = {rival.arm for rival in (*decision.tied, *decision.unsettled)}
    better = [judged for judged, _ in _list_better(decision)]
    for judged in decision.candidates:
        if judged.candidate == decision.chosen or judged.candidate in tied or judged.standing is Standing.UNKNOWN:
            continue
        broken = [finding for finding in judged.limits if finding.standing is Standing.BROKEN]
        name = short(judged.candidate)
        if judged.fault:
            yield f"{name}: {judged.fault}"
        elif broken:
            if judged not in better:  # else it is told above
                yield f"{name}: {', '.join(map(tell_finding, broken))}"
        elif judged.ratio and decision.chosen:
            yield f"{name}: {compare_objective(decision, judged.ratio)}"


def compare_objective(decision: Decision, ratio: Ratio) -> str:
    """Compare a candidate with the chosen one; say so if the two were not measured together."""
    apart = decision.policy.objective not in EXACT and not ratio.restarts
    return tell_ratio(ratio, words=WORDS[decision.policy.objective]) + (f", {NEVER_TOGETHER}" if apart else "")


def _tell_unknown(decision: Decision, question: Question) -> Iterator[str]:
    """Name the candidates that may meet every limit, by what isn't known; what is better is told above."""
    why: dict[str, list[str]] = {}
    better = [judged for judged, _ in _list_better(decision)]
    for judged in decision.candidates:
        if judged.standing is Standing.UNKNOWN and judged not in better:
            reasons = _list_reasons(decision, judged, question)
            why.setdefault("; ".join(reasons), []).append(short(judged.candidate))
    for reason, labels in why.items():
        yield f"{', '.join(fold(labels, NAMED))}: {reason}"


def list_notes_on_rows(decision: Decision, question: Question) -> list[str]:
    """List what the runs say of candidates whose outputs aren't known to be good enough: how many rows judge them."""
    unknown = [
        judged.candidate
        for judged in decision.candidates
        if any(one.limit in FIDELITY and one.standing is Standing.UNKNOWN for one in judged.limits)
    ]
    rows = _rows_by_candidate(question)
    return list(dict.fromkeys(note for label in unknown for note in rows[label].notes))


def _tell_nearest_miss(decision: Decision) -> Iterator[str]:
    """Name the candidate that misses by least, if none is chosen."""
    if decision.outcome == "infeasible" and decision.misses:
        miss = decision.misses[0]
        finding = next(other for other in decision.of(miss.candidate).limits if other.limit is miss.limit)
        excess = f"{miss.excess:.0%} beyond it" if miss.excess < 1 else f"{tell_factor(1 + miss.excess)}x the limit"
        yield f"{short(miss.candidate)}: {tell_finding(finding)}, {excess}"


def _tell_changes(decision: Decision, question: Question) -> Iterator[str]:
    """Name the candidates that one looser limit would let in if nothing is chosen."""
    letting: dict[str, list[str]] = {}
    for miss in decision.misses if decision.outcome == "infeasible" else ():
        if miss.alone:
            options = _find_options_to_accept(decision, question, decision.of(miss.candidate))
            option = " ".join(options) or f"a looser {miss.limit}"
            letting.setdefault(option, []).append(short(miss.candidate))
    for option, labels in letting.items():
        yield f"with {option}: {', '.join(fold(labels, NAMED))}"
