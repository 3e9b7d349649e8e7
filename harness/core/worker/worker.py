"""One arm in one process of its own: it loads, verifies and runs blocks when told to, and otherwise does nothing.

It imports NumPy and its backend only, dies with its parent, ignores Ctrl-C (the parent decides), and answers each
command with one message. `shootout.core.worker.process` starts it (`python -m shootout.core.worker.worker FD
PARENT_PID`), or has it forked from a fresh process that has imported what several begin with (`fork_server`).
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from shootout.core import backends, clock, plugins
from shootout.core.adapter import Built, Session
from shootout.core.contract import Arm, Array, NotRun
from shootout.core.errors import SkippedArm, tell_words
from shootout.core.exported.model import ExportedModel
from shootout.core.exported.request import source_now
from shootout.core.host.child import leave_with
from shootout.core.host.devices import Accelerator, accelerator
from shootout.core.host.placement import PADDING, ProcessBounds, current_bounds
from shootout.core.messages import Ask, Fault, Loaded, OnGpu, Tuned, Turn, Verified
from shootout.core.plugins import PROBES
from shootout.core.scenario import scenario_of
from shootout.core.worker import fork_server
from shootout.core.worker.blocks import Caller
from shootout.core.worker.rechecks import Rechecks
from shootout.core.worker.verification import Claim, call_once


class Worker:
    """The commands, one method each; the parent calls them by name over the pipe."""

    _built: Built
    _session: Session
    _sessions: Sequence[Session] = ()
    _accelerator: Accelerator | None = None
    _backend: str = ""
    _caller: Caller
    _strayed: str | None
    _rechecks: Rechecks | None = None

    def __init__(self, spared: Loaded | None = None) -> None:
        """Make a worker; `spared` tells what its fork server imported for it."""
        self._spared = spared or Loaded()

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> tuple[dict[str, Any], float]:
        """Build the arm's artifact into `folder`; return its facts, and the seconds it took, imports included."""
        _look_at_source(exported)
        self._accelerator, self._backend = accelerator(arm.target.device), arm.target.backend
        spared = self._count_spared()
        with clock.Stopwatch() as watch:
            built = scenario_of(arm).build(backends.runner(arm.target), exported, arm, folder)
        facts = json.loads(json.dumps(dict(built.facts)))  # so they are kept; what isn't JSON is this adapter's fault
        return facts, watch.seconds + spared.load_s

    def probe(self, built: Built) -> str:
        """Return the precision that the outputs of a built probe show."""
        session = backends.get(built.arm.target.backend).load(built)
        outputs = call_once(session, built.exported.input_buffers()[0])
        session.close()
        shown: str = import_module(PROBES).READERS[built.exported.model](outputs)
        return shown

    def load(self, built: Built, seed: int = 0) -> Loaded:
        """Load the arm, call it once, and stage every input buffer.

        Args:
            seed: of this arm in this restart, by the run's own; it chooses what is checked again later.
        """
        fork_server.shift_heap(len(os.environ.get(PADDING, "")))
        _look_at_source(built.exported)
        self._accelerator, self._backend = accelerator(built.arm.target.device), built.arm.target.backend
        given = current_bounds()
        gpu_cost = self._accelerator.begin_load() if self._accelerator else None
        spared = self._count_spared()
        before = spared.rss_before_bytes or resident_bytes()
        with clock.collected_once():
            runner, scenario = backends.runner(built.arm.target), scenario_of(built.arm)
            with clock.Stopwatch() as watch:
                self._session = scenario.load(runner, built)
            self._sessions = [self._session, *(runner.load(built) for _ in range(built.arm.instances - 1))]
        self._built = built
        self._caller = scenario.open(built, self._sessions, seed)
        first_call_s = self._caller.first_call_s()
        self._strayed = given.left(current_bounds())
        return replace(
            spared,
            load_s=watch.seconds + spared.load_s,
            first_call_s=first_call_s,
            rss_before_bytes=before,
            rss_after_bytes=resident_bytes(),
            gpu=gpu_cost() if gpu_cost else None,
        )

    def _count_spared(self) -> Loaded:
        """Return what the fork server did for this worker; it counts once."""
        spared, self._spared = self._spared, Loaded(forked=self._spared.forked)
        return spared

    def verify(self, max_error: float = 0.0, keep: Path | None = None, is_scored: bool = False) -> Verified:
        """Judge what the arm computes and reports of itself; see `verification`."""
        claim = Claim(
            arm=self._built.arm,
            exported=self._built.exported,
            session=self._session,
            buffers=self._caller.sets,
            strayed=self._strayed,
            together=self._caller.together,
            rests=backends.get(self._built.arm.target.backend).capabilities.rest,
            max_error=max_error,
            is_scored=is_scored,
        )
        verified, claim = scenario_of(claim.arm).verify(claim, self._caller, keep)
        self._rechecks = None if verified.fault else Rechecks.of(claim, verified)
        return verified

    def warm(self, calls: int, ns: int) -> Array:
        """Make up to `calls` calls, ending early after `ns` nanoseconds; return the nanoseconds of each."""
        return self._caller.warm(calls, ns)

    def tune(self) -> Tuned:
        """Fix, for this restart, how many calls go into one reading, from a short look at each scope."""
        tuned = self._caller.tune()
        if self._rechecks:
            self._rechecks.call_s = tuned.call_ns["end_to_end"] / 1e9
        return tuned

    def turn(self, ask: Ask) -> Turn:
        """Play a turn, and check now and then that the arm still computes."""
        with clock.Stopwatch() as whole:
            with clock.Stopwatch() as watch:
                turn = self._caller.turn(ask)
            gpu = self._accelerator.state() if self._accelerator else None  # at once: its clock falls when nothing runs
            fault = self._rechecks.look(self._caller, watch.seconds) if self._rechecks else ""
        return replace(turn, gpu=gpu, fault=fault, began_ns=whole.began_ns, ended_ns=whole.ended_ns)

    def recheck(self) -> str:
        """Check once more after the rounds that the arm still computes; return what is wrong, or ""."""
        return self._rechecks.look_once_more(self._caller) if self._rechecks else ""

    def on_gpu(self, unsynchronized: bool, energy_s: float) -> OnGpu:
        """Read what only the GPU tells of an arm on it.

        Args:
            energy_s: seconds of calls for the energy of one; 0: none. It is left out for several sessions.
        """
        energy_s = energy_s if self._caller.calls_alone else 0.0
        read = plugins.load(plugins.READINGS)
        found: OnGpu = read(self._session, self._caller.buffers, unsynchronized=unsynchronized, energy_s=energy_s)
        return found

    def measure(self, function: str, arguments: dict[str, Any], is_loaded: bool = False) -> Any:
        """Run a function of this package, and return what it measures.

        Args:
            function: `shootout.package.module:name`.
            is_loaded: whether it gets the session that was loaded, and its input buffers; else it runs in its place.
        """
        module, _, name = function.partition(":")
        assert module.startswith("shootout."), "only functions of ours"
        loaded = (self._session, self._caller.buffers) if is_loaded else ()
        return getattr(import_module(module), name)(*loaded, **arguments)

    def bounds(self) -> ProcessBounds:
        """Return where the process's threads may run now."""
        return current_bounds()

    def memory(self) -> int:
        """Return the most memory this process ever had resident, in bytes."""
        return _status_bytes("VmHWM:")

    def close(self) -> None:
        """Free the session, for a worker that goes on to load another."""
        for session in self._sessions:
            session.close()
        self._sessions = ()

    def settle(self) -> None:
        """Wait until no device has anything left to do: a stopped worker must delay no other."""
        for session in self._sessions:
            session.synchronize()

    def refusal(self, error: Exception) -> NotRun | None:
        """Explain an error of the arm's library that means it can't take this model; None for any other error."""
        return backends.explain(self._backend, error) if self._backend else None

    def words(self, error: Exception) -> str:
        """Return an error's message; of a GPU that lacks memory, with how much it lacks."""
        return (self._accelerator and self._accelerator.explain(error)) or tell_words(error)


def _look_at_source(exported: ExportedModel) -> None:
    """Hash a user's own source, to be compared when the module is made: the time here counts for nothing."""
    if exported.source_sha256:
        source_now(exported.model)


def resident_bytes() -> int:
    """Return the resident memory of this process now, in bytes; 0 without `/proc`."""
    return _status_bytes("VmRSS:")


def _status_bytes(key: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), 0)


def answer(worker: Worker, name: str, arguments: dict[str, Any]) -> Any:
    """Run a command of the worker until its device is idle again; return its answer, or the fault that ended it."""
    try:
        answered = getattr(worker, name)(**arguments)
        worker.settle()
        return answered
    except SkippedArm as error:
        return error.why
    except MemoryError as error:
        return Fault(kind="MemoryError", message=worker.words(error) or "out of memory")
    except Exception as error:
        traceback.print_exc()
        if why := worker.refusal(error):
            return why
        missing = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
        return Fault(kind=type(error).__name__, message=worker.words(error), missing=missing)


def main(spared: Loaded | None = None) -> None:
    """Serve commands until the pipe closes; `spared` as a `Worker` takes it."""
    leave_with(int(sys.argv[2]))
    clock.rare_collector()
    pipe: Connection[Any, Any] = Connection(int(sys.argv[1]))
    os.set_inheritable(pipe.fileno(), False)  # what a library starts must not hold it open
    worker = Worker(spared)
    while True:
        try:
            name, arguments = pipe.recv()
        except EOFError:
            return
        pipe.send(answer(worker, name, arguments))


if __name__ == "__main__":
    main()
