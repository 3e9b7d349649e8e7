"""Does a backend work here? Asked in a fresh process: a broken library may crash, hang or print, not just raise.

Run as `python -m shootout.worker.availability BACKEND DEVICE PARENT_PID`; the answer is one JSON object on standard
output, and whatever the library itself prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from shootout import backends
from shootout.contract import Availability, Device, NotRun, NotRunKind
from shootout.errors import UsageError
from shootout.host.child import Child, leave_with
from shootout.host.placement import allowed_cpus

if TYPE_CHECKING:
    from shootout.worker.interpreters import Interpreter

PROBE_TIMEOUT_S = 60.0
INSTALLABLE = {NotRunKind.NOT_INSTALLED, NotRunKind.BROKEN}
"""An installation mends these, and which one depends on the interpreter."""
LEAST_AT_ONCE, MOST_AT_ONCE = 2, 8

Pair = tuple[str, Device]
"""A backend, `backend@python` where it is another interpreter's, and a device."""


def available(pairs: Collection[Pair], others: Mapping[str, Interpreter] | None = None) -> dict[Pair, Availability]:
    """Whether each (backend, device) works here, each asked in a fresh process, side by side.

    Args:
        pairs: a backend may be `backend@python`: it is asked under that interpreter.
        others: the other interpreters, by name.

    A backend that crashes or hangs is unavailable, with the reason; nothing is raised for it.
    """
    started: list[Child] = []

    def ask(pair: Pair) -> Availability:
        with start_probe(pair, others or {}) as probe:
            started.append(probe)
            return _answer(probe, pair, others or {})

    waiting = sorted(set(pairs), key=lambda pair: (-_ready_s(pair[0].partition("@")[0]), pair))  # the longest first
    with ThreadPoolExecutor(at_once()) as pool:
        try:
            return dict(zip(waiting, pool.map(ask, waiting), strict=True))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for probe in started:
                probe.signal(signal.SIGKILL)
            raise


def _ready_s(backend: str) -> float:
    try:
        return backends.entry(backend).ready_s
    except UsageError:
        return 0.0


def at_once() -> int:
    """How many probes run side by side: most of their time is imports, on one CPU each."""
    return max(LEAST_AT_ONCE, min(MOST_AT_ONCE, len(allowed_cpus()) // 2))


def start_probe(pair: Pair, others: Mapping[str, Interpreter]) -> Child:
    """A process that looks whether a backend works on a device; it says so on standard output."""
    backend, other = _parts(pair, others)
    return Child(
        "shootout.worker.availability",
        [backend, pair[1]],
        environment=other.environment(os.environ) if other else None,
        executable=other.path if other else None,
    )


def _answer(probe: Child, pair: Pair, others: Mapping[str, Interpreter]) -> Availability:
    """Wait for what a probe finds; under another interpreter, what to install is said for that one."""
    backend, other = _parts(pair, others)
    ended = probe.finish(PROBE_TIMEOUT_S)
    try:
        # An answer counts even when the library then crashes on the way out, as some GPU drivers do.
        version, why = json.loads(ended.said)
        found = Availability(version=version, why=why and NotRun(NotRunKind(why.pop("kind")), **why))
    except (ValueError, TypeError, AttributeError, KeyError):
        found = _unavailable(f"gave no answer: {ended.how}", backend)
    if other is None or found.why is None or found.why.kind not in INSTALLABLE:
        return found
    reason, fix = f"under @{other.name}: {found.reason}", other.install_backend(backend)
    return replace(found, why=replace(found.why, reason=reason, fix=fix))


def _unavailable(reason: str, backend: str) -> Availability:
    return Availability(why=NotRun(NotRunKind.BROKEN, reason, _fix(backend)))


def _parts(pair: Pair, others: Mapping[str, Interpreter]) -> tuple[str, Interpreter | None]:
    backend, _, python = pair[0].partition("@")
    return backend, others[python] if python else None


def _fix(backend: str) -> str:
    try:
        return f"reinstall it: {backends.entry(backend).fix}"
    except UsageError as error:
        return str(error)


def main() -> None:
    """Probe one backend on one device, and say what was found."""
    backend, device, parent = sys.argv[1:]
    leave_with(int(parent))
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        found = backends.get(backend).probe(Device(device))
    except Exception as error:
        found = _unavailable(f"{type(error).__name__}: {error}", backend)
    os.write(answer, json.dumps([found.version, found.why and asdict(found.why)]).encode())
    os.close(answer)


if __name__ == "__main__":
    main()
