"""An arm shipped without a run: built, called and shipped in a process of its own, with a document made by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from shootout import backends
from shootout.contract import Arm, Target
from shootout.exported.shipped_folder import ShippedFolder
from shootout.host import environment
from shootout.ship.arm_to_ship import ArmToShip
from shootout.ship.folder import write_folder
from shootout.testing.cases import ConformanceCase, case_of, warm_of
from shootout.testing.checks import call
from shootout.testing.fresh import run_fresh
from support.races import cells


@dataclass(frozen=True)
class Made:
    """A shipped folder, and what the arm's own session answered to every input set."""

    shipped: ShippedFolder
    answers: list[dict[str, Any]]


def ship_target(target: Target, place: Path) -> Made:
    """Ship the conformance suite's case of a target; `place` is an empty folder."""
    found: Made = run_fresh(_ship, case_of(target), place, warm=warm_of(target))
    return found


def source_of(arm: Arm, **changes: Any) -> ArmToShip:
    """What is known of an arm after a run on this machine, in which it took a millisecond."""
    row = cells.row(arm.label, 1e6, fidelity=cells.fidelity(error_bound=1e-5), **changes)
    facts = {"machine": "key", "cpu": environment.cpu_facts(), "variables": {}}
    document = cells.document(cells.cell(row), environment=facts)
    return ArmToShip(
        folder=Path("made"),
        document=document,
        history=Mock(),
        record=Mock(),
        arm=arm,
        row=row,
        prepared=Mock(),
    )


def _ship(case: ConformanceCase, place: Path) -> Made:
    built_in = place / "built"
    built_in.mkdir()
    adapter = backends.get(case.arm.target.backend)
    built = adapter.build(case.exported, case.arm, built_in)
    session = adapter.load(built)
    answers = [dict(call(session, inputs, slot)) for slot, inputs in enumerate(case.exported.input_buffers())]
    session.close()
    return Made(write_folder(source_of(case.arm), built, place / "folder"), answers)
