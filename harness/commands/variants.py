"""`shootout merge --ship`: a folder with what each machine ships, which chooses among these where it is loaded."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from shootout.apps.fleet.ssh_hosts import read_addresses
from shootout.apps.judge.analysis import Analysed
from shootout.apps.judge.compare.merge import CellInPlace, find_group
from shootout.apps.ship.folder import new_folder, shipping
from shootout.apps.ship.variants import read_cpu, refuse_twins, write_variants
from shootout.backends.shipped import MANIFEST, ShippedFolder, open_shipped, read_environment
from shootout.commands.elsewhere import ship_there
from shootout.commands.ship import ship
from shootout.core.errors import ArmFailed, SkippedArm, Undecided, UsageError
from shootout.core.host.environment import machine_key
from shootout.core.host.untrusted import resolve_inside
from shootout.core.units import counted, size
from shootout.tell.reproduce import quote


def ship_variants(
    runs: Sequence[Analysed], out: Path, given: Sequence[Path], group: str | None, on: str | None = None
) -> None:
    """Ship what each place's own answer ships, into one folder whose programs choose by machine.

    A place is shipped on the machine that measured it: here, or on the host that its run was measured on by ssh. A
    run may be a stranger's, so no host is reached just because a run names it.

    Args:
        out: the folder to make.
        given: shipped folders to copy, each in place of shipping its run's answer again.
        group: the group to ship, where the runs have several.
        on: the hosts that may be reached, as `--on` names them.

    Raises:
        UsageError: `out` is there, a place has to be shipped elsewhere first, or the places don't go together; says
            what to do.
        Undecided: a place has no answer yet.
        ArmFailed: a variant's own check fails.
    """
    sites = find_group(runs, group)
    if len(sites) < 2:
        raise UsageError(f"only {sites[0].place} measured {sites[0].cell.group}: `shootout ship` ships one run")
    cpus = {site.run.document.run: read_cpu(site.run.document.run, site.run.document.environment) for site in sites}
    refuse_twins(cpus)
    hosts = [address.url for address in read_addresses(on)] if on else []
    if strange := set(hosts) - {site.run.facts.on for site in sites}:
        raise UsageError(f"--on {', '.join(sorted(strange))}: none of these runs was measured there; leave it out")
    copied = match_given(sites, given)
    for site in sites:
        if site.place not in copied:
            require_shippable(site, hosts)
    with new_folder(out):
        variants = [
            (_fill(site, copied.get(site.place), out / name_variant(number, site)), cpus[site.run.document.run])
            for number, site in enumerate(sites, start=1)
        ]
        write_variants(out, variants)
    total = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    sys.stderr.write(f"{out}: {counted(len(variants), 'variant')}, {size(total)}\n")


def name_variant(number: int, site: CellInPlace) -> str:
    """Name the folder of a place by its machine, in letters that `shipped:DIR` takes."""
    return f"{number}-{re.sub(r'[^A-Za-z0-9]+', '-', site.place).strip('-').lower()}"


def match_given(sites: Sequence[CellInPlace], given: Sequence[Path]) -> dict[str, ShippedFolder]:
    """Return the shipped folders by the place that measured each.

    Raises:
        UsageError: one is of no run that is merged, of another group, or of a place that another is of.
    """
    found = dict[str, ShippedFolder]()
    for folder in given:
        shipped = open_shipped(folder)
        facts = read_environment(shipped)
        site = next(
            (one for one in sites if one.cell.group == shipped.group and one.run.document.environment == facts), None
        )
        if site is None:
            raise UsageError(
                f"--with {str(folder)!r}: it was shipped from {shipped.run}, {shipped.group}, which is none of "
                f"{', '.join(one.run.document.run for one in sites)}: merge the run that it is of"
            )
        if site.place in found:
            raise UsageError(
                f"--with {str(folder)!r}: {str(found[site.place].folder)!r} is of {site.place}, too: name one"
            )
        found[site.place] = shipped
    return found


def require_shippable(site: CellInPlace, hosts: Collection[str]) -> None:
    """Refuse a place whose answer can't be shipped from here.

    Args:
        hosts: those that may be reached.

    Raises:
        UsageError: it was measured on another machine, or can't be shipped; names the command that ships it.
        Undecided: it has no answer yet.
    """
    ship, run = site.answer.ship, site.run.document.run
    by_hand = quote(["shootout", "ship", run, "--group", site.cell.group, "--target"])
    if ship is None or site.answer.reason:
        raise Undecided(
            f"{site.place} has no answer yet: {site.answer.reason or 'nothing was measured'}; continue its run, or "
            f"choose there: `{by_hand} TARGET -o FOLDER`, and add --with FOLDER here"
        )
    arm = next(arm for arm in site.run.groups[site.cell.group].record.arms if arm.label == ship.arm)
    try:
        shipping(arm.target)
    except SkippedArm as error:
        raise UsageError(
            f"{site.place}: {error.reason}; ship another of its targets there: `{by_hand} TARGET -o FOLDER`, and add "
            "--with FOLDER here"
        ) from None
    host = site.run.facts.on
    if host not in hosts if host else site.run.document.environment.get("machine") != machine_key():
        raise UsageError(
            f"{run} was measured on another machine, {site.place}, and only that one can ship it. Type there: "
            f"`{by_hand} {quote([ship.arm])} -o FOLDER`; copy FOLDER here, and add --with FOLDER"
            + (f". Or add --on {quote([host])} if that host is yours" if host else "")
        )


def _fill(site: CellInPlace, copied: ShippedFolder | None, place: Path) -> ShippedFolder:
    """Put a place's shipped folder into `place`, which isn't there yet."""
    run, group = Path(site.run.document.run), site.cell.group
    arm = site.answer.ship.arm if site.answer.ship else None
    if copied:
        for name in (*copied.files, MANIFEST):  # what else lies there may be a link or a pipe
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(resolve_inside(copied.folder, name), place / name)
    elif site.run.facts.on:
        ship_there(site.run.facts.on, run, place, target=arm, policy=None, group=group)
    else:
        try:
            ship(run, place, target=arm, policy=None, group=group)
        except ArmFailed as error:
            raise ArmFailed(f"{error}; {place.parent} was removed again") from None
    return open_shipped(place)
