"""The whole program raced: with what was chosen for its parts, against ONNX Runtime in all of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shootout.apps.parts.profile import RESULTS, Profile, Program, call
from shootout.core.contract import Arm, Target
from shootout.core.exported.request import Request
from shootout.core.host.folders import Scratch
from shootout.core.host.placement import Placement
from shootout.core.study.group import GroupRecord, with_control
from shootout.core.study.plan import Plan, PlannedGroup, make_plan
from shootout.core.study.schema import Study
from shootout.tell.document import Document, Ratio
from shootout.tell.wording import describe_noise

BACKEND, MODEL = "joint", "identity_of_one"
USUAL = "onnxruntime"
"""The name of the arm that has ONNX Runtime in all parts."""
MOST_LOSS = 0.01
"""The chosen parts may score so much less than the usual ones, as a share of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Hold how the results with chosen parts compare with the usual ones.

    Attributes:
        score: by the user's metric, else the share of pages with a like result; `usual` is that of the usual parts.
        alike, pages: how many pages give a like result, of how many.
        differs: the first page that gives another one.
        by_usual: the share of a part's calls that ONNX Runtime still makes, for sizes that the target doesn't take.
    """

    score: float
    usual: float
    alike: int
    pages: int
    differs: str
    by_usual: Mapping[str, float]

    @property
    def holds(self) -> bool:
        """Return whether the chosen parts may take the place of the usual ones."""
        return self.usual - self.score <= MOST_LOSS * abs(self.usual)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """Hold what the race of the whole program found.

    Attributes:
        ratio: time with the chosen parts ÷ time with the usual ones; None if too little was measured.
        page_ns, usual_ns: the time of a page with each.
        reason: why one of the two failed.
    """

    ratio: Ratio | None
    page_ns: float | None
    usual_ns: float | None
    restarts: int
    noise: str
    control_holds: bool | None
    reason: str
    run: str


def compare_results(program: Program, profile: Profile, chosen: Mapping[str, str], placement: Placement) -> Agreement:
    """Call the function with these builds in place of parts, and compare its results with the usual ones.

    Args:
        chosen: files of builds, by part.

    Raises:
        UsageError: the function raises with these, or the user's metric does.
    """
    results = str(profile.folder / RESULTS)
    task = program.as_task(
        profile.pages, placement.threads, do="score", chosen=chosen, results=results, metric=program.metric
    )
    with Scratch() as folder:
        found = call(task, folder, placement)
    score, usual = found["scores"]
    told = {name: found[name] for name in ("alike", "pages", "differs", "by_usual")}
    return Agreement(score=score, usual=usual, **told)


def plan_joint(
    program: Program, profile: Profile, chosen: Mapping[str, str], names: str, folder: Path, threads: Any
) -> Plan:
    """Plan the race of the program as usual and with these builds.

    Args:
        names: of what was chosen, for people.
        folder: gets what each arm calls.
        threads: as the study has it.
    """
    study = Study(name=BACKEND, model=(MODEL,), targets=(BACKEND,), threads=(threads,), goal="baseline", max_call_s=0)
    planned = make_plan(study)
    arms = list[Arm]()
    folder.mkdir(parents=True, exist_ok=True)
    for setting, own in {USUAL: {}, names: chosen}.items():
        task = program.as_task(profile.timed, planned.placement.threads, chosen=own)
        file = folder / f"{'chosen' if own else 'usual'}.json"
        file.write_text(json.dumps(task), encoding="utf-8")
        arms.append(
            Arm(
                target=Target(backend=BACKEND),
                model=MODEL,
                threads=planned.placement.threads,
                options={"task": str(file)},
                setting=setting,
            )
        )
    record = GroupRecord(name=program.short, baseline=arms[0].label, comparisons=1, arms=with_control(arms[0], arms))
    group = PlannedGroup(record=record, request=Request(model=MODEL), skips={})
    digest = hashlib.sha256(json.dumps([str(profile.folder), names, threads]).encode()).hexdigest()
    return replace(planned, groups=[group], identity=digest)


def read_joint(document: Document, pages: int) -> Joint:
    """Read what the race of the program found, by page."""
    usual, chosen = document.rows[:2]
    times = [row.end_to_end.median_ns / pages if row.end_to_end else None for row in (usual, chosen)]
    return Joint(
        ratio=chosen.end_to_end.ratio if chosen.end_to_end else None,
        page_ns=times[1],
        usual_ns=times[0],
        restarts=document.groups[0].restarts,
        noise=describe_noise(document.groups),
        control_holds=document.control.holds,
        reason=next((row.reason or "" for row in (chosen, usual) if row.outcome == "failed"), ""),
        run=document.run,
    )
