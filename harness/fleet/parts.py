"""Deal a study's groups to the nodes of each kind, and read or write the run folders that they make.

A group is one race and never spans nodes. A part is what one node measures as one run, in one folder.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shootout.contract import NotRun
from shootout.errors import UsageError
from shootout.fleet.node_kinds import FleetNode, NodeKind, tell_other_versions
from shootout.host import environment
from shootout.host.locks import FOLDER_LOCK
from shootout.journal import journal, merged, run_folder
from shootout.journal.journal import History, Journal
from shootout.journal.records import PASSING, Header, not_run
from shootout.results.group import group_of, missing
from shootout.study.group import confirming_name


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPart:
    """The groups that one node is to measure as one run.

    Attributes:
        kind: its key.
        number: among the parts of this kind.
        groups: by name, in the study's order.
        node: the node that goes on with what it began; None: any of the kind.
    """

    kind: str
    number: int
    groups: tuple[str, ...]
    node: FleetNode | None = None

    @property
    def name(self) -> str:
        """Return the name of its run folder."""
        return f"{self.kind}-{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPart:
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
        """Return the groups it was to measure."""
        return tuple(group.name for group in self.header.groups)

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the node that measured it."""
        return environment.fingerprint(self.header.environment)

    @property
    def is_finished(self) -> bool:
        """Return whether it needs nothing more."""
        return self.finished >= {*self.groups}


def deal(kind: NodeKind, held: Sequence[HeldPart] = ()) -> list[FleetPart]:
    """Return the parts that a kind of node still has to measure.

    What a node began and the same node can go on with stays its own. All else that isn't finished is dealt again, one
    group after another, so that each node gets small and large ones of a sweep.

    Args:
        held: what earlier commands left, of this kind.

    Raises:
        UsageError: what is held is of another study, or can't be gone on with in other versions.
    """
    _refuse_other_studies(kind, held)
    done = {name for part in held for name in part.finished}
    free, parts = list(kind.nodes), list[FleetPart]()
    for part in sorted(held, key=lambda part: -part.number):  # what was lost and begun again is the later's
        mine = next((node for node in free if node.fingerprint == part.fingerprint), None)
        if mine and not part.is_finished and not {*part.groups} - {*part.finished} <= done:
            free.remove(mine)
            done |= {*part.groups}
            parts.append(FleetPart(kind=kind.key, number=part.number, groups=part.groups, node=mine))
    left = [name for name in kind.groups if name not in done]
    nodes = len(free) or len(kind.nodes)
    first = 1 + max((part.number for part in held), default=0)
    dealt = [tuple(left[start::nodes]) for start in range(min(nodes, len(left)))]
    parts += [FleetPart(kind=kind.key, number=first + index, groups=some) for index, some in enumerate(dealt)]
    if parts:
        _refuse_other_versions(kind, held)
    return parts


def _refuse_other_studies(kind: NodeKind, held: Iterable[HeldPart]) -> None:
    """Refuse what no node of the kind would begin with the same identity."""
    for part in held:
        identities = {narrow_identity(node.header.identity, kind.groups, part.groups) for node in kind.nodes}
        if part.header.identity not in identities:
            raise UsageError(
                f"{part.kind}-{part.number} in this folder holds another study, other targets or other contents of its "
                f"files ({part.header.study}): choose another --out"
            )


def _refuse_other_versions(kind: NodeKind, held: Iterable[HeldPart]) -> None:
    for part in held:
        if listed := tell_other_versions(part.header.environment, kind.nodes[0].facts):
            raise UsageError(
                f"{part.kind}-{part.number} in this folder was measured with other versions than its nodes have now: "
                f"{listed}. Install those again, or choose another --out"
            )


def narrow_identity(identity: str, every: Sequence[str], mine: Sequence[str]) -> str:
    """Return the identity of a run with some of a plan's groups; with all of them it is the plan's own."""
    if [*every] == [*mine]:
        return identity
    return hashlib.sha256(json.dumps([identity, *mine]).encode()).hexdigest()


def share_s(node: FleetNode, groups: Sequence[str]) -> float:
    """Estimate the seconds that some of the groups take a node at the least, by their arms."""
    return node.estimate_s * node.count_cells(groups) / max(node.count_cells([*node.playing]), 1)


def find_parts(out: Path) -> list[Path]:
    """Return the run folders in a fleet's folder, in the order of their names."""
    return [folder for folder in sorted(out.iterdir()) if folder.is_dir() and journal.begun(folder)]


def find_held(out: Path) -> list[HeldPart]:
    """Read the parts that earlier commands left in a folder.

    Raises:
        UsageError: the folder holds something else.
    """
    held = []
    for folder in sorted(out.iterdir()) if out.is_dir() else ():
        if folder.name == FOLDER_LOCK or folder.name.startswith(merged.NAME):
            continue
        kind, _, number = folder.name.rpartition("-")
        is_part = folder.is_dir() and number.isdecimal()
        if is_part and not journal.begun(folder) and not run_folder.find_foreign(folder):
            continue  # the command was killed before the journal was written
        if not is_part or not journal.begun(folder):
            raise UsageError(
                f"{str(out)!r} is not the folder of a fleet's run (it holds {folder.name!r}): choose another --out"
            )
        history = journal.read(folder)
        settled = frozenset(find_settled(history))
        held.append(HeldPart(kind=kind, number=int(number), header=history.header, finished=settled))
    return held


def find_settled(history: History) -> list[str]:
    """Return the groups of a run, as they were planned, of which the same command would play no more."""
    planned = [group.name for group in history.header.groups]
    return planned if history.complete else [name for name in planned if _is_done(history, name, played_out=False)]


def find_finished(history: History) -> list[str]:
    """Return the groups that are settled, or have played as often as the study allows."""
    planned = [group.name for group in history.header.groups]
    return planned if history.played_out else [name for name in planned if _is_done(history, name, played_out=True)]


def _is_done(history: History, name: str, *, played_out: bool) -> bool:
    record = next((group for group in history.groups if group.name == name), None)
    if record is None:
        return False
    if record.selects_for is not None:
        return _is_done(history, confirming_name(name), played_out=played_out)
    group = group_of(history, record)
    if any(why.kind in PASSING for why in group.setbacks.values()):
        return False
    if all(arm.label in group.setbacks for arm in record.arms if not arm.control):
        return True
    most = history.header.max_restarts
    return bool(group.rounds) and (not missing(group) or (played_out and len(group.rounds) >= most))


def write_part(folder: Path, data: bytes) -> None:
    """Write the run folder that a node returned, a zip, over what is here."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():  # the journal last, since it names the others
            archive.extract(name, folder)


def give_up(folder: Path, part: FleetPart, node: FleetNode, why: NotRun) -> None:
    """Note in a part's journal why its unfinished groups have no figures.

    Args:
        node: where nothing came of the part, this node's plan is what the journal begins with.
    """
    if not journal.begun(folder):
        folder.mkdir(parents=True, exist_ok=True)
        groups = tuple(group for group in node.header.groups if group.name in part.groups)
        identity = narrow_identity(node.header.identity, [planned.name for planned in node.header.groups], part.groups)
        with_part = node.header.model_copy(update={"groups": groups, "identity": identity})
        file = Journal(folder)
        file.append(with_part)
        file.close()
    history = journal.read(folder)
    records, finished = {group.name: group for group in history.groups}, find_finished(history)
    lines = [
        not_run(name, arm, why)
        for name in part.groups
        if name in records and name not in finished
        for arm in records[name].arms
        if not arm.control and arm.label not in group_of(history, records[name]).setbacks
    ]
    file = Journal(folder, history.sound_bytes)
    file.append(*lines)
    file.close()
