"""Study × what is available here → groups of arms that race each other, and skips. Pure: it starts nothing."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shootout.cells import cells, describe, group_name, names_of, request, targets_of
from shootout.contract import Arm, Precision, Target, Value
from shootout.errors import UsageError, unknown
from shootout.export import Request
from shootout.obstacles import Here, Skipped, obstacles
from shootout.records import GroupRecord
from shootout.study import Study
from shootout.target import parse_targets

INTEGERS = (Precision.INT8, Precision.INT8_DYNAMIC)
"""Precisions that a vendor's quantizer makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGroup:
    """Arms that race each other; those in `skips` (by label) are not run. `request` is what they all compute."""

    record: GroupRecord
    request: Request
    skips: Mapping[str, Skipped]

    @property
    def playing(self) -> list[Arm]:
        """The arms to measure, sentinel included."""
        return [arm for arm in self.record.arms if arm.label not in self.skips]

    @property
    def building(self) -> list[Arm]:
        """The arms to build: those to measure, and those that can be built here though they can't run."""
        return [arm for arm in self.record.arms if arm.label not in self.skips or self.skips[arm.label].builds]


def plan(study: Study, here: Here) -> list[PlannedGroup]:
    """The study's groups, one per model parameters and batch, in the order of `requests`.

    Raises:
        UsageError: unknown names, bad values, or a baseline that isn't among the arms or can't run.
    """
    targets = targets_of(study)
    groups = [
        _group(study, _arms(study, targets, parameters, batch, here.threads), request(study, parameters, batch), here)
        for parameters, batch in cells(study)
    ]
    for name, count in Counter(group.record.name for group in groups).items():
        if count > 1:
            raise UsageError(f"{name!r} is asked for {count} times: name each batch and parameter value once")
    return groups


def _arms(
    study: Study, targets: Sequence[Target], parameters: Mapping[str, Value], batch: int, threads: int
) -> list[Arm]:
    seen: Counter[Target] = Counter()
    arms = []
    for target in targets:
        seen[target] += 1
        options = {key: value for name in names_of(target) for key, value in study.options.get(name, {}).items()}
        arms.append(
            Arm(
                target=target,
                model=study.model,
                parameters=parameters,
                batch=batch,
                threads=threads,
                options=options,
                ordinal=seen[target],
                settings="tuned" if options else "closed",
                quantizer="vendor" if target.precision in INTEGERS else "none",
            )
        )
    return arms


def _group(study: Study, arms: list[Arm], wanted: Request, here: Here) -> PlannedGroup:
    """The arms with their baseline first and its sentinel last, and why some of them can't be asked."""
    skips = obstacles(arms, study, here)
    runnable = [arm for arm in arms if arm.label not in skips]
    baseline = _baseline(study, arms, runnable, skips)
    ordered = arms
    if baseline:
        ordered = [baseline, *(arm for arm in arms if arm is not baseline), replace(baseline, ordinal=1, sentinel=True)]
    record = GroupRecord(
        name=group_name(study, arms[0]),
        baseline=baseline.label if baseline else None,
        comparisons=max(len(runnable) - 1, 0),
        arms=tuple(ordered),
    )
    return PlannedGroup(record=record, request=wanted, skips=skips)


def _baseline(study: Study, arms: list[Arm], runnable: list[Arm], skips: Mapping[str, Skipped]) -> Arm | None:
    if study.baseline is None:
        eager = [arm for arm in runnable if arm.target == Target(backend="torch-eager")]
        return next(iter(eager or runnable), None)
    labels = {arm.label: arm for arm in arms}
    wanted = study.baseline
    if wanted not in labels:
        named = parse_targets(wanted, describe) if "#" not in wanted else []
        wanted = str(named[0]) if named else wanted
    if wanted not in labels:
        raise unknown("baseline", study.baseline, labels)
    if wanted in skips:
        raise UsageError(f"the baseline {wanted!r} can't run here: {skips[wanted].reason}; {skips[wanted].fix}")
    return labels[wanted]


def identity(study: Study, groups: list[PlannedGroup], files: list[str]) -> str:
    """A hash of what is measured (`files`: hashes of the user's own); a run folder only goes on with the same one."""
    content = {
        "study": study.model_dump(mode="json", exclude={"description"}),
        "arms": [[arm.label for arm in group.playing] for group in groups],
        "files": files,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
