"""The wheel in a fresh environment without any extra: each command says something of use, and none breaks.

And the sdist: its own tests run on the wheel that was built from it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

RUN, OTHER = "results/reference/shootout", "results/reference/shootout-intel"
INSTALL = "pip install 'shootout[{}]'"


@dataclass(frozen=True, slots=True)
class Step:
    """A command as it is typed, its exit code, and a part of what it says, on either stream."""

    words: str
    code: int
    says: str


STEPS = (
    Step("--help", 0, "Which backend, device and precision should I ship"),
    Step("list", 0, "runtimes"),
    Step("doctor", 0, "Also runs here: torch-eager"),
    Step("doctor --json", 0, '"findings"'),
    Step("show {run}", 0, "Ship  litert:cpu:fp32"),
    Step("show {run} --json", 0, '"schema"'),
    Step("show {run} --to table.parquet", 0, "Ship  litert:cpu:fp32"),
    Step("decide {run}", 0, "Chosen in all of 1,000 resamples"),
    Step("merge {run} {other}", 0, "Ship  jax-jit:cpu:fp32 everywhere"),
    Step("compare {run} {other}", 0, "neither is called slower"),
    Step("gate {run} --candidate numpy", 6, INSTALL.format("litert")),
    Step("report {run} -o page.md", 0, "page.md"),
    Step("report {run} -o page.html", 2, INSTALL.format("report")),
    Step("run --dry-run", 0, "numpy:cpu:fp32"),
    Step("run --backends numpy", 2, INSTALL.format("torch")),
    Step("run nothing.onnx", 2, "nothing.onnx"),
    Step("run --backends shipped:nothing", 2, "is it a shipped folder?"),
    Step("run --ray 127.0.0.1:1", 2, INSTALL.format("cluster")),
)
DRAWN = Step("report {run} -o page.html", 0, "page.html")
"""With the extra `report`."""
TESTED = ("tests/test_layers.py", "tests/test_links.py", "tests/release", "tests/stats/test_paired.py")
TESTING = ("pytest", "pytest-timeout", "hypothesis", "PyYAML")


def find_faults(wheel: Path, sdist: Path, folder: Path, constraints: Path) -> Iterator[str]:
    """Try both in a folder of their own, and tell what isn't as it should be."""
    python = folder / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    pip: list[str | Path] = [
        python,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "-c",
        constraints,
    ]
    subprocess.run([*pip, wheel], check=True)
    with tarfile.open(sdist) as packed:
        packed.extractall(folder / "sdist", filter="data")
    (source,) = (folder / "sdist").iterdir()
    work = folder / "work"
    (work / "home").mkdir(parents=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(work / "home"), "COLUMNS": "200"}
    for step in STEPS:
        yield from _try(step, python, source, work, environment)
    subprocess.run([*pip, f"{wheel}[report]"], check=True)
    yield from _try(DRAWN, python, source, work, environment)
    subprocess.run([*pip, *TESTING], check=True)
    tests: list[str | Path] = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTED]
    tested = subprocess.run(tests, cwd=source, env=environment, capture_output=True, text=True, check=False)
    if tested.returncode:
        yield f"the sdist's own tests on its wheel: {tested.stdout[-2000:]}{tested.stderr[-2000:]}"


def _try(step: Step, python: Path, source: Path, work: Path, environment: Mapping[str, str]) -> Iterator[str]:
    words = shlex.split(step.words.format(run=source / RUN, other=source / OTHER))
    command: list[str | Path] = [python.with_name("shootout"), *words]
    ended = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False, timeout=900)
    said = ended.stdout + ended.stderr
    told = f"shootout {step.words}: exit {ended.returncode}, {said[-600:]!r}"
    if ended.returncode != step.code or step.says not in said or "Traceback" in said:
        yield f"{told}; expected exit {step.code} and {step.says!r}"
