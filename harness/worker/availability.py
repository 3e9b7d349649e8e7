"""Does a backend work here? Asked in a fresh process: a broken library may crash, hang or print, not just raise.

Run as `python -m shootout.worker.availability BACKEND DEVICE PARENT_PID`; the answer is one JSON object on standard
output, and whatever the library itself prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from typing import IO, TYPE_CHECKING

from shootout import backends
from shootout.constants import LAST_WORDS_LINES
from shootout.contract import Availability, Device, NotRun, NotRunKind
from shootout.errors import UsageError
from shootout.host.placement import allowed_cpus
from shootout.worker.lifeline import leave_with

if TYPE_CHECKING:
    from shootout.worker.interpreters import Interpreter

PROBE_TIMEOUT_S = 60.0
LEAST_AT_ONCE, MOST_AT_ONCE = 2, 8

Pair = tuple[str, Device]
"""A backend, `backend@python` where it is another interpreter's, and a device."""


def available(pairs: Collection[Pair], others: Mapping[str, Interpreter] | None = None) -> dict[Pair, Availability]:
    """Whether each (backend, device) works here, each asked in a fresh process.

    Args:
        pairs: a backend may be `backend@python`: it is asked under that interpreter.
        others: the other interpreters, by name.

    A backend that crashes or hangs is unavailable, with the reason; nothing is raised for it.
    """
    waiting = sorted(set(pairs))
    found: dict[Pair, Availability] = {}
    count = at_once()
    while waiting:
        batch, waiting = waiting[:count], waiting[count:]
        with ExitStack() as running:
            answers = {pair: running.enter_context(_probing(pair, others or {})) for pair in batch}
            found |= {pair: answer() for pair, answer in answers.items()}
    return found


def at_once() -> int:
    """How many probes run side by side: most of their time is imports, on one CPU each."""
    return max(LEAST_AT_ONCE, min(MOST_AT_ONCE, len(allowed_cpus()) // 2))


@contextmanager
def _probing(pair: Pair, others: Mapping[str, Interpreter]) -> Iterator[Callable[[], Availability]]:
    """A probe under the interpreter that the pair names; what to install is said for that one."""
    backend, _, python = pair[0].partition("@")
    other = others[python] if python else None
    with probing(backend, pair[1], other) as answer:
        yield (lambda: _advised(answer(), backend, other)) if other else answer


def _advised(found: Availability, backend: str, other: Interpreter) -> Availability:
    if found.why is None or "pip install" not in found.fix:
        return found
    reason, fix = f"under @{other.name}: {found.reason}", other.install_backend(backend)
    return replace(found, why=replace(found.why, reason=reason, fix=fix))


@contextmanager
def probing(
    backend: str, device: Device, interpreter: Interpreter | None = None
) -> Iterator[Callable[[], Availability]]:
    """Start a probe; what it yields waits for the answer. The process is gone on exit, whatever happened inside."""
    executable = interpreter.path if interpreter else sys.executable
    variables = interpreter.environment(os.environ) if interpreter else None
    command = [executable, "-P", "-m", "shootout.worker.availability", backend, device, str(os.getpid())]
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(  # noqa: S603
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=words,
            start_new_session=True,
        )
        try:
            yield partial(_answer, process, words, backend)
        finally:
            _end(process)


def _answer(process: subprocess.Popen[bytes], words: IO[bytes], backend: str) -> Availability:
    try:
        said, _ = process.communicate(timeout=PROBE_TIMEOUT_S)
        # An answer counts even when the library then crashes on the way out, as some GPU drivers do.
        version, why = json.loads(said)
        return Availability(version=version, why=why and NotRun(NotRunKind(why.pop("kind")), **why))
    except subprocess.TimeoutExpired:
        how = f"hung: no answer within {PROBE_TIMEOUT_S:.0f} s"
    except (ValueError, TypeError, AttributeError, KeyError):
        code = process.wait()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code} and no answer"
    last = _last_words(words)
    return _unavailable(f"{how}; its last words: {last}" if last else how, backend)


def _unavailable(reason: str, backend: str) -> Availability:
    return Availability(why=NotRun(NotRunKind.UNAVAILABLE, reason, _fix(backend)))


def _last_words(words: IO[bytes]) -> str:
    words.seek(0)
    lines = [line.strip() for line in words.read().decode(errors="replace").splitlines()]
    return " | ".join([line for line in lines if line][-LAST_WORDS_LINES:])


def _fix(backend: str) -> str:
    try:
        return f"reinstall it: {backends.entry(backend).fix}"
    except UsageError as error:
        return str(error)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()


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
