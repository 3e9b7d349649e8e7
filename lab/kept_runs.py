"""Hold what the code at hand reads from the runs that ship against what other code read from them.

`python -m lab.kept_runs --write FILE` writes each run's document, decision and screens; `python -m lab.kept_runs
--against FILE` reads them again and prints each place that differs. A change of structure alone changes none of them.
The programs are called as people call them, so that FILE may be from a tree of another shape.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "results" / "reference"
COMMANDS = (("show", "--json"), ("show", "--full"), ("decide", "--json"))
SHOWN = 20
"""The differences printed of one run."""


def find_runs() -> list[str]:
    """Return the names of the runs that ship, merged ones and tuning runs among them."""
    return sorted(folder.name for folder in RUNS.iterdir() if folder.is_dir())


def read_run(name: str) -> dict[str, Any]:
    """Return by command what it prints of a run, JSON as data, and its exit code."""
    told = {}
    for command, option in COMMANDS:
        words = [sys.executable, "-m", "shootout.cli", command, str((RUNS / name).relative_to(ROOT)), option]
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
        text = done.stdout.replace(str(ROOT), "")
        is_data = option == "--json" and text.lstrip().startswith(("{", "["))
        told[f"{command} {option}"] = {
            "code": done.returncode,
            "out": json.loads(text) if is_data else text.splitlines(),
        }
    return told


def differences(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Yield a line for each place in which two values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if key not in old or key not in new:
                yield f"{place}.{key}: only in the {'old' if key in old else 'new'}"
            else:
                yield from differences(old[key], new[key], f"{place}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from differences(one, other, f"{place}[{index}]")
    elif old != new:
        yield f"{place}: {old!r} -> {new!r}"


def main() -> int:
    """Write what is read, or compare it; the exit code is 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("runs", nargs="*", help="names of runs; all by default")
    given = parser.parse_args()
    names = given.runs or find_runs()
    with ThreadPoolExecutor(2) as pool:
        new = dict(zip(names, pool.map(read_run, names), strict=True))
    if given.write:
        given.write.write_bytes(gzip.compress(json.dumps(new).encode(), mtime=0))
    if not given.against:
        return 0
    old = json.loads(gzip.decompress(given.against.read_bytes()))
    changed = 0
    for name in names:
        found = list(differences(old.get(name), new[name], name))
        changed += bool(found)
        print(
            "\n".join(found[:SHOWN] + [f"{name}: {len(found) - SHOWN} more"] * (len(found) > SHOWN)),
            end="\n" * bool(found),
        )
    print(f"{len(names)} runs read, {changed} differ")
    return int(changed > 0)


if __name__ == "__main__":
    sys.exit(main())
