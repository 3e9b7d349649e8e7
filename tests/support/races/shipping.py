"""Arms to ship: one without a run, in a process of its own with a document made by hand; one in a run made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from shootout.apps.ship import folder
from shootout.apps.ship.folder import write_folder
from shootout.backends.shipped import ShippedFolder
from shootout.core import backends
from shootout.core.contract import Arm, Availability, Fidelity, Target
from shootout.core.host import environment
from shootout.core.results.run import Result
from shootout.tell.page import page
from shootout.tell.run_folder import RacedArm
from shootout.testing.checks import ConformanceCase, call, case_of, warm_of
from shootout.testing.fresh import run_fresh
from support.exports import obtain
from support.races import cells, made

FOUND = Fidelity(max_abs=1e-7, relative_l2=1e-7, sqnr_db=None, cosine=1.0, top1_agreement=1.0, error_bound=1e-5)


def write_numpy_run(
    folder: Path, facts: Mapping[str, Any], parameters: Mapping[str, int], on: str = "", restarts: int = 5
) -> Path:
    """Write a run in which NumPy's arm was alone.

    Args:
        facts: the environment that it was measured in.
        parameters: of the model, a residual MLP.
        on: the address by which the machine was reached.
    """
    exported = obtain("residual_mlp", parameters, 2)
    arm = Arm(target=Target(backend="numpy"), model="residual_mlp", parameters=exported.parameters, batch=2)
    arms = arm, replace(arm, control=True)
    played = [
        line
        for number in range(restarts)
        for line in (*(made.played(one, number, 1e6, fidelity=FOUND) for one in arms), made.rounds(number))
    ]
    prepared = made.prepared(arm).model_copy(update={"exported": exported.key})
    return made.write(folder, made.header(arms, environment=facts, on=on), prepared, *played, made.ended())


def let_numpy_ship(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run that was written by hand be shipped at once: no probes, no drawing."""
    works = Availability(version="1")
    monkeypatch.setattr(page, "render", lambda reports: f"{len(reports)} reports")
    monkeypatch.setattr(folder.availability, "find_available", lambda pairs: dict.fromkeys(pairs, works))
    monkeypatch.setattr(folder, "probe_key", Mock(return_value=None))


@dataclass(frozen=True)
class Made:
    """A shipped folder, and what the arm's own session answered to every input set."""

    shipped: ShippedFolder
    answers: list[dict[str, Any]]


def ship_target(target: Target, place: Path) -> Made:
    """Ship the conformance suite's case of a target; `place` is an empty folder."""
    found: Made = run_fresh(_ship, case_of(target), place, warm=warm_of(target))
    return found


def source_of(arm: Arm, **changes: Any) -> RacedArm:
    """What is known of an arm after a run on this machine, in which it took a millisecond."""
    row = cells.row(arm.label, 1e6, fidelity=cells.fidelity(error_bound=1e-5), **changes)
    facts = {"machine": "key", "cpu": environment.facts()["cpu"], "variables": {}}
    document = cells.document(cells.cell(row), environment=facts)
    return RacedArm(
        run=Mock(folder=Path("made")),
        document=document,
        mine=Result(group=Mock(), arm=arm),
        prepared=Mock(),
        row=row,
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
