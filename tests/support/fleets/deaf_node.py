"""Run `shootout.commands.fleet` as a node of tests does, deaf to this machine's noise (see `deaf`).

One node of all, whoever is first, stops itself in its second restart and says so, to be killed there: see `STOPS`.
"""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from shootout.commands.fleet import main
from shootout.core.host.store import cache_folder
from support.deaf import deafen, stop_in
from support.forked_workers import fork_workers

STOPS = "one-stops"
"""A file below the cache folder with the process id of a raylet, whose node never is the one. The node that removes it
is, and leaves its own raylet's in `.by`.
"""
NICE = "niceness"
"""Another: how much nicer than its raylet each process is, a line each."""


def is_the_one(place: Path) -> bool:
    """Whether this process is the first to ask."""
    raylet = psutil.Process(os.getppid()).ppid()
    try:
        if int(place.read_text()) == raylet:
            return False
        place.unlink()
    except FileNotFoundError:
        return False
    place.with_suffix(".by").write_text(str(raylet))
    return True


def tell_niceness(place: Path) -> None:
    """Append this process's line."""
    raylet = psutil.Process(psutil.Process(os.getppid()).ppid())
    with place.open("a") as file:
        file.write(f"{os.nice(0) - raylet.nice()}\n")


if __name__ == "__main__":
    tell_niceness(cache_folder() / NICE)
    deafen({})
    stop_in(1, lambda: is_the_one(cache_folder() / STOPS))
    fork_workers()
    main()
