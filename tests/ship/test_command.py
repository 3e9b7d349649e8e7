"""`shootout ship` as a whole, of a run that was written by hand: built by a worker, written, checked by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.races.shipping import let_numpy_ship, write_numpy_run

from shootout.apps.judge.decide.policy import read_policy
from shootout.apps.judge.to_ship import find_arm_to_ship
from shootout.backends.shipped import open_shipped
from shootout.commands import ship as commands
from shootout.commands.ship import check_folder, ship
from shootout.core.errors import ArmFailed, UsageError
from shootout.tell import machines
from shootout.tell.document import Choice, Rival

RUNS = Path(__file__).resolve().parents[2] / "results" / "reference"
PARAMETERS = {"d_model": 64, "n_layers": 4}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """NumPy's arm was alone in a run on this machine."""
    let_numpy_ship(monkeypatch)
    return write_numpy_run(tmp_path / "run", machines.facts(), PARAMETERS)


def test_a_named_target_that_is_held_back_is_told():
    held = find_arm_to_ship(RUNS / "shootout", "litert:cpu:int8-dynamic")
    assert commands.tell_doubt(held) == "may not be shipped by default: accuracy unknown"


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


def test_an_arm_becomes_a_folder_that_checks_itself(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    open_ = Choice(unsettled=(Rival(arm="ncnn:cpu:fp32", ratio=None),))
    monkeypatch.setattr(commands, "find_arm_to_ship", lambda *how: replace(find_arm_to_ship(*how), choice=open_))
    policy = read_policy(None, {"memory": "1GB", "max-drop": "1%", "load": "200/s", "objective": "size"})
    assert ship(run, tmp_path / "out", target=None, policy=policy, group=None) == 0
    told = capsys.readouterr().err
    assert "checked: numpy:cpu:fp32: relative L2 error" in told
    assert "/requirements.txt && python " in told
    assert "before something replaces it:  shootout gate " in told

    assert "numpy:cpu:fp32 only leads: ncnn isn't ruled out\n" in told
    shipped = open_shipped(tmp_path / "out")
    assert {"evidence/document.json", "evidence/decision.json", "evidence/deploy.toml"} <= shipped.files.keys()
    assert (tmp_path / "out" / "evidence" / "report.html").read_text() == "2 reports"
    assert shipped.median_ns == 1e6
    assert [*shipped.versions] == ["numpy"], "load.py reads the weights without safetensors"
    command = [sys.executable, "-B", "-c", PLACES]
    places = subprocess.run(command, cwd=tmp_path / "out", check=True, capture_output=True, text=True).stdout.split()
    assert places == ["0"] * 4, "on cache lines, as it was raced"
    assert json.loads((tmp_path / "out" / "evidence" / "decision.json").read_text())["chosen"] == "numpy:cpu:fp32"
    assert read_policy(tmp_path / "out" / "evidence" / "deploy.toml", {}) == policy
    with pytest.raises(UsageError, match="already exists"):
        ship(tmp_path / "no run is read for that", tmp_path / "out", target="numpy", policy=None, group=None)
    (tmp_path / "out" / "load.py").write_text("")
    with pytest.raises(ArmFailed, match=r"ends with 2.*load\.py was changed"):
        check_folder(shipped)
