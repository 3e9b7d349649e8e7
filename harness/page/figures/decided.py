"""A decision's figure: each candidate's objective against the chosen one's, then each limit with who meets it."""

from __future__ import annotations

from collections.abc import Iterator

from shootout.decide.decision import Decision, Judged
from shootout.decide.limits import Finding
from shootout.decide.options import BYTES, LIMITS, NANOSECONDS, POINTS, SHARE, Limit
from shootout.decide.policy import Objective
from shootout.page.figures.charts import BEHIND, CHOSEN, EVEN, SOFT, Chart, cut, stack
from shootout.page.figures.dots import MOST_ARMS, Axis, Line, panel
from shootout.report.decision import tell_finding, tell_objective
from shootout.report.figures import known
from shootout.stats.verdicts import Standing
from shootout.study.group import short
from shootout.units import counted

MOST_LIMITS = 5
WHAT = {
    Objective.LATENCY: "time",
    Objective.RATE: "time an item",
    Objective.COST: "cost",
    Objective.SIZE: "size",
    Objective.INSTALL: "installed bytes",
}
SHOWN = {
    NANOSECONDS.what: (1e-6, "ms"),
    BYTES.what: (1e-6, "MB"),
    SHARE.what: (100.0, "%"),
    POINTS.what: (100.0, "points"),
}
"""What a figure is multiplied by, and its unit then; others are shown as they are."""


def draw(decision: Decision, *, narrow: bool) -> Chart | None:
    """A panel for the objective and one for each limit of the policy; None where nothing has a figure."""
    panels = [
        panel(lines, axis, narrow=narrow, title=title)
        for title, lines, axis in find_panels(decision)
        if any(line.value is not None for line in lines)
    ]
    if not panels:
        return None
    return stack(panels, spacing=18)


def left_out(decision: Decision) -> str:
    """What the figure has no room for."""
    more = len(decision.candidates) - MOST_ARMS
    return f"Not drawn: {counted(more, 'more candidate')}." if more > 0 else ""


def find_panels(decision: Decision) -> Iterator[tuple[str, list[Line], Axis]]:
    """(title, the candidates' lines, the axis) of each panel; the best objective first in all of them."""
    judged = sorted(decision.candidates, key=lambda one: (one.objective is None, one.objective or 0.0))
    best = next((one.objective for one in judged if one.objective), None)
    base = decision.of(decision.chosen).objective if decision.chosen else best
    if base:
        against = f"{cut(short(decision.chosen), 24)}'s" if decision.chosen else "the least"
        near = 1 + decision.policy.indifferent
        axis = Axis(title=f"{WHAT[decision.policy.objective]} ÷ {against}", at=1.0, band=(1 / near, near))
        yield f"Objective: {decision.policy.objective}", [_objective(decision, one, base) for one in judged], axis
    limits = list(dict.fromkeys(one.limit for each in judged for one in each.limits if not one.implied))
    for limit in limits[:MOST_LIMITS]:
        yield _limit(decision, judged, limit)


def _objective(decision: Decision, one: Judged, base: float) -> Line:
    colour = _colour(decision, one)
    why = [
        tell_finding(finding)
        for standing in (Standing.BROKEN, Standing.UNKNOWN)
        for finding in one.limits
        if finding.standing is standing
    ]
    if one.fault:
        why = [one.fault]
    elif one.unmeasured and one.objective:
        why.append(one.unmeasured)
    place = one.objective / base if one.objective else None
    told = tell_objective(decision, one) if one.objective else one.unmeasured or "not measured"
    if one.candidate == decision.chosen:
        return Line(name=short(one.candidate), told=f"{told}, to ship", colour=colour, value=1.0)
    if colour == SOFT and why:
        told = f"{told}; {why[0]}"
    elif one.ratio:
        told = f"{known(one.ratio)}{', tied' if colour == EVEN else ''}"
    if one.ratio is None:
        return Line(name=short(one.candidate), told=told, colour=colour, value=place)
    return Line(
        name=short(one.candidate),
        told=told,
        colour=colour,
        value=one.ratio.value,
        low=one.ratio.low,
        high=one.ratio.high,
        is_known=True,
    )


def _colour(decision: Decision, one: Judged) -> str:
    if one.candidate == decision.chosen:
        return CHOSEN
    if one.candidate in {rival.arm for rival in decision.tied}:
        return EVEN
    return BEHIND if one.standing is Standing.MET else SOFT


def _limit(decision: Decision, judged: list[Judged], limit: Limit) -> tuple[str, list[Line], Axis]:
    """One limit: who meets it, who breaks it, of whom nobody knows."""
    quantity = LIMITS[limit]
    scale, unit = SHOWN.get(quantity.unit.what, (1.0, ""))
    found = [(one, finding) for one in judged for finding in one.limits if finding.limit is limit]
    wanted = found[0][1].wanted
    side = "at most" if quantity.side == "most" else "at least"
    is_log = quantity.unit not in (SHARE, POINTS)
    axis = Axis(title=unit or str(limit), at=wanted * scale, is_limit=True, is_log=is_log)
    lines = [_against(decision, one, finding, scale) for one, finding in found]
    return f"Limit: {limit} {side} {quantity.unit.told(wanted)}", lines, axis


def _against(decision: Decision, one: Judged, finding: Finding, scale: float) -> Line:
    told = {Standing.MET: "met", Standing.BROKEN: "broken", Standing.UNKNOWN: "unknown"}[finding.standing]
    words = tell_finding(finding).removeprefix(str(finding.limit)).strip(" :")
    colour = BEHIND if finding.standing is Standing.BROKEN else SOFT
    if finding.standing is Standing.MET:
        colour = CHOSEN if one.candidate == decision.chosen else EVEN
    value, low, high = (None if end is None else end * scale for end in (finding.value, finding.low, finding.high))
    return Line(
        name=short(one.candidate),
        told=f"{told}: {words}",
        colour=colour,
        value=high if value is None else value,
        low=low,
        high=high,
        is_known=value is not None,
    )
