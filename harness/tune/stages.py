"""What each stage of a tuning run races, from what the stages before it found. Pure: it starts nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shootout.constants import MAX_GENERATIONS
from shootout.contract import INTEGERS, Arm, NotRun, NotRunKind, Precision, Target
from shootout.results.document import Ratio
from shootout.stats.evidence import min_generations
from shootout.study import reproduce
from shootout.study.feasibility import Here, needed_bytes, obstacles
from shootout.study.group import GroupRecord
from shootout.study.plan import Plan, PlannedGroup
from shootout.study.points import group_name, points
from shootout.tune import knobs
from shootout.tune.tuning_stages import ALONE, CONFIRMED, TOGETHER, TUNED, Stage, leads, shipped, winner

MORE_TO_SEARCH = 3
"""A search ends so many generations after the first that could give a verdict: it proposes, it need not be sure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a tuning run starts from.

    Attributes:
        planned: the study's own plan: its groups, of one model, hold every target's default.
        most_threads: that an arm can have here.
        allowed: precisions that may be tried instead of a target's own.
    """

    planned: Plan
    most_threads: int
    allowed: tuple[Precision, ...]

    @property
    def name(self) -> str:
        """Of the model at its batch, as the run's groups would be called."""
        return group_name(points(self.planned.study)[0])

    @property
    def defaults(self) -> dict[str, Arm]:
        """By target."""
        arms = (arm for group in self.planned.groups for arm in group.record.arms if not arm.sentinel)
        return {str(arm.target): arm for arm in sorted(arms, key=lambda arm: arm.ordinal, reverse=True)}

    def skip_of(self, default: Arm) -> NotRun | None:
        """Why a target can't be tuned here; each has the memory for itself."""
        return obstacles([default], self.planned.here).get(default.label)


def plan_stage(ground: Ground, name: str, stages: Mapping[str, Stage]) -> Plan:
    """One stage as a run."""
    groups = _groups(ground, name, stages)
    arms = [[f"{arm.label} {reproduce.words(arm)}" for arm in group.record.arms] for group in groups]
    content = [ground.planned.identity, name, arms]
    most = max((group.record.comparisons for group in groups), default=1)
    limit = min_generations(most) + MORE_TO_SEARCH if name in (ALONE, TOGETHER) else MAX_GENERATIONS
    study = ground.planned.study.model_copy(update={"name": f"tune-{name}", "max_generations": limit})
    identity = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return replace(ground.planned, study=study, groups=groups, identity=identity)


def _groups(ground: Ground, name: str, stages: Mapping[str, Stage]) -> list[PlannedGroup]:
    if name == TUNED:
        return _last_group(ground, stages)
    groups = []
    for target, default in ground.defaults.items():
        rivals = _rivals(ground, name, stages, target, default)
        if rivals or name == ALONE:
            groups.append(_group(ground, f", {target}", [default, *rivals], ground.skip_of(default)))
    return groups


def _rivals(ground: Ground, name: str, stages: Mapping[str, Stage], target: str, default: Arm) -> list[Arm]:
    """What races the target's default in this stage."""
    if ground.skip_of(default):
        return []
    changes = knobs.alone(default, ground.most_threads, ground.allowed)
    if name == ALONE:
        return [_named(knobs.changed(default, [one])) for one in changes]
    if ALONE not in stages:
        return []
    if name == CONFIRMED:
        best = winner(stages, target)
        return [best] if best else []
    ratios = stages[ALONE].ratios(target)
    helped = best_of_each([(one, ratios.get(knobs.changed(default, [one]).label)) for one in changes])
    combined = [_named(knobs.changed(default, several)) for several in knobs.together(default, helped)]
    return [_named(knobs.changed(default, helped[:1])), *combined] if combined else []


def best_of_each(results: Sequence[tuple[knobs.Change, Ratio | None]]) -> list[knobs.Change]:
    """The best value of each knob that helped, the largest gain first."""
    best: dict[str, tuple[float, knobs.Change]] = {}
    for change, ratio in results:
        if ratio and leads(ratio) and ratio.value < best.get(change.knob, (1.0, change))[0]:
            best[change.knob] = (ratio.value, change)
    return [change for _, change in sorted(best.values(), key=lambda pair: pair[0])]


def _last_group(ground: Ground, stages: Mapping[str, Stage]) -> list[PlannedGroup]:
    """What each target should be run with, against each other; none where fewer than two are left."""
    if ALONE not in stages:
        return []
    ready = [arm for target in ground.defaults if (arm := shipped(stages, target))]
    arms = list({arm.label: arm for arm in ready}.values())
    if len(arms) < 2:
        return []
    arms.sort(key=lambda arm: replace(arm.target, python="") != Target(backend="torch-eager"))
    return [_group(ground, ", tuned", arms, None)]


def _group(ground: Ground, apart: str, arms: Sequence[Arm], skip: NotRun | None) -> PlannedGroup:
    """Arms that race the first one, and its hidden copy; a target that can't run here is alone in its group.

    The last ones are left out where memory won't hold all at once.
    """
    here, baseline = ground.planned.here, arms[0]
    skips = {baseline.label: skip} if skip else _too_many(arms, here)
    playing = [arm for arm in arms if arm.label not in skips]
    record = GroupRecord(
        name=f"{ground.name}{apart}",
        baseline=None if skip else baseline.label,
        comparisons=max(len(playing) - 1, 0),
        arms=tuple(arms) if skip else (*arms, replace(baseline, sentinel=True)),
    )
    request = ground.planned.groups[0].request
    return PlannedGroup(record=record, request=request, skips=skips, needs_bytes=needed_bytes(playing, here))


def _too_many(arms: Sequence[Arm], here: Here) -> dict[str, NotRun]:
    """Why arms are left out of a group, by label: of those that come last, as many as memory won't hold."""
    fitting = next((count for count in range(len(arms), 1, -1) if _fits(arms[:count], here)), 1)
    reason = f"memory holds {fitting} of the {len(arms)} settings of this race, besides the hidden copy"
    fix = "choose a smaller model or batch, or make room"
    return {arm.label: NotRun(NotRunKind.TOO_BIG, reason, fix) for arm in arms[fitting:]}


def _fits(arms: Sequence[Arm], here: Here) -> bool:
    return needed_bytes(arms, here) <= here.memory_bytes


def _named(arm: Arm) -> Arm:
    """The quantizer follows the precision."""
    return replace(arm, quantizer="vendor") if arm.target.precision in INTEGERS else arm
