"""Both examples of docs/adding-a-backend*.md, done for real: their files taken from the page, installed, found, run
through the suite.
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

from shootout import backends
from shootout.testing.checks import CHECKS

DOCS = TESTS.parent / "docs"
PAGES = {"tiny": (DOCS / "adding-a-backend.md").read_text(), "tract": (DOCS / "adding-a-backend-tract.md").read_text()}


def files_of(page: str) -> tuple[str, str]:
    """The page's code blocks that are files of its example: the adapter and the project."""
    blocks = [re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "toml")]
    ((python,), (toml,)) = blocks
    return python, toml


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Both examples as an installer would leave them."""
    for name, page in PAGES.items():
        python, toml = files_of(page)
        (tmp_path / f"shootout_{name}.py").write_text(python)
        project = tomllib.loads(toml)["project"]
        install(tmp_path, project["name"], project["entry-points"][backends.GROUP])
    return tmp_path


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_page_tells_its_size(page: str):
    stated = re.search(r"\*\*(\d+) files and (\d+) lines\*\*", page)
    assert stated
    assert (int(stated[1]), int(stated[2])) == (2, sum(text.count("\n") for text in files_of(page)))


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
