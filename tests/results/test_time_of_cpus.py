"""CPU time of a call, a figure of each row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.races import made

from shootout.apps.judge.analysis import analyse
from shootout.core.contract import Arm, Target
from shootout.core.journal import samples

MS = 1e6
ARMS = {"lean": (2.0, 2.0), "wide": (1.0, 3.9), "near": (2.1, 1.97)}
"""Milliseconds of a call and of its CPU time."""


@pytest.fixture(autouse=True)
def _without_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "read", lambda *_: np.array([]))


def run(folder: Path, restarts: int = 6) -> Path:
    arms = {name: Arm(target=Target(backend=name), model="identity") for name in ARMS}
    copy = replace(arms["lean"], control=True)
    lines: list[Any] = []
    for restart in range(restarts):
        drift = 1 + 0.2 * (restart % 2)  # which all arms share
        for name, arm in (*arms.items(), ("lean", copy)):
            times = {"end_to_end": ARMS[name][0], "cpu": ARMS[name][1]}
            blocks = {scope: (ms * MS * drift,) * 3 for scope, ms in times.items()}
            lines.append(made.played(arm, restart, 1.0, block_median_ns=blocks))
        lines.append(made.rounds(restart))
    return made.write(folder, made.header((*arms.values(), copy)), *lines, made.ended())


def test_the_row_has_the_median_over_restarts(tmp_path: Path):
    found = {row.arm: row.cpu for row in analyse(run(tmp_path / "run")).rows}
    wide = found["wide:cpu:fp32"]
    assert wide is not None
    assert (wide.median_ns, wide.low_ns, wide.high_ns) == pytest.approx((4.29 * MS, 3.9 * MS, 4.68 * MS))
    assert wide.restarts == 6
