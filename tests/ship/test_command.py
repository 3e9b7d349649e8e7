"""`shootout ship` as a whole, of a run that was written by hand: built by a worker, written, checked by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.exports import obtain
from support.races import made

from shootout.commands.ship import check_folder, ship
from shootout.contract import Arm, Availability, Fidelity, Target
from shootout.errors import ArmFailed, UsageError
from shootout.exported.shipped_folder import open_shipped
from shootout.host import environment
from shootout.page import page
from shootout.ship import artifact

PARAMETERS = {"d_model": 64, "n_layers": 4}
FOUND = Fidelity(max_abs=1e-7, relative_l2=1e-7, sqnr_db=None, cosine=1.0, top1_agreement=1.0, error_bound=1e-5)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """NumPy's arm was alone in a run on this machine."""
    works = Availability(version="1")
    monkeypatch.setattr(page, "render", lambda sources, decided: f"{len(sources)} runs, {bool(decided)}")
    monkeypatch.setattr(artifact.availability, "find_available", lambda pairs: dict.fromkeys(pairs, works))
    monkeypatch.setattr(artifact, "probe_key", Mock(return_value=None))
    exported = obtain("residual_mlp", PARAMETERS, 2)
    arm = Arm(target=Target(backend="numpy"), model="residual_mlp", parameters=exported.parameters, batch=2)
    arms = arm, replace(arm, control=True)
    played = [
        line
        for number in range(5)
        for line in (*(made.played(one, number, 1e6, fidelity=FOUND) for one in arms), made.rounds(number))
    ]
    prepared = made.prepared(arm).model_copy(update={"exported": exported.key})
    header = made.header(arms, environment=environment.facts())
    return made.write(tmp_path / "run", header, prepared, *played, made.ended())


PLACES = """
import runpy
loader = runpy.run_path("load.py")
names = loader["load"].__globals__
align = names["_aligned"]
def noted(array):
    print((found := align(array)).ctypes.data % 64)
    return found
names["_aligned"] = noted
loader["load"]()
"""
"""Tells where each weight lies that a shipped folder's loader gives to NumPy's model."""


def test_an_arm_becomes_a_folder_that_checks_itself(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    policy = tmp_path / "deploy.toml"
    policy.write_text('[limits]\nmemory = "1GB"\n')
    assert ship(run, tmp_path / "out", target=None, policy=policy, group=None) == 0
    assert "checked: numpy:cpu:fp32: relative L2 error" in capsys.readouterr().err
    shipped = open_shipped(tmp_path / "out")
    assert {"evidence/document.json", "evidence/decision.json", "evidence/deploy.toml"} <= shipped.files.keys()
    assert (tmp_path / "out" / "evidence" / "report.html").read_text() == "1 runs, True"
    assert shipped.median_ns == 1e6
    assert [*shipped.versions] == ["numpy"], "load.py reads the weights without safetensors"
    command = [sys.executable, "-B", "-c", PLACES]
    places = subprocess.run(command, cwd=tmp_path / "out", check=True, capture_output=True, text=True).stdout.split()
    assert places == ["0"] * 4, "on cache lines, as it was raced"
    assert json.loads((tmp_path / "out" / "evidence" / "decision.json").read_text())["chosen"] == "numpy:cpu:fp32"
    with pytest.raises(UsageError, match="already exists"):
        ship(tmp_path / "no run is read for that", tmp_path / "out", target="numpy", policy=None, group=None)
    (tmp_path / "out" / "load.py").write_text("")
    with pytest.raises(ArmFailed, match=r"ends with 2.*load\.py was changed"):
        check_folder(shipped, "it was written")
