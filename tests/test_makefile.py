"""What stops the set-up, and what doesn't; a stand-in for the environment's Python installs nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("refused", "stops"),
    [
        ("pip==", False),
        ("converter.txt", False),
        ("package.txt", False),
        ("--no-deps --no-warn", False),
        (".[dev]", True),
    ],
)
def test_only_what_all_backends_need_stops_the_set_up(refused: str, stops: bool, tmp_path: Path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\ncase "$*" in *"{refused}"*) exit 1;; esac\n')
    python.chmod(0o755)
    done = subprocess.run(
        ["make", "wheel", f"VENV={tmp_path}", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) is stops, done.stderr
    assert (tmp_path / ".installed").exists() is not stops
    warned = [line for line in done.stdout.splitlines() if refused in line and "can't be installed here" in line]
    is_asked_for_again = "--no-warn" in refused
    assert bool(warned) is not (stops or is_asked_for_again)


def test_an_environment_is_made_without_ensurepip_first(tmp_path: Path):
    """Where a system has Python's ensurepip in a package of its own, PYTHON's pip can fill the environment."""
    python, calls = tmp_path / "python", tmp_path / "calls"
    python.write_text(f'#!/bin/sh\necho "$*" >> {calls}\ncase "$*" in *"-m pip --python"*) exit 1;; esac\n')
    python.chmod(0o755)
    environment = {**os.environ, "PYTHON": str(python)}
    subprocess.run(["sh", "lab/set_up.sh", str(tmp_path / "new"), "site"], cwd=ROOT, env=environment, check=False)
    (first,) = re.findall(r"(?m)^-m venv --without-pip .*new$", calls.read_text())
    (otherwise,) = re.findall(r"(?m)^-m venv .*new$", calls.read_text().replace(first, ""))
    assert "--without-pip" not in otherwise, "if PYTHON has no pip"


def test_what_is_installed_first_has_the_versions_of_all_others():
    """`make` asks for it by name, and a name that nobody else asks for would come in its newest version."""
    named = re.search(r"(?s)echo (torch .*?)\| xargs", (ROOT / "lab" / "set_up.sh").read_text())
    held = re.findall(r"(?m)^([\w.-]+)==", (ROOT / "constraints.txt").read_text())
    assert named
    assert set(named[1].replace("\\", "").split()) - set(held) == set()
