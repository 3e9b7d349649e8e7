"""Tell a decision by the lines of a run's answer; below them stands a table of the candidates, with why not each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from shootout.apps.judge.cell import Question
from shootout.apps.judge.choice import describe_shipped, find_usual, is_faster
from shootout.apps.judge.decide.decision import Decision, Judged
from shootout.apps.judge.decide.limits import lacks_figure, loosen
from shootout.apps.judge.decide.policy import BY_RATE, EXACT, TIMED, Objective, Policy, write_policy
from shootout.apps.judge.next_steps import (
    decide_on,
    describe_refused,
    go_on,
    measure_again,
    reach_folder,
    why_no_folder,
)
from shootout.core.contract import short
from shootout.core.scenario import find_scenario
from shootout.core.stats.verdicts import Verdict
from shootout.core.units import number, size
from shootout.tell.answer import REFUSED, SHIPS, tell_next, tell_question, tell_ship, tell_support
from shootout.tell.columns import choose_unit, fits, make_table, stack_tables, write_time
from shootout.tell.document import Answer, Ratio, Rival, Row, Sure, WouldChange, tell_finding
from shootout.tell.limits import LIMITS, Limit, Standing
from shootout.tell.notes import tell_missing
from shootout.tell.ratios import NEVER_TOGETHER, PRICE, SMALLNESS, SPEED, tell_factor, tell_ratio
from shootout.tell.report import NAMED, Command, Line, Table, fold, write_lines
from shootout.tell.table import SHIPPED

STABLE = 0.995
"""From this share on, a choice counts as the same in all resamples."""
OBJECTIVES = {
    Objective.LATENCY: ("time", SPEED),
    Objective.RATE: ("rate", SPEED),
    Objective.COST: ("per million", PRICE),
    Objective.SIZE: ("file", SMALLNESS),
    Objective.INSTALL: ("runtime", SMALLNESS),
}
"""By objective, what the screen calls it, and the words for its two directions."""
WHY_NOT, LEADS = "why not", "leads so far"
READING = "(a to b): holds for all comparisons together at 95 %"
"""Explains the brackets."""
APART = "*"
"""The mark of a ratio of two that were not measured together."""


def render(decision: Decision, question: Question, width: int) -> list[RenderableType]:
    """Render the whole screen in so many columns: the lines, the table of candidates, what was skipped."""
    ratios = [one.ratio for one in decision.candidates if one.ratio]
    notes = [READING] if any(one.verdict is not Verdict.CANT_TELL and one.low != one.high for one in ratios) else []
    notes += [f"{APART}: {NEVER_TOGETHER}"] if any(_is_apart(decision, one) for one in ratios) else []
    among = "run" if 1 < len(question.answers) == len(question.documents) else "group"
    return [
        *write_lines(tell_decision(decision, question), width),
        Text(),
        *_write_candidates(decision, width),
        *write_lines(tell_missing(question.answers, question.documents, among), width),
        *([Text(f"{'. '.join(notes)}.", style="dim")] if notes else []),
    ]


def _write_candidates(decision: Decision, width: int) -> Iterator[RenderableType]:
    """Write the table of candidates; reasons without room in it stand below it, by the candidates that share them."""
    if all(one.objective is None for one in decision.candidates):
        return  # the answer says of each what is unknown
    table = list_candidates(decision)
    rows = [dict(zip(table.headers, row, strict=True)) for row in table.rows]
    if not rows:
        return
    whole = make_table(table.headers, rows, left=table.left)
    if fits(whole, width):
        yield whole
        return
    headers = [name for name in table.headers if name != WHY_NOT]
    yield from stack_tables(headers, rows, width, left=table.left)
    for index, told in enumerate(_tell_reasons(decision, decision.candidates)):
        yield from write_lines([Line("" if index else "Not", [told])], width)


def tell_decision(decision: Decision, question: Question) -> Iterator[Line]:
    """Tell a decision in at most ten lines; the second is what it is of."""
    words, names = OBJECTIVES[decision.policy.objective][1], {answer.group for answer in question.answers}
    rows = [one.row.model_copy(update={"arm": one.label}) for one in question.candidates]
    groups = [group for document in question.documents for group in document.groups if group.name in names]
    answer, asks_time = as_answer(decision, question, rows), decision.policy.asks_time
    if decision.outcome == "infeasible":
        asks_time = any(broken.limit in TIMED for one in decision.misses for broken in one.broken)
        first, last = _tell_infeasible(decision, question)
    else:
        figures = list(_tell_objective_of_leader(decision, question))
        first, last = tell_ship(answer, rows if decision.leader else (), figures, words), tell_next(answer, rows)
    yield first
    yield tell_question(answer, rows, question.documents)
    yield Line("Met", list(_tell_met_limits(decision)))
    yield Line("Unknown", list(_tell_unknown(decision)))
    yield from tell_support(answer, rows, groups if asks_time else (), words)
    yield Line("Redrawn", list(_tell_stability(decision)))
    yield last


def as_answer(decision: Decision, question: Question, rows: Sequence[Row]) -> Answer:
    """Return a decision as the answer of a run, with the labels of candidates in place of targets.

    Args:
        rows: of the candidates, by their labels.
    """
    leader, met = decision.leader, [one for one in decision.candidates if one.standing is Standing.MET]
    rivals = [Rival(arm=one.candidate, ratio=one.ratio) for one in met if one.ratio]
    answer = Answer(
        group=", ".join(decision.title),
        inputs=question.answers[0].inputs if question.answers else "",
        ship=None,
        alone=len(decision.candidates) == 1,
        reason=decision.reason if leader or not decision.candidates else "no target is known to meet every limit",
        tied=decision.tied,
        chosen_by=decision.chosen_by,
        unsettled=decision.unsettled,
        not_raced=tuple(group for one in question.answers for group in one.not_raced),
        sure=_find_sure(decision, question, rivals),
    )
    if leader is None:
        return _add_next(answer, decision, question, [decision.settle])
    play = question.of(leader).play
    known = {
        "ship": describe_shipped(play.row).model_copy(update={"arm": leader, "admitted": "policy"}),
        "eligible": (leader, *(one.arm for one in rivals)),
        "otherwise": _find_usual(decision, leader, rows),
        "would_change": tuple(_list_held_back(decision, question)),
    }
    if decision.is_open:
        more = [decision.settle, go_on(play.cell), measure_again(play.cell)]
        return _add_next(answer.model_copy(update=known), decision, question, more)
    known["no_folder"] = why_no_folder(play.row) or None
    is_one_race = len(question.cells) == 1
    options = write_policy(decision.policy) if is_one_race else [("--target", short(play.row.arm))]
    known["next"] = reach_folder(play.cell, play.row, options)
    return answer.model_copy(update=known)


def _find_sure(decision: Decision, question: Question, rivals: Iterable[Rival]) -> Sure:
    """Return how well founded a decision is.

    Args:
        rivals: the others that meet every limit, measured together with the one that leads or not.
    """
    beaten = [one for one in rivals if one.ratio and one.ratio.verdict is Verdict.SLOWER]
    holds = {answer.sure.control_holds for answer in question.answers}
    return Sure(
        restarts=max((one.play.cell.restarts for one in question.candidates), default=0),
        control_holds=None if None in holds else all(holds),
        slower=len(beaten),
        closest=min(beaten, key=lambda one: one.ratio.value if one.ratio else 0.0, default=None),
        command=decision.settle if decision.leader else None,
    )


def _add_next(answer: Answer, decision: Decision, question: Question, commands: Iterable[str | None]) -> Answer:
    """Return an answer with the first of these commands that there is; a run that goes on is decided on anew."""
    command = next(filter(None, commands), None)
    going_on = {document.resume for document in question.documents} | set(map(go_on, question.cells))
    is_unfinished = answer.ship is not None and not all(document.complete for document in question.documents)
    goes_on = command in going_on if command else is_unfinished
    if command and goes_on and write_policy(decision.policy):
        command = f"{command} && {decide_on(question, decision.policy)}"
    return answer.model_copy(update={"next": command, "goes_on": goes_on})


def _find_usual(decision: Decision, label: str, rows: Sequence[Row]) -> Rival | None:
    """Find what an expert would take otherwise on the same machine; None if that is the same."""
    here = [one for one in decision.candidates if one.machine == decision.of(label).machine and not one.fault]
    mine = {row.arm: row for row in rows if row.arm in {one.candidate for one in here}}
    usual = find_usual(mine.values(), mine[label], None)
    return Rival(arm=usual.arm, ratio=decision.of(usual.arm).ratio) if usual else None


def _list_held_back(decision: Decision, question: Question) -> Iterator[WouldChange]:
    """List what is better than the one that leads and isn't known to meet every limit, the best first."""
    leader = question.of(decision.leader or "").play
    found = [(one, one.ratio) for one in decision.candidates if one.ratio and one.standing is not Standing.MET]
    better = [(one, ratio) for one, ratio in found if is_faster(ratio) and not one.fault]
    for place, (judged, ratio) in enumerate(sorted(better, key=lambda one: one[1].value)):
        play = question.of(judged.candidate).play
        beside = [leader.row.arm] if leader.cell is play.cell else []
        is_first = not place and not judged.unmeasured
        refused = describe_refused(play.cell, play.row, ratio, [*beside, play.row.arm], is_first=is_first)
        is_unscored = any(map(lacks_figure, judged.limits))
        yield refused.model_copy(
            update={
                "arm": judged.candidate,
                "why": tell_why_not(decision, judged, refused.why or "" if is_unscored else ""),
                "measure": refused.measure if is_unscored else None,
            }
        )


def _tell_objective_of_leader(decision: Decision, question: Question) -> Iterator[str]:
    """Tell what the policy makes best of the one that leads, and the time of its calls if that is another figure."""
    if decision.leader is None:
        return
    policy, judged = decision.policy, decision.of(decision.leader)
    row = question.of(decision.leader).row
    told, is_time = tell_objective(decision, judged), policy.objective is Objective.LATENCY and policy.load is None
    is_bound = policy.objective in BY_RATE and row.serve is not None and row.serve.may_do_more
    side = ("at most " if policy.objective is Objective.COST else "at least ") if is_bound else ""
    doubt = ": higher rates failed in disturbed rounds alone" if is_bound else ""
    if policy.objective is Objective.COST:
        yield f"{side}{told} per million at {number(policy.cost_at(judged.objective or 1.0))}/s{doubt}"
    elif not is_time:
        yield f"{name_objective(policy)} {side}{told}{doubt}"
    if row.end_to_end and not row.serve and (is_time or policy.objective in EXACT):
        yield find_scenario(row.scenario).tell_time(row)


def name_objective(policy: Policy) -> str:
    """Name what a policy makes best, as the first line calls it."""
    is_served = policy.objective is Objective.LATENCY and policy.load is not None
    return "p99 under the load" if is_served else OBJECTIVES[policy.objective][0]


def tell_objective(decision: Decision, judged: Judged) -> str:
    """Write a candidate's objective with its unit, which all times have in common; "" if it isn't known."""
    value, objective = _find_shown(decision, judged), decision.policy.objective
    if value is None:
        return ""
    if objective in EXACT:
        return size(round(value))
    if objective is Objective.RATE:
        return f"{number(1 / value)}/s"
    if objective is Objective.COST:
        return f"{value:.3g}"
    shown = [found for one in decision.candidates if (found := _find_shown(decision, one)) is not None]
    return write_time(value, choose_unit(min(shown)))


def _find_shown(decision: Decision, judged: Judged) -> float | None:
    """Return the objective that is shown: the leading one's × the ratio if they ran together, so that both agree."""
    if decision.leader and judged.ratio and judged.ratio.restarts:
        return (decision.of(decision.leader).objective or 0.0) * judged.ratio.value
    return judged.objective


def _tell_met_limits(decision: Decision) -> Iterator[str]:
    """List the policy's own limits, and what the one that leads has."""
    for finding in decision.of(decision.leader).limits if decision.leader else ():
        if not finding.implied:
            is_alone = finding.limit is Limit.P99 and decision.policy.load is None
            yield tell_finding(finding) + (", one call after another" if is_alone else "")


def _tell_unknown(decision: Decision) -> Iterator[str]:
    """Name the candidates that may meet every limit and aren't known to be worse, by what isn't known of them."""
    unknown = (one for one in decision.candidates if one.standing is Standing.UNKNOWN)
    open_ = (one for one in unknown if not one.ratio or one.ratio.verdict is not Verdict.SLOWER)
    yield from fold(_tell_reasons(decision, (one for one in open_ if not is_faster(one.ratio))), NAMED)


def _tell_reasons(decision: Decision, among: Iterable[Judged]) -> Iterator[str]:
    """Tell why some may not be shipped, a reason that several share once."""
    sharing = dict[str, list[Judged]]()
    for judged in among:
        if why := tell_why_not(decision, judged, briefly=True):
            sharing.setdefault(why, []).append(judged)
    for why, (first, *others) in sharing.items():
        names = fold((short(one.candidate) for one in (first, *others)), NAMED)
        yield f"{', '.join(names)}: {why if others else tell_why_not(decision, first)}"


def _tell_stability(decision: Decision) -> Iterator[str]:
    """Tell what is chosen on resamples of the restarts, unless that is always the same."""
    if decision.chosen and decision.stability.get(decision.chosen, 1.0) < STABLE:
        often = [f"{100 * share:.0f} % choose {short(label)}" for label, share in decision.stability.items()]
        yield f"of 1,000 resamples of the restarts {', '.join(fold(often, NAMED))}"


def _tell_infeasible(decision: Decision, question: Question) -> tuple[Line, Line]:
    """Tell which candidate misses the limits by the least, first of those that one looser limit lets in, and how."""
    nearest, way_in = decision.misses[:1], Line("Next", ["no single limit lets a target in"])
    for judged in (one for one in decision.misses if one.is_let_in_by_one):
        if policy := loosen(decision.policy, question.candidates, question.of(judged.candidate)):
            remark = f"lets {short(judged.candidate)} in"
            command = Command(text=decide_on(question, policy), remark=remark)
            nearest, way_in = [judged], Line("Next", commands=[command])
            break
    return Line("None", list(map(_tell_miss, nearest)), subject="no target meets every limit"), way_in


def _tell_miss(judged: Judged) -> str:
    """Tell which limit a candidate is the furthest beyond, and by how much."""
    finding = judged.broken[0]
    excess = finding.excess or 0.0
    beyond = f"{100 * excess:.0f} % beyond it" if excess < 1 else f"{tell_factor(1 + excess)}x the limit"
    return f"nearest is {short(judged.candidate)}: {tell_finding(finding)}, {beyond}"


def tell_why_not(decision: Decision, judged: Judged, unscored: str = "", *, briefly: bool = False) -> str:
    """Tell why a candidate may not be shipped, or why that isn't known; "" if it may.

    Args:
        unscored: what the run says of an accuracy that it doesn't know.
        briefly: name broken limits alone, without the candidate's own figures, so that several share a reason.
    """
    if judged.fault or judged.standing is Standing.MET:
        return judged.fault or ""
    reasons = dict[str, list[str]]()
    for finding in (one for one in judged.limits if one.standing is judged.standing):
        if finding.standing is Standing.BROKEN:
            limit = f"{finding.limit} beyond {LIMITS[finding.limit].unit.tell_limit(finding.wanted)}"
            reasons.setdefault(limit if briefly else tell_finding(finding), [])
        elif lacks_figure(finding):
            reasons.setdefault(unscored, []).extend([] if unscored else ["accuracy"])
        else:
            reasons.setdefault(finding.reason or "", []).append(finding.limit)
    if judged.unmeasured:
        reasons.setdefault(judged.unmeasured, []).extend([] if judged.objective else [decision.policy.objective])
    known = {why: f" ({why})" if why else "" for why in reasons}
    return ", ".join(f"{' and '.join(what)} unknown{known[why]}" if what else why for why, what in reasons.items())


def compare_objective(decision: Decision, ratio: Ratio | None) -> str:
    """Compare a candidate with the one that leads, with a mark if the two were not measured together."""
    told = tell_ratio(ratio, words=OBJECTIVES[decision.policy.objective][1]) if ratio else ""
    return f"{told} {APART}" if ratio and _is_apart(decision, ratio) else told


def _is_apart(decision: Decision, ratio: Ratio) -> bool:
    return decision.policy.objective not in EXACT and not ratio.restarts


def list_candidates(decision: Decision) -> Table:
    """List the candidates, the best objective first: its figure, the comparison, and why not each."""

    def rank(judged: Judged) -> tuple[bool, float, str]:
        shown = _find_shown(decision, judged)
        return shown is None, shown or 0.0, judged.candidate

    best = sorted(decision.candidates, key=rank)
    marks = {one.candidate: " " if one.standing is Standing.MET else REFUSED for one in best}
    marks |= {decision.leader: SHIPS} if decision.leader else {}
    against = f"against {short(decision.leader)}" if decision.leader else "against"
    leads = LEADS if decision.is_open else SHIPPED
    columns = {
        "target": [f"{marks[one.candidate]} {one.candidate}" for one in best],
        name_objective(decision.policy): [tell_objective(decision, one) for one in best],
        against: [
            leads if one.candidate == decision.leader else compare_objective(decision, one.ratio) for one in best
        ],
        WHY_NOT: [tell_why_not(decision, one) for one in best],
    }
    told = {header: cells for header, cells in columns.items() if any(cells)}
    rows = [*zip(*told.values(), strict=True)]
    ships = next((place for place, one in enumerate(best) if one.candidate == decision.chosen), None)
    return Table(title="Candidates", headers=[*told], rows=rows, left={against, WHY_NOT} & told.keys(), ships=ships)
