"""Journal lines made by hand, with only what a test is about spelled out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shootout.core.contract import Arm, Executed, Fidelity, Target
from shootout.core.host.noise import Disturbance
from shootout.core.journal.journal import Journal
from shootout.core.journal.records import Checked, Ended, Header, Line, Played, Prepared, Rounds
from shootout.core.messages import Scores
from shootout.core.study.group import GroupRecord

GROUP = "identity, batch 1"
EXECUTED = Executed(library="spin", version="1", device="cpu", threads=1, compute_nodes_by_precision={"fp32": 1})
EXACT = Fidelity(max_abs=0.0, relative_l2=0.0, sqnr_db=None, cosine=1.0, top1_agreement=1.0)
A, B = Arm(target=Target(backend="a"), model="identity"), Arm(target=Target(backend="b"), model="identity")
COPY = Arm(target=Target(backend="a"), model="identity", control=True)
ARMS = (A, B, COPY)


def header(arms: Sequence[Arm] = ARMS, **changes: Any) -> Header:
    """A run of one group, whose baseline is the first arm and whose control is among them."""
    record = GroupRecord(name=GROUP, baseline=arms[0].label, comparisons=1, arms=tuple(arms))
    facts: dict[str, Any] = {
        "created": "2026-01-01T00:00:00+00:00",
        "study": "made",
        "identity": "0",
        "seed": 0,
        "max_restarts": 20,
        "bias_floor": 0.005,
        "named": (),
        "groups": (record,),
        "environment": {"machine": "made"},
    }
    return Header(**{**facts, **changes})


def prepared(arm: Arm) -> Prepared:
    return Prepared(group=GROUP, arm=arm.label, export_s=1.0, build_s=2.0, build_cached=False, probe="fp32")


def played(arm: Arm, restart: int, median_ns: float, **changes: Any) -> Played:
    """One restart of an arm whose blocks all have the same median."""
    blocks = (median_ns,) * 3
    facts: dict[str, Any] = {
        "group": GROUP,
        "arm": arm.label,
        "restart": restart,
        "load_s": 0.1,
        "first_call_s": 0.01,
        "warm_up_calls": 60,
        "steady_from": 5,
        "executed": EXECUTED,
        "fidelity": EXACT,
        "per_reading": {"end_to_end": 1, "compute": 1},
        "block_median_ns": {"end_to_end": blocks, "compute": blocks},
        "rss_before_bytes": 10_000,
        "rss_after_bytes": 30_000,
        "peak_rss_bytes": 40_000,
        "samples": f"samples/g0-{restart:03}.npz",
    }
    return Played(**{**facts, **changes})


def checked(arm: Arm, scores: Scores | None = None, **changes: Any) -> Checked:
    """An arm as it was found before its first round."""
    line = played(arm, 0, 1.0, **changes)
    return Checked(
        **line.model_dump(include={"group", "arm", "load_s", "first_call_s", "executed", "fidelity"}), scores=scores
    )


def rounds(restart: int, *, tried: int = 3, voided: int = 0) -> Rounds:
    why = tuple((index, (Disturbance("steal", 0.05),)) for index in range(voided))
    return Rounds(group=GROUP, restart=restart, tried=tried, voided=why, wall_s=1.0)


def ended(*, complete: bool = True, budget_s: float | None = None) -> Ended:
    return Ended(complete=complete, why="made", wall_s=7.0, budget_s=budget_s)


def raced(folder: Path, machine: str, first_ns: float, second_ns: float, restarts: int = 4) -> Path:
    """A whole run of two arms on a machine of this key; whoever reads it patches `samples.read`, for it has none."""
    times = (A, first_ns), (B, second_ns), (COPY, first_ns)
    lines: list[Line] = []
    for restart in range(restarts):
        lines += [played(arm, restart, ns) for arm, ns in times]
        lines.append(rounds(restart))
    cpu = {"model": f"CPU of {machine}", "allowed_cpus": [0]}
    facts: dict[str, Any] = {"created": f"when {folder.name} began", "environment": {"machine": machine, "cpu": cpu}}
    return write(folder, header(**facts), *lines, ended())


def write(folder: Path, *lines: Line) -> Path:
    """A run folder with these lines behind a header (unless one is given)."""
    folder.mkdir(exist_ok=True)
    file = Journal(folder)
    if not isinstance(lines[0], Header):
        file.append(header())
    for line in lines:
        file.append(line)
    file.close()
    return folder
