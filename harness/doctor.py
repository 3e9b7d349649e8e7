"""What works on this machine, what is missing and how to get it, and how quiet the machine is."""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout import backends, cache, environment, locks, quiet
from shootout.contract import Availability, Device
from shootout.errors import UsageError
from shootout.placement import Placement, place
from shootout.probing import probing
from shootout.quiet import Quiet

if TYPE_CHECKING:
    from rich.console import RenderableType

AT_ONCE = 2
"""Probes that run side by side: most of their time is import, on one CPU each."""
ENOUGH_FREE_BYTES = 2 * 2**30
ENOUGH_OPEN_FILES = 256
_LIMITS = {"RLIMIT_AS": "ulimit -v", "RLIMIT_DATA": "ulimit -d", "RLIMIT_CPU": "ulimit -t", "RLIMIT_NPROC": "ulimit -u"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Whether one backend works on one device."""

    backend: str
    device: Device
    availability: Availability


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder that runs write to; `problem` is "" when it can be used."""

    use: str
    path: str
    free_bytes: int | None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What `shootout doctor` found, as JSON values.

    Attributes:
        threads: compute threads an arm gets by default.
        limits: process limits in force, by their name in `getrlimit`; unlimited ones are left out.
        lock_holder: the run that measures here now, "" when there is none.
        advice: what would make runs possible, safer or quieter, the most important first.
    """

    findings: tuple[Finding, ...]
    quiet: Quiet
    threads: int
    folders: tuple[Folder, ...]
    memory_available_bytes: int
    limits: Mapping[str, int]
    lock_holder: str
    advice: tuple[str, ...]
    environment: Mapping[str, Any]


def available(pairs: Collection[tuple[str, Device]]) -> dict[tuple[str, Device], Availability]:
    """Whether each (backend, device) works here: a tiny real session in a fresh process each. Never raises for a backend."""
    found = {}
    for batch in _batches(sorted(set(pairs))):
        with ExitStack() as running:
            waits = {pair: running.enter_context(probing(*pair)) for pair in batch}
            found |= {pair: wait() for pair, wait in waits.items()}
    return found


def _batches(pairs: list[tuple[str, Device]]) -> list[list[tuple[str, Device]]]:
    return [pairs[start : start + AT_ONCE] for start in range(0, len(pairs), AT_ONCE)]


def examine() -> Report:
    """Look at everything: first how quiet it is (about 2 s), then the backends, whose probes make noise themselves."""
    placement = place(None)
    heard = quiet.listen(placement.arms)
    answers = available(_offered())
    facts = environment.facts()
    folders = (_cache_folder(), _folder("temporary files", Path(tempfile.gettempdir())))
    holder = locks.machine_lock_holder()
    limits, memory = _limits(), environment.memory_available_bytes()
    return Report(
        findings=tuple(Finding(backend=name, device=device, availability=answers[name, device]) for name, device in answers),
        quiet=heard,
        threads=placement.threads,
        folders=folders,
        memory_available_bytes=memory,
        limits=limits,
        lock_holder=str(holder) if holder else "",
        advice=(
            *_room(folders, memory),
            *_limit_advice(limits),
            *([f"{holder} is measuring now: a run would wait for it, and the figures here are its noise"] if holder else []),
            *_placement_advice(placement, facts["cpu"]),
            *quiet.advice(heard),
        ),
        environment=facts,
    )
