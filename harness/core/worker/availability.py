"""Find out whether backends work here, in fresh processes: a broken library may crash, hang or print, not just raise.

Backends of one library, or whose libraries load the same one, are probed in one process, which imports it once. Its
answers before a crash or a hang count, and a backend without an answer is probed again alone. A process that others
killed is started once more.
The process runs `python -m shootout.core.worker.availability BACKEND DEVICE ... PARENT_PID`. Each answer is a line of
JSON on standard output, with its backend and device. Whatever the library itself prints goes to standard error.

`known_available` keeps the answers, so that a run need not probe again what can't have changed.

A backend may be asked under another Python interpreter (`--python new=path/to/python`), so that an upgrade is raced,
not remembered.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import platform
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from threading import Event
from typing import Any

from shootout.core import backends
from shootout.core.contract import Availability, Device, NotRun, NotRunKind
from shootout.core.errors import SkippedArm, UsageError, explained, one_line
from shootout.core.host import environment, store
from shootout.core.host.child import Child, leave_with
from shootout.core.host.devices import accelerator
from shootout.core.host.placement import allowed_cpus, passed_on
from shootout.core.host.store import without_home
from shootout.core.install import pip_install
from shootout.core.plugins import BACKENDS, PYTHONS, folder_of

PROBE_TIMEOUT_S = 60.0
INSTALLABLE = {NotRunKind.NOT_INSTALLED, NotRunKind.BROKEN}
"""An installation mends these, and which one depends on the interpreter."""
LEAST_AT_ONCE, MOST_AT_ONCE = 2, 8

Pair = tuple[str, Device]
"""A backend, `backend@python` where it is another interpreter's, and a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonInterpreter:
    """A Python that arms may run under.

    Attributes:
        name: what the user calls it; targets show it as `@name`.
        path: of its executable, links kept (a virtual environment is a link with a folder of its own).
        version: of Python.
        libraries: versions of the installed packages that we can use, by name.
        lent: the folder that makes our package importable there.
        folders: where it looks for packages itself.
    """

    name: str
    path: str
    version: str
    libraries: Mapping[str, str]
    lent: str
    folders: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Hash all versions there, for the keys of what is built with it."""
        return hashlib.sha256(json.dumps([self.version, sorted(self.libraries.items())]).encode()).hexdigest()

    def environment(self, own: Mapping[str, str]) -> dict[str, str]:
        """Return `own`, changed so that this interpreter finds its own libraries and our package."""
        more = own.get("PYTHONPATH")
        changed = {**own, "PYTHONPATH": os.pathsep.join([self.lent, more] if more else [self.lent])}
        changed.pop("PYTHONHOME", None)
        return changed

    def install(self, packages: Sequence[str]) -> str:
        """Return the command that installs packages there."""
        return pip_install(*packages, pip=f"{self.path} -m pip")

    def facts(self) -> dict[str, Any]:
        """Return what the record says of it; the user's home is left out of the path."""
        return {"path": without_home(self.path), "python": self.version, "libraries": dict(self.libraries)}


def examine(paths: Mapping[str, str], wanted: Collection[str] = ()) -> dict[str, PythonInterpreter]:
    """Examine every interpreter: its version and its libraries.

    Args:
        wanted: the backends to run, as `backend@name`; a command that installs NumPy names their packages too.

    Raises:
        UsageError: one can't be used; says why and what to do.
    """
    asked, variables = [one.partition("@") for one in wanted], passed_on(os.environ)
    known = [backends.entry(name) for name in backends.names()] if paths else []
    found = dict[str, PythonInterpreter]()
    for name, path in paths.items():
        needs = [backends.entry(backend) for backend, _, other in asked if other == name]
        found[name] = import_module(PYTHONS).examine_python(name, path, needs=needs, known=known, variables=variables)
    return found


def find_available(
    pairs: Collection[Pair],
    others: Mapping[str, PythonInterpreter] | None = None,
    tell: Callable[[Mapping[Pair, Availability], int], None] = lambda *_: None,
) -> dict[Pair, Availability]:
    """Find out whether each (backend, device) works here, in fresh processes, side by side.

    Args:
        pairs: a backend may be `backend@python`: it is asked under that interpreter.
        others: the other interpreters, by name.
        tell: gets the answers of each process as it ends, and how many processes are left.

    A backend that crashes or hangs is unavailable, with the reason; nothing is raised for it.
    """
    broken = {pair: Availability(why=why) for pair in pairs if (why := _explain_unknown(pair[0]))}
    return broken | _probe_all([pair for pair in pairs if pair not in broken], others or {}, tell)


def _explain_unknown(name: str) -> NotRun | None:
    """Explain why there is no such backend, or why a third party's can't tell its capabilities; None if it can."""
    backend, _, python = name.partition("@")
    try:
        backends.entry(backend)
        found = None if python else backends.describe(backend)  # it may break here, and work there
        return found if isinstance(found, NotRun) else None
    except UsageError as error:
        return NotRun(NotRunKind.BROKEN, str(error), str(error))


def _probe_all(
    pairs: Collection[Pair],
    others: Mapping[str, PythonInterpreter],
    tell: Callable[[Mapping[Pair, Availability], int], None],
) -> dict[Pair, Availability]:
    started: list[Child] = []
    stopped = Event()

    def ask(pairs: Sequence[Pair], *, again: bool = True) -> tuple[Sequence[Pair], dict[Pair, Availability]]:
        with start_probe(pairs, others) as probe:
            started.append(probe)
            if stopped.is_set():
                probe.end()
            answers = _collect_answers(probe, pairs, others)
        if probe.was_killed and again and not stopped.is_set():
            return ask(pairs, again=False)
        return pairs, answers

    with ThreadPoolExecutor(at_once()) as pool:
        try:
            availability: dict[Pair, Availability] = {}
            running = {pool.submit(ask, together) for together in _group_by_library(pairs)}
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for asked, answers in (future.result() for future in done):
                    availability |= answers
                    running |= {pool.submit(ask, [pair]) for pair in asked if pair not in answers}
                    tell(answers, len(running))
            return availability
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for probe in started:
                probe.end()
            raise


def _group_by_library(pairs: Collection[Pair]) -> list[list[Pair]]:
    """List the pairs of each library under each interpreter, those that take longest first.

    A backend whose library loads that of another one, as XGBoost loads scikit-learn, belongs to that.
    """
    libraries: dict[tuple[str, str], list[Pair]] = {}
    own = {row.loads[""][0] for row in backends.shipped().values() if row.loads}
    for pair in sorted(set(pairs)):
        backend, _, python = pair[0].partition("@")
        row = backends.shipped().get(backend)
        loads = row.loads[""] if row and row.loads else (backend,)
        library = next((name for name in loads[1:] if name in own), loads[0])
        libraries.setdefault((library, python), []).append(pair)
    ready_s = {pair: backends.entry(pair[0].partition("@")[0]).ready_s for pair in pairs}
    return sorted(libraries.values(), key=lambda together: -max(map(ready_s.__getitem__, together)))


def at_once() -> int:
    """Return how many probes run side by side; each spends most of its time in imports, on one CPU."""
    return max(LEAST_AT_ONCE, min(MOST_AT_ONCE, len(allowed_cpus()) // 2))


def start_probe(pairs: Sequence[Pair], others: Mapping[str, PythonInterpreter]) -> Child:
    """Start a process that finds out whether backends of one interpreter work; it answers on standard output."""
    interpreter = _split_pair(pairs[0], others)[1]
    declared = [backends.capabilities(_split_pair(pair, others)[0]).variables for pair in pairs]
    variables = passed_on(os.environ, {name for names in declared for name in names})
    return Child(
        "shootout.core.worker.availability",
        [word for pair in pairs for word in (_split_pair(pair, others)[0], pair[1])],
        environment=interpreter.environment(variables) if interpreter else variables,
        executable=interpreter.path if interpreter else None,
    )


def _collect_answers(
    probe: Child, pairs: Sequence[Pair], others: Mapping[str, PythonInterpreter]
) -> dict[Pair, Availability]:
    """Wait for a probe's answers. A pair without one is missing, unless it was alone in its probe."""
    ended = probe.finish(PROBE_TIMEOUT_S)
    asked = {(_split_pair(pair, others)[0], pair[1].value): pair for pair in pairs}
    answers = {}
    for line in ended.said.splitlines():
        with suppress(ValueError, TypeError, KeyError):
            backend, device, *noted = json.loads(line)
            if answer := _from_json(noted):
                answers[asked[backend, device]] = answer
    if len(pairs) == 1 and not answers:
        answers[pairs[0]] = Availability(why=NotRun(NotRunKind.BROKEN, f"gave no answer: {ended.how}"))
    return {pair: _add_fix(answer, pair, others) for pair, answer in answers.items()}


def _add_fix(answer: Availability, pair: Pair, others: Mapping[str, PythonInterpreter]) -> Availability:
    """Return the answer with the installation that may mend it, for the interpreter that it is of."""
    why, (backend, interpreter) = answer.why, _split_pair(pair, others)
    if why is None or why.kind not in INSTALLABLE:
        return answer
    if interpreter:
        fix = import_module(PYTHONS).install_backend(interpreter, backends.entry(backend), why.fix)
        return replace(answer, why=replace(why, reason=f"under @{interpreter.name}: {why.reason}", fix=fix))
    return replace(answer, why=replace(why, fix=why.fix or f"reinstall it: {backends.entry(backend).fix}"))


def _split_pair(pair: Pair, others: Mapping[str, PythonInterpreter]) -> tuple[str, PythonInterpreter | None]:
    backend, _, python = pair[0].partition("@")
    return backend, others[python] if python else None


def main() -> None:
    """Probe backends on devices, one after the other, and write each answer at once."""
    *pairs, parent = sys.argv[1:]
    leave_with(int(parent))
    gc.disable()  # it finds nothing in what is imported, again and again
    out = os.dup(1)
    os.dup2(2, 1)
    for backend, device in zip(pairs[::2], pairs[1::2], strict=True):
        try:
            noted = _to_json(backends.get(backend).probe(Device(device)))
        except SkippedArm as error:
            noted = _to_json(Availability(why=error.why))
        except (Exception, SystemExit) as error:
            noted = _to_json(Availability(why=NotRun(NotRunKind.BROKEN, explained(error))))
        os.write(out, json.dumps([backend, device, *noted]).encode() + b"\n")
    os._exit(0)  # taking a framework down takes long, and some GPU drivers crash in it


WORKED = "worked.json"
"""Beside the exported models: versions of the backends, and why they don't work, by the state of everything and the
device.
"""
NO_GPU = {NotRunKind.UNAVAILABLE, NotRunKind.BUILT_ONLY}
"""The reasons of a backend on a GPU without a driver, if its library is whole."""
SEARCHED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "CXX")
"""Variables by which libraries and compilers are found."""


def known_available(
    pairs: Collection[Pair], others: Mapping[str, PythonInterpreter] | None = None, *, fresh: bool = False
) -> dict[Pair, Availability]:
    """Find out what works here, but recall answers that can't have changed: a probe takes up to 3 s for each backend.

    Recalled are backends that work on the CPU, and those that lack a GPU on a machine without the GPU's driver. They
    must be shipped, and run under our own interpreter. Their answers stay true as long as the machine and its packages
    stay the same. A backend that breaks all the same fails in its build, with the reason, and is then probed again: see
    `forget`.

    Args:
        fresh: probe all of them again.
    """
    if fresh:
        forget(pair[0] for pair in pairs)
    state = _hash_state()
    keys = {pair: f"{state} {pair[0]} {pair[1]}" for pair in pairs if pair[0] in backends.shipped()}
    worked = store.read_facts(WORKED)
    found = {pair: answer for pair, key in keys.items() if (answer := _from_json(worked.get(key)))}
    found |= find_available(set(pairs) - set(found), others)
    new = {key: _to_json(found[pair]) for pair, key in keys.items() if _is_lasting(pair[1], found[pair])}
    new = {key: note for key, note in new.items() if worked.get(key) != note}
    if new:
        store.write_facts(WORKED, new)
    return found


def forget(names: Iterable[str]) -> None:
    """Forget that these backends worked, so that the next run probes them again."""
    broken = set(names)
    store.keep_facts(WORKED, lambda key: key.partition(" ")[2].partition(" ")[0] not in broken)


def _is_lasting(device: Device, answer: Availability) -> bool:
    """Return whether an answer stays true as long as the state is the same."""
    if answer.why is None:
        return device is Device.CPU  # a GPU may be gone, or others' by now
    own = accelerator(device)
    return own is not None and answer.why.kind in NO_GPU and not own.has_driver()


def _to_json(answer: Availability) -> list[Any]:
    """Write an answer; one of other types is the adapter's own error.

    Raises:
        TypeError, ValueError, AttributeError: the answer is none.
    """
    why = answer.why
    noted = why and {"kind": NotRunKind(why.kind).value, "reason": one_line(why.reason), "fix": one_line(why.fix)}
    return [one_line(answer.version), noted]


def _from_json(noted: Any) -> Availability | None:
    """Read an answer that was kept; None if there is none, or it isn't ours, and the backend is probed again."""
    match noted:
        case [str(version), None]:
            return Availability(version=version)
        case [str(version), {"kind": str(kind), "reason": str(reason), "fix": str(fix)}] if kind in set(NotRunKind):
            return Availability(version=version, why=NotRun(NotRunKind(kind), reason, fix))
    return None


def _hash_state() -> str:
    """Hash all that decides whether a library works: machine, system, driver, installed packages, our code."""
    own = [file.read_text(encoding="utf-8") for file in sorted(folder_of(BACKENDS).rglob("*.py"))]
    ours = [sys.version, sys.executable, sys.path, [os.environ.get(name) for name in SEARCHED]]
    drivers = [one.has_driver() for one in map(accelerator, Device) if one]
    content = [environment.machine_key(), platform.release(), environment.libraries(), ours, own, drivers]
    content.append(environment.variables(os.environ))
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


if __name__ == "__main__":
    main()
