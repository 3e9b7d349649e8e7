"""The campaign: its commands are valid, a broken step costs no other, and a second call runs what isn't done."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from support.races.made import A, B, ended, played, rounds, write
from typer.main import get_command

from lab import __main__ as bench
from shootout.cli import app
from shootout.journal import journal
from shootout.results.analysis import analyse
from shootout.study import schema
from shootout.study.points import describe
from shootout.study.target import parse_targets
from shootout.testing import campaign
from shootout.testing.campaign import STEPS, Step


def script(name: str, code: str, **fields: object) -> Step:
    return Step(name, "a test", 1, ("python", "-c", code), **fields)  # type: ignore[arg-type]


def race(name: str, *rows: dict[str, str], complete: bool) -> Step:
    document = {"complete": complete, "rows": rows}
    return script(name, f"print({json.dumps(json.dumps(document).replace('{', '{{').replace('}', '}}'))})", races=True)


MEASURED = {"device": "cuda", "outcome": "measured", "reason": ""}
SKIPPED = {"device": "cuda", "outcome": "skipped", "reason": "no driver"}


def done(out: Path) -> set[str]:
    return {file.stem for file in out.glob("*.done")}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_step_is_a_command_that_can_be_parsed(step: Step, tmp_path: Path):
    python, *words = step.command(tmp_path, 30.4)
    assert python == sys.executable
    if step.words[0] == "shootout":
        get_command(app).commands[words[2]].make_context(words[2], words[3:])
    elif words[1] == "lab":
        assert words[3] in bench.EVERY
        assert (Path(bench.__file__).parents[1] / step.needs).is_file()
    else:
        assert words[-1] == "shootout.testing"


@pytest.mark.parametrize("name", [step.words[2] for step in STEPS if step.races and step.words[2] in schema.names()])
def test_a_study_is_raced_on_its_gpu_targets_beside_what_they_are_compared_with(name: str):
    targets = campaign.gpu_targets(name)
    study = schema.load(name)
    assert {*targets} <= {*study.targets}
    assert (study.baseline or "onnxruntime") in targets
    devices = [str(parse_targets(text, describe)[0].device) for text in targets]
    assert devices.count("cuda") > devices.count("cpu")


def test_a_failed_step_costs_no_other_and_is_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    steps = [
        script("breaks", "import sys; sys.exit('no such thing')"),
        script("works", "print('well')"),
        script("makes-nothing", "", makes="report.xml"),
        script("finds", "raise SystemExit(1)", codes=(0, 1)),
    ]
    campaign.play(steps, tmp_path, 600)
    assert done(tmp_path) == {"works", "finds"}
    assert (tmp_path / "works.out").read_text() == "well\n"
    told = capsys.readouterr().err
    assert "breaks: exit code 1" in told
    assert "no such thing" in told
    campaign.play(steps, tmp_path, 600)
    assert "works" not in (again := capsys.readouterr().err)
    assert "breaks: exit code 1" in again


def test_a_race_is_done_when_it_came_to_its_goal_with_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    steps = [
        race("whole", MEASURED, SKIPPED, complete=True),
        race("part", MEASURED, complete=False),
        race("without-gpu", SKIPPED, complete=True),
        script("silent", "", races=True),
    ]
    campaign.play(steps, tmp_path, 600)
    assert done(tmp_path) == {"whole"}
    assert "whole: exit code 0 after 0 s: 1 of 2 rows measured (no driver)" in capsys.readouterr().err


def test_time_is_kept_to(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(campaign, "LEAST_S", 0.0)
    monkeypatch.setattr(campaign, "GRACE_S", 1.0)
    deaf = (
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('kept', flush=True); time.sleep(60)"
    )
    campaign.play([script("deaf", deaf), script("late", "")], tmp_path, 2.0)
    told = capsys.readouterr().err
    assert "deaf: its time was over" in told
    assert "late: no time left" in told
    assert done(tmp_path) == set()


def test_a_dry_run_prints_the_steps_that_are_not_done_and_runs_none(tmp_path: Path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "doctor.done").touch()
    command = [sys.executable, "-m", "shootout.testing.campaign", "--dry-run", "--out", str(out)]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "doctor, " not in told
    assert told.startswith("shootout, ")
    assert "--max-time" in told
    assert "handoff, " not in told, "only a checkout has it"
    assert [file.name for file in out.iterdir()] == ["doctor.done"]


def test_a_campaign_that_is_not_complete_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    new = campaign.choose_folder()
    new.mkdir(parents=True)
    assert campaign.choose_folder() == new
    for step in STEPS:
        (new / f"{step.name}.done").touch()
    assert campaign.choose_folder() != new


def test_the_archive_has_the_runs_and_what_the_steps_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "today"
    for name in ("shootout", "selftest/same"):
        (out / name).mkdir(parents=True)
        write(out / name, played(A, 0, 1.0), played(B, 0, 2.0), rounds(0), ended())
    (out / "torn").mkdir()
    (out / "torn" / journal.NAME).write_text('{"kind":"hea')
    (out / "conformance.xml").write_text("<testsuites/>")
    file = campaign.pack(out)
    assert "not packed: " in capsys.readouterr().err
    with tarfile.open(file) as archive:
        archive.extractall(tmp_path / "there", filter="data")
    there = tmp_path / "there" / "today"
    assert (there / "conformance.xml").read_text() == "<testsuites/>"
    assert not (there / "torn").exists()
    for name in ("shootout", "selftest/same"):
        assert analyse(there / name).rows[1].end_to_end == analyse(out / name).rows[1].end_to_end
