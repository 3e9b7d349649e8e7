"""Run a command under a CPU quota without a container: `python -m lab.quota 1 shootout run container`.

It makes a control group of its own (version 1 or 2), which takes root, and removes it at the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from shootout.core.host import placement

PERIOD_US = 100_000


def make_group(cpus: float, root: Path = placement.GROUPS) -> Path:
    """Make a group with a quota of so many CPUs; return its folder.

    Raises:
        SystemExit: the system has no CPU controller that can be divided here.
    """
    quota_us = str(round(cpus * PERIOD_US))
    group = (root / "cpu" if (root / "cpu").is_dir() else root) / f"shootout-{os.getpid()}"
    try:
        group.mkdir()
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}", encoding="utf-8")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US), encoding="utf-8")
            (group / "cpu.cfs_quota_us").write_text(quota_us, encoding="utf-8")
    except OSError as error:
        with suppress(OSError):  # it may be what couldn't be made
            group.rmdir()
        sys.exit(f"can't set a quota in {group}: {error}; run it as root, or use `docker run --cpus {cpus:g}`")
    return group


def main(cpus: str, *command: str) -> int:
    """Run the command in a new group; return its exit code."""
    group = make_group(float(cpus))

    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()), encoding="utf-8")

    try:
        return subprocess.run(command, preexec_fn=enter, check=False).returncode
    finally:
        print((group / "cpu.stat").read_text(encoding="utf-8"), file=sys.stderr)
        group.rmdir()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
