"""`shootout ship`: an arm of a run as a folder that can be mounted; checked in a process that knows nothing of us."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from shootout import backends
from shootout.bundle.shipped import CHECK, Shipped
from shootout.commands.output import show_progress
from shootout.errors import ArmFailed
from shootout.host.placement import passed_on
from shootout.host.store import in_use
from shootout.ship.artifact import find_built
from shootout.ship.folder import write_folder
from shootout.ship.source import find_source
from shootout.units import size

CHECK_TIMEOUT_S = 600.0


def ship(run: Path, out: Path, *, arm: str | None, policy: Path | None, group: str | None) -> int:
    """Write the arm's folder, and run its own check once; returns the exit code.

    Args:
        out: the folder to make.
        arm, policy, group: see `find_source`.

    Raises:
        ArmFailed: the folder's own check fails here; the folder stays.
    """
    source = find_source(run, arm, policy, group)
    backends.shipping(source.arm.target)  # or say why not, before anything is built
    with show_progress() as progress, in_use():
        progress.stage(f"shipping {source.arm.label}")
        shipped = write_folder(source, find_built(source, progress), out)
        said = check_folder(shipped)
    total = sum((out / name).stat().st_size for name in shipped.files)
    sys.stderr.write(f"{out}: {size(total)}; checked: {said}\n")
    return 0


def check_folder(shipped: Shipped) -> str:
    """What the folder's own check says, on as many CPUs as it was measured on.

    Raises:
        ArmFailed: it doesn't pass.
    """
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-I", str(shipped.folder / CHECK)],
        env=passed_on(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CHECK_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        words = " | ".join((done.stdout + done.stderr).strip().splitlines()[-3:])
        raise ArmFailed(f"{shipped.folder} was written, but its check.py ends with {done.returncode}: {words}")
    return done.stdout.strip()
