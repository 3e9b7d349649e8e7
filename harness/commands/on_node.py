"""A node's own part of a fleet's run: `python -m shootout.commands.on_node FOLDER PARENT_PID`, started by Ray there.

FOLDER holds the job; its answer is left there, and the run folder lies below.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from shootout.clock import Deadline
from shootout.commands.output import show_progress
from shootout.commands.run import exit_code, measure
from shootout.errors import ShootoutError
from shootout.fleet.machine import ANSWER, JOB
from shootout.fleet.plan import narrow_identity
from shootout.host import environment, gpu
from shootout.host.child import leave_with
from shootout.host.placement import pass_on
from shootout.journal.run_folder import header
from shootout.report import dry_run
from shootout.study import points
from shootout.study.plan import Plan, make_plan
from shootout.study.schema import checked


def main() -> None:
    """Do the job, and leave its answer."""
    folder, parent = Path(sys.argv[1]), int(sys.argv[2])
    leave_with(parent)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # how the one who asked stops it
    try:
        answer = answer_job(json.loads((folder / JOB).read_text(encoding="utf-8")))
    except ShootoutError as error:
        answer = {"error": str(error), "code": error.exit_code}
    (folder / ANSWER).write_text(json.dumps(answer), encoding="utf-8")


def answer_job(job: dict[str, Any]) -> dict[str, Any]:
    """Plan the study here, and measure the groups that the job names, or none.

    Raises:
        ShootoutError: the study can't be planned or measured here.
    """
    limit = Deadline(job["max_time_s"])
    study = checked(job["study"])
    pass_on(job["env"])
    gpu.choose_gpu(job["gpu"], {target.device for target in points.targets_of(study)})
    plan = make_plan(study, job["named"], fresh=job["fresh"])
    if job["groups"] is None:
        return {
            "header": header(plan, environment.facts()).model_dump(mode="json"),
            "cells": dict(
                Counter(group.record.name for group in plan.groups for arm in group.playing if not arm.control)
            ),
            "estimate_s": dry_run.seconds(plan) + dry_run.preparing_s(plan),
        }
    mine = narrow(plan, job["groups"])
    with show_progress() as progress:
        document = measure(mine, Path(job["out"]), fresh=False, limit=limit, progress=progress, wait=limit)
    return {"code": exit_code(document, mine, strict=job["strict"])}


def narrow(plan: Plan, names: list[str]) -> Plan:
    """The plan with these groups alone; with all of them, what `shootout run` here would do."""
    groups = [group for group in plan.groups if group.record.name in {*names}]
    if len(groups) == len(plan.groups):
        return plan
    identity = narrow_identity(plan.identity, [group.record.name for group in plan.groups], names)
    return replace(plan, groups=groups, identity=identity)


if __name__ == "__main__":
    main()
