"""What `make gpu` stands on: the package by links, what is there and missing, and its words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from gpu import ground
from gpu.requirements import Need, Project
from gpu.steps import STEPS
from made_wheels import wheel

from shootout.testing.cases import has_gpu

ROOT = Path(__file__).resolve().parents[2]


# links


def test_the_package_works_from_links_alone(tmp_path: Path):
    ground.lend(ROOT, tmp_path / "site")
    code = """
import json, shootout
from shootout.export import cache
from shootout.study import schema
from shootout.worker import interpreters
from shootout.backends._spin.backend import SpinAdapter
from shootout.contract import Device
print(json.dumps([shootout.__file__, shootout.__version__, cache.versions()["shootout"],
    SpinAdapter().probe(Device.CPU).version, interpreters.packages_of("openvino"), sorted(schema.names())]))
"""
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    file, *versions, openvino, studies = json.loads(done.stdout)
    assert file == str(tmp_path / "site" / "shootout" / "__init__.py")
    assert set(versions) == {Project.read(ROOT / "pyproject.toml").version}
    assert {"openvino", "nncf"} <= set(openvino)
    assert len(studies) == len(list((ROOT / "harness" / "studies").glob("*.toml")))


def test_the_links_name_the_same_requirements_as_an_installer(tmp_path: Path):
    ground.lend(ROOT, tmp_path)
    (found,) = metadata.distributions(path=[str(tmp_path)])
    lines = found.requires or []
    assert any(line.startswith("torch") and 'extra == "torch"' in line for line in lines)
    assert any(line.startswith("numpy") and "extra" not in line for line in lines)
    assert not any("mypy" in line for line in lines)


def test_links_made_twice_follow_the_checkout_and_leave_what_is_right(tmp_path: Path):
    package = tmp_path / "site" / "shootout"
    ground.lend(ROOT, tmp_path / "site")
    kept = (package / "errors.py").lstat().st_ino
    (package / "gone.py").symlink_to(tmp_path / "nowhere")
    (tmp_path / "site" / "shootout-0.0.1.dist-info").mkdir()
    (package / "clock.py").unlink()
    (package / "clock.py").symlink_to(tmp_path / "elsewhere")
    ground.lend(ROOT, tmp_path / "site")
    assert not (package / "gone.py").is_symlink()
    assert len(list((tmp_path / "site").glob("*.dist-info"))) == 1
    assert (package / "clock.py").readlink() == ROOT / "harness" / "clock.py"
    assert (package / "errors.py").lstat().st_ino == kept


# the ground


def test_the_ground_says_what_is_there_and_what_is_missing(tmp_path: Path):
    carried = tmp_path / "wheels"
    wheel(carried, "brand_new", "1.0")
    found = ground.prepare([carried], install=False, build=tmp_path / "build")
    lines = ground.told(found, dry=True)
    assert "would be installed from the wheels: brand-new 1.0" in lines
    assert not list((tmp_path / "build").glob("packages*"))
    installed = ground.prepare([carried], install=True, build=tmp_path / "build")
    assert "installed from the wheels: brand-new 1.0" in ground.told(installed, dry=False)
    assert installed.have["brand-new"] == "1.0"
    again = ground.prepare([carried], install=True, build=tmp_path / "build")
    assert again.taken == ()


def test_what_the_wheels_will_bring_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As on a machine that has none of it."""
    monkeypatch.setattr(ground, "there", lambda path: {"numpy": "2.5.2"})
    core = Project.read(ROOT / "pyproject.toml").core
    for one in core:
        wheel(tmp_path / "wheels", one.name.replace("-", "_"), "99.0", "numpy<2")
    found = ground.prepare([tmp_path / "wheels"], install=False, build=tmp_path / "build")
    assert found.lacking == ()
    assert found.promised
    alone = ground.prepare([], install=False, build=tmp_path / "build")
    assert {one.name for one in alone.lacking} == {one.name for one in core} - {"numpy"}
    assert not alone.promised


def test_what_a_package_from_the_wheels_asks_for_in_vain_is_told(tmp_path: Path):
    carried = wheel(tmp_path / "wheels", "picky", "1.0", "numpy<2", "nobody-has-this>=3").parent
    found = ground.prepare([carried], install=True, build=tmp_path / "build")
    (line,) = (line for line in ground.told(found, dry=False) if line.startswith("picky 1.0 asks for"))
    assert f"numpy<2 (here: {found.have['numpy']})" in line
    assert "nobody-has-this>=3 is missing" in line


def test_what_nothing_works_without_is_named_with_the_command_that_fetches_it():
    found = ground.Ground(path=(), have={"numpy": "1.0"}, lacking=(Need("pydantic", ">=2.7"), Need("numpy", ">=2.0")))
    *_, lacking, fix = ground.told(found, dry=False)
    assert lacking == "nothing works without: pydantic>=2.7 is missing, numpy>=2.0 (here: 1.0)"
    assert "pip download" in fix
    assert "'pydantic>=2.7' 'numpy>=2.0'" in fix
    assert fix.endswith("make gpu WHEELS=wheels")


# the command


def start(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpu", *words]
    return subprocess.run(command, cwd=ROOT / "tests", capture_output=True, text=True, timeout=120, check=False)


def test_a_dry_run_shows_every_step_and_measures_nothing(tmp_path: Path):
    done = start("--dry-run", "--minutes", "10", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    for step in STEPS:
        assert step.name in done.stdout
    assert "torch-eager:cuda:fp32" in done.stdout
    assert done.stdout.endswith("nothing was measured\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(has_gpu(), reason="with a GPU it measures")
def test_without_a_gpu_nothing_begins_and_the_fix_is_told(tmp_path: Path):
    assert "GPU: no NVIDIA driver" in start("--dry-run").stdout
    done = start("--out", str(tmp_path / "out"))
    assert done.returncode == 6
    assert "no NVIDIA driver" in done.stderr
    assert "Fix: " in done.stderr
    assert not (tmp_path / "out").exists()


def test_no_minutes_sum_up_what_there_is(tmp_path: Path):
    done = start("--minutes", "0", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == (tmp_path / "out" / "SUMMARY.md").read_text()
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["rows"] == []
    assert (tmp_path / "out" / "campaign.tar.xz").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--wheels", "nowhere"), "WHEELS=nowhere holds no wheel"),
        (("--minutes", "-1"), "GPU_MINUTES is -1: give 0 or more"),
        (("--minutes", "nan"), "GPU_MINUTES is nan: give 0 or more"),
    ],
)
def test_wrong_words_get_one_clear_line(words: tuple[str, ...], says: str):
    done = start("--dry-run", *words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"make gpu: {says}")
    assert done.stderr.count("\n") == 1


def recipe(*words: str, **environment: str) -> str:
    command = ["make", "--dry-run", *words]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_make_hands_its_variables_on():
    words = recipe("gpu", "GPU_MINUTES=7", "WHEELS=a:b", "OUT=mine", "DRY=1", "PYTHON=other")
    assert "other -m gpu --minutes '7' --wheels 'a:b' --out 'mine' --dry-run" in words


def test_an_out_in_the_environment_is_somebody_else_s():
    assert "--out ''" in recipe("gpu", OUT="/somewhere")


def test_make_fetches_wheels():
    assert "-m gpu.wheels --into 'carry' --python '3.12' --cut '60M'" in recipe("gpu-wheels", "WHEELS=carry", "CUT=60M")
