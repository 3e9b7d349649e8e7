"""The conformance suite on CUDA, one pytest for each backend that works there, side by side: it times nothing.

Run as `python conformance.py FOLDER`, a campaign's: the backends are those of its doctor, and each writes its report
into FOLDER/conformance.
"""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

SUITE = "shootout.testing"
FOLDER = "conformance"
CODES = Path(FOLDER) / "codes.json"
"""By backend the exit code of its last pytest."""
ENDED = (0, 1)
"""Pytest's exit codes when every check was asked: all passed, or some failed."""
CUT = 2
DOCTOR = Path("logs") / "doctor.out"


def able(out: Path) -> list[str] | None:
    """The backends that the campaign's doctor found to work on CUDA; None where it told nothing."""
    try:
        findings = json.loads((out / DOCTOR).read_text())["findings"]
    except (OSError, ValueError, KeyError):
        return None
    return [one["backend"] for one in findings if one["device"] == "cuda" and one["availability"]["ok"]]


def command(backend: str, report: Path) -> list[str]:
    """Pytest over one backend's targets on CUDA."""
    words = ["-q", "-p", "no:cacheprovider", "-m", "not slow", "-k", "cuda", "--junitxml", str(report)]
    return [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "shootout.testing.plugin",
        "--pyargs",
        SUITE,
        *words,
        "--backend",
        backend,
    ]


def codes(out: Path) -> dict[str, int]:
    """The exit codes so far; a suite that is at work, or was killed with all others, has none."""
    try:
        found = json.loads((out / CODES).read_text())
    except (OSError, ValueError):
        return {}
    return dict(found) if isinstance(found, dict) else {}


def left(out: Path) -> list[str]:
    """The backends whose suite still has to be run to its end."""
    ended = {name for name, code in codes(out).items() if code in ENDED}
    return [name for name in able(out) or () if name not in ended]


def results(out: Path) -> dict[str, dict[str, Any]]:
    """By backend how many checks passed, each that didn't with its first line, and the exit code of the suite.

    A suite whose code isn't among `ENDED` was cut off, or broke: there are checks that nobody asked.
    """
    known = codes(out)
    names = {file.stem for file in (out / FOLDER).glob("*.xml")} | {*known}
    return {name: _result(out / FOLDER / f"{name}.xml", known.get(name)) for name in sorted(names)}


def _result(file: Path, code: int | None) -> dict[str, Any]:
    failed, passed = {}, 0
    try:
        cases = list(ElementTree.parse(file).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        cases = []
    for case in cases if code in ENDED else cases[:-1]:  # of a cut suite the last one has no outcome, as if it passed
        faults = [*case.findall("failure"), *case.findall("error")]
        passed += not faults and case.find("skipped") is None
        if faults:
            failed[case.get("name", "")] = (faults[0].get("message") or "").partition("\n")[0]
    return {"passed": passed, "failed": failed, "code": code}


def main(out: Path, backends: Sequence[str]) -> int:
    """Run them all; 1 where a check failed, 2 where a suite didn't come to its end."""
    (out / FOLDER).mkdir(parents=True, exist_ok=True)
    running = {name: subprocess.Popen(command(name, out / FOLDER / f"{name}.xml")) for name in backends}
    for name, process in running.items():
        with suppress(KeyboardInterrupt):  # they got it too, and are writing their reports
            process.wait()
        _write(out, {**codes(out), name: process.wait()})
    found = results(out)
    lines = [f"{name}: {len(one['failed'])} failed, {one['passed']} passed" for name, one in found.items()]
    print("; ".join(lines), file=sys.stderr)
    return max((one["code"] if one["code"] in ENDED else CUT for one in found.values()), default=0)


def _write(out: Path, found: dict[str, int]) -> None:
    """Whole or not at all."""
    fresh = out / f"{CODES}.new"
    fresh.write_text(json.dumps(found) + "\n")
    fresh.replace(out / CODES)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    sys.exit(main(folder, left(folder)))
