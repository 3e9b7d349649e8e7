"""The plan of a run, for `--dry-run`: what it would do, and roughly how much time and memory it would take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from shootout import backends
from shootout.build.pool import lanes, lanes_near
from shootout.build.preparation import expected_s
from shootout.constants import (
    BLOCK_NS,
    COPY,
    GIVEN_ROUNDS,
    GPU_LEAD_IN_NS,
    LEAD_IN_NS,
    ROUNDS,
    SERVE_LEAD_IN,
    SERVE_ROUNDS,
    SERVE_STEP_S,
    SUSTAINED_REST,
    WINDOW_NS,
)
from shootout.contract import Arm, Artifact, Scenario
from shootout.export.request import labels_of
from shootout.exported import data_files, truth_files
from shootout.report.notes import Reason, fold_reasons
from shootout.stats.evidence import min_restarts
from shootout.study import axes
from shootout.study.group import compute_rounds
from shootout.study.plan import Plan, PlannedGroup
from shootout.study.points import describe, rows_of
from shootout.study.preview import InputPreview, Preview, preview
from shootout.study.schema import Study
from shootout.units import counted, size, span

EXPORT_S = 1.0
EXPORTER_S = 6.0
"""One process makes all exports, and imports torch first."""
SHOWN_OPERATORS = 6
MEASURED = {
    Scenario.LATENCY: "the time of a call, end to end and of its computing alone",
    Scenario.THROUGHPUT: "items a second, of several sessions at once",
    Scenario.TRAIN_STEP: "the time of a training step",
    Scenario.SERVE: "the latencies of requests that arrive by themselves",
    Scenario.SUSTAINED: "the time of a call at the beginning and at the end of long turns",
    Scenario.VARYING: "the time of a call on a stream of sizes",
}
SHOWN_GROUPS = 12
"""More groups than this are shown by their axes; `--json` has them all."""


def least_seconds(planned: Plan) -> float:
    """Return the seconds of the fewest restarts, for calls shorter than a block."""
    each = zip(planned.groups, _restarts_s(planned), strict=True)
    return sum(_count_fewest(planned, group) * restart_s for group, restart_s in each)


def most_seconds(planned: Plan, max_time_s: float | None = None) -> float:
    """Return the seconds of as many restarts as the study or its time allows: nothing can be distinguished then.

    Args:
        max_time_s: the time of the whole command; the race has what exports and builds leave of it.
    """
    limit_s = planned.study.most_restarts * sum(_restarts_s(planned))
    if max_time_s is not None:
        return min(limit_s, max(0.0, max_time_s - preparing_s(planned)))
    return max(least_seconds(planned), min(limit_s, planned.racing_s or limit_s))


def preparing_s(planned: Plan) -> float:
    """Estimate the seconds of exports and builds with an empty cache, by rule of thumb."""
    building = [group for group in planned.groups if group.building]
    arms = [arm for group in building for arm in group.building if not arm.control]
    needs_model = any(Artifact.NONE not in describe(arm.target.backend)[0].consumes for arm in arms)
    exports = EXPORT_S * len(building) + (EXPORTER_S if needs_model else 0.0)
    builds_s = [expected_s(arm) for arm in arms]  # side by side
    return exports + max(sum(builds_s) / len(lanes(planned.placement)), *builds_s, 0.0)


def _count_fewest(planned: Plan, group: PlannedGroup) -> int:
    return planned.study.turns or min(min_restarts(group.record.comparisons), planned.study.most_restarts)


def _restarts_s(planned: Plan) -> list[float]:
    """Estimate the seconds of one restart of each group: its arms load side by side and play one by one."""
    names = {arm.target.backend for group in planned.groups for arm in group.playing}
    ready_s = {name: backends.entry(name).ready_s for name in names}
    beside = len(lanes_near(planned.placement))
    steps = _count_steps(planned.study)[0]

    def rounds_s(arm: Arm, group: PlannedGroup) -> float:
        if planned.restart_s:
            return planned.restart_s / len(group.playing)
        return _rounds_s(arm, steps, compute_rounds(group.record.pairs, arm.scenario))

    return [
        sum(ready_s[arm.target.backend] / beside + rounds_s(arm, group) for arm in group.playing)
        for group in planned.groups
    ]


def _count_steps(study: Study) -> tuple[int, int]:
    """Return the fewest and the most steps of a restart under requests."""
    if study.rate:
        return GIVEN_ROUNDS, GIVEN_ROUNDS
    return (1 if study.enough_rate else SERVE_ROUNDS), SERVE_ROUNDS


def _rounds_s(arm: Arm, steps: int, computes: int) -> float:
    """Estimate an arm's own part of all rounds; calls or windows that are longer than the least take more.

    Args:
        steps: if it serves.
        computes: how many of the rounds read `compute` too.
    """
    if arm.scenario is Scenario.SERVE:
        return steps * SERVE_STEP_S * (1 + SERVE_LEAD_IN)
    block_ns = WINDOW_NS if arm.scenario is Scenario.THROUGHPUT else BLOCK_NS
    ramp_ns = GPU_LEAD_IN_NS if arm.target.device.is_gpu else 0
    return ((ROUNDS + computes) * (block_ns + LEAD_IN_NS) + ROUNDS * ramp_ns) / 1e9


def _tell_restarts(planned: Plan, groups: Sequence[PlannedGroup]) -> str:
    if planned.restart_s:
        most = max(len(group.playing) for group in groups)
        slot_s = planned.restart_s / max(most, 1)
        rest = span(SUSTAINED_REST * slot_s)
        dealt = f"{span(planned.study.dealt_s)} for {counted(most, 'target')} (the control is one)"
        turn = f"{span((1 - SUSTAINED_REST) * slot_s)} at least, after a rest of {rest}"
        return f"  {counted(planned.study.turns, 'turn')} of each target: {dealt}, each turn {turn}"
    fewest = min(_count_fewest(planned, group) for group in groups)
    serves = {group.record.arms[0].scenario is Scenario.SERVE for group in groups}
    steps = " to ".join(dict.fromkeys(map(str, _count_steps(planned.study))))
    rounds = " or ".join(steps if is_serving else str(ROUNDS) for is_serving in sorted(serves, reverse=True))
    return f"  {fewest} to {planned.study.most_restarts} restarts of {rounds} rounds"


def needed_bytes(planned: Plan) -> int:
    """Return the peak memory of the largest group that can run; 0 if none can."""
    return max((group.needs_bytes for group in planned.groups if group.playing), default=0)


def as_data(planned: Plan, max_time_s: float | None = None) -> dict[str, Any]:
    """Return the plan as JSON values; `max_time_s`: the time of the whole command."""
    return {
        "study": planned.study.name,
        "threads": planned.placement.threads,
        "axes": {name: list(values) for name, values in varied(planned.groups).items()},
        "mix": asdict(planned.study.mix) if planned.study.mix else None,
        "rows": _describe_inputs(planned),
        "truth": _describe_truth(planned),
        "cells": len(_list_arms(planned.groups)),
        "goal": planned.study.aims_at,
        "racing_s": planned.racing_s if max_time_s is None else None,
        "max_time_s": max_time_s,
        "estimate_s": round(least_seconds(planned), 1),
        "most_s": round(most_seconds(planned, max_time_s), 1),
        "prepare_s": round(preparing_s(planned), 1),
        "memory_bytes": needed_bytes(planned),
        "memory_available_bytes": planned.here.memory_bytes,
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


def render(planned: Plan, max_time_s: float | None = None) -> RenderableType:
    """Render the plan group by group, or by its axes if there are many; `max_time_s` as in `as_data`."""
    lines = _list_groups(planned) if len(planned.groups) <= SHOWN_GROUPS else _as_grid(planned)
    end = [
        *_tell_mix(planned),
        *_tell_rows(planned),
        _tell_measured(planned),
        _tell_time(planned, max_time_s),
        _tell_memory(planned),
        "nothing was measured",
    ]
    return Group(*map(Text, [*lines, *end]))


def _preview_models(planned: Plan) -> list[Preview]:
    """Describe the model of each of the first groups."""
    return [preview(group.request) for group in planned.groups[:SHOWN_GROUPS]]


def _describe_model(model: Preview) -> list[str]:
    lines = [f"input {sample.text}{_tell_shape(sample)}, {sample.filled}" for sample in model.inputs]
    lines += [f"note: {note}" for note in model.notes]
    buffers = f"{counted(model.buffers, 'input set')} to rotate through; " if model.buffers else ""
    lines.append(f"{buffers}calibration where something is quantized: {model.calibration}")
    facts = [f"{model.parameter_count:,} parameters"] if model.parameter_count is not None else []
    facts += [f"{model.flops / 1e9:.3g} GFLOP a call"] if model.flops else []
    if model.operators:
        most = [f"{name} {count}" for name, count in list(model.operators.items())[:SHOWN_OPERATORS]]
        left = len(model.operators) - len(most)
        kinds = ", ".join([*most, *([f"{left} other kinds"] if left else [])])
        facts.insert(0, f"{counted(sum(model.operators.values()), 'operation')} ({kinds})")
    return [*lines, *(["; ".join(facts)] if facts else [])]


def _tell_shape(sample: InputPreview) -> str:
    shape = f"[{', '.join(map(str, sample.shape))}]"
    return "" if sample.text.endswith(shape) else f" as {shape}"


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
    lines += [f"  {name}: {axes.describe_axis(values)}" for name, values in varied(groups).items()]
    playing = Counter(arm.label for group in groups for arm in group.playing if not arm.control)
    lines += [f"  {label}: in {count:,} groups" for label, count in playing.items()]
    some = [group for group in groups if group.playing]
    skips = Counter((label, why.reason, why.fix) for group in some for label, why in group.skips.items())
    for (label, reason, fix), count in skips.most_common(SHOWN_GROUPS):
        lines.append(f"  skipped in {count:,} groups: {label}: {reason}. Fix: {fix}")
    if len(skips) > SHOWN_GROUPS:
        lines.append(f"  and {len(skips) - SHOWN_GROUPS:,} other reasons: --json has them all")
    if out := [group for group in groups if not group.playing]:
        why = next(iter(out[0].skips.values()))
        lines.append(f"  nothing can run in {len(out):,} groups, such as {out[0].record.name}: {why.reason}")
    return [*lines, _tell_restarts(planned, groups)]


def _tell_mix(planned: Plan) -> list[str]:
    """List each size of a mix with its share of the calls, and how a log was put into bins."""
    mix = planned.study.answered_mix
    if mix is None:
        return [str(group.arrivals) for group in planned.groups if group.arrivals]
    parts = (f"{size} ({100 * share:.2g} %)" for size, share in zip(mix.sizes, mix.shares, strict=True))
    lines = [f"one answer over a mix of {mix.axis}, by the {mix.by} of its calls: {', '.join(parts)}"]
    if mix.log:
        padded = f"each call counts as the largest of its bin, {100 * mix.padding:.2g} % more in all"
        lines.append(f"  {mix.log} in {counted(len(mix.sizes), 'bin')}: {padded}")
    return lines


def _tell_rows(planned: Plan) -> list[str]:
    """List what the user's own data hold."""
    lines = {"rows": _describe_inputs(planned), "truth": _describe_truth(planned)}
    return [f"{name}: {told}" for name, told in lines.items() if told]


def _describe_inputs(planned: Plan) -> str:
    inputs = rows_of(planned.study).inputs
    return data_files.describe(inputs) if inputs else ""


def _describe_truth(planned: Plan) -> str:
    truth = rows_of(planned.study).truth
    return truth_files.describe(truth) if truth else ""


def _tell_measured(planned: Plan) -> str:
    """List what each arm's row will hold."""
    asked = dict.fromkeys(arm.scenario for group in planned.groups for arm in group.record.arms)
    labeled = any(labels_of(group.request) for group in planned.groups[:1])
    metric = (planned.study.metric,) if planned.study.metric else ()
    others = (*metric, "accuracy", "error") if labeled else (*metric, "error")
    return f"each row: {', '.join([*(MEASURED[scenario] for scenario in asked), *others])}, what ran, sizes, memory"


def _tell_time(planned: Plan, max_time_s: float | None) -> str:
    least, most, before = least_seconds(planned), most_seconds(planned, max_time_s), preparing_s(planned)
    runs = f"goal {planned.study.aims_at}: about {span(least)} at least, {span(most)} at most"
    limit = "" if planned.racing_s is None else " (--max-time gives it more)"
    if max_time_s is not None:
        runs = f"goal {planned.study.aims_at}: about {span(least)} for the fewest restarts"
        limit = f", --max-time leaves {span(most)}" if most < least else f", {span(most)} at most"
    return f"{runs}{limit}; exports and builds before: {span(before)}{_on_top(planned)}"


def _on_top(planned: Plan) -> str:
    """Name the groups that only the run itself will find."""
    more = ["sizes added for crossovers"] if planned.study.crossover else []
    more += ["groups that confirm a choice"] if any(group.record.selects_for for group in planned.groups) else []
    return f"; {' and '.join(more)} come on top" if more else ""


def _tell_memory(planned: Plan) -> str:
    has = f"{size(planned.here.memory_bytes)} are there"
    if needs := needed_bytes(planned):
        return f"memory: about {size(needs)} for the largest group that runs, {has}"
    untold = "only the export tells what the model takes; " if any(group.playing for group in planned.groups) else ""
    return f"memory: {untold}{has}"
