"""What is known of which backends work here, so that a run need not try them again; `available` tries."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout import backends
from shootout.contract import Availability, Device, NotRun, NotRunKind
from shootout.host import cuda_driver, environment, store
from shootout.worker.availability import Pair, available

if TYPE_CHECKING:
    from shootout.worker.interpreters import Interpreter

WORKED = "worked.json"
"""Beside the exported models: versions of the backends, and why they don't work, by the state of everything and the
device.
"""
NO_GPU = {NotRunKind.UNAVAILABLE, NotRunKind.BUILT_ONLY}
"""Why a backend doesn't work on a GPU where there is no driver, if its library is whole."""
SEARCHED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "CXX")
"""Variables by which libraries and compilers are found."""


def known_available(
    pairs: Collection[Pair], others: Mapping[str, Interpreter] | None = None, *, fresh: bool = False
) -> dict[Pair, Availability]:
    """As `available`, without trying again what can't have changed: that takes up to 3 s for each backend.

    That is what worked on the CPU, and what lacks a GPU where there is no NVIDIA driver; only of backends that ship
    and under our own interpreter, whose state is what is installed: as long as that and the machine stay the same, the
    answer does. One that broke all the same fails in its build, with the reason, and is then tried again: see `forget`.

    Args:
        fresh: try all of them again.
    """
    if fresh:
        forget(pair[0] for pair in pairs)
    state = _state()
    keys = {pair: f"{state} {pair[0]} {pair[1]}" for pair in pairs if pair[0] in backends.SHIPPED}
    worked = store.read_facts(WORKED)
    found = {pair: answer for pair, key in keys.items() if (answer := _recalled(worked.get(key)))}
    found |= available(set(pairs) - set(found), others)
    new = {key: _noted(found[pair]) for pair, key in keys.items() if _stays(pair[1], found[pair])}
    new = {key: one for key, one in new.items() if worked.get(key) != one}
    if new:
        store.write_facts(WORKED, new)
    return found


def forget(names: Iterable[str]) -> None:
    """Let these backends be tried again by the next run, in whatever state they worked."""
    broken = set(names)
    store.keep_facts(WORKED, lambda key: key.partition(" ")[2].partition(" ")[0] not in broken)


def _stays(device: Device, found: Availability) -> bool:
    """Whether an answer is true as long as the state is."""
    if found.why is None:
        return device is Device.CPU  # a GPU may be gone, or others' by now
    return device is Device.CUDA and found.why.kind in NO_GPU and cuda_driver.library() is None


def _noted(found: Availability) -> list[Any]:
    why = found.why
    return [found.version, {"kind": why.kind.value, "reason": why.reason, "fix": why.fix} if why else None]


def _recalled(noted: Any) -> Availability | None:
    """What was noted; None where nothing was, or something that isn't ours: then it is tried again."""
    match noted:
        case [str(version), None]:
            return Availability(version=version)
        case [str(version), {"kind": str(kind), "reason": str(reason), "fix": str(fix)}] if kind in set(NotRunKind):
            return Availability(version=version, why=NotRun(NotRunKind(kind), reason, fix))
    return None


def _state() -> str:
    """A hash of all that decides whether a library works: machine, system, driver, what is installed, our code."""
    own = [file.read_text(encoding="utf-8") for file in sorted(Path(str(backends.__file__)).parent.rglob("*.py"))]
    ours = [sys.version, sys.executable, sys.path, [os.environ.get(name) for name in SEARCHED]]
    content = [environment.machine_key(), platform.release(), environment.libraries(), ours, own]
    content += [environment.variables(os.environ), str(cuda_driver.library() is None)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
