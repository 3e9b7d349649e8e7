"""Who measures what: a study's groups, dealt to the nodes of each kind; a group is one race, and never spans nodes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shootout.errors import UsageError
from shootout.fleet.nodes import Kind, Node, tell_other_versions
from shootout.host import environment
from shootout.journal.records import Header


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one node is to measure, as one run.

    Attributes:
        kind: its key.
        number: among the parts of this kind.
        groups: by name, in the study's order.
        node: who is to go on with what it began; None: any of the kind.
    """

    kind: str
    number: int
    groups: tuple[str, ...]
    node: Node | None = None

    @property
    def name(self) -> str:
        """Of its run folder."""
        return f"{self.kind}-{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A part that an earlier command left.

    Attributes:
        header: what its journal begins with.
        finished: which of its groups the same command would play no more.
    """

    kind: str
    number: int
    header: Header
    finished: frozenset[str]

    @property
    def groups(self) -> tuple[str, ...]:
        """What it was to measure."""
        return tuple(group.name for group in self.header.groups)

    @property
    def fingerprint(self) -> str:
        """Of the node that measured it."""
        return environment.fingerprint(self.header.environment)

    @property
    def is_finished(self) -> bool:
        """Whether it needs nothing more."""
        return self.finished >= {*self.groups}


def deal(kind: Kind, held: Sequence[Held] = (), *, together: bool = False) -> list[Part]:
    """The parts that a kind of node still has to measure.

    What a node began and the same node can go on with stays its own; all else that isn't finished is dealt anew, one
    group after another, so that each node gets small and large ones of a sweep.

    Args:
        held: what earlier commands left, of this kind.
        together: whether one node must measure all groups, as where crossovers are looked for between them.

    Raises:
        UsageError: what is held is of another study, or can't be gone on with in other versions.
    """
    _refuse_other_studies(kind, held)
    is_whole = any(one.finished >= {*kind.groups} for one in held)
    done = {name for one in held for name in one.finished} if is_whole or not together else set[str]()
    free, parts = list(kind.nodes), list[Part]()
    for one in sorted(held, key=lambda each: -each.number):  # what was lost and begun again is the later's
        mine = next((node for node in free if node.fingerprint == one.fingerprint), None)
        if mine and not one.is_finished and not {*one.groups} - {*one.finished} <= done:
            free.remove(mine)
            done |= {*one.groups}
            parts.append(Part(kind=kind.key, number=one.number, groups=one.groups, node=mine))
    left = [name for name in kind.groups if name not in done]
    nodes = 1 if together else len(free) or len(kind.nodes)
    first = next_number(one.number for one in held)
    dealt = [tuple(left[start::nodes]) for start in range(min(nodes, len(left)))]
    parts += [Part(kind=kind.key, number=first + index, groups=some) for index, some in enumerate(dealt)]
    if parts:
        _refuse_other_versions(kind, held)
    return parts


def _refuse_other_studies(kind: Kind, held: Iterable[Held]) -> None:
    """What is held counts as this study's where some node of the kind would begin it with the same identity."""
    for one in held:
        asked = {narrow_identity(node.header.identity, kind.groups, one.groups) for node in kind.nodes}
        if one.header.identity not in asked:
            raise UsageError(
                f"{one.kind}-{one.number} in this folder holds another study, other targets or other contents of its "
                f"files ({one.header.study}): choose another --out"
            )


def _refuse_other_versions(kind: Kind, held: Iterable[Held]) -> None:
    for one in held:
        if listed := tell_other_versions(one.header.environment, kind.nodes[0].facts):
            raise UsageError(
                f"{one.kind}-{one.number} in this folder was measured with other versions than its nodes have now: "
                f"{listed}. Install those again, or choose another --out"
            )


def next_number(taken: Iterable[int]) -> int:
    """One more than all numbers of a kind's parts so far."""
    return max(taken, default=0) + 1


def narrow_identity(identity: str, every: Sequence[str], mine: Sequence[str]) -> str:
    """What a run folder with some of a plan's groups must hold to go on; with all of them it is the plan's own."""
    if [*every] == [*mine]:
        return identity
    return hashlib.sha256(json.dumps([identity, *mine]).encode()).hexdigest()


def share_s(node: Node, groups: Sequence[str]) -> float:
    """Seconds that some of the groups take a node at the least, by their arms."""
    every: Mapping[str, int] = node.cells
    return node.estimate_s * sum(every.get(name, 0) for name in groups) / max(sum(every.values()), 1)
