"""Arms under another Python: how it is named, what is asked of it, what crosses the pipe, and a real twin."""

from __future__ import annotations

import os
import pickle
import pickletools
import subprocess
import sys
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest
from support.console import deaf_here, here, spin_study

from shootout import scenarios
from shootout.backends.pythons import install_backend, packages_of
from shootout.core import backends
from shootout.core.contract import Availability, Device, Target
from shootout.core.errors import UsageError
from shootout.core.install import pip_install
from shootout.core.study.feasibility import Here
from shootout.core.study.plan import plan_groups
from shootout.core.study.points import describe, targets_of
from shootout.core.study.schema import Study
from shootout.core.study.target import parse_targets, provider, with_twins
from shootout.core.worker.availability import PythonInterpreter, examine, find_available
from shootout.tell.notes import describe_interpreters
from shootout.tell.study_options import read_pythons

ORT = backends.entry("onnxruntime")


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> PythonInterpreter:
    """This Python with NumPy and nothing else installed."""
    folder = tmp_path_factory.mktemp("bare")
    packages = folder / "packages"
    packages.mkdir()
    site = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs", f"numpy-{np.__version__}.dist-info"):
        if (site / name).exists():
            (packages / name).symlink_to(site / name)
    path = script(
        folder / "python", f'PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{packages}" exec {sys.executable} -S "$@"'
    )
    return examine({"bare": str(path)})["bare"]


def test_names_and_paths_are_read_from_the_command_line():
    assert read_pythons("--python", ["new=a/python", "old=b=c"]) == {"new": "a/python", "old": "b=c"}


@pytest.mark.parametrize(("texts", "says"), [(["new"], "not of the form"), (["a=x", "a=y"], "twice"), (["=x"], "form")])
def test_other_forms_are_refused(texts: list[str], says: str):
    with pytest.raises(UsageError, match=says):
        read_pythons("--python", texts)


def test_a_target_names_its_interpreter_after_the_mode():
    (found,) = parse_targets("torch-compile+aoti@new:cpu:fp32", describe, ["new"])
    assert found == Target(backend="torch-compile", mode="aoti", python="new")
    assert str(found) == "torch-compile+aoti@new:cpu:fp32"
    assert parse_targets(str(found), describe, ["new"]) == [found]
    assert provider(found) == ("torch-compile@new", Device.CPU)


def test_an_interpreter_that_nobody_named_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="unknown interpreter 'newer': did you mean 'new'"):
        parse_targets("numpy@newer", describe, ["new"])


def test_every_target_gets_a_twin_under_interpreters_that_no_target_names():
    own, named = Target(backend="numpy"), Target(backend="numpy", python="a")
    assert [str(one) for one in with_twins([own, named], ["a", "b"])] == [
        "numpy:cpu:fp32",
        "numpy@b:cpu:fp32",
        "numpy@a:cpu:fp32",
        "numpy@b:cpu:fp32",
    ]
    assert with_twins([own, named], ["a"]) == [own, named]


def test_without_a_question_of_its_own_each_target_races_its_twins_only():
    study = Study(name="s", model=("residual_mlp",), targets=("numpy", "onnxruntime"), pythons={"new": "x"})
    available = {provider(target): Availability() for target in targets_of(study)}
    here = Here(available=available, threads=1, cpus=1, memory_bytes=10**12)
    one, other = plan_groups(study, here)
    assert [arm.label for arm in one.playing] == ["numpy:cpu:fp32", "numpy@new:cpu:fp32", "numpy:cpu:fp32#control"]
    assert other.record.baseline == "onnxruntime:cpu:fp32"
    assert other.record.name.endswith(", onnxruntime:cpu:fp32")
    asked = study.model_copy(update={"baseline": "numpy"})
    (together,) = plan_groups(asked, here)
    assert len(together.playing) == 5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo hello", "doesn't answer as Python does"),
        (
            """echo '{"version": [3, 10, 2], "folders": [], "libraries": {}, "numpy": "2.0.0"}'""",
            "3.10.2; backends need 3.11",
        ),
        (
            """echo '{"version": [3, 12, 1], "folders": [], "libraries": {}, "numpy": null, "why": "no"}'""",
            "pip install numpy$",
        ),
        (
            """echo '{"version": [3, 12, 1], "folders": [], "libraries": {}, "numpy": "1.25.9"}'""",
            "has NumPy 1.25.9: .*numpy>=1.26",
        ),
    ],
)
def test_what_is_no_fit_interpreter_is_refused_with_the_reason(tmp_path: Path, text: str, says: str):
    with pytest.raises(UsageError, match=says):
        examine({"new": str(script(tmp_path / "python", text))})


def test_paths_and_names_that_cannot_be_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="can't be started: No such file"):
        examine({"new": str(tmp_path / "none")})
    with pytest.raises(UsageError, match="is a folder: name the interpreter in it"):
        examine({"new": str(tmp_path)})
    with pytest.raises(UsageError, match="letters, digits"):
        examine({"ne:w": sys.executable})


def test_the_lent_folder_holds_our_package_and_nothing_else(bare: PythonInterpreter):
    assert [entry.name for entry in Path(bare.lent).iterdir()] == ["shootout"]
    assert bare.libraries == {"numpy": np.__version__}
    assert bare.environment({"PYTHONPATH": "mine", "PYTHONHOME": "x"}) == {"PYTHONPATH": f"{bare.lent}{os.pathsep}mine"}


def test_workers_need_numpy_only(bare: PythonInterpreter):
    modules = "shootout.core.worker.worker, shootout.core.worker.availability"
    code = f"""import {modules}, sys
from shootout.core.scenario import find_scenario
[find_scenario(name) for name in {[*scenarios.TABLE]}]
print(sorted(m for m in sys.modules if m.count('.') == 0))"""
    done = subprocess.run(
        [bare.path, "-P", "-c", code], env=bare.environment(os.environ), capture_output=True, text=True, check=True
    )
    assert "'numpy'" in done.stdout
    assert not {"pydantic", "rich", "typer", "scipy", "psutil"} & set(eval(done.stdout))


def test_what_is_missing_there_is_said_with_the_command_that_installs_it_there(bare: PythonInterpreter):
    found = find_available([("numpy@bare", Device.CPU), ("onnxruntime@bare", Device.CPU)], {"bare": bare})
    assert found["numpy@bare", Device.CPU].ok
    missing = found["onnxruntime@bare", Device.CPU]
    assert missing.reason == "under @bare: onnxruntime is not installed"
    assert missing.fix == f"{bare.path} -m pip install {' '.join(packages_of(ORT))}"
    assert "onnxruntime" in packages_of(ORT)
    assert packages_of(backends.entry("numpy")) == ["numpy", "safetensors", "onnx"]  # it has no extra


def test_a_library_that_is_too_old_there_is_named_with_the_version_that_it_needs(bare: PythonInterpreter):
    others = [one for one in packages_of(ORT) if one != "onnxruntime"]
    old = replace(bare, libraries={"onnxruntime": "1.20", **dict.fromkeys(others, "99")})
    fix = pip_install("onnxruntime>=1.24", options="--upgrade")
    assert install_backend(old, ORT, fix) == f"{bare.path} -m pip install 'onnxruntime>=1.24'"
    lacking = install_backend(replace(old, libraries={"onnxruntime": "1.20"}), ORT, fix)
    assert lacking == f"{bare.path} -m pip install 'onnxruntime>=1.24' {' '.join(others)}"
    gpu = install_backend(old, ORT, pip_install("onnxruntime-gpu>=1.24", options="--upgrade"))
    assert "'onnxruntime-gpu>=1.24'" in gpu
    old = replace(old, libraries={**old.libraries, "onnxruntime": "1.25", **dict.fromkeys(others, "99")})
    for unversioned in ("", "reinstall it: pip install 'shootout[onnxruntime]'"):
        assert install_backend(old, ORT, unversioned) == old.install(packages_of(ORT))


def test_paths_cross_the_pipe_by_names_that_every_python_has():
    data = bytes(ForkingPickler.dumps({"folder": Path("a/b")}))
    words = [str(argument) for _, argument, _ in pickletools.genops(data) if isinstance(argument, str)]
    assert not [word for word in words if "pathlib" in word]
    assert pickle.loads(data) == {"folder": Path("a/b")}


def test_a_record_tells_what_differs_and_not_who_the_user_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    libraries = {"onnxruntime": "1.24.1", "numpy": "2.0.0"}
    one = PythonInterpreter(
        name="old", path="/home/somebody/venv/bin/python", version="3.12.1", libraries=libraries, lent="x"
    )
    assert one.facts()["path"] == "~/venv/bin/python"
    facts = {
        "python": {"version": "3.11.2"},
        "libraries": {"numpy": "2.0.0", "onnxruntime": "1.31.1"},
        "interpreters": {"old": one.facts()},
    }
    assert describe_interpreters(facts) == [
        "@old is ~/venv/bin/python: Python 3.12.1 (ours 3.11.2), onnxruntime 1.24.1 (ours 1.31.1)."
    ]


def test_this_python_under_another_name_is_a_twin_that_runs(tmp_path: Path):
    study = spin_study(tmp_path, restarts=1, arms=1)
    done = deaf_here("run", study, "--python", f"same={sys.executable}", "--out", "out", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    own, twin = done.data["rows"]
    assert [own["arm"], twin["arm"]] == ["spin:cpu:fp32", "spin@same:cpu:fp32"]
    assert [own["outcome"], twin["outcome"]] == ["measured", "measured"]
    assert [own["python"], twin["python"]] == ["", "same"]
    assert done.data["environment"]["interpreters"]["same"]["libraries"]["numpy"] == np.__version__
    shown = here("show", "out", "--full", cwd=tmp_path)
    (line,) = [line for line in shown.out.splitlines() if line.startswith("@same is ")]
    assert line.endswith(f"{Path(sys.executable).name}: the same versions as ours."), "below a home it begins with ~"
