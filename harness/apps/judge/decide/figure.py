"""Draw a decision: the objective and each limit of the policy, a line a candidate. Needs the drawing library."""

from __future__ import annotations

from collections.abc import Iterator

from shootout.apps.judge.decide.decision import Decision, Judged
from shootout.apps.judge.decide.policy import Objective
from shootout.apps.judge.decide.screen import compare_objective, name_objective, tell_objective, tell_why_not
from shootout.tell.document import Finding, tell_finding
from shootout.tell.limits import BYTES, LIMITS, NANOSECONDS, SHARE, Limit, Standing
from shootout.tell.page.charts import BEHIND, CHOSEN, EVEN, SOFT, cut
from shootout.tell.page.intervals import NAME, DotLine, DotPanel, draw_dots
from shootout.tell.report import Figure
from shootout.tell.table import SHIPPED

SHOWN = {NANOSECONDS.what: (1e-6, "ms"), BYTES.what: (1e-6, "MB"), SHARE.what: (100.0, "%")}
"""The factor and the unit with which a quantity is drawn; others are drawn as they are."""


def draw_decision(decision: Decision) -> Figure | None:
    """Draw a panel for the objective and one for each limit of the policy; return None if nothing has a figure."""
    return draw_dots(
        "Objective and limits",
        "The first panel compares each candidate's objective with the chosen one's; a bar is the 95 % interval, and "
        "the shaded stripe counts as equal. Below, a brown tick is a limit, and a bar reaches from the lowest to the "
        "highest value that the measurements allow. Blue: ships. Green: tied, open, or meets the limit. Brown: worse, "
        "or breaks the limit. Gray: not eligible, or unknown.",
        [panel for panel in find_panels(decision) if any(line.value is not None for line in panel.lines)],
    )


def find_panels(decision: Decision) -> Iterator[DotPanel]:
    """List the panel of the objective, and one for each limit; the best objective comes first in all panels."""
    candidates = sorted(decision.candidates, key=lambda judged: (judged.objective is None, judged.objective or 0.0))
    best = next((judged.objective for judged in candidates if judged.objective), None)
    base = decision.of(decision.chosen).objective if decision.chosen else best
    if base:
        near, objective = 1 + decision.policy.indifferent, decision.policy.objective
        what = "time per item" if objective is Objective.RATE else name_objective(decision.policy)
        yield DotPanel(
            title=f"Objective: {objective}",
            lines=[_place_objective(decision, judged, base) for judged in candidates],
            axis=f"{what} relative to {cut(decision.chosen or 'the least', NAME)}",
            at=1.0,
            band=(1 / near, near),
        )
    limits = dict.fromkeys(finding.limit for each in candidates for finding in each.limits if not finding.implied)
    yield from (_lay_out_limit(candidates, limit) for limit in limits)


def _place_objective(decision: Decision, judged: Judged, base: float) -> DotLine:
    ratio, is_chosen = judged.ratio, judged.candidate == decision.chosen
    told = SHIPPED if is_chosen else compare_objective(decision, ratio)
    is_even = judged.candidate in {rival.arm for rival in (*decision.tied, *decision.unsettled)}
    eligible = CHOSEN if is_chosen else EVEN if is_even else BEHIND
    return DotLine(
        name=judged.candidate,
        figure=tell_objective(decision, judged),
        told=", ".join(filter(None, [told, tell_why_not(decision, judged)])),
        color=eligible if judged.standing is Standing.MET else SOFT,
        value=ratio.value if ratio else judged.objective and judged.objective / base,
        ends=(ratio.low, ratio.high) if ratio else None,
    )


def _lay_out_limit(candidates: list[Judged], limit: Limit) -> DotPanel:
    quantity = LIMITS[limit]
    scale, unit = SHOWN.get(quantity.unit.what, (1.0, ""))
    found = [(judged, finding) for judged in candidates for finding in judged.limits if finding.limit is limit]
    wanted = found[0][1].wanted
    return DotPanel(
        title=f"Limit: {limit} at {quantity.side} {quantity.unit.tell_limit(wanted)}",
        lines=[_place_finding(judged.candidate, finding, scale) for judged, finding in found],
        axis=unit or str(limit),
        at=wanted * scale,
        is_limit=True,
        is_log=quantity.unit is not SHARE and limit is not Limit.DROP,
    )


def _place_finding(name: str, finding: Finding, scale: float) -> DotLine:
    words = tell_finding(finding).removeprefix(str(finding.limit)).strip(" :")
    most = LIMITS[finding.limit].unit.most
    value, low, high = (end and min(end, most) * scale for end in (finding.value, finding.low, finding.high))
    return DotLine(
        name=name,
        told=f"{finding.standing}: {words}",
        color={Standing.MET: EVEN, Standing.BROKEN: BEHIND, Standing.UNKNOWN: SOFT}[finding.standing],
        value=high if value is None else value,
        ends=None if value is None else (low, high),
    )
