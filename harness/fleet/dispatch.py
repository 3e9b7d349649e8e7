"""The nodes at work: parts begin as nodes get free, what they write is copied here, what is lost begins again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shootout.clock import Deadline, sleep
from shootout.contract import NotRun, NotRunKind
from shootout.errors import ExitCode, Interrupted
from shootout.fleet.cluster import Cluster, Job, Lost, Worker
from shootout.fleet.folders import find_parts, give_up, read_for, write_piece
from shootout.fleet.nodes import Kind, Node
from shootout.fleet.plan import Held, Part, next_number
from shootout.journal import journal
from shootout.journal.merged import write_index
from shootout.messages import Progress
from shootout.units import counted

LOOK_S = 1.0
"""Nodes are asked so often what is new."""
CLAIM_S = 600.0
"""A node that others' tasks hold is waited for so long."""
STOP_S = 30.0
"""After Ctrl-C, nodes have so long to note where they are."""
MOST_LOST = 2
"""A group that so many nodes were lost with is not begun again: it may be what ends them."""


@dataclass(kw_only=True)
class _Running:
    """A part on a node."""

    part: Part
    node: Node
    worker: Worker
    waited: Deadline
    claimed: bool = False


@dataclass(kw_only=True)
class Dispatch:
    """All that is to be done on a cluster, in progress.

    Attributes:
        out: the folder that holds a run folder for each part.
        told: the words of each job but for its groups and its time.
        limit: when all of it ends.
        kinds: with their nodes.
        parts: what is to be measured.
        together: whether one node must measure all groups, as `deal` has it.
        held: what earlier commands left in the folder.
        codes: with what each part's process ended.
        lost: by kind and group, how many nodes were lost with it.
        abandoned: the groups, by kind, that nobody is left to measure.
    """

    cluster: Cluster
    out: Path
    told: Mapping[str, Any]
    progress: Progress
    limit: Deadline
    kinds: Sequence[Kind]
    parts: Sequence[Part]
    together: bool = False
    held: Sequence[Held] = ()
    codes: list[int] = field(default_factory=list)
    lost: Counter[tuple[str, str]] = field(default_factory=Counter)
    abandoned: list[tuple[str, str]] = field(default_factory=list)
    _free: dict[str, list[Node]] = field(default_factory=dict, init=False)
    _numbers: dict[str, int] = field(default_factory=dict, init=False)
    _waiting: list[Part] = field(default_factory=list, init=False)
    _running: list[_Running] = field(default_factory=list, init=False)

    def run(self) -> None:
        """Measure the parts. The folder is a merged one of all of them from the first line on, and after Ctrl-C.

        Raises:
            Interrupted: Ctrl-C; what was measured until then is in the folders.
        """
        self._free = {kind.key: list(kind.nodes) for kind in self.kinds}
        taken = [(one.kind, one.number) for one in self.parts] + [(one.kind, one.number) for one in self.held]
        keys = [kind.key for kind in self.kinds]
        self._numbers = {key: next_number(number for kind, number in taken if kind == key) for key in keys}
        self._waiting = list(self.parts)
        self.progress.stage(f"measuring on {counted(sum(len(kind.nodes) for kind in self.kinds), 'node')}")
        try:
            self._begin()
            while self._running:
                for one in list(self._running):
                    self._look(one)
                self._begin()
                if self._running:
                    sleep(LOOK_S)
        except KeyboardInterrupt:
            self._stop()
            raise Interrupted("interrupted; run the same command again to resume") from None
        finally:
            for one in self._running:
                one.worker.release()
            write_index(self.out, find_parts(self.out))
        self.abandoned += [(part.kind, name) for part in self._waiting for name in part.groups]

    def _begin(self) -> None:
        """Give each free node a part, one that it began itself first."""
        for part in sorted(self._waiting, key=lambda one: one.node is None):
            free = self._free[part.kind]
            node = part.node if part.node in free else None if part.node else next(iter(free), None)
            if node is None:
                continue
            free.remove(node)
            self._waiting.remove(part)
            folder = self.out / part.name
            words = {**self.told, "groups": [*part.groups], "max_time_s": self._left_s()}
            job = Job(told=words, claims=True, folder=read_for(folder))
            self.progress.say(f"{node.place.name}: {part.name} begins, {counted(len(part.groups), 'group')}")
            running = _Running(
                part=part, node=node, worker=self.cluster.begin(node.place, job), waited=Deadline(CLAIM_S)
            )
            self._running.append(running)

    def _left_s(self) -> float | None:
        return None if self.limit.seconds is None else max(self.limit.left_s, 0.0)

    def _look(self, one: _Running) -> None:
        """Copy what is new on a node, and take it back when it has ended or is lost."""
        try:
            ended = self._copy(one)
        except Lost as lost:
            self._lose(one, NotRun(NotRunKind.KILLED, f"the node {one.node.place.name} was lost: {lost}", during="run"))
            return
        if ended is not None and "error" in ended:
            told = f"the process on the node {one.node.place.name} ended: {ended['error']}"
            late = int(ended["code"]) == ExitCode.NOTHING
            kind, fix = (NotRunKind.NOT_REACHED, "give it more time") if late else (NotRunKind.KILLED, "")
            self._lose(one, NotRun(kind, told, fix, during="" if late else "run"))
        elif ended is not None:
            self.codes.append(int(ended["code"]))
            self._take_back(one)
            self._free[one.part.kind].append(one.node)
        elif not one.claimed and not (one.waited.allows(0.0) and self.limit.allows(0.0)):
            reason = f"the node {one.node.place.name} was not free: others' tasks hold some of its CPUs"
            self._lose(one, NotRun(NotRunKind.NOT_REACHED, reason, "run the same command again when it is"))

    def _copy(self, one: _Running) -> Mapping[str, Any] | None:
        """Its answer, where it has ended.

        Raises:
            Lost: the node is gone.
        """
        news = one.worker.poll()
        if news is None:
            return None
        one.claimed = True
        for piece in news.pieces:
            write_piece(self.out / one.part.name, piece)
            if piece.path == journal.NAME and not piece.offset:
                write_index(self.out, find_parts(self.out))
        if news.said:
            self.progress.detail(f"{one.node.place.name}: {news.said[-1]}")
        return news.answer

    def _lose(self, one: _Running, why: NotRun) -> None:
        """Note what is unfinished, and let others of its kind begin it again. The node gets nothing more."""
        self._take_back(one)
        left = give_up(self.out / one.part.name, one.part, one.node, why)
        self.progress.say(f"{why.reason}; {len(left)} of its {len(one.part.groups)} groups are unfinished")
        if why.failed:
            self.lost.update((one.part.kind, name) for name in left)
        elif not self.limit.allows(0.0):  # for anybody
            self.codes.append(ExitCode.NOTHING)
            return
        again = tuple(name for name in left if self.lost[one.part.kind, name] < MOST_LOST)
        if self.together:  # what is looked for between groups is none of two runs
            again = one.part.groups if left and again == tuple(left) else ()
        self.abandoned += [(one.part.kind, name) for name in left if name not in again]
        if again:
            number = self._numbers[one.part.kind]
            self._numbers[one.part.kind] += 1
            self._waiting.append(Part(kind=one.part.kind, number=number, groups=again))

    def _take_back(self, one: _Running) -> None:
        one.worker.release()
        self._running.remove(one)

    def _stop(self) -> None:
        """Let the nodes note where they are, and copy that."""
        self.progress.say("ending what runs on the nodes")
        patience = Deadline(STOP_S)
        for one in list(self._running):
            if one.claimed:
                one.worker.stop()
        while any(one.claimed for one in self._running) and patience.allows(0.0):
            for one in [each for each in self._running if each.claimed]:
                try:
                    ended = self._copy(one)
                except Lost:
                    ended = {}
                if ended is not None:
                    self._take_back(one)
            sleep(min(LOOK_S, max(patience.left_s, 0.0)))
