"""Do a node's jobs: what `--on` asks of another machine. It runs `python -m shootout.commands.node FOLDER PARENT_PID`.

FOLDER holds the job. The answer is left there, and the run folder lies below.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from shootout.clock import Deadline, seconds_until, sleep
from shootout.commands.doctor import doctor
from shootout.commands.output import show_progress
from shootout.commands.run import exit_code, measure
from shootout.commands.ship import ship
from shootout.errors import ShootoutError, UsageError
from shootout.export.delivery import DELIVERY, SENT_EXPORTS, Delivery, from_json, read_delivery, to_json
from shootout.fleet.node_side import ANSWER, ASKED, GIVEN, HEARD, JOB, LOOK_S, SHIPPED, write_whole
from shootout.fleet.nodes import LOST_S
from shootout.fleet.parts import narrow_identity
from shootout.host import environment, gpu
from shootout.host.child import leave_with
from shootout.host.placement import pass_on
from shootout.journal.run_folder import header
from shootout.messages import Progress
from shootout.report import dry_run as preview
from shootout.study import points
from shootout.study.group import GroupRecord
from shootout.study.plan import Plan, make_plan
from shootout.study.schema import checked


def main() -> None:
    """Do a job on a node, and leave its answer."""
    folder, parent = Path(sys.argv[1]), int(sys.argv[2])
    leave_with(parent)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # how `NodeJob.stop` ends it
    try:
        answer = answer_job(json.loads((folder / JOB).read_text(encoding="utf-8")))
    except ShootoutError as error:
        answer = {"error": str(error), "code": error.exit_code}
    (folder / ANSWER).write_text(json.dumps(answer), encoding="utf-8")


def answer_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """Do what the job's word `do` says: tell what it would measure here, measure, ship, look at this machine, or test.

    Raises:
        ShootoutError: it can't be done here; says why.
    """
    verbs = {"plan": _tell_plan, "measure": _measure, "ship": _ship, "doctor": _look_around, "conform": _conform}
    return verbs[job["do"]](job)


def _tell_plan(job: Mapping[str, Any]) -> dict[str, Any]:
    plan = _make_plan(job)
    return {
        "header": header(plan, environment.facts()).model_dump(mode="json"),
        "playing": {
            group.record.name: [arm.label for arm in group.building if not arm.control] for group in plan.groups
        },
        "estimate_s": preview.least_seconds(plan) + preview.preparing_s(plan),
    }


def _make_plan(job: Mapping[str, Any]) -> Plan:
    study = checked(job["study"])
    pass_on(job["env"])
    gpu.choose_gpu(job["gpu"], {target.device for target in points.targets_of(study)})
    return make_plan(study, job["named"], fresh=job["fresh"])


def _measure(job: Mapping[str, Any]) -> dict[str, Any]:
    """Measure the groups that the job names."""
    limit = Deadline(None if job["ends_utc"] is None else seconds_until(job["ends_utc"]))
    mine, out = narrow(_make_plan(job), job["groups"]), Path(job["out"])
    if job["delivery"]:
        out.mkdir(parents=True, exist_ok=True)
        (out / DELIVERY).write_text(json.dumps(job["delivery"]), encoding="utf-8")
        mine = replace(mine, delivery=read_delivery(out))
    with show_progress() as progress:
        mine = replace(mine, ask_for=partial(_ask_for, out, count(1), limit, progress))
        document = measure(
            mine,
            out,
            fresh=False,
            limit=limit,
            progress=progress,
            wait=limit,
            command=job["command"],
            on=job["on"],
        )
    return {"code": exit_code(document, mine, strict=job["strict"])}


def _ask_for(
    out: Path,
    numbers: Iterator[int],
    limit: Deadline,
    progress: Progress,
    delivery: Delivery,
    groups: Sequence[GroupRecord],
) -> Delivery:
    """Ask the machine that began this job for what further groups need; return all that was delivered by then.

    Args:
        out: the run folder, in the job's, where the question and its answer lie. It gets the whole delivery.
    """
    number = next(numbers)
    asked = {"number": number, "groups": [group.model_dump(mode="json") for group in groups]}
    progress.say(f"asking for exports: {', '.join(group.name for group in groups)}")
    write_whole(out.parent / ASKED, json.dumps(asked))
    given = _await_answer(out.parent, number, limit)
    (out.parent / ASKED).unlink()
    if "delivery" not in given:
        progress.say(given.get("error", "no answer came"))
        return delivery
    whole = delivery.join(from_json(given["delivery"]))
    (out / DELIVERY).write_text(json.dumps(to_json(whole)), encoding="utf-8")
    return whole


def _await_answer(folder: Path, number: int, limit: Deadline) -> dict[str, Any]:
    """Return the answer to a question in a job's folder; an empty one if no connection heard it for `LOST_S`."""
    patience, heard = Deadline(LOST_S), 0
    while patience.allows(0.0) and limit.allows(0.0):
        with suppress(FileNotFoundError):
            given: dict[str, Any] = json.loads((folder / GIVEN).read_text(encoding="utf-8"))
            if given["number"] == number:
                return given
        with suppress(FileNotFoundError):
            last = (folder / HEARD).stat().st_mtime_ns
            patience, heard = (patience, heard) if last == heard else (Deadline(LOST_S), last)
        sleep(LOOK_S)
    return {}


def _ship(job: Mapping[str, Any]) -> dict[str, Any]:
    """Ship a target of the run folder that came with the job."""
    run = Path(job["out"])
    code = ship(run, run / SHIPPED, target=job["target"], policy=None, group=job["group"])
    return {"code": code}


def _look_around(job: Mapping[str, Any]) -> dict[str, Any]:
    with redirect_stdout(io.StringIO()) as printed:
        code = doctor({"env": job["env"]}, as_json=job["as_json"])
    return {"code": code, "printed": printed.getvalue()}


def _conform(job: Mapping[str, Any]) -> dict[str, Any]:
    """Run the conformance suite with the options that the job names, on what was sent for it.

    Raises:
        UsageError: pytest isn't installed here.
    """
    if find_spec("pytest") is None:
        raise UsageError(f"the suite needs pytest: {sys.executable} -m pip install pytest")
    sent = Path(job["out"]).with_name("sent.json")
    sent.write_text(json.dumps(job["sent"]), encoding="utf-8")
    suite = ["-p", "shootout.testing.plugin", "-p", "no:cacheprovider", "--pyargs", "shootout.testing", *job["words"]]
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pytest", *suite], env={**os.environ, SENT_EXPORTS: str(sent)}, check=False
    )
    return {"code": done.returncode}


def narrow(plan: Plan, names: Sequence[str]) -> Plan:
    """Return the plan with these groups alone; with all of them, what `shootout run` here would do."""
    groups = [group for group in plan.groups if group.record.name in {*names}]
    if len(groups) == len(plan.groups):
        return plan
    identity = narrow_identity(plan.identity, [group.record.name for group in plan.groups], [*names])
    return replace(plan, groups=groups, identity=identity, dealt_among=plan.racing)


if __name__ == "__main__":
    main()
