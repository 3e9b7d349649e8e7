"""A cluster without Ray: each job writes a journal as a run does; nodes are lost, fail or stay busy when told."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shootout.contract import NotRun, NotRunKind
from shootout.errors import ExitCode
from shootout.fleet.node_kinds import ClusterNode, FleetNode
from shootout.fleet.node_side import zip_folder
from shootout.fleet.nodes import NodeLost, Supply
from shootout.fleet.parts import narrow_identity
from shootout.journal import journal
from shootout.journal.journal import Journal
from shootout.journal.records import Ended, Prepared, not_run

MEASURED = NotRun(NotRunKind.UNAVAILABLE, "measured, for all that scheduling can tell", "")


@dataclass(eq=False)
class FakeJob:
    """A job on the first of its nodes."""

    node: FleetNode
    words: Mapping[str, Any]
    folder: Path
    is_stopped: bool = False


@dataclass
class FakeCluster:
    """Attributes:
    fleet: the nodes.
    folder: where they write.
    lost: nodes that are lost with each job that measures.
    fails: nodes whose process breaks behind its first group.
    refuses: the nodes that can't plan the study, and why.
    busy: nodes whose jobs end only when they are stopped, behind their first group.
    were_named: see `Nodes`.
    begun: the jobs that measure, by node.
    delivered, supplies: the files that came with each of them, and what makes others that it asks for.
    """

    fleet: Sequence[FleetNode]
    folder: Path
    lost: Collection[str] = ()
    fails: Collection[str] = ()
    refuses: Mapping[str, str] = field(default_factory=dict)
    busy: Collection[str] = ()
    were_named: bool = False
    begun: list[tuple[str, FakeJob]] = field(default_factory=list)
    delivered: list[Mapping[str, Mapping[str, Path]]] = field(default_factory=list)
    supplies: list[Supply | None] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    interrupts: int = 0

    def nodes(self) -> list[ClusterNode]:
        return [node.place for node in self.fleet]

    def ask(self, place: ClusterNode, words: Mapping[str, Any]) -> FakeJob:
        return FakeJob(self._node(place), words, self.folder)

    def measure(
        self,
        places: Sequence[ClusterNode],
        words: Mapping[str, Any],
        folder: bytes = b"",
        delivered: Mapping[str, Mapping[str, Path]] | None = None,
        supply: Supply | None = None,
    ) -> FakeJob:
        taken = {name for name, _ in self.begun}
        place = next((one for one in places if one.name not in taken), places[0])
        job = FakeJob(self._node(place), words, self.folder / f"{place.name}-{len(self.begun)}")
        job.folder.mkdir(parents=True)
        if folder:
            zipfile.ZipFile(io.BytesIO(folder)).extractall(job.folder)
        self.begun.append((place.name, job))
        self.delivered.append(delivered or {})
        self.supplies.append(supply)
        return job

    def wait(self, jobs: Sequence[FakeJob], _seconds: float, *, until_all: bool = False) -> list[FakeJob]:
        at_work = [job for job in jobs if job.words["groups"] and job.node.place.name in self.busy]
        ended = [job for job in jobs if job.is_stopped or job not in at_work]
        if not ended and self.interrupts:
            self.interrupts -= 1
            raise KeyboardInterrupt
        return ended

    def result(self, job: FakeJob) -> dict[str, Any]:
        name, groups = job.node.place.name, job.words["groups"]
        if groups is None:
            return self._describe(job.node)
        if name in self.lost:
            raise NodeLost("it is gone")
        breaks = name in self.fails or job.is_stopped
        self._play(job, groups[:1] if breaks else groups)
        answer = {"error": "no memory was left", "code": 1} if name in self.fails else {"code": 0}
        if job.is_stopped:
            answer = {"error": "interrupted", "code": ExitCode.INTERRUPTED}
        return {**answer, "folder": zip_folder(job.folder)}

    def node_of(self, job: FakeJob) -> ClusterNode:
        return job.node.place

    def stop(self, job: FakeJob) -> None:
        job.is_stopped = True

    def release(self, job: FakeJob) -> None:
        self.released.append(job.node.place.name)

    def _node(self, place: ClusterNode) -> FleetNode:
        return next(node for node in self.fleet if node.place == place)

    def _describe(self, node: FleetNode) -> dict[str, Any]:
        if why := self.refuses.get(node.place.name):
            return {"error": why, "code": 2}
        return {
            "header": node.header.model_dump(mode="json"),
            "playing": dict(node.playing),
            "estimate_s": node.estimate_s,
        }

    def _play(self, job: FakeJob, groups: Sequence[str]) -> None:
        """Write a journal as a run does, behind what is there."""
        every, mine = job.node.header.groups, job.words["groups"]
        if not journal.begun(job.folder):
            names = [group.name for group in every]
            identity = narrow_identity(job.node.header.identity, names, mine)
            some = tuple(group for group in every if group.name in mine)
            _append(job.folder, job.node.header.model_copy(update={"groups": some, "identity": identity}))
        records = {group.name: group for group in every}
        done = {line.group for line in journal.read(job.folder).lines if getattr(line, "kind", "") == "skip"}
        for name in [name for name in groups if name not in done]:
            arms = [arm for arm in records[name].arms if not arm.control]
            built = Prepared(group=name, arm=arms[0].label, export_s=0.0, build_s=0.0, build_cached=True, probe=None)
            _append(job.folder, built, *(not_run(name, arm, MEASURED) for arm in arms))
        if [*groups] == [*mine]:
            _append(job.folder, Ended(complete=True, why="nothing is left to measure", wall_s=1.0))


def _append(folder: Path, *lines: Any) -> None:
    sound = journal.read(folder).sound_bytes if journal.begun(folder) else 0
    file = Journal(folder, sound)
    file.append(*lines)
    file.close()
