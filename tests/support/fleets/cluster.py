"""A cluster without Ray: each node writes a journal as a run does, group by group, and dies or stays busy when told."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shootout.contract import NotRun, NotRunKind
from shootout.fleet.cluster import Job, Lost, News, Piece
from shootout.fleet.nodes import Node, Place
from shootout.fleet.plan import narrow_identity
from shootout.journal import journal
from shootout.journal.journal import Journal
from shootout.journal.records import Ended, Prepared, not_run

MEASURED = NotRun(NotRunKind.UNAVAILABLE, "measured, for all that scheduling can tell", "")


@dataclass
class FakeCluster:
    """Attributes:
    nodes: by place.
    folder: where nodes write.
    dies_after: by node, the groups that it measures before it is lost.
    fails_after: likewise, before its process ends with an error.
    refuses: the nodes that can't plan the study, and why.
    busy: the nodes that others hold.
    begun: the jobs, by node, in the order in which they were begun.
    stopped: the nodes that were asked to end.
    """

    nodes: Sequence[Node]
    folder: Path
    dies_after: Mapping[str, int] = field(default_factory=dict)
    fails_after: Mapping[str, int] = field(default_factory=dict)
    refuses: Mapping[str, str] = field(default_factory=dict)
    busy: Collection[str] = ()
    begun: list[tuple[str, Job]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)

    def places(self) -> list[Place]:
        return [node.place for node in self.nodes]

    def begin(self, place: Place, job: Job) -> FakeWorker:
        self.begun.append((place.name, job))
        node = next(node for node in self.nodes if node.place == place)
        folder = self.folder / f"{place.name}-{len(self.begun)}"
        folder.mkdir(parents=True)
        return FakeWorker(cluster=self, node=node, job=job, folder=folder)


@dataclass
class FakeWorker:
    """A job there: one group at each look."""

    cluster: FakeCluster
    node: Node
    job: Job
    folder: Path
    sent: int = 0
    looks: int = 0
    is_stopped: bool = False

    def poll(self) -> News | None:
        name = self.node.place.name
        if name in self.cluster.busy:
            return None
        if self.job.told["groups"] is None:
            return self._asked()
        if self.looks == self.cluster.dies_after.get(name, -1):
            raise Lost("it is gone")
        if self.looks == self.cluster.fails_after.get(name, -1):
            return News(answer={"error": "no memory was left", "code": 1})
        if not self.looks:
            self._begin()
        self.looks += 1
        left = self._left()
        if left and not self.is_stopped:
            records = {group.name: group for group in self.node.header.groups}
            arms = [arm for arm in records[left[0]].arms if not arm.control]
            built = Prepared(group=left[0], arm=arms[0].label, export_s=0.0, build_s=0.0, build_cached=True, probe=None)
            self._append(built, *(not_run(left[0], arm, MEASURED) for arm in arms))
        elif not left:
            self._append(Ended(complete=True, why="nothing is left to measure", wall_s=1.0))
        answer = {"code": 0} if self.is_stopped or not left else None
        return News(pieces=[self._piece()], said=[f"look {self.looks}"], answer=answer)

    def stop(self) -> None:
        self.cluster.stopped.append(self.node.place.name)
        self.is_stopped = True

    def release(self) -> None:
        self.cluster.released.append(self.node.place.name)

    def _asked(self) -> News:
        node = self.node
        if why := self.cluster.refuses.get(node.place.name):
            return News(answer={"error": why, "code": 2})
        answer: dict[str, Any] = {"cells": dict(node.cells), "estimate_s": node.estimate_s}
        return News(answer={"header": node.header.model_dump(mode="json"), **answer})

    def _begin(self) -> None:
        for path, data in self.job.folder.items():
            (self.folder / path).write_bytes(data)
        self.sent = len(self.job.folder.get(journal.NAME, b""))
        if not self.sent or journal.read(self.folder).untouched:  # as `open_folder` has it
            (self.folder / journal.NAME).unlink(missing_ok=True)
            every = self.node.header.groups
            mine = tuple(group for group in every if group.name in self.job.told["groups"])
            names = [group.name for group in mine]
            identity = narrow_identity(self.node.header.identity, [group.name for group in every], names)
            self._append(self.node.header.model_copy(update={"groups": mine, "identity": identity}))

    def _left(self) -> list[str]:
        history = journal.read(self.folder)
        done = {line.group for line in history.lines if getattr(line, "kind", "") == "skip"}
        return [name for name in self.job.told["groups"] if name not in done]

    def _append(self, *lines: Any) -> None:
        sound = journal.read(self.folder).sound_bytes if journal.begun(self.folder) else 0
        file = Journal(self.folder, sound)
        file.append(*lines)
        file.close()

    def _piece(self) -> Piece:
        data = (self.folder / journal.NAME).read_bytes()
        piece = Piece(path=journal.NAME, offset=self.sent, data=data[self.sent :])
        self.sent = len(data)
        return piece
