"""What the rest asks of a cluster: its nodes, and a process of ours on one. Ray is one answer, a fake another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from shootout.errors import ShootoutError
from shootout.fleet.nodes import Place


class Lost(ShootoutError):
    """A node is gone, or the cluster's own process on it; the message says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a file that a node wrote.

    Attributes:
        path: below the run folder.
        offset: where it belongs.
    """

    path: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What happened on a node since it was last asked.

    Attributes:
        pieces: in the order in which they must be written: what a line of the journal names lies before it.
        said: lines for people.
        answer: the process's own words once it has ended: keys of its job, or `error` and `code`; None before.
    """

    pieces: Sequence[Piece] = ()
    said: Sequence[str] = ()
    answer: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a process of ours does on a node.

    Attributes:
        told: its words, as JSON values.
        claims: whether it has the whole node to itself, and waits for that.
        folder: what its run folder holds already, by path below it.
    """

    told: Mapping[str, Any]
    claims: bool = False
    folder: Mapping[str, bytes] = field(default_factory=dict)


class Worker(Protocol):
    """One such process."""

    def poll(self) -> News | None:
        """What is new; None while the node isn't free for it yet.

        Raises:
            Lost: the node is gone.
        """

    def stop(self) -> None:
        """Ask it to end, and to keep what it has: the answer comes by `poll`."""

    def release(self) -> None:
        """End it, and give its node back."""


class Cluster(Protocol):
    """Where studies are measured."""

    def places(self) -> list[Place]:
        """The nodes that are there now, and give out CPUs."""

    def begin(self, place: Place, job: Job) -> Worker:
        """Start a job on a node."""
