"""What comes out of a worker's pipe is made of known types only."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest

from shootout.messages import GpuState, Scope, Turn, read


@dataclass
class Strange:
    """A third party's: to make it is to import its code."""

    state: GpuState


def test_our_own_messages_come_back_as_they_were():
    turn = Turn(latency_ns={Scope.COMPUTE: np.arange(3.0)}, gpu=GpuState(throttled=("a",)))
    found, place = read(bytes(ForkingPickler.dumps((turn, Path("/x/y")))))
    assert (found.gpu, place) == (turn.gpu, Path("/x/y"))
    assert found.latency_ns[Scope.COMPUTE].tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("theirs", [Strange(GpuState()), {"notes": Strange}])
def test_a_type_of_somebody_else_is_not_made(theirs: object):
    with pytest.raises(pickle.UnpicklingError, match=r"it holds a .*test_messages\.Strange"):
        read(pickle.dumps(theirs))
