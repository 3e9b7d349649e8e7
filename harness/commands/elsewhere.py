"""`shootout doctor --on` and `shootout ship --on`: what these commands do, on a host that is reached by ssh."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shootout.commands.output import show_progress
from shootout.errors import ExitCode, UsageError, printable
from shootout.fleet.node_kinds import ClusterNode
from shootout.fleet.node_side import SHIPPED, zip_folder
from shootout.fleet.nodes import NodeLost
from shootout.fleet.parcel import pack_nothing
from shootout.fleet.ssh_hosts import connect, read_addresses
from shootout.report.progress import ProgressDisplay
from shootout.ship.arm_to_ship import find_arm_to_ship
from shootout.ship.folder import is_there, new_folder
from shootout.study.options import MachineOptions


def doctor_there(address: str, options: MachineOptions, *, as_json: bool) -> int:
    """Look at each host that `--on` names, and print what was found; return the exit code.

    Raises:
        UsageError: a host can't be used; says what to do.
    """
    job = {"do": "doctor", "env": list(options.get("env", ())), "as_json": as_json}
    if as_json and len(read_addresses(address)) > 1:
        raise UsageError("--json with --on takes one host: ask each by itself")
    with show_progress() as progress:
        answers = _ask_all(address, job, progress)
    for node, answer in answers.items():
        if len(answers) > 1 and not as_json:
            sys.stdout.write(f"{node.name}\n")
        sys.stdout.write(printable(answer["printed"]))
    return max((answer["code"] for answer in answers.values()), default=ExitCode.OK)


def ship_there(
    address: str,
    run: Path,
    out: Path,
    *,
    target: str | None,
    policy: Path | None,
    group: str | None,
) -> int:
    """Ship a target on the host that measured it, where its own check runs once; return the exit code.

    Args:
        out: the folder to make, here.
        target, policy, group: as `ship` has them.

    Raises:
        UsageError: `out` is there, the host can't be used, or it can't ship the target; says why.
    """
    if out.exists():
        raise is_there(out)
    if len(read_addresses(address)) > 1:
        raise UsageError(f"--on {address!r}: a run is shipped on the host that measured it; name that one alone")
    if policy:
        raise UsageError("--policy with --on: `shootout decide` names its choice; pass that with --target")
    source = find_arm_to_ship(run, target, None, group)
    job = {"do": "ship", "target": source.arm.label, "group": source.row.group}
    with show_progress() as progress:
        progress.stage(f"shipping {source.arm.label} on {address}")
        (answer,) = _ask_all(address, job, progress, zip_folder(run)).values()
    if answer["code"] != ExitCode.OK:
        return int(answer["code"])
    with new_folder(out), zipfile.ZipFile(io.BytesIO(answer["folder"])) as archive:
        for member in archive.infolist():
            if member.filename.startswith(f"{SHIPPED}/"):
                member.filename = member.filename.removeprefix(f"{SHIPPED}/")
                archive.extract(member, out)  # which keeps every file in the folder, whatever the host named it
    progress.say(f"copied to {out}")
    return ExitCode.OK


def _ask_all(
    address: str, job: Mapping[str, Any], progress: ProgressDisplay, folder: bytes = b""
) -> dict[ClusterNode, dict[str, Any]]:
    """Do a job on each host; return the answers by host.

    Raises:
        UsageError: a host can't be used, or can't do it; says why.
    """
    with connect(address, pack_nothing(), "", progress.say) as hosts:
        jobs = {node: hosts.ask(node, job, folder) for node in hosts.nodes()}
        answers = dict[ClusterNode, dict[str, Any]]()
        for node, begun in jobs.items():
            try:
                answers[node] = hosts.result(begun)
            except NodeLost as lost:
                raise UsageError(f"{node.name}: {lost}") from None
            finally:
                hosts.release(begun)
            if "error" in answers[node]:
                raise UsageError(f"{node.name}: {answers[node]['error']}")
    return answers
