"""Plan or measure on a node, as `run --on` has it done there: `python -m shootout.commands.node JOB RUN-FOLDER`."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shootout.apps.dry_run import screen as preview
from shootout.backends import chosen_gpu
from shootout.commands.output import show_progress
from shootout.commands.passed_on import pass_on
from shootout.commands.run import exit_code, measure
from shootout.core.clock import Deadline
from shootout.core.errors import ExitCode, ShootoutError
from shootout.core.host.child import leave_with
from shootout.core.study import points
from shootout.core.study.plan import Plan, make_plan
from shootout.core.study.schema import checked
from shootout.tell import this_machine
from shootout.tell.delivery import read_delivery
from shootout.tell.run_folder import make_header


def main() -> None:
    """Do what the job's word `do` says, and end with its exit code."""
    job, out = json.loads(sys.argv[1]), Path(sys.argv[2])
    leave_with(os.getppid())
    signal.signal(signal.SIGINT, signal.default_int_handler)  # how `run_task` ends it
    try:
        study = checked(job["study"])
        pass_on(job["env"])
        chosen_gpu.choose_gpu(job["gpu"], {target.device for target in points.targets_of(study)})
        plan = make_plan(study, job["named"])
        code = _tell(plan) if job["do"] == "plan" else _measure(plan, job, out)
    except ShootoutError as error:
        sys.stderr.write(f"shootout: {error}\n")
        code = error.exit_code
    sys.exit(code)


def _tell(plan: Plan) -> int:
    """Print what would be measured here: the journal's header, each group's targets, and the seconds it takes."""
    told = {
        "header": make_header(plan, this_machine.facts()).model_dump(mode="json"),
        "playing": {
            group.record.name: [arm.label for arm in group.building if not arm.control] for group in plan.groups
        },
        "estimate_s": preview.least_seconds(plan) + preview.preparing_s(plan),
    }
    sys.stdout.write(json.dumps(told))
    return ExitCode.OK


def _measure(plan: Plan, job: Mapping[str, Any], out: Path) -> int:
    """Measure what was exported here, or sent with the run folder."""
    limit, delivered = Deadline(job["max_time_s"]), replace(plan, delivery=read_delivery(out))
    with show_progress() as progress:
        document = measure(
            delivered,
            out,
            fresh=False,
            limit=limit,
            progress=progress,
            wait=limit,
            command=job["command"],
            on=job["on"],
        )
    return exit_code(document, plan, strict=job["strict"])


if __name__ == "__main__":
    main()
