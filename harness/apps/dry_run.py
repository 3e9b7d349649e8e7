"""The plan of a run, for `--dry-run`: what it would do, and roughly how much time and memory it would take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from shootout.core import backends
from shootout.core.build.preparation import expected_s
from shootout.core.constants import (
    AIMED_RESTARTS,
    BLOCK_CALLS,
    COPY,
    LEAD_IN_NS,
    LONG_CALL_NS,
    LONG_COMPUTE_ROUNDS,
    LONG_ROUNDS,
    LONG_WARM_UP_CALLS,
    MIN_ROUNDS,
    ROUNDS,
    ROUNDS_BUDGET_NS,
    WARM_UP_CALLS,
)
from shootout.core.contract import Arm
from shootout.core.exported.request import EXPORT_SHARE
from shootout.core.host.placement import lanes, lanes_near
from shootout.core.scenario import Terms, scenario_of
from shootout.core.stats.verdicts import LEAST_RESTARTS
from shootout.core.study.plan import Plan, PlannedGroup
from shootout.core.units import counted, size, span
from shootout.models.onnx.effort import ModelSize
from shootout.models.sources import preview
from shootout.models.sources.preview import Preview
from shootout.tell.notes import Reason, fold_reasons

FORESEEN_GROUPS, SHOWN_GROUPS = 12, 3
"""Groups of a large grid that are foreseen, the others as the last of these, and that are shown; `--json` has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foresight:
    """Foresee what a plan takes with an empty cache, in seconds.

    Attributes:
        export_s, build_s: the sums of all exports, and of all builds.
        prepare_s: both, builds side by side.
        restart_s: the first restart of the first group.
        least_s: the fewest restarts.
        most_s: as many restarts as the study or its time allows: nothing can be distinguished then.
    """

    export_s: float
    build_s: float
    prepare_s: float
    restart_s: float
    least_s: float
    most_s: float


def foresee(plan: Plan, max_time_s: float | None = None) -> Foresight:
    """Foresee a plan's times.

    Args:
        max_time_s: the time of the whole command; the race has what exports and builds leave of it.
    """
    exports_s, builds_s, restarts_s = list[float](), list[float](), list[float]()
    for group in plan.groups[:FORESEEN_GROUPS]:
        size_here = preview.size_of(group.request, group.weight_bytes)
        building = [arm for arm in group.building if not arm.control]
        takes_module = any(group.request_of(arm).module for arm in building)
        seconds = preview.foresee_export(group.request, size_here, takes_module=takes_module)
        if max_time_s is not None:
            seconds = min(seconds, EXPORT_SHARE * max_time_s)  # what doesn't fit is left out
        exports_s.append(seconds if building else 0.0)
        builds_s += [expected_s(group, arm) for arm in building]
        restarts_s.append(_restart_s(plan, group, size_here, max_time_s))
    more = len(plan.groups) - len(restarts_s)
    restarts_s += restarts_s[-1:] * more
    export_s = sum(exports_s) + sum(exports_s[-1:]) * more
    build_s = sum(builds_s) * len(plan.groups) / max(len(exports_s), 1)
    prepare_s = export_s + max(build_s / len(lanes(plan.placement)), *builds_s, 0.0)
    least_s = sum(_count_fewest(plan, group) * one for group, one in zip(plan.groups, restarts_s, strict=True))
    most_s = plan.study.most_restarts * sum(restarts_s)
    if max_time_s is not None:
        most_s = min(most_s, max(0.0, max_time_s - prepare_s))
    else:
        most_s = max(least_s, min(most_s, plan.racing_s or most_s))
    before_s = {"export_s": export_s, "build_s": build_s, "prepare_s": prepare_s}
    return Foresight(**before_s, restart_s=restarts_s[0], least_s=least_s, most_s=most_s)


def _restart_s(plan: Plan, group: PlannedGroup, size: ModelSize, max_time_s: float | None) -> float:
    """Estimate the seconds of one restart: its arms load side by side and play one by one."""
    if not group.playing:
        return 0.0
    calls_s = {arm.label: size.call_s / max(arm.cpus, 1) for arm in group.playing}
    rows = {arm.label: backends.entry(arm.target.backend) for arm in group.playing}
    loads_s = (row.ready_s + size.gb * row.ready_gb_s + (1 + size.sets) * calls_s[name] for name, row in rows.items())
    load_s = sum(loads_s) / len(lanes_near(plan.placement))
    if plan.restart_s:
        return load_s + plan.restart_s
    fitting = int(ROUNDS_BUDGET_NS / 1e9 / max(4 * sum(calls_s.values()), 1e-9))
    terms = _terms_of(plan, group)
    usual_s, least_s = (
        sum(_rounds_s(arm, terms, calls_s[arm.label], rounds) for arm in group.playing)
        for rounds in (max(MIN_ROUNDS, min(ROUNDS, fitting)), MIN_ROUNDS)
    )
    if max_time_s is None:
        return load_s + usual_s
    return max(load_s + least_s, min(load_s + usual_s, max_time_s / 2 / AIMED_RESTARTS))


def _rounds_s(arm: Arm, terms: Terms, call_s: float, rounds: int) -> float:
    """Estimate an arm's own part of all rounds, its warm-up included.

    Args:
        terms: tell how many there are, where each takes a set time.
        call_s: seconds of a call.
        rounds: how many there are, where each takes as long as its calls.
    """
    if terms.turn_s:
        return terms.fewest * terms.turn_s
    scenario = scenario_of(arm)
    if call_s * 1e9 > LONG_CALL_NS:
        return (LONG_WARM_UP_CALLS + 2 * LONG_ROUNDS + LONG_COMPUTE_ROUNDS) * call_s
    round_s = max(scenario.block_ns / 1e9, BLOCK_CALLS * call_s) + max(LEAD_IN_NS / 1e9, call_s)
    return WARM_UP_CALLS * call_s + (rounds + min(scenario.compute_rounds, rounds)) * round_s


def _count_fewest(plan: Plan, group: PlannedGroup) -> int:
    fewest = max(LEAST_RESTARTS, group.record.least_restarts)
    return plan.study.turns or min(fewest, plan.study.most_restarts)


def _terms_of(plan: Plan, group: PlannedGroup) -> Terms:
    """Return what the arms of a group do in its restarts."""
    scenario = scenario_of(group.record.arms[0])
    return scenario.terms(group.record, plan.study.options_of(scenario), (), plan.restart_s)


def needed_bytes(plan: Plan) -> int:
    """Return the peak memory of the largest group that can run; 0 if none can."""
    return max((group.needs_bytes for group in plan.groups if group.playing), default=0)


def as_data(plan: Plan, max_time_s: float | None = None, policy: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the plan as JSON values.

    Args:
        max_time_s: the time of the whole command.
        policy: what the run decides by.
    """
    foreseen = foresee(plan, max_time_s)
    return {
        "study": plan.study.name,
        "threads": plan.placement.threads,
        "mix": asdict(mix) if (mix := plan.study.value_of("mix")) else None,
        "cells": _count_cells(plan),
        "goal": plan.study.aims_at,
        "policy": dict(policy) if policy else None,
        "racing_s": plan.racing_s if max_time_s is None else None,
        "max_time_s": max_time_s,
        "estimate_s": round(foreseen.least_s, 1),
        "most_s": round(foreseen.most_s, 1),
        "takes": _tell_time(plan, foreseen, max_time_s),
        "prepare_s": round(foreseen.prepare_s, 1),
        "export_s": round(foreseen.export_s, 1),
        "build_s": round(foreseen.build_s, 1),
        "restart_s": round(foreseen.restart_s, 1),
        "memory_bytes": needed_bytes(plan),
        "memory_available_bytes": plan.here.memory_bytes,
        "groups": [
            {
                "name": group.record.name,
                "model": asdict(preview.preview(group.request)) if number < FORESEEN_GROUPS else None,
                "baseline": group.record.baseline,
                "restarts": [_count_fewest(plan, group), plan.study.most_restarts],
                "arms": [arm.label for arm in group.playing],
                "skipped": {label: {"reason": why.reason, "fix": why.fix} for label, why in group.skips.items()},
                "memory_bytes": group.needs_bytes,
            }
            for number, group in enumerate(plan.groups)
        ],
    }


def _count_cells(plan: Plan) -> int:
    return sum(not arm.control for group in plan.groups for arm in group.record.arms)


def render(plan: Plan, max_time_s: float | None = None, policy: str = "") -> RenderableType:
    """Render the plan group by group.

    Args:
        max_time_s: as in `as_data`.
        policy: the line that tells what the run decides by, "" for none.
    """
    lines, told = list[str](), None
    shown = plan.groups if len(plan.groups) <= FORESEEN_GROUPS else plan.groups[:SHOWN_GROUPS]
    for group in shown:
        model = preview.preview(group.request)
        lines += [group.record.name, *([f"  {line}" for line in _describe_model(model)] if model != told else [])]
        told = model
        for arm in group.playing:
            role = " (baseline)" if arm.label == group.record.baseline else ""
            role = " (the control: a hidden copy)" if arm.control else role
            lines.append(f"  {arm.label.removesuffix(COPY)}{role}")
        skips = (Reason("skipped", label, why.reason, why.fix) for label, why in group.skips.items())
        lines += [f"  {line}" for _, line in fold_reasons(skips, full=False)]
        lines.append(_tell_restarts(plan, group))
    if more := len(plan.groups) - len(shown):
        lines.append(f"and {more:,} groups more, {_count_cells(plan):,} cells in all: --json lists them")
    lines += [str(group.arrivals) for group in plan.groups if group.arrivals]
    needs = needed_bytes(plan)
    takes = f"about {size(needs)} for the largest group that runs" if needs else "only the export tells what it takes"
    memory = f"memory: {takes}, {size(plan.here.memory_bytes)} are there"
    time = f"goal {plan.study.aims_at}: {_tell_time(plan, foresee(plan, max_time_s), max_time_s)}"
    lines += [*([policy] if policy else []), time, memory, "nothing was measured"]
    return Group(*map(Text, lines))


def _describe_model(model: Preview) -> list[str]:
    facts = [f"{model.parameter_count:,} parameters"] if model.parameter_count is not None else []
    facts += [f"{model.flops / 1e9:.3g} GFLOP a call"] if model.flops else []
    lines = [*(f"input {told}" for told in model.inputs), *(f"note: {note}" for note in model.notes)]
    return [*lines, *(["; ".join(facts)] if facts else [])]


def _tell_restarts(plan: Plan, group: PlannedGroup) -> str:
    if plan.restart_s:
        dealt = f"{span(plan.study.dealt_s)} for {counted(len(group.playing), 'target')} (the control is one)"
        return f"  {counted(plan.study.turns, 'turn')} of each target: {dealt}, each after a rest"
    terms = _terms_of(plan, group)
    rounds = " to ".join(dict.fromkeys(map(str, (terms.fewest, terms.most or terms.fewest))))
    return f"  {_count_fewest(plan, group)} to {plan.study.most_restarts} restarts of {rounds} rounds"


def _tell_time(plan: Plan, foreseen: Foresight, max_time_s: float | None) -> str:
    least, most = span(foreseen.least_s), span(foreseen.most_s)
    if max_time_s is None:
        limit = "" if plan.racing_s is None else " (--max-time gives it more)"
        runs = f"about {least} at least, {most} at most{limit}"
    elif foreseen.most_s < foreseen.least_s:
        some = " of ".join(map(str, _count_in_time(plan, foreseen, max_time_s)))
        runs = f"{span(max_time_s)} are too short for all: about {some} targets; the fewest restarts take {least}"
    else:
        runs = f"about {least} for the fewest restarts, {most} at most"
    return f"{runs}; exports and builds before: {span(foreseen.prepare_s)}"


def _count_in_time(plan: Plan, foreseen: Foresight, max_time_s: float) -> tuple[int, int]:
    """Count the targets that too short a time leaves room for, those first that build soonest; and all of them."""
    builds_s = sorted(expected_s(group, arm) for group in plan.groups for arm in group.playing if not arm.control)
    share_s, side_by_side = (foreseen.export_s + foreseen.least_s) / len(builds_s), len(lanes(plan.placement))
    needs_s = (
        number * share_s + max(sum_s / side_by_side, build_s)
        for number, (build_s, sum_s) in enumerate(zip(builds_s, accumulate(builds_s), strict=True), 1)
    )
    return min(sum(one <= max_time_s for one in needs_s), len(builds_s) - 1), len(builds_s)
