"""Every node is asked what it is and what it would measure, all of them at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shootout.clock import Deadline, sleep
from shootout.errors import UsageError
from shootout.fleet.cluster import Cluster, Job, Lost, Worker
from shootout.fleet.nodes import Node, Place
from shootout.journal.records import Header
from shootout.messages import Progress
from shootout.units import counted

LOOK_S = 0.2
ASKING_S = 300.0
"""A node that hasn't looked at its backends by then is left out."""


def survey(cluster: Cluster, told: Mapping[str, Any], progress: Progress) -> list[Node]:
    """The nodes that answer; those that don't are said, and left out.

    Args:
        told: the words of each job but for its groups.

    Raises:
        UsageError: there is no node, or none can plan the study.
    """
    places = cluster.places()
    if not places:
        raise UsageError("the cluster has no node that gives out CPUs")
    progress.stage(f"asking {counted(len(places), 'node')} what they are")
    job = Job(told={**told, "groups": None, "max_time_s": None})
    asked = {place: cluster.begin(place, job) for place in places}
    try:
        answers = _gather(asked)
    finally:
        for worker in asked.values():
            worker.release()
    found, faults = list[Node](), list[str]()
    for place in places:
        answer = answers[place]
        if "error" in answer:
            faults.append(f"{place.name}: {answer['error']}")
            continue
        header = Header.model_validate(answer["header"])
        found.append(Node(place=place, header=header, cells=answer["cells"], estimate_s=answer["estimate_s"]))
    if not found:
        raise UsageError(faults[0])
    for fault in faults:
        progress.say(f"left out: {fault}")
    return found


def _gather(asked: Mapping[Place, Worker]) -> dict[Place, Mapping[str, Any]]:
    answers, limit = dict[Place, Mapping[str, Any]](), Deadline(ASKING_S)
    while len(answers) < len(asked):
        for place, worker in asked.items():
            if place in answers:
                continue
            try:
                news = worker.poll()
            except Lost as lost:
                answers[place] = {"error": str(lost)}
                continue
            if news is not None and news.answer is not None:
                answers[place] = news.answer
            elif not limit.allows(0.0):
                answers[place] = {"error": f"it hasn't answered for {ASKING_S:.0f} s"}
        sleep(LOOK_S)
    return answers
