"""Draw a decision: the objective and each limit of the policy, a line a candidate. Needs the drawing library."""

from __future__ import annotations

from collections.abc import Iterator

from shootout.apps.judge.decide.decision import Decision, Judged
from shootout.apps.judge.decide.policy import Objective
from shootout.apps.judge.decide.screen import compare_objective, tell_objective
from shootout.core.errors import UsageError
from shootout.core.units import counted
from shootout.tell.document import Finding, tell_finding
from shootout.tell.limits import BYTES, LIMITS, NANOSECONDS, SHARE, Limit, Standing
from shootout.tell.page.charts import BEHIND, CHOSEN, EVEN, SOFT, Chart, complete, cut, stack
from shootout.tell.page.intervals import MOST_TARGETS, NAME, Axis, DotLine, draw_panel
from shootout.tell.table import SHIPPED

MOST_LIMITS = 5
WHAT = {
    Objective.LATENCY: "time",
    Objective.RATE: "time per item",
    Objective.CPU: "CPU time",
    Objective.COST: "cost",
    Objective.SIZE: "size",
    Objective.INSTALL: "installed bytes",
}
SHOWN = {
    NANOSECONDS.what: (1e-6, "ms"),
    BYTES.what: (1e-6, "MB"),
    SHARE.what: (100.0, "%"),
}
"""The factor and the unit with which a quantity is drawn; others are drawn as they are."""


def draw_decision(decision: Decision) -> Chart | None:
    """Draw a panel for the objective and one for each limit of the policy; return None if nothing has a figure."""
    panels = [panel for panel in find_panels(decision) if any(line.value is not None for line in panel[1])]
    return stack([draw_panel(*panel) for panel in panels])


def plot_decision(decision: Decision) -> Chart:
    """Draw the same for a notebook or a file.

    Raises:
        UsageError: no candidate has a figure.
    """
    if (chart := draw_decision(decision)) is None:
        raise UsageError("no candidate has a figure to draw: measure what the policy limits")
    return complete(chart)


def tell_undrawn_candidates(decision: Decision) -> str:
    """Say what the figure has no room for."""
    more = len(decision.candidates) - MOST_TARGETS
    return f"Not drawn: {counted(more, 'more candidate')}." if more > 0 else ""


def describe_decision(decision: Decision) -> str:
    """Describe the figure to a reader who can't see it: each panel's candidates, and how they stand."""
    told = []
    for title, lines, _ in find_panels(decision):
        candidates = (f"{line.name} {line.figure} {line.told}" for line in lines[:MOST_TARGETS])
        told.append(f"{title}: {'; '.join(candidates)}.")
    return " ".join(told)


def find_panels(decision: Decision) -> Iterator[tuple[str, list[DotLine], Axis]]:
    """List title, lines of candidates and axis of each panel; the best objective comes first in all panels."""
    candidates = sorted(decision.candidates, key=lambda judged: (judged.objective is None, judged.objective or 0.0))
    best = next((judged.objective for judged in candidates if judged.objective), None)
    base = decision.of(decision.chosen).objective if decision.chosen else best
    if base:
        reference = cut(decision.chosen or "the least", NAME)
        near = 1 + decision.policy.indifferent
        axis = Axis(title=f"{WHAT[decision.policy.objective]} relative to {reference}", at=1.0, band=(1 / near, near))
        yield (
            f"Objective: {decision.policy.objective}",
            [_place_objective(decision, judged, base) for judged in candidates],
            axis,
        )
    limits = list(dict.fromkeys(finding.limit for each in candidates for finding in each.limits if not finding.implied))
    for limit in limits[:MOST_LIMITS]:
        yield _lay_out_limit(decision, candidates, limit)


def _place_objective(decision: Decision, judged: Judged, base: float) -> DotLine:
    color = _choose_color(decision, judged)
    why = [
        tell_finding(finding)
        for standing in (Standing.BROKEN, Standing.UNKNOWN)
        for finding in judged.limits
        if finding.standing is standing
    ]
    if judged.fault:
        why = [judged.fault]
    elif judged.unmeasured and judged.objective:
        why.append(judged.unmeasured)
    place = judged.objective / base if judged.objective else None
    figure = tell_objective(decision, judged).removesuffix(" a call") if judged.objective else ""
    name = judged.candidate
    if name == decision.chosen:
        return DotLine(name=name, figure=figure, told=SHIPPED, color=color, value=1.0)
    told = compare_objective(decision, judged.ratio) if judged.ratio else ""
    if color == SOFT and why:
        told = f"{told}, {why[0]}" if told else why[0]
    elif not judged.objective:
        told = judged.unmeasured or "not measured"
    if judged.ratio is None:
        return DotLine(name=name, figure=figure, told=told, color=color, value=place)
    return DotLine(
        name=name,
        figure=figure,
        told=told,
        color=color,
        value=judged.ratio.value,
        low=judged.ratio.low,
        high=judged.ratio.high,
        is_known=True,
    )


def _choose_color(decision: Decision, judged: Judged) -> str:
    if judged.candidate == decision.chosen:
        return CHOSEN
    if judged.candidate in {rival.arm for rival in (*decision.tied, *decision.unsettled)}:
        return EVEN
    return BEHIND if judged.standing is Standing.MET else SOFT


def _lay_out_limit(decision: Decision, candidates: list[Judged], limit: Limit) -> tuple[str, list[DotLine], Axis]:
    quantity = LIMITS[limit]
    scale, unit = SHOWN.get(quantity.unit.what, (1.0, ""))
    found = [(judged, finding) for judged in candidates for finding in judged.limits if finding.limit is limit]
    wanted = found[0][1].wanted
    side = "at most" if quantity.side == "most" else "at least"
    is_log = quantity.unit is not SHARE and limit is not Limit.DROP
    axis = Axis(title=unit or str(limit), at=wanted * scale, is_limit=True, is_log=is_log)
    lines = [_place_against_limit(decision, judged, finding, scale) for judged, finding in found]
    return f"Limit: {limit} {side} {quantity.unit.tell_limit(wanted)}", lines, axis


def _place_against_limit(decision: Decision, judged: Judged, finding: Finding, scale: float) -> DotLine:
    told = {Standing.MET: "met", Standing.BROKEN: "broken", Standing.UNKNOWN: "unknown"}[finding.standing]
    words = tell_finding(finding).removeprefix(str(finding.limit)).strip(" :")
    color = BEHIND if finding.standing is Standing.BROKEN else SOFT
    if finding.standing is Standing.MET:
        color = CHOSEN if judged.candidate == decision.chosen else EVEN
    most = LIMITS[finding.limit].unit.most
    ends = (None if end is None else min(end, most) * scale for end in (finding.value, finding.low, finding.high))
    value, low, high = ends
    return DotLine(
        name=judged.candidate,
        told=f"{told}: {words}",
        color=color,
        value=high if value is None else value,
        low=low,
        high=high,
        is_known=value is not None,
    )
