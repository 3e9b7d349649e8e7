"""The `shootout` command for tests: it hears no noise, waits for no other run, and plays few rounds.

Test machines are never quiet, so real evidence would flag rounds at random.
Run as `python deaf.py '{"shootout.core.race.live_arm.LOAD_TIMEOUT_S": 2}' run …`: the constants named are changed
first.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from shootout import cli
from shootout.commands import machine_lock
from shootout.core.host.store import cache_folder
from shootout.core.journal import journal
from shootout.core.race import live_arm, restart, runner
from support.forked_workers import fork_workers

FEW = {
    "shootout.core.race.restart.ROUNDS": 2,
    "shootout.core.race.pace.MIN_ROUNDS": 2,
    "shootout.core.race.live_arm.WARM_UP_SHORT_NS": 200_000_000,
    "shootout.core.race.live_arm.WARM_UP_NS": 200_000_000,  # a loaded machine never gets steady
}
FORKED = "forked"
"""Beside the constants: that the workers are forked, see `forked_workers`."""
STOPS_IN = "stops in"
"""Beside the constants: the restart in which the process stops itself at the first turn, or `BUILDS`, so that a test
finds it at work however slow either is; SIGCONT lets it go on."""
BUILDS = "builds"
"""It stops once the first build stands in the journal, and no other."""


class Deaf:
    """A watch that never has a reason to flag a round."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def begin(self) -> None:
        pass

    def reasons(self, *_: object) -> tuple[()]:
        return ()


def own_lock() -> Path:
    """Deaf runs don't measure, so those of another process of the suite needn't wait for this one's."""
    return cache_folder() / f"machine{os.environ.get('PYTEST_XDIST_WORKER', '')}.lock"


def deafen(changes: Mapping[str, Any], change: Callable[[object, str, Any], None] = setattr) -> None:
    """Make the package in this process deaf, and change the constants named, by `change`."""
    everything = {
        **FEW,
        "shootout.core.race.runner.NoiseMeter": Deaf,
        "shootout.commands.machine_lock.machine_lock_path": own_lock,
        **changes,
    }
    for place, value in everything.items():
        module, _, name = place.rpartition(".")
        assert hasattr(import_module(module), name), f"nothing is called {place}"
        change(import_module(module), name, value)
    assert runner.NoiseMeter is Deaf
    assert machine_lock.machine_lock_path is own_lock


def stop_in(wanted: int, wanted_here: Callable[[], bool] = lambda: True) -> None:
    """Stop this process, and not its workers, at the first turn of a restart; `wanted_here` is asked there."""
    run, turn, begun = restart.Restart.run, live_arm.LiveArm.turn, []

    def note(self: Any) -> Any:
        begun.append(self.index)
        return run(self)

    def stop(self: Any, scopes: Any) -> Any:
        if begun[-1] == wanted:
            begun.append(-1)
            if wanted_here():
                os.kill(os.getpid(), signal.SIGSTOP)
        return turn(self, scopes)

    restart.Restart.run, live_arm.LiveArm.turn = note, stop  # type: ignore[method-assign]


def stop_in_builds() -> None:
    """Stop this process once an arm is built."""
    append, stopped = journal.Journal.append, []

    def stop(self: Any, *lines: Any) -> None:
        append(self, *lines)
        if not stopped and any(line.kind == "prepared" for line in lines):
            stopped.append(True)
            os.kill(os.getpid(), signal.SIGSTOP)

    journal.Journal.append = stop  # type: ignore[method-assign]


def main() -> None:
    """Change what is asked for, then be the command line."""
    changes = json.loads(sys.argv.pop(1))
    if (wanted := changes.pop(STOPS_IN, None)) == BUILDS:
        stop_in_builds()
    elif wanted is not None:
        stop_in(wanted)
    if changes.pop(FORKED, False):
        fork_workers()
    deafen(changes)
    cli.main()


if __name__ == "__main__":
    main()
