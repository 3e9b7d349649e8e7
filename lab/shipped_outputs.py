"""Compute an arm's own answers to a shipped folder's inputs: `python -m lab.shipped_outputs RUN ARM DIR FILE`.

The arm is found by the run's own environment, and loaded in a process that begins with the variables it was timed with.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import numpy as np

from shootout.apps.judge.to_ship import find_arm_to_ship
from shootout.apps.ship.folder import find_built
from shootout.backends.shipped import INPUTS, open_shipped
from shootout.commands.output import show_progress
from shootout.core import backends
from shootout.core.exported.model import load_sets, save_sets
from shootout.core.worker.verification import call_once

LOAD = "--load"


def find(run: str, arm: str, folder: str, file: str) -> None:
    """Find what was built, and go on as the process that loads it."""
    with show_progress() as progress:
        built = find_built(find_arm_to_ship(Path(run), arm), progress)
    Path(file).write_bytes(pickle.dumps(built))
    environment = {**os.environ, **open_shipped(Path(folder)).runtime.environment}
    words = [sys.executable, "-m", "lab.shipped_outputs", LOAD, folder, file]
    os.execve(sys.executable, words, environment)


def load(folder: str, file: str) -> None:
    """Load it as a worker does, and keep what it answers."""
    shipped, built = open_shipped(Path(folder)), pickle.loads(Path(file).read_bytes())
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-shipped.runtime.affinity :])
    session = backends.runner(built.arm.target).load(built)
    sets = load_sets(Path(folder) / INPUTS, [spec.name for spec in shipped.inputs])
    answers = [call_once(session, inputs, slot) for slot, inputs in enumerate(sets)]
    save_sets(Path(file), [{name: np.array(one) for name, one in answer.items()} for answer in answers])


if __name__ == "__main__":
    if sys.argv[1] == LOAD:
        load(*sys.argv[2:])
    else:
        find(*sys.argv[1:])
