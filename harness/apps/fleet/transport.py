"""Define what a command needs of a way to other machines: run a task there, and return its run folder."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shootout.core.errors import ExitCode, ShootoutError
from shootout.tell.delivery import Contents

STOP_S = 30.0
"""The time that machines have to return what they have, once they are asked to end."""


class NodeLost(ShootoutError):
    """Report that no result of a task came: its machine is gone, say, or was never sent it; the message says why."""

    exit_code = ExitCode.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A machine, or several that may stand for each other, of which one runs a task.

    Attributes:
        id: the transport's own, the same whenever the place is asked.
        name: for people.
    """

    id: str
    name: str

    @property
    def folder(self) -> str:
        """Return the name of its run folder."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:40]
        return f"{slug or 'node'}-{hashlib.sha256(self.id.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Name what `python -m` runs on a machine, in the folder of the user's files.

    Attributes:
        words: where one begins with `{run}`, that is the task's run folder.
        name: the same for the same task of the same command, which finds one that an earlier command began.
        folder: a zip of the run folder that it goes on with; empty for a new one.
        sent: files that it needs, by their folders' places below the machine's cache.
    """

    words: Sequence[str]
    name: str
    folder: bytes = b""
    sent: Mapping[str, Contents] = field(default_factory=dict)

    def name_at(self, place: Place, needs: Iterable[str]) -> str:
        """Name the task at a place; `needs`: where the package and the user's files lie, by their contents."""
        return hashlib.sha256(json.dumps([self.name, place.id, *needs]).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Hold what a task ended with.

    Attributes:
        code: its exit code; negative: the signal that killed it.
        printed: its output.
        said: the end of what it told on stderr.
        folder: a zip of its run folder.
    """

    code: int
    printed: str
    said: str
    folder: bytes


class Transport(Protocol):
    """Machines that run tasks.

    Attributes:
        exports_there: whether machines export and build by themselves. Otherwise that is done here and sent.
        late: why a place has no result when the time is over, with the exit code of that.
    """

    exports_there: bool
    late: NodeLost

    @property
    def places(self) -> Sequence[Place]:
        """List them, in a lasting order."""

    def run(self, place: Place, task: Task, *, claims: bool = True) -> Answer:
        """Run a task to its end, or find the one that the same command began; called in a thread for each place.

        Args:
            claims: whether it measures, and so waits until the machine is free.

        Raises:
            NodeLost: no result came.
        """

    def forget(self, place: Place, task: Task) -> None:
        """Drop a task whose answer was kept here."""

    def stop(self) -> None:
        """Ask every task to end, and to return what it has."""
