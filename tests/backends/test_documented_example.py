"""docs/adding-a-backend.md, done for real: both files taken from the page, installed, found, run through the suite."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.adapters.third_party import install
from support.console import TESTS

from shootout import backends
from shootout.testing.checks import CHECKS

PAGE = TESTS.parent / "docs" / "adding-a-backend.md"


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """The page's code blocks that are files of the example."""
    python, toml = (re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL) for kind in ("python", "toml"))
    assert len(python) == len(toml) == 1
    return {"shootout_tiny.py": python[0], "pyproject.toml": toml[0]}


@pytest.fixture
def installed(files: dict[str, str], tmp_path: Path) -> Path:
    """The example as an installer would leave it."""
    (tmp_path / "shootout_tiny.py").write_text(files["shootout_tiny.py"])
    project = tomllib.loads(files["pyproject.toml"])["project"]
    return install(tmp_path, project["name"], project["entry-points"][backends.GROUP])


def test_the_page_tells_its_size(files: dict[str, str]):
    stated = re.search(r"\*\*(\d+) files and (\d+) lines\*\*", PAGE.read_text())
    assert stated
    assert (int(stated[1]), int(stated[2])) == (len(files), sum(text.count("\n") for text in files.values()))


def test_it_is_found(installed: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(installed)
    assert backends.names()[-1] == "tiny"
    assert backends.get("tiny").name == "tiny"


def run_suite(folder: Path) -> subprocess.CompletedProcess[str]:
    """The page's own command, in the third party's folder, which stands for the installed package as well.

    There it gets nothing from the conftest.py of these tests, as a third party's doesn't.
    """
    (command,) = re.findall(r"^pytest (.*)$", PAGE.read_text(), re.MULTILINE)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *command.split()],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_suite_runs_on_it_and_passes(installed: Path):
    done = run_suite(installed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > len(CHECKS)  # type: ignore[index] # no match fails as well
    assert "skipped" not in done.stdout


def test_the_suite_fails_on_a_backend_that_is_asked_for_but_missing(tmp_path: Path):
    done = run_suite(tmp_path)
    assert done.returncode != 0
    assert "unknown backend 'tiny'" in done.stdout + done.stderr


def test_the_suite_fails_on_a_backend_that_breaks_a_promise(installed: Path):
    adapter = installed / "shootout_tiny.py"
    adapter.write_text(adapter.read_text().replace("        check_inputs(self._bundle.inputs, inputs)\n", ""))
    done = run_suite(installed)
    assert done.returncode == 1
    assert re.search(r"FAILED .*wrong_inputs_are_refused", done.stdout)
    assert "1 failed" in done.stdout
