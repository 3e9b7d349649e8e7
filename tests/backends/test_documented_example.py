"""Both examples of docs/adding-a-backend.md, done for real: the files of the page and of docs/examples/tract are
installed, found, and run through the suite.
"""

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

from shootout.core import backends
from shootout.core.plugins import BACKENDS
from shootout.testing.checks import CHECKS

DOCS = TESTS.parent / "docs"
TRACT = DOCS / "examples" / "tract"
PAGES = {"tiny": (DOCS / "adding-a-backend.md").read_text(), "tract": (TRACT / "README.md").read_text()}


def files_of_page() -> tuple[str, str]:
    """The page's code blocks that are files of its example: the adapter and the project."""
    blocks = [re.findall(rf"```{kind}\n(.*?)```", PAGES["tiny"], re.DOTALL) for kind in ("python", "toml")]
    ((python,), (toml,)) = blocks
    return python, toml


FILES = {
    "tiny": files_of_page(),
    "tract": ((TRACT / "shootout_tract.py").read_text(), (TRACT / "pyproject.toml").read_text()),
}


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Both examples as an installer would leave them."""
    for name, (python, toml) in FILES.items():
        (tmp_path / f"shootout_{name}.py").write_text(python)
        project = tomllib.loads(toml)["project"]
        install(tmp_path, project["name"], project["entry-points"][BACKENDS])
    return tmp_path


def test_the_page_tells_the_size_of_its_example():
    stated = re.search(r"\*\*(\d+) files and (\d+) lines\*\*", PAGES["tiny"])
    assert stated
    assert (int(stated[1]), int(stated[2])) == (2, sum(text.count("\n") for text in FILES["tiny"]))


def test_they_are_found(installed: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(installed)
    assert backends.names()[-2:] == ("tiny", "tract")
    assert backends.get("tiny").name == "tiny"


def run_suite(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    """The pages' own commands, as one, in the third party's folder, which stands for the installed package as well.

    There it gets nothing from the conftest.py of these tests, as a third party's doesn't.
    """
    commands = [re.findall(r"^pytest (--pyargs shootout.testing) (.*)$", PAGES[name], re.MULTILINE) for name in names]
    asked = [word for ((_, backend),) in commands for word in backend.split()]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *commands[0][0][0].split(), *asked],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_suite_runs_on_them_and_passes(installed: Path):
    done = run_suite(installed, *PAGES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) == 2 * (len(CHECKS) + 1)  # type: ignore[index] # or it fails
    assert "skipped" not in done.stdout


def test_the_suite_fails_on_a_backend_that_is_asked_for_but_missing(tmp_path: Path):
    done = run_suite(tmp_path, "tiny")
    assert done.returncode != 0
    assert "unknown backend 'tiny'" in done.stdout + done.stderr


def test_the_suite_fails_on_a_backend_that_breaks_a_promise(installed: Path):
    adapter = installed / "shootout_tiny.py"
    adapter.write_text(adapter.read_text().replace("        check_inputs(self._exported.inputs, inputs)\n", ""))
    done = run_suite(installed, "tiny")
    assert done.returncode == 1
    assert re.search(r"FAILED .*wrong_inputs_are_refused", done.stdout)
    assert "1 failed" in done.stdout
