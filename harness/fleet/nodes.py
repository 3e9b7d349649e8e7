"""Say what a command needs of the machines that it measures on, however they are reached: Ray or ssh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from shootout.errors import ShootoutError
from shootout.fleet.node_kinds import ClusterNode

Job = TypeVar("Job")
"""What a transport knows a job by."""
ENTRY = "shootout.commands.node"
"""The module that nodes run."""


class NodeLost(ShootoutError):
    """A job's node is gone, or the process there that ran it; the message says how."""


class Nodes(Protocol[Job]):
    """Machines on which jobs of ours run.

    Attributes:
        gets_exports: whether they get from here what they measure, exported and built, or make it themselves.
    """

    gets_exports: bool

    def nodes(self) -> list[ClusterNode]:
        """List them."""

    def ask(self, node: ClusterNode, job: Mapping[str, Any]) -> Job:
        """Start a job that measures nothing on a node, at once, whatever else runs there."""

    def measure(
        self,
        nodes: Sequence[ClusterNode],
        job: Mapping[str, Any],
        folder: bytes = b"",
        delivered: Mapping[str, Path] | None = None,
    ) -> Job:
        """Start a job on one of these nodes, as soon as it is free.

        Args:
            folder: a zip of the run folder that the job goes on with.
            delivered: the folders of what was exported and built for it, by their places below a node's cache.
        """

    def wait(self, jobs: Sequence[Job], seconds: float, *, until_all: bool = False) -> list[Job]:
        """Wait until one of the jobs has ended, or all of them, or so many seconds; return those that have."""

    def result(self, job: Job) -> dict[str, Any]:
        """Return a job's answer, and as `folder` a zip of its run folder.

        Raises:
            NodeLost: there is none.
        """

    def stop(self, job: Job) -> None:
        """Ask a job to end, and to keep what it has."""

    def release(self, job: Job) -> None:
        """Forget a job, and give its node back."""
