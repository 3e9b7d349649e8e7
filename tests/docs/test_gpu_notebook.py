"""docs/examples/gpu: what the notebook's cells and the container do, run here up to the first call of CUDA."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from functools import partial
from pathlib import Path

import pytest
from support.races.made import A, B, ended, played, rounds, write

from shootout.journal import journal
from tests.docs import notebook

ROOT = Path(__file__).resolve().parents[2]
PIP = '"-m", "pip"'
CONTAINERFILE = notebook.GPU_SOURCE.with_name("Containerfile").read_text()


def cells(**variables: object) -> list[notebook.Cell]:
    """The cells, with other values of the variables at their beginning."""
    found = notebook.read_cells(notebook.GPU_SOURCE.read_text())
    (settings,) = (one for one in found if one.source.startswith("SOURCE = "))
    source = "\n".join(
        f"{name} = {variables.get(name, value)!r}" if name in variables else line
        for line in settings.source.splitlines()
        for name, _, value in [line.partition(" = ")]
    )
    return [notebook.Cell("code", source) if one is settings else one for one in found]


def test_the_notebook_holds_the_cells_of_its_source_and_nothing_of_a_machine():
    made = json.loads(notebook.GPU_NOTEBOOK.read_text())
    assert made == notebook.make_unexecuted(notebook.read_cells(notebook.GPU_SOURCE.read_text())), "make notebook"
    assert not any(one.get("outputs") for one in made["cells"])
    assert made["metadata"]["accelerator"] == "GPU"


def printed(made: dict) -> str:
    return "".join(text for one in made["cells"] for output in one.get("outputs", ()) for text in output["text"])


def test_its_cells_install_what_is_missing_then_measure_show_and_pack(tmp_path: Path):
    (tmp_path / "shootout-1-py3-none-any.whl").touch()
    (tmp_path / "gpu").mkdir()
    write(tmp_path / "gpu" / "made", played(A, 0, 1.0), played(B, 0, 2.0), rounds(0), ended())
    told_instead = """"-c", "import sys; print('pip', *sys.argv[1:])\""""
    steps = [notebook.Cell(one.kind, one.source.replace(PIP, told_instead)) for one in cells(MINUTES=0)]
    assert steps != cells(MINUTES=0)
    told = printed(notebook.make(steps, tmp_path))
    first, second = (line for line in told.splitlines() if line.startswith("pip install"))
    assert first.endswith(f"shootout[gpu,models,testing] @ {tmp_path.as_uri()}/shootout-1-py3-none-any.whl")
    assert {"onnxruntime-gpu", "tensorrt"} <= {word.partition(">")[0] for word in second.split()}
    assert not {"torch", "jax", "onnxruntime", "numpy"} & {word.partition(">")[0] for word in second.split()}
    assert "doctor: no time left" in told
    assert B.label.partition(":")[0] in told.partition("no time left")[2], "the screen of the run"
    assert f"Download {tmp_path / 'gpu.tar.gz'}" in told
    with tarfile.open(tmp_path / "gpu.tar.gz") as archive:
        assert f"gpu/made/{journal.PACKED}" in archive.getnames()


def test_a_wheel_that_was_not_uploaded_is_said(tmp_path: Path):
    with pytest.raises(RuntimeError, match=r"no wheel is named 'shootout-\*.whl' here: upload one, or set SOURCE"):
        notebook.make(cells(), tmp_path)


def test_a_command_that_fails_stops_the_notebook(tmp_path: Path):
    steps = cells(SOURCE="git+file:///nowhere")
    with pytest.raises(RuntimeError, match=r"-m pip install .* ended with exit code"):
        notebook.make(steps, tmp_path)


def test_the_container_runs_the_campaign_with_packages_that_are_there(tmp_path: Path):
    begin, more = (json.loads(CONTAINERFILE.split(word)[1].splitlines()[0]) for word in ("\nENTRYPOINT ", "\nCMD "))
    command = [sys.executable, *begin[1:], *more, "--dry-run"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert told.stdout.startswith("doctor, ")
    assert "the campaign's folder would be /results/gpu" in told.stderr
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"\*\.whl\)\[(.*?)\]", CONTAINERFILE)
    assert {*extras.split(",")} <= {*project["optional-dependencies"]}
    (script,) = re.findall(r"onnxruntime-gpu==\$\((.*?)\)", CONTAINERFILE)
    shell = shlex.split(script.replace("/constraints.txt", str(ROOT / "constraints.txt")))
    assert re.fullmatch(r"[\d.]+\n", subprocess.run(shell, capture_output=True, text=True, check=True).stdout)


@pytest.mark.slow  # it builds a wheel and fills an environment
def test_it_runs_where_only_the_wheel_is(tmp_path: Path):
    tree, home = tmp_path / "tree", tmp_path / "home"
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", CONTAINERFILE.split("AS wheel")[1].split("FROM")[0], re.MULTILINE)
    for name in " ".join(copied).split():
        copy = partial(shutil.copytree, symlinks=True) if (ROOT / name).is_dir() else shutil.copy
        tree.mkdir(exist_ok=True)
        copy(ROOT / name, tree / name)
    assert "ln -s harness shootout" in CONTAINERFILE
    (tree / "shootout").symlink_to("harness")
    home.mkdir()
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(home),
    ]
    subprocess.run([*pip, str(tree)], check=True)
    venv.create(tmp_path / "python", symlinks=True)
    (site,) = (tmp_path / "python").glob("lib/python*/site-packages")
    installed = [one for one in sys.path if one.endswith(("site-packages", "dist-packages"))]
    (site / "machine.pth").write_text("\n".join(installed) + "\n")
    program = "\n".join(one.source for one in cells(MINUTES=0, EXTRAS=[]) if one.kind == "code")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PIP_NO_INDEX": "1"}
    command = [tmp_path / "python" / "bin" / "python", "-c", program]
    done = subprocess.run(command, cwd=home, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (site / "shootout" / "testing" / "campaign.py").is_file()
    assert "0 of 13 steps are done" in done.stdout
    assert (home / "gpu.tar.gz").is_file()
