"""`shootout ship`: an arm of a run as a folder that can be mounted; checked in a process that doesn't import us."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from shootout.apps.judge.decide.policy import Policy, write_toml
from shootout.apps.judge.to_ship import ArmToShip, find_arm_to_ship, refuse_without_folder
from shootout.apps.ship.folder import find_built, is_there, write_folder
from shootout.backends.shipped import CHECK, ShippedFolder
from shootout.commands.output import print_written, show_progress
from shootout.commands.report import render
from shootout.core.errors import ArmFailed
from shootout.core.host.placement import passed_on
from shootout.core.units import size
from shootout.tell.answer import tell_undecided
from shootout.tell.cache_limit import in_use
from shootout.tell.formats import json_text
from shootout.tell.page.contents import read
from shootout.tell.table import tell_held_back

CHECK_TIMEOUT_S = 600.0
NEXT_STEPS = {
    "next, where it runs:": f"pip install -r {{0}}/requirements.txt && python {{0}}/{CHECK}",
    "before something replaces it:": "shootout gate {0}",
}
"""When → the command that takes a shipped folder, {0}."""


def ship(
    run: Path,
    out: Path,
    *,
    target: str | None = None,
    policy: Policy | None = None,
    group: str | None = None,
    as_json: bool = False,
) -> int:
    """Write the target's folder, and run its own check once; return the exit code.

    Args:
        out: the folder to make.
        target, policy, group: see `find_arm_to_ship`.
        as_json: print what was written.

    Raises:
        UsageError: `out` already exists.
        ArmFailed: the folder's own check fails here; the folder stays.
    """
    if out.exists():
        raise is_there(out)
    source = find_arm_to_ship(run, target, policy, group)
    refuse_without_folder(source)  # before anything is built
    with show_progress() as progress, in_use():
        progress.stage(f"shipping {source.arm.label}")
        shipped = write_folder(source, find_built(source, progress), out, collect_evidence(source))
        checked = check_folder(shipped)
    doubt = tell_doubt(source)
    if doubt:
        sys.stderr.write(f"{source.arm.label} {doubt}\n")
    files = {str(file.relative_to(out)): file.stat().st_size for file in sorted(out.rglob("*")) if file.is_file()}
    total = sum(files.values())
    sys.stderr.write(f"{out}: {size(total)}; checked: {checked}\n")
    tell_next_steps(out)
    if shipped.arm.instances > 1:
        sys.stderr.write(
            f"raced as {shipped.arm.instances} instances: this is one of them, so start a process for each\n"
        )
    written = {"folder": str(out), "group": source.row.group, "target": source.arm.label, "size_bytes": total}
    return print_written({**written, "files": files, "checked": checked, "doubt": doubt}, as_json=as_json)


def tell_doubt(source: ArmToShip) -> str | None:
    """Tell what the run isn't sure of: any target can be shipped by its name; None if there is no doubt."""
    if source.choice:
        return f"only leads: {tell_undecided(source.choice, source.arm.label)}" if source.choice.unsettled else None
    why = tell_held_back(source.document, source.row)
    return f"may not be shipped by default: {why}" if why else None


def tell_next_steps(folder: Path) -> None:
    """Print the commands that take a shipped folder."""
    for when, command in NEXT_STEPS.items():
        sys.stderr.write(f"{when}  {command.format(shlex.quote(str(folder)))}\n")


def collect_evidence(source: ArmToShip) -> dict[str, bytes]:
    """Return files by name: the policy and its decision, and the run's report if the drawing library is installed."""
    found = {}
    if source.decided:
        decision = source.decided.decision
        found["decision.json"] = json_text(decision.model_dump(mode="json")).encode()
        found["deploy.toml"] = write_toml(decision.policy).encode()
    try:
        page = render([read(source.folder, source.document)], ".html", source.decided)
    except ImportError:
        return found
    return found | {"report.html": page}


def check_folder(shipped: ShippedFolder) -> str:
    """Run the folder's own check in a process of its own, with the packages of this environment; return what it says.

    Raises:
        ArmFailed: it doesn't pass, or doesn't end.
    """
    return run_program(shipped.folder, CHECK)


def run_program(folder: Path, program: str, *words: str, **variables: str) -> str:
    """Run a program of a folder in a process of its own that doesn't import us; return what it prints.

    Args:
        variables: of its environment, beside ours.

    Raises:
        ArmFailed: it ends with an error, or doesn't end.
    """
    try:
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-I", str(folder / program), *words],
            env=passed_on(os.environ) | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CHECK_TIMEOUT_S,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise ArmFailed(f"{folder} was written, but its {program} didn't end within {CHECK_TIMEOUT_S:.0f} s") from None
    if done.returncode:
        said = " | ".join((done.stdout + done.stderr).strip().splitlines()[-3:])
        raise ArmFailed(f"{folder} was written, but its {program} ends with {done.returncode}: {said}")
    return done.stdout.strip()
