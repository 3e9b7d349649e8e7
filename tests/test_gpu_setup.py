"""`make gpu`: the environment that it makes, and what it hands to the campaign."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lab import gpu


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


@pytest.mark.long
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


def test_the_campaign_gets_what_make_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    given = ["make", "-n", "gpu", "DRY=1", f"PYTHON={sys.executable}", f"OUT={tmp_path}", "GPU_MINUTES=7"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    told = subprocess.run(given, cwd=gpu.ROOT, env=clean, capture_output=True, text=True, check=True).stdout
    words = shlex.split(told.splitlines()[-1])
    became: list[list[str]] = []
    monkeypatch.setattr(gpu, "set_up", lambda _: Path(sys.executable).parent)
    monkeypatch.setattr(os, "execv", lambda _, command: became.append(command))
    monkeypatch.setattr(os, "chdir", lambda _: None)
    monkeypatch.setattr(sys, "argv", words[words.index("lab/gpu.py") :])
    gpu.main()
    (command,) = became
    done = subprocess.run(command, cwd=gpu.ROOT, capture_output=True, text=True, check=True)
    assert str(tmp_path) in done.stderr
    assert "\nshootout, " in done.stdout
    assert "\nhandoff, " in done.stdout, "a checkout has it"
    assert sum(float(line.split(", ")[1].split()[0]) for line in done.stdout.splitlines()) == pytest.approx(420, abs=10)
