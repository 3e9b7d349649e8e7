"""Which backends worked here before, so that a run need not try them again; `available` tries."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from shootout import backends
from shootout.contract import Availability, Device
from shootout.host import environment, store
from shootout.worker.availability import Pair, available

if TYPE_CHECKING:
    from shootout.worker.interpreters import Interpreter

WORKED = "worked.json"
"""Beside the bundles: the versions of the backends that worked, by the state that they worked in."""
SEARCHED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "CXX")
"""Variables by which libraries and compilers are found."""


def known_available(
    pairs: Collection[Pair], others: Mapping[str, Interpreter] | None = None, *, fresh: bool = False
) -> dict[Pair, Availability]:
    """As `available`, without trying again what worked here before: that takes up to 3 s for each backend.

    Only of backends that ship, under our own interpreter and on the CPU, whose state is what is installed: as long as
    that and the machine stay the same, the answer does. One that broke all the same fails in its build,
    with the reason, and is then tried again: see `forget`.

    Args:
        fresh: try all of them again.
    """
    if fresh:
        forget(pair[0] for pair in pairs)
    state = _state()
    keys = {pair: f"{state} {pair[0]}" for pair in pairs if pair[0] in backends.SHIPPED and pair[1] is Device.CPU}
    worked = store.read_facts(WORKED)
    found = {pair: Availability(version=worked[key]) for pair, key in keys.items() if key in worked}
    found |= available(set(pairs) - set(found), others)
    if new := {key: found[pair].version for pair, key in keys.items() if found[pair].ok and key not in worked}:
        store.write_facts(WORKED, new)
    return found


def forget(names: Iterable[str]) -> None:
    """Let these backends be tried again by the next run, in whatever state they worked."""
    broken = set(names)
    store.keep_facts(WORKED, lambda key: key.partition(" ")[2] not in broken)


def _state() -> str:
    """A hash of all that decides whether a library works: machine, system, what is installed and where, our code."""
    own = [file.read_text() for file in sorted(Path(str(backends.__file__)).parent.rglob("*.py"))]
    ours = [sys.version, sys.executable, sys.path, [os.environ.get(name) for name in SEARCHED]]
    content = [environment.machine_key(), platform.release(), environment.libraries(), ours, own]
    content.append(environment.variables(os.environ))
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
