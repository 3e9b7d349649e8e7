"""Sort a cluster's nodes into kinds: nodes whose times may stand for each other."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shootout.errors import UsageError
from shootout.host import environment
from shootout.journal.records import Header
from shootout.units import counted, size

LABEL = "shootout.kind"
"""The label of a node, `ray start --labels shootout.kind=NAME`, by which nodes that look alike are of two kinds."""
_STEPS = 2
"""Classes of memory to a doubling: machines of one model differ by what firmware and kernel keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A node as the cluster lists it.

    Attributes:
        id: the cluster's own, while it lives.
        name: for people.
        label: of `LABEL`, "" without one.
        cpus, gpus: how many the cluster gives out there.
    """

    id: str
    name: str
    label: str = ""
    cpus: float
    gpus: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetNode:
    """A node that was asked what it is and what it would measure.

    Attributes:
        header: what its own journal would begin with.
        playing: the labels of the arms that can run there, by group, without controls.
        estimate_s: seconds that all of it would take at the least.
    """

    place: ClusterNode
    header: Header
    playing: Mapping[str, Sequence[str]]
    estimate_s: float = 0.0

    def count_cells(self, groups: Sequence[str]) -> int:
        """Return how many arms of these groups can run there."""
        return sum(len(self.playing.get(name, ())) for name in groups)

    @property
    def facts(self) -> dict[str, Any]:
        """Return its environment."""
        return self.header.environment

    @property
    def fingerprint(self) -> str:
        """Return a hash of all that must not change within a run."""
        return environment.fingerprint(self.facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """Nodes that are alike.

    Attributes:
        key: a name for a folder, the same whenever such nodes are asked.
        title: for people.
    """

    key: str
    title: str
    nodes: tuple[FleetNode, ...]

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the groups it is to measure, in the study's order."""
        return tuple(group.name for group in self.nodes[0].header.groups)


def find_kinds(nodes: Sequence[FleetNode]) -> list[NodeKind]:
    """Sort nodes into kinds, in the order of their first ones.

    Raises:
        UsageError: two nodes of a kind have other versions; names both, and these.
    """
    kinds: dict[str, list[FleetNode]] = {}
    for node in nodes:
        kinds.setdefault(_name_kind(node), []).append(node)
    for alike in kinds.values():
        for other in alike[1:]:
            _refuse_other_versions(alike[0], other)
    return [NodeKind(key=key, title=_describe_kind(some[0]), nodes=tuple(some)) for key, some in kinds.items()]


def _name_kind(node: FleetNode) -> str:
    facts = json.dumps(_kind_facts(node), sort_keys=True)
    name = node.place.label or str(_cpu_facts(node.facts).get("model") or "node")
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    return f"{slug or 'node'}-{hashlib.sha256(facts.encode()).hexdigest()[:8]}"


def _kind_facts(node: FleetNode) -> dict[str, Any]:
    """Return what makes a kind; no versions, since those must not differ within one."""
    facts, cpu = node.facts, _cpu_facts(node.facts)
    gpus = [(gpu.get("name"), gpu.get("memory_bytes")) for gpu in facts.get("gpus") or ()]
    system = facts.get("os") or {}
    return {
        "label": node.place.label,
        "given_out": [node.place.cpus, node.place.gpus],
        "cpu": [cpu.get(name) for name in ("model", "flags", "physical_cores", "logical_cpus", "quota_cpus")],
        "allowed_cpus": len(cpu.get("allowed_cpus") or ()),
        "memory": _memory_class(facts.get("memory") or {}),
        "gpus": gpus,
        "os": [system.get("name"), system.get("system")],
        "virtualisation": facts.get("virtualisation"),
    }


def _cpu_facts(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    return facts.get("cpu") or {}


def _memory_class(memory: Mapping[str, Any]) -> int:
    total = memory.get("limit_bytes") or memory.get("total_bytes") or 1
    return round(_STEPS * math.log2(total))


def _describe_kind(node: FleetNode) -> str:
    facts = node.facts
    total = (facts.get("memory") or {}).get("total_bytes")
    gpus = [str(gpu.get("name")) for gpu in facts.get("gpus") or ()]
    parts = [
        node.place.label,
        str(_cpu_facts(facts).get("model") or "unknown CPU"),
        counted(_cpu_facts(facts).get("logical_cpus") or int(node.place.cpus), "CPU"),
        size(total) if total else "",
        *gpus,
    ]
    return ", ".join(filter(None, parts))


def tell_other_versions(facts: Mapping[str, Any], other_facts: Mapping[str, Any]) -> str:
    """Name what has other versions in two environments, with both; "" if nothing has."""
    mine, others = _list_versions(facts), _list_versions(other_facts)
    differing = [name for name in sorted({*mine, *others}) if mine.get(name) != others.get(name)]
    return ", ".join(f"{name} {mine.get(name, 'absent')} and {others.get(name, 'absent')}" for name in differing)


def _refuse_other_versions(one: FleetNode, other: FleetNode) -> None:
    if listed := tell_other_versions(one.facts, other.facts):
        raise UsageError(
            f"the nodes {one.place.name} and {other.place.name} are of one kind and differ in versions: {listed}. "
            "Install the same on both, or measure on each by itself and use `shootout merge`. Nodes of a Ray cluster "
            f"can be made two kinds: ray start --labels {LABEL}=NAME"
        )


def _list_versions(facts: Mapping[str, Any]) -> dict[str, str]:
    python = (facts.get("python") or {}).get("version")
    driver = facts.get("cuda_driver")
    return {"python": str(python), "CUDA driver": str(driver), **(facts.get("libraries") or {})}
