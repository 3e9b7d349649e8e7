"""Say what a command needs of the machines that it measures on, however they are reached: Ray or ssh."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from shootout.errors import ShootoutError
from shootout.export.delivery import Delivery
from shootout.fleet.node_kinds import ClusterNode

Supply = Callable[[Sequence[Any]], Delivery]
"""Makes what groups need that a node planned on its way; they are `GroupRecord`s as JSON values."""
Job = TypeVar("Job")
"""A transport's own type for a job."""
LOST_S = 120.0
"""The time after which a machine that can't be reached is lost; the same command fetches what it measures meanwhile."""
ENTRY = "shootout.commands.node"
"""The module that nodes run."""


class NodeLost(ShootoutError):
    """Report that no result of a job came: its node is gone, say, or was never sent it; the message says why."""


class Nodes(Protocol[Job]):
    """Machines on which jobs of ours run.

    Attributes:
        were_named: whether the user named each of them. Then each owes a result, gets its job at once, and gets from
            here what it measures, exported and built. Of a cluster, any nodes will do: a job waits until one is free,
            and its node exports and builds by itself.
    """

    were_named: bool

    def nodes(self) -> list[ClusterNode]:
        """List them."""

    def ask(self, node: ClusterNode, job: Mapping[str, Any]) -> Job:
        """Start a job that measures nothing on a node, at once, whatever else runs there."""

    def measure(
        self,
        nodes: Sequence[ClusterNode],
        job: Mapping[str, Any],
        folder: bytes = b"",
        delivered: Mapping[str, Mapping[str, Path]] | None = None,
        supply: Supply | None = None,
    ) -> Job:
        """Start a job on one of these nodes, as soon as it is free.

        Args:
            folder: a zip of the run folder that the job goes on with.
            delivered: the files of what was exported and built for it, see `Delivery.contents`.
            supply: exports and builds what it asks for on its way.
        """

    def wait(self, jobs: Sequence[Job], seconds: float, *, until_all: bool = False) -> list[Job]:
        """Wait until one of the jobs has ended, or all of them, or so many seconds; return those that have."""

    def result(self, job: Job) -> dict[str, Any]:
        """Return a job's answer, and as `folder` a zip of its run folder.

        Raises:
            NodeLost: there is none.
        """

    def node_of(self, job: Job) -> ClusterNode | None:
        """Return the node that has a job; None if that isn't known here."""

    def stop(self, job: Job) -> None:
        """Ask a job to end, and to keep what it has."""

    def release(self, job: Job) -> None:
        """Forget a job, and give its node back."""
