"""Make a shipped folder of the candidate, so that it runs as the reference does: by its own `load.py`, in one session.

A folder's `load.py` checks the inputs of each call. Of a model of microseconds that is a part of its time, and a
candidate that runs by its adapter doesn't pay it.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

from shootout import backends
from shootout.constants import SHIPPED
from shootout.errors import ArmFailed, SkippedArm, UsageError
from shootout.exported.shipped_folder import open_shipped
from shootout.gate.contest import Contest, plan_pair
from shootout.gate.limits import Limits
from shootout.messages import Progress
from shootout.ship.artifact import find_built
from shootout.ship.folder import write_folder
from shootout.ship.source import find_source
from shootout.stats.goals import Aim
from shootout.study.plan import Plan, make_plan

RUN = "run"
RACING_S = 4.0
"""The candidate's own run shows that it answers right; how fast it is, the gate's race shows."""
CHECK_US = 0.4
"""Microseconds that `load.py` takes to check one input of a call, measured on one machine."""


def why_unshippable(contest: Contest) -> str:
    """Tell why no folder can be made of the candidate, "" if one can."""
    target = contest.rival.target
    if target.python:
        return f"{target} runs under another interpreter, whose packages are its own"
    try:
        backends.shipping(target)
    except SkippedArm as error:
        return str(error)
    return ""


def plan_alone(contest: Contest) -> Plan:
    """Plan one short restart of the candidate by itself: a folder is made of what was measured and found right."""
    study = contest.plan.study
    alone = {"targets": study.targets[1:], "baseline": None, "goal": Aim.BEST, "max_restarts": 1}
    return make_plan(study.model_copy(update={**alone, "least_restarts": 0}))


def pack(contest: Contest, limits: Limits, folder: Path, run: Path, progress: Progress) -> Contest:
    """Plan the race with the candidate as a folder; with the candidate as it is, and a note, if that can't be made.

    Args:
        folder: to be made; one that is there is kept, since it was made of that run.
        run: that of `plan_alone`.
    """
    target = str(contest.rival.target)
    try:
        if not _is_whole(folder):
            shutil.rmtree(folder, ignore_errors=True)
            source = find_source(run, target)
            write_folder(source, find_built(source, progress), folder)
    except (UsageError, SkippedArm, ArmFailed) as error:
        return note_unpacked(contest, str(error))
    study = contest.plan.study
    pair = {"targets": (study.targets[0], f"{SHIPPED}:{folder}"), "options": {}}  # a folder's settings came with it
    return replace(plan_pair(study.model_copy(update=pair), limits), packed=True)


def note_unpacked(contest: Contest, why: str) -> Contest:
    """Add a note that only the reference's calls go through a `load.py`."""
    note = (
        f"only the reference runs by a load.py, whose checks take about {CHECK_US:g} us a call for each input; "
        f"the candidate runs by its adapter: {why}"
    )
    return replace(contest, notes=(*contest.notes, note))


def _is_whole(folder: Path) -> bool:
    try:
        open_shipped(folder)
    except UsageError:
        return False
    return True


def name_folder(contest: Contest) -> str:
    """Name the folder by its target, and not as the reference's folder: its label is made of that name."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", str(contest.rival.target))
    return f"{name}-candidate" if contest.reference == f"{SHIPPED}:{name}" else name
