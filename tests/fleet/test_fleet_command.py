"""`run … --ray` as it is typed, on a cluster without Ray: what it refuses, who is asked, what it says and ends with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.fleets.cluster import FakeCluster
from support.fleets.nodes import node

from shootout.commands import fleet
from shootout.contract import Device, Precision, Target
from shootout.errors import ExitCode, UsageError
from shootout.fleet import dispatch, survey
from shootout.fleet.shipment import Archive, Shipment

NODES = [node("a1", label="a"), node("a2", label="a"), node("b1", label="b")]
SENT = Shipment(
    package=Archive(data=b"p" * 3_000, sha256=""), files=Archive(data=b"f", sha256=""), fields={}, names=("net.py",)
)


class Said:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def stage(self, headline: str) -> None:
        pass


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Two nodes of one kind and one of another."""
    made = FakeCluster(NODES, tmp_path / "nodes")

    @contextmanager
    def connect(*_: object) -> Iterator[FakeCluster]:
        yield made

    monkeypatch.setattr(fleet, "connect", connect)
    monkeypatch.setattr(fleet, "pack", lambda _: SENT)
    monkeypatch.setattr(fleet, "print_runs", lambda *_, **__: ExitCode.NOTHING)
    for module in (dispatch, survey):
        monkeypatch.setattr(module, "LOOK_S", 0.0)
    return made


def run(out: Path, *, dry_run: bool = False, as_json: bool = False, **options: Any) -> int:
    asked: Any = {"backends": ["numpy"], "out": out, **options}
    return fleet.run_on_fleet("mlp", asked, address="x:1", dry_run=dry_run, full=False, as_json=as_json)


def test_a_dry_run_tells_who_would_measure_what(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(tmp_path / "out", dry_run=True, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["files"], told["sent_bytes"]) == (["net.py"], 3_001)
    assert [kind["nodes"] for kind in told["kinds"]] == [["a1", "a2"], ["b1"]]
    first, second = told["kinds"][0]["parts"]
    assert (first["node"], first["groups"], first["cells"], first["estimate_s"]) == ("a1", ["g1", "g3", "g5"], 6, 6.0)
    assert (second["node"], second["groups"]) == ("a2", ["g2", "g4"])
    assert not (tmp_path / "out").exists()
    assert {job.claims for _, job in cluster.begun} == {False}

    assert run(tmp_path / "out", dry_run=True) == 0
    shown = capsys.readouterr().out
    assert "this package and net.py." in shown
    assert "a1: 3 groups, 6 cells, at least" in shown
    assert "g1; g2; g3; g4 and 1 more" in shown, "b1's"


def test_a_dry_run_after_the_run_has_nothing_left(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run(tmp_path / "out")
    capsys.readouterr()
    run(tmp_path / "out", dry_run=True)
    assert "nothing is left for a1, a2" in capsys.readouterr().out


def test_what_the_run_ended_with_goes_before_what_can_be_shown(cluster: FakeCluster, tmp_path: Path):
    cluster.fails_after = dict.fromkeys(("a1", "a2", "b1"), 0)
    assert run(tmp_path / "out") == ExitCode.FAILED


@pytest.mark.parametrize("name", ["policy", "trace"])
def test_what_is_for_one_machine_is_refused(cluster: FakeCluster, tmp_path: Path, name: str):
    with pytest.raises(UsageError, match=f"--{name} is for a run on this machine"):
        run(tmp_path / "out", **{name: "given"})


def test_nothing_is_removed_for_a_fresh_run(cluster: FakeCluster, tmp_path: Path):
    with pytest.raises(UsageError, match="--fresh with --ray: remove"):
        run(tmp_path, fresh=True)


def test_a_shipped_folder_is_refused(cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shipped = Target(backend="numpy", device=Device.CPU, precision=Precision.FP32, folder="/somewhere/mine")
    monkeypatch.setattr(fleet, "targets_of", lambda _: [shipped])
    with pytest.raises(UsageError, match="shipped:mine: the folder isn't sent to nodes"):
        run(tmp_path / "out")


def test_who_cannot_plan_the_study_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(survey, "LOOK_S", 0.0)
    said: Any = Said()
    asked = FakeCluster(NODES, tmp_path, refuses={"a1": "no net.py"})
    assert [one.place.name for one in survey.survey(asked, {}, said)] == ["a2", "b1"]
    assert said.lines == ["left out: a1: no net.py"]
    assert sorted(asked.released) == ["a1", "a2", "b1"]


def test_where_nobody_can_plan_the_study_the_first_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(survey, "LOOK_S", 0.0)
    said: Any = Said()
    with pytest.raises(UsageError, match="a1: no such model"):
        survey.survey(FakeCluster(NODES[:1], tmp_path, refuses={"a1": "no such model"}), {}, said)
    with pytest.raises(UsageError, match="no node that gives out CPUs"):
        survey.survey(FakeCluster([], tmp_path), {}, said)
