"""Nodes of a fleet, as they say of themselves what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shootout.core.contract import Arm, Device, Precision, Target
from shootout.core.journal.records import Header
from shootout.core.study.group import GroupRecord, with_control

FACTS: dict[str, Any] = {
    "machine": "m",
    "os": {"name": "Some Linux 12", "system": "Linux", "kernel": "6.1"},
    "cpu": {"model": "Some CPU", "flags": ["avx2", "fma"], "logical_cpus": 4, "allowed_cpus": [0, 1, 2, 3]},
    "memory": {"total_bytes": 32 << 30},
    "gpus": [],
    "cuda_driver": None,
    "python": {"version": "3.11.7", "implementation": "cpython"},
    "libraries": {"onnxruntime": "1.31.1"},
}
GROUPS = ("g1", "g2", "g3", "g4", "g5")


def make_header(groups: Sequence[str], machine: str) -> Header:
    """The beginning of a machine's journal."""
    return Header(
        created="2026-01-01T00:00:00+00:00",
        study="tiny",
        identity="the plan",
        seed=0,
        max_restarts=5,
        bias_floor=0.005,
        named=(),
        groups=tuple(_group(name) for name in groups),
        environment={**FACTS, "machine": machine},
    )


def _group(name: str) -> GroupRecord:
    target = Target(backend="spin", device=Device.CPU, precision=Precision.FP32)
    arms = [Arm(target=target, model="identity", batch=1, threads=1, ordinal=count) for count in (1, 2)]
    return GroupRecord(name=name, baseline=arms[0].label, comparisons=1, arms=with_control(arms[0], arms))
