"""`shootout doctor --on` and `shootout ship --on`: what these commands do, on a host that is reached by ssh."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType

from shootout.apps.fleet.node_side import zip_folder
from shootout.apps.fleet.parcel import pack_package
from shootout.apps.fleet.ssh_hosts import connect, read_addresses
from shootout.apps.fleet.transport import Answer, NodeLost, Place, Task
from shootout.apps.judge.decide.policy import Policy, write_policy
from shootout.apps.judge.to_ship import find_arm_to_ship
from shootout.apps.ship.folder import is_there, new_folder
from shootout.commands.output import print_written, show_progress
from shootout.core.errors import ExitCode, UsageError, printable
from shootout.tell.delivery import Contents
from shootout.tell.formats.data import json_text
from shootout.tell.progress import ProgressDisplay

SHIPPED = "shipped"
"""The folder that a host ships into, below the run's."""


def doctor_there(address: str, env: Sequence[str], *, as_json: bool) -> int:
    """Look at each host that `--on` names, and print what was found; return the exit code.

    Args:
        env: variables that the backends get too.

    Raises:
        UsageError: a host can't be used; says what to do.
    """
    words = [word for name in env for word in ("--env", name)]
    with show_progress() as progress:
        answers = run_on_hosts(address, ["shootout.cli", "doctor", *words, *(["--json"] if as_json else [])], progress)
    several = len(answers) > 1
    if as_json and several:
        data = {place.name: json.loads(answer.printed or "null") for place, answer in answers.items()}
        sys.stdout.write(json_text(data))
    else:
        told = [f"{place.name}\n" * several + printable(answer.printed) for place, answer in answers.items()]
        sys.stdout.write("".join(told))
    return max((answer.code for answer in answers.values()), default=ExitCode.OK)


def ship_there(
    address: str,
    run: Path,
    out: Path,
    *,
    target: str | None,
    policy: Policy | None,
    group: str | None,
    as_json: bool = False,
) -> int:
    """Ship a target on the host that measured it, where its own check runs once; return the exit code.

    Args:
        out: the folder to make, here.
        target, policy, group, as_json: as `ship` has them.

    Raises:
        UsageError: `out` is there, the host can't be used, or it can't ship the target; says why.
    """
    if out.exists():
        raise is_there(out)
    if len(read_addresses(address)) > 1:
        raise UsageError(f"--on {address!r}: a run is shipped on the host that measured it; name that one alone")
    source = find_arm_to_ship(run, target, policy, group)
    words = ["shootout.cli", "ship", "{run}", "-o", f"{{run}}/{SHIPPED}", *(["--json"] if as_json else [])]
    if policy:
        limits = write_policy(policy) or [("--objective", str(policy.objective))]
        words += [word for option in limits for word in option]
        words += ["--group", group] if group else []
    else:
        words += ["--target", source.arm.label, "--group", source.row.group]
    with show_progress() as progress:
        progress.stage(f"shipping {source.arm.label} on {address}")
        (answer,) = run_on_hosts(address, words, progress, folder=zip_folder(run)).values()
    if answer.code != ExitCode.OK:
        return answer.code
    with new_folder(out), zipfile.ZipFile(io.BytesIO(answer.folder)) as archive:
        for member in archive.infolist():
            if member.filename.startswith(f"{SHIPPED}/"):
                member.filename = member.filename.removeprefix(f"{SHIPPED}/")
                archive.extract(member, out)  # which keeps every file in the folder, whatever the host named it
    progress.say(f"copied to {out}")
    return print_written({**json.loads(answer.printed), "folder": str(out)} if as_json else {}, as_json=as_json)


def run_on_hosts(
    address: str,
    words: Sequence[str],
    progress: ProgressDisplay,
    *,
    folder: bytes = b"",
    files: Contents = MappingProxyType({}),
    sent: Mapping[str, Contents] = MappingProxyType({}),
) -> dict[Place, Answer]:
    """Run a command on each host, one after another; return the answers by host.

    Args:
        words: what `python -m` takes, as `Task.words`.
        folder, sent: as a `Task` has them.
        files: those of the folder that it runs in.

    Raises:
        UsageError: a host can't be used, or was lost; says why.
    """
    with connect(address, replace(pack_package(), files=files), progress.say) as hosts:
        answers = dict[Place, Answer]()
        for place in hosts.places:
            task = Task(words=words, name=token_hex(16), folder=folder, sent=sent)
            try:
                answers[place] = hosts.run(place, task)
            except NodeLost as lost:
                raise UsageError(f"{place.name}: {lost}") from None
            hosts.forget(place, task)
    return answers
