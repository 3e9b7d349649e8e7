"""The plan of a run, for `--dry-run`: what it would do, and roughly how much time and memory it would take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from shootout.core import backends
from shootout.core.build.builder import leading_of, needs_of
from shootout.core.build.preparation import expected_s
from shootout.core.clock import Deadline
from shootout.core.constants import (
    AIMED_RESTARTS,
    BLOCK_CALLS,
    COPY,
    GPU_LEAD_IN_NS,
    LEAD_IN_NS,
    LONG_CALL_NS,
    LONG_COMPUTE_ROUNDS,
    LONG_ROUNDS,
    LONG_WARM_UP_CALLS,
    MIN_ROUNDS,
    ROUNDS,
    ROUNDS_BUDGET_NS,
    SLOW_CALL_NS,
    WARM_UP_CALLS,
)
from shootout.core.contract import Arm, Artifact, Value
from shootout.core.host.placement import lanes, lanes_near
from shootout.core.scenario import Terms, scenario_of
from shootout.core.stats.verdicts import LEAST_RESTARTS
from shootout.core.study.plan import Plan, PlannedGroup
from shootout.core.study.points import describe, metric_of
from shootout.core.units import counted, size, span
from shootout.models.onnx.effort import ModelSize
from shootout.models.sources import preview
from shootout.models.sources.preview import Preview
from shootout.tell.notes import Reason, fold_reasons

EXPORT_S = 1.0
PROFILED, PROFILED_SLOW, SLOW_PROFILE_S = 20, 3, 0.3
"""Calls that a build makes to see where their time goes; of slow ones few."""
LONG_CHECKS = 5
"""Long calls of an arm between its blocks, that check that it still computes."""
LEAST_DISK_BYTES = 10**8
"""Less isn't worth a line."""
SHOWN_GROUPS = 12
"""More groups than this are shown by their axes; `--json` has them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foresight:
    """Foresee what one group of a plan takes with an empty cache.

    Attributes:
        export_s: seconds of its exports.
        builds_s: seconds of each build.
        restart_s: seconds of its first restart.
        is_exported: whether there is time for its exports at all.
    """

    export_s: float
    builds_s: Sequence[float]
    restart_s: float
    is_exported: bool = True


def foresee(planned: Plan, max_time_s: float | None = None) -> list[Foresight]:
    """Foresee each group: the first ones by their models, the others of a large grid as the last of these.

    Args:
        max_time_s: the time of the whole command.
    """
    shown = [_foresee_group(planned, group, max_time_s) for group in planned.groups[:SHOWN_GROUPS]]
    return [shown[min(index, len(shown) - 1)] for index in range(len(planned.groups))]


def _foresee_group(planned: Plan, group: PlannedGroup, max_time_s: float | None) -> Foresight:
    size = preview.size_of(group.request, group.weight_bytes)
    building = [arm for arm in group.building if not arm.control]
    export_s, sets = _foresee_exports(planned, group, size, max_time_s)
    return Foresight(
        export_s=export_s,
        builds_s=[expected_s(group, arm) + profile_s(arm, size.call_s) for arm in building],
        restart_s=_restart_s(planned, group, size, sets or size.sets, max_time_s) if group.playing else 0.0,
        is_exported=sets > 0,
    )


def profile_s(arm: Arm, call_s: float) -> float:
    """Return the seconds of the calls that an arm's build profiles: those of runtimes that read the file itself."""
    if Artifact.ONNX not in describe(arm.target.backend)[0].consumes:
        return 0.0
    return (PROFILED_SLOW if call_s > SLOW_PROFILE_S else PROFILED) * call_s


def _foresee_exports(
    planned: Plan, group: PlannedGroup, size: ModelSize, max_time_s: float | None
) -> tuple[float, int]:
    """Return the seconds of a group's exports, and for how many input sets there is time."""
    building = [arm for arm in group.building if not arm.control]
    consumed = [describe(arm.target.backend)[0].consumes for arm in building]
    if all(Artifact.NONE in one for one in consumed):
        return (EXPORT_S if building else 0.0), size.sets
    return preview.foresee_export(
        group.request,
        size,
        needs_of(planned.groups),
        leading_of(planned.groups, any_error=planned.study.max_error > 0),
        Deadline(max_time_s),
        takes_module=any(group.request_of(arm).module for arm in building),
    )


def _restart_s(planned: Plan, group: PlannedGroup, size: ModelSize, sets: int, max_time_s: float | None) -> float:
    """Estimate the seconds of one restart: its arms load side by side and play one by one."""
    lanes_there = len(lanes_near(planned.placement))
    calls_s = {arm.label: size.call_s / max(arm.cpus, 1) for arm in group.playing}
    load_s = 0.0
    for arm in group.playing:
        row = backends.entry(arm.target.backend)
        checks_s = (1 + sets) * calls_s[arm.label]
        load_s += (row.ready_s + size.gb * row.ready_gb_s + checks_s) / lanes_there
    if planned.restart_s:
        return load_s + planned.restart_s
    terms = _terms_of(planned, group)
    usual_s, least_s = (
        sum(_rounds_s(arm, terms, calls_s[arm.label], rounds) for arm in group.playing)
        for rounds in (_count_rounds(calls_s.values()), MIN_ROUNDS)
    )
    if max_time_s is None:
        return load_s + usual_s
    return max(load_s + least_s, min(load_s + usual_s, max_time_s / 2 / AIMED_RESTARTS))


def _count_rounds(calls_s: Iterable[float]) -> int:
    """Return how many rounds a restart has: fewer of long calls."""
    round_s = 4 * sum(calls_s)
    return max(MIN_ROUNDS, min(ROUNDS, int(ROUNDS_BUDGET_NS / 1e9 / max(round_s, 1e-9))))


def least_seconds(planned: Plan, max_time_s: float | None = None) -> float:
    """Return the seconds of the fewest restarts."""
    each = zip(planned.groups, foresee(planned, max_time_s), strict=True)
    return sum(_count_fewest(planned, group) * one.restart_s for group, one in each)


def most_seconds(planned: Plan, max_time_s: float | None = None) -> float:
    """Return the seconds of as many restarts as the study or its time allows: nothing can be distinguished then.

    Args:
        max_time_s: the time of the whole command; the race has what exports and builds leave of it.
    """
    limit_s = planned.study.most_restarts * sum(one.restart_s for one in foresee(planned, max_time_s))
    if max_time_s is not None:
        return min(limit_s, max(0.0, max_time_s - preparing_s(planned, max_time_s)))
    return max(least_seconds(planned), min(limit_s, planned.racing_s or limit_s))


def preparing_s(planned: Plan, max_time_s: float | None = None) -> float:
    """Estimate the seconds of exports and builds with an empty cache; builds go side by side."""
    groups = foresee(planned, max_time_s)
    builds_s = [seconds for one in groups for seconds in one.builds_s]
    return sum(one.export_s for one in groups) + max(sum(builds_s) / len(lanes(planned.placement)), *builds_s, 0.0)


def _count_fewest(planned: Plan, group: PlannedGroup) -> int:
    fewest = max(LEAST_RESTARTS, group.record.least_restarts)
    return planned.study.turns or min(fewest, planned.study.most_restarts)


def _terms_of(planned: Plan, group: PlannedGroup) -> Terms:
    """Return what the arms of a group do in its restarts."""
    scenario = scenario_of(group.record.arms[0])
    return scenario.terms(group.record, planned.study.options_of(scenario), (), planned.restart_s)


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
        leads = 1 if call_s * 1e9 > SLOW_CALL_NS else 2
        return (LONG_WARM_UP_CALLS + leads * LONG_ROUNDS + LONG_COMPUTE_ROUNDS + LONG_CHECKS) * call_s
    block_s = max(scenario.block_ns / 1e9, BLOCK_CALLS * call_s)
    lead_s = max(LEAD_IN_NS / 1e9, call_s)
    warm_s = WARM_UP_CALLS * call_s
    ramp_s = GPU_LEAD_IN_NS / 1e9 if arm.target.device.is_gpu else 0.0
    return warm_s + (rounds + min(scenario.compute_rounds, rounds)) * (block_s + lead_s) + rounds * ramp_s


def _tell_restarts(planned: Plan, groups: Sequence[PlannedGroup]) -> str:
    if planned.restart_s:
        most = max(len(group.playing) for group in groups)
        slot_s = planned.restart_s / max(most, 1)
        rest_s = _terms_of(planned, groups[0]).rest_s(max(most, 1))
        dealt = f"{span(planned.study.dealt_s)} for {counted(most, 'target')} (the control is one)"
        turn = f"{span(slot_s - rest_s)} at least, after a rest of {span(rest_s)}"
        return f"  {counted(planned.study.turns, 'turn')} of each target: {dealt}, each turn {turn}"
    fewest = min(_count_fewest(planned, group) for group in groups)
    terms = sorted((_terms_of(planned, group) for group in groups), key=lambda one: not one.turn_s)
    counts = ((one.fewest, one.most or one.fewest) for one in terms)
    rounds = dict.fromkeys(" to ".join(dict.fromkeys(map(str, each))) for each in counts)
    return f"  {fewest} to {planned.study.most_restarts} restarts of {' or '.join(rounds)} rounds"


def needed_bytes(planned: Plan) -> int:
    """Return the peak memory of the largest group that can run; 0 if none can."""
    return max((group.needs_bytes for group in planned.groups if group.playing), default=0)


def needed_disk_bytes(planned: Plan) -> int:
    """Return what the exports and builds of all groups take on the disk, with an empty cache."""
    return sum(group.disk_bytes for group in planned.groups)


def as_data(planned: Plan, max_time_s: float | None = None, policy: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the plan as JSON values; `max_time_s`: the time of the whole command; `policy`: what the run decides by.

    `build_s` is the sum of all builds, and `restart_s` the first restart of the first group.
    """
    foreseen = foresee(planned, max_time_s)
    return {
        "study": planned.study.name,
        "threads": planned.placement.threads,
        "axes": {name: list(values) for name, values in varied(planned.groups).items()},
        "mix": asdict(mix) if (mix := planned.study.value_of("mix")) else None,
        "cells": len(_list_arms(planned.groups)),
        "goal": planned.study.aims_at,
        "policy": dict(policy) if policy else None,
        "racing_s": planned.racing_s if max_time_s is None else None,
        "max_time_s": max_time_s,
        "estimate_s": round(least_seconds(planned, max_time_s), 1),
        "most_s": round(most_seconds(planned, max_time_s), 1),
        "prepare_s": round(preparing_s(planned, max_time_s), 1),
        "export_s": round(sum(one.export_s for one in foreseen), 1),
        "build_s": round(sum(sum(one.builds_s) for one in foreseen), 1),
        "restart_s": round(foreseen[0].restart_s, 1),
        "memory_bytes": needed_bytes(planned),
        "memory_available_bytes": planned.here.memory_bytes,
        "disk_bytes": needed_disk_bytes(planned),
        "disk_available_bytes": planned.here.disk_bytes,
        "fits": needed_bytes(planned) <= planned.here.memory_bytes,
        "groups": [
            _group_data(planned, group, model) for group, model in zip_longest(planned.groups, _preview_models(planned))
        ],
    }


def _group_data(planned: Plan, group: PlannedGroup, model: Preview | None) -> dict[str, Any]:
    return {
        "name": group.record.name,
        "model": model and asdict(model),
        "baseline": group.record.baseline,
        "restarts": [_count_fewest(planned, group), planned.study.most_restarts],
        "arms": [arm.label for arm in group.playing],
        "skipped": {label: {"reason": why.reason, "fix": why.fix} for label, why in group.skips.items()},
        "memory_bytes": group.needs_bytes,
    }


def _list_arms(groups: Sequence[PlannedGroup]) -> list[Arm]:
    return [arm for group in groups for arm in group.record.arms if not arm.control]


def varied(groups: Sequence[PlannedGroup]) -> dict[str, tuple[Any, ...]]:
    """Return the axes along which the groups differ: their values, in the order of the plan."""
    values_of: dict[str, dict[Any, None]] = {}
    for group in groups:
        arm = group.record.arms[0]
        words = {"model": arm.model, "batch": arm.batch, "threads": arm.threads, "scenario": str(arm.scenario)}
        for name, value in {**words, **arm.parameters}.items():
            values_of.setdefault(name, {})[value] = None
    return {name: tuple(values) for name, values in values_of.items() if len(values) > 1}


def render(planned: Plan, max_time_s: float | None = None, policy: str = "") -> RenderableType:
    """Render the plan group by group, or by its axes if there are many.

    Args:
        max_time_s: as in `as_data`.
        policy: the line that tells what the run decides by, "" for none.
    """
    lines = _list_groups(planned) if len(planned.groups) <= SHOWN_GROUPS else _as_grid(planned)
    end = [
        *(str(group.arrivals) for group in planned.groups if group.arrivals),
        *([policy] if policy else []),
        _tell_measured(planned),
        _tell_time(planned, max_time_s),
        _tell_memory(planned),
        *_tell_disk(planned),
        "nothing was measured",
    ]
    return Group(*map(Text, [*lines, *end]))


def _preview_models(planned: Plan) -> list[Preview]:
    """Describe the model of each of the first groups."""
    return [preview.preview(group.request) for group in planned.groups[:SHOWN_GROUPS]]


def _describe_model(model: Preview) -> list[str]:
    facts = [f"{model.parameter_count:,} parameters"] if model.parameter_count is not None else []
    facts += [f"{model.flops / 1e9:.3g} GFLOP a call"] if model.flops else []
    lines = [*(f"input {told}" for told in model.inputs), *(f"note: {note}" for note in model.notes)]
    return [*lines, *(["; ".join(facts)] if facts else [])]


def _list_groups(planned: Plan) -> list[str]:
    lines: list[str] = []
    told: Preview | None = None
    for group, model in zip(planned.groups, _preview_models(planned), strict=True):
        lines.append(f"{group.record.name}")
        lines += [f"  {line}" for line in _describe_model(model)] if model != told else []
        told = model
        for arm in group.playing:
            role = " (baseline)" if arm.label == group.record.baseline else ""
            role = " (the control: a hidden copy)" if arm.control else role
            lines.append(f"  {arm.label.removesuffix(COPY)}{role}")
        skips = (Reason("skipped", label, why.reason, why.fix) for label, why in group.skips.items())
        lines += [f"  {line}" for _, line in fold_reasons(skips, full=False)]
        lines.append(_tell_restarts(planned, [group]))
    return lines


def _as_grid(planned: Plan) -> list[str]:
    groups = planned.groups
    lines = [f"{len(_list_arms(groups)):,} cells in {len(groups):,} groups"]
    lines += [f"  {name}: {_describe_axis(values)}" for name, values in varied(groups).items()]
    playing = Counter(arm.label for group in groups for arm in group.playing if not arm.control)
    lines += [f"  {label}: in {count:,} groups" for label, count in playing.items()]
    some = [group for group in groups if group.playing]
    skips = Counter((label, why.reason, why.fix) for group in some for label, why in group.skips.items())
    for (label, reason, fix), count in skips.most_common(SHOWN_GROUPS):
        lines.append(f"  skipped in {count:,} groups: {label}: {reason}{f'. Fix: {fix}' if fix else ''}")
    if len(skips) > SHOWN_GROUPS:
        lines.append(f"  and {len(skips) - SHOWN_GROUPS:,} other reasons: --json has them all")
    if out := [group for group in groups if not group.playing]:
        why = next(iter(out[0].skips.values()))
        lines.append(f"  nothing can run in {len(out):,} groups, such as {out[0].record.name}: {why.reason}")
    return [*lines, _tell_restarts(planned, groups)]


def _tell_measured(planned: Plan) -> str:
    """List what each arm's row will hold."""
    asked = dict.fromkeys(scenario_of(arm).measures for group in planned.groups for arm in group.record.arms)
    scored = any(group.request.source.may_be_scored(group.request) for group in planned.groups[:1])
    others = (metric_of(planned.study).metric, "error") if scored else ("error",)
    return f"each row: {', '.join([*asked, *others])}, what ran, sizes, memory"


def _tell_time(planned: Plan, max_time_s: float | None) -> str:
    least, most = least_seconds(planned, max_time_s), most_seconds(planned, max_time_s)
    before, foreseen = preparing_s(planned, max_time_s), foresee(planned, max_time_s)
    runs = f"goal {planned.study.aims_at}: about {span(least)} at least, {span(most)} at most"
    limit = "" if planned.racing_s is None else " (--max-time gives it more)"
    if max_time_s is not None:
        runs = f"goal {planned.study.aims_at}: about {span(least)} for the fewest restarts"
        limit = f", --max-time leaves {span(most)}" if most < least else f", {span(most)} at most"
    if not all(one.is_exported for one in foreseen):
        limit += ", which is too little for the export"
    return f"{runs}{limit}; exports and builds before: {span(before)}{_on_top(planned)}"


def _on_top(planned: Plan) -> str:
    """Name the groups that only the run itself will find."""
    selects = any(group.record.selects_for for group in planned.groups)
    return "; groups that confirm a choice come on top" if selects else ""


def _tell_memory(planned: Plan) -> str:
    has = f"{size(planned.here.memory_bytes)} are there"
    if needs := needed_bytes(planned):
        return f"memory: about {size(needs)} for the largest group that runs, {has}"
    untold = "only the export tells what the model takes; " if any(group.playing for group in planned.groups) else ""
    return f"memory: {untold}{has}"


def _tell_disk(planned: Plan) -> Iterator[str]:
    if (needs := needed_disk_bytes(planned)) > LEAST_DISK_BYTES and (free := planned.here.disk_bytes) is not None:
        yield f"disk: about {size(needs)} for exports and builds, {size(free)} are free"


def _describe_axis(values: tuple[Value, ...]) -> str:
    """Describe an axis in a few words: `4 values: 1, 2, 4, 8`, without the middle of a long one."""
    if len(values) == 1:
        return str(values[0])
    shown = [str(value) for value in values]
    if len(shown) > 8:
        shown = [*shown[:4], "…", *shown[-2:]]
    return f"{len(values):,} values: {', '.join(shown)}"
