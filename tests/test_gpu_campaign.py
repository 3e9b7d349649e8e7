"""`make gpu`: its commands are valid, a broken step costs no other, and a second call goes on with what isn't done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.main import get_command

from lab import __main__ as bench
from lab import gpu
from lab.gpu import STEPS, Step
from shootout.cli import app
from shootout.study import schema
from shootout.study.points import describe
from shootout.study.target import parse_targets

BINARIES = Path(sys.executable).parent


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
    program, *words = step.command(Path("bin"), tmp_path, 30.4)
    if program == "bin/shootout":
        get_command(app).commands[words[0]].make_context(words[0], words[1:])
    elif words[1] == "lab":
        assert words[3] in bench.EVERY
    else:
        assert words[-1] == "shootout.testing"


@pytest.mark.parametrize("name", [step.words[2] for step in STEPS if step.races and step.words[2] in schema.names()])
def test_a_study_is_raced_on_its_gpu_targets_beside_what_they_are_compared_with(name: str):
    targets = gpu.gpu_targets(name)
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
    gpu.play(steps, BINARIES, tmp_path, 600)
    assert done(tmp_path) == {"works", "finds"}
    assert (tmp_path / "works.out").read_text() == "well\n"
    told = capsys.readouterr().err
    assert "breaks: exit code 1" in told
    assert "no such thing" in told
    gpu.play(steps, BINARIES, tmp_path, 600)
    assert "works" not in (again := capsys.readouterr().err)
    assert "breaks: exit code 1" in again


def test_a_race_is_done_when_it_came_to_its_goal_with_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    steps = [
        race("whole", MEASURED, SKIPPED, complete=True),
        race("part", MEASURED, complete=False),
        race("without-gpu", SKIPPED, complete=True),
        script("silent", "", races=True),
    ]
    gpu.play(steps, BINARIES, tmp_path, 600)
    assert done(tmp_path) == {"whole"}
    assert "whole: exit code 0 after 0 s: 1 of 2 rows measured (no driver)" in capsys.readouterr().err


def test_time_is_kept_to(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu, "LEAST_S", 0.0)
    monkeypatch.setattr(gpu, "GRACE_S", 1.0)
    deaf = (
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('kept', flush=True); time.sleep(60)"
    )
    gpu.play([script("deaf", deaf), script("late", "")], BINARIES, tmp_path, 2.0)
    told = capsys.readouterr().err
    assert "deaf: its time was over" in told
    assert "late: no time left" in told
    assert done(tmp_path) == set()


def test_wheels_take_the_place_of_nothing_that_belongs_to_the_machine(tmp_path: Path):
    for name, version in (("pydantic", "2.0"), ("torch", "2.9"), ("nvidia_ml_py", "13.0")):
        facts = tmp_path / "site" / f"{name}-{version}.dist-info"
        facts.mkdir(parents=True)
        (facts / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n")
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name in ("pydantic-2.1", "torch-2.11", "nvidia_ml_py-13.0", "torchao-0.18"):
        (wheels / f"{name}-py3-none-any.whl").write_bytes(b"whole")
    for number, half in enumerate((b"first ", b"second")):
        (wheels / f"openvino-1-py3-none-any.whl.part0{number}").write_bytes(half)
    found = gpu.missing_wheels([wheels], [str(tmp_path / "site")])
    assert [one.name.split("-")[0] for one in found] == ["openvino", "pydantic", "torchao"]
    assert found[0].read_bytes() == b"first second"


def test_the_environment_has_the_machines_packages_and_the_wheels(tmp_path: Path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "carried-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carried.py", "HERE = True\n")
        wheel.writestr("carried-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: carried\nVersion: 1.0\n")
        wheel.writestr("carried-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("carried-1.0.dist-info/RECORD", "")
    binaries = gpu.set_up([wheels], tmp_path / "build")
    code = "import carried, numpy, shootout; print(shootout.__version__)"
    subprocess.run([binaries / "python", "-P", "-c", code], check=True)


def test_a_dry_run_tells_the_steps_that_are_not_done_and_runs_none(tmp_path: Path):
    (tmp_path / "doctor.done").touch()
    done = subprocess.run(
        ["make", "gpu", "DRY=1", f"PYTHON={sys.executable}", f"OUT={tmp_path}"],
        cwd=gpu.ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\ndoctor," not in done.stdout
    assert "\nshootout, " in done.stdout
    assert "--max-time" in done.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["doctor.done"]
