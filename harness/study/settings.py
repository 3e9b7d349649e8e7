"""The settings of a target that compete for the most items a second: batches, and instances that work at once.

Picking the fastest of many is biased by luck, so it happens in two groups. The first one tries all settings and gives
no verdict; each restart halves what is left of every target. The second races each target's chosen setting, its
plain one and the baseline anew, and its figures are those that count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shootout import models
from shootout.contract import Arm, NotRun, NotRunKind, Scenario
from shootout.export.client import is_file
from shootout.study.group import GroupRecord, family
from shootout.study.schema import Study

BATCHES = (1, 8, 64)
"""The candidates where the study names no batch."""


def spread(study: Study, arm: Arm) -> list[Arm]:
    """The arm itself; for throughput and serving one arm for each setting that is to be tried.

    The CPUs are shared: each instance has its part of the threads.
    """
    if arm.scenario not in (Scenario.THROUGHPUT, Scenario.SERVE):
        return [arm]
    searched = arm.scenario is Scenario.THROUGHPUT
    counts = study.instances or (_powers(arm.threads) if searched else (1,))
    settings = [(batch, count) for batch in (batches(study, arm) if searched else (arm.batch,)) for count in counts]
    shown = len(settings) > 1
    return [
        replace(
            arm,
            batch=batch,
            instances=count,
            threads=max(1, arm.threads // count),
            setting=_words(arm.scenario, batch, count) if shown else "",
        )
        for batch, count in settings
    ]


def batches(study: Study, arm: Arm) -> tuple[int, ...]:
    """The batches to try: the study's, else a few that lie far apart, where the model is known to take any."""
    named = "batch" in study.model_fields_set or is_file(arm.model) or not models.get(arm.model).takes_batch
    return study.batch if named else BATCHES


def crowded(arms: Sequence[Arm], threads: int) -> dict[str, NotRun]:
    """Why arms don't fit on the CPUs, by label.

    Args:
        threads: that an arm may have, all its instances together.
    """
    return {
        arm.label: NotRun(
            NotRunKind.TOO_BIG,
            f"{arm.instances} instances need as many threads, and a target has {threads} here",
            "--threads all, or fewer --instances",
        )
        for arm in arms
        if arm.cpus > threads
    }


def _powers(threads: int) -> tuple[int, ...]:
    """1, 2, 4 … and as many as there are threads."""
    return tuple(dict.fromkeys([*(2**n for n in range(threads.bit_length())), threads]))


def _words(scenario: Scenario, batch: int, instances: int) -> str:
    return f"batch={batch}, instances={instances}" if scenario is Scenario.THROUGHPUT else f"instances={instances}"


def selecting(record: GroupRecord, runnable: Sequence[Arm]) -> GroupRecord:
    """The group as one that only selects, where some target has several settings to choose from; else as it is."""
    searched = any(arm.scenario is Scenario.THROUGHPUT for arm in runnable)
    if not searched or len({family(arm.label) for arm in runnable}) == len(runnable):
        return record
    arms = tuple(arm for arm in record.arms if not arm.control)
    return record.model_copy(update={"arms": arms, "baseline": None, "comparisons": 0, "selects_for": record.baseline})
