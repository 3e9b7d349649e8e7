"""Define what a scenario is: how a model is called while it is timed, and what is made of the readings.

Imports NumPy and the contract only: a worker loads the scenario of its arm.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import ClassVar

import numpy as np

from shootout.core import plugins
from shootout.core.constants import COMPUTE_ROUNDS
from shootout.core.contract import Arm
from shootout.core.messages import Scope, Turn


class Scenario:
    """A way to call a model while it is timed. As it stands here, one call after the other, each read by itself.

    Attributes:
        name: the word of `--scenario`.
        measures: what it measures, for people: "the time of a call".
        options: the fields of a study that mean something in it, of those that do so in some scenarios alone.
        scopes: in which arms are compared; `compute` is read in the first rounds of a restart, if it is one of them.
        trains: whether a call is a step of training, so that a backend has to have one.
        spreads_batch: whether the batches of a study compete in one group; else each is a group of its own.
        selects: whether the settings of a target compete, and the best is measured again in a group of its own.
        is_called_alone: whether calls come one after the other from one session, and nothing else takes its time.
        is_by_call: whether its end-to-end time is that of a call; else it is the time of an item, or a tail.
        is_mean: whether that time is the mean over calls that differ, in place of a median.
    """

    name: ClassVar[str]
    measures: ClassVar[str]
    options: ClassVar[frozenset[str]] = frozenset()
    scopes: ClassVar[tuple[Scope, ...]] = tuple(Scope)
    trains: ClassVar[bool] = False
    spreads_batch: ClassVar[bool] = False
    selects: ClassVar[bool] = False
    is_called_alone: ClassVar[bool] = True
    is_by_call: ClassVar[bool] = True
    is_mean: ClassVar[bool] = False

    @property
    def compute_rounds(self) -> int:
        """Return in how many rounds of a restart, the first, `compute` is read."""
        return COMPUTE_ROUNDS if Scope.COMPUTE in self.scopes else 0

    def values_ns(self, turns: Sequence[Turn]) -> tuple[float, ...]:
        """Return what the turns of a restart come to end to end: a time for each, or one for all; shorter is better."""
        readings = (turn.latency_ns.get(Scope.END_TO_END) for turn in turns)
        return tuple(float(np.median(ns)) for ns in readings if ns is not None)


def scenario_of(arm: Arm) -> Scenario:
    """Return the scenario that an arm is measured in."""
    return find_scenario(arm.scenario)


@cache
def find_scenario(name: str) -> Scenario:
    """Return the scenario of a name: one that ships, or a third party's by an entry point.

    Raises:
        UsageError: there is none; says the nearest name.
    """
    found: Scenario = plugins.find(plugins.SCENARIOS, name)()
    return found


def scenario_names() -> tuple[str, ...]:
    """Return the names of all scenarios, those that ship first."""
    return plugins.names(plugins.SCENARIOS)
