"""Faults put into the harness one by one, each with the tests that should notice: do the protections protect?

Each mutation is made in a scratch copy of this repository, and the tests named beside it run there. One that they let
pass has survived: a protection which nobody would miss. Run by `python -m lab --only mutations`; nothing in it
is a time.
"""

from __future__ import annotations

import os
import shutil
import signal
import site
import subprocess
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.common import say

ROOT = Path(__file__).parents[2]
COPIED = ("harness", "backends", "models", "tests", "pyproject.toml", "README.md", "results", "docs")
LIMIT_S = 1_800.0
"""For a harness that hangs. On a busy machine the tests of one fault take minutes, and an end by time tells nothing."""
_OTHERS = site.getsitepackages()
"""Where all other packages are."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault.

    Attributes:
        claim: what no longer holds.
        file: where, below the root.
        old: the text that stands there once, and `new` what comes in its place.
        tests: what should notice.
    """

    claim: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def outcomes(
    folder: Path, wanted: Sequence[Mutation], keep: Callable[[list[dict[str, Any]]], None]
) -> list[dict[str, Any]]:
    """A row for each: `killed`, and by which test, or `survived`; `stale` where the code has no such text any more.

    Args:
        keep: gets the rows so far.
    """
    copy = _scratch(folder)
    if fault := _outcome(copy, sorted({test for one in wanted for test in one.tests})):
        raise AssertionError(f"the tests fail on the code as it is: {fault}")
    rows = []
    for one in wanted:
        outcome, by = _tried(copy, one)
        rows.append({"file": one.file, "mutation": one.claim, "outcome": outcome, "by": by})
        say(f"{outcome}: {one.claim}")
        keep(rows)
    return rows


def _tried(copy: Path, one: Mutation) -> tuple[str, str]:
    path = copy / one.file
    text = path.read_text()
    if text.count(one.old) != 1:
        return "stale", ""
    path.write_text(text.replace(one.old, one.new))
    try:
        fault = _outcome(copy, one.tests)
        return ("killed", fault) if fault else ("survived", "")
    finally:
        path.write_text(text)


def _scratch(folder: Path) -> Path:
    """This repository again, and an environment in which the package is linked to it."""
    copy = folder / "repository"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, copy / name)
    venv.create(copy / "python")  # processes that tests start take the package from here too, whatever they are told
    (place,) = (copy / "python").glob("lib/python*/site-packages")
    (place / "others.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in _OTHERS))
    package = place / "shootout"
    package.mkdir()
    for entry in (copy / "harness").iterdir():
        (package / entry.name).symlink_to(entry)
    for name in ("backends", "models"):
        (package / name).symlink_to(copy / name)
    return copy


def _outcome(copy: Path, tests: Sequence[str]) -> str:
    """The test that failed, "" where all passed; pytest's last words where none could be run."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [
        str(copy / "python" / "bin" / "python"),
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        *tests,
    ]
    try:
        done = subprocess.run(
            command,
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            preexec_fn=_hear_interrupts,
        )
    except subprocess.TimeoutExpired:
        return "took too long"
    if done.returncode == 0:
        return ""
    lines = done.stdout.splitlines()
    failed = [words[1] for line in lines if (words := line.split())[:1] in (["FAILED"], ["ERROR"]) and len(words) > 1]
    return next(iter(failed), "\n".join(lines[-3:]) or "pytest could not begin")


def _hear_interrupts() -> None:
    """A shell's background job ignores Ctrl-C, and so would the runs that tests interrupt."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
