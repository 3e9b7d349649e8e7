"""Decide whether a group's verdicts stand: the control must come out like the baseline, and both arms must be sound."""

from __future__ import annotations

from dataclasses import replace

from shootout.core.constants import CONTROL_WITHIN
from shootout.core.contract import NotRun, NotRunKind
from shootout.core.messages import Scope
from shootout.core.results.group import Group, against
from shootout.core.stats.verdicts import Comparison, Verdict
from shootout.core.stats.warmup import is_unsteady


def withheld(group: Group, label: str, other: str | None) -> str | None:
    """Return why no verdict on an arm against another may be given, whatever the interval says; None when one may."""
    reasons = (unvouched(group), unfit_for(group, label), unfit_for(group, other))
    return next(filter(None, reasons), None)


def judged(group: Group, scope: Scope, label: str | None, other: str | None) -> Comparison | None:
    """Return an arm against another, with the reason in place of a verdict that may not be given; None as `against`."""
    found = against(group, scope, label, other)
    why = withheld(group, label, other) if found and label else None
    return replace(found, verdict=Verdict.CANT_TELL, reason=why) if found and why else found


def unvouched(group: Group) -> str | None:
    """Return why no verdict of a group stands: its control is missing or differs; None if they stand."""
    if why := _why_gone(group, group.rules.control):
        return f"the control (a hidden copy of the baseline) {_tell_fate(why)}: {why.reason}"
    if group.rules.control and (why := _why_gone(group, group.rules.baseline)):
        return f"the baseline {_tell_fate(why)}, so no control checks this group"
    copy = against(group, Scope.END_TO_END, group.rules.control, group.rules.baseline)
    return (
        "the baseline came out different from its control, a hidden copy" if copy_holds(group, copy) is False else None
    )


def copy_holds(group: Group, found: Comparison | None) -> bool | None:
    """Return whether the baseline's hidden copy, compared with it, came out like it; None: nothing shows it yet."""
    if found is None:
        return False if group.played.get(group.rules.baseline or "") else None
    if found.verdict in (Verdict.FASTER, Verdict.SLOWER):
        return False
    low, high = found.ends
    return True if low and high and max(1 / low, high) <= 1 + CONTROL_WITHIN else None


def unfit_for(group: Group, label: str | None) -> str | None:
    """Return why no verdict on one arm may be given, whatever the other one is; None when one may."""
    if why := _why_gone(group, label):
        return f"{label} {_tell_fate(why, 'left the race')}: {why.reason}"
    starts = group.steady_from.get(label or "", [])
    if is_unsteady(starts):
        return f"{label} found no steady state in {starts.count(None)} of {len(starts)} restarts"
    return None


def _why_gone(group: Group, label: str | None) -> NotRun | None:
    """Return what took an arm out of the race; what it measured before the time was over counts."""
    why = group.setbacks.get(label or "")
    return None if why and why.kind is NotRunKind.NOT_REACHED and group.played.get(label or "") else why


def _tell_fate(why: NotRun, otherwise: str = "failed") -> str:
    """Return what became of an arm that is out."""
    return {NotRunKind.NOT_REACHED: "had no time yet", NotRunKind.SOFTWARE: "is never timed"}.get(why.kind, otherwise)
