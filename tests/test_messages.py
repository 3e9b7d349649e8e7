"""What comes out of a worker's pipe is made of known types only."""

from __future__ import annotations

import pickle
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass, replace
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
from support.races.made import EXECUTED

from shootout.contract import Device, NotRun, NotRunKind
from shootout.host.placement import ProcessBounds
from shootout.messages import GpuState, Scope, Turn, read


@dataclass
class Strange:
    """A third party's: to make it is to import its code."""

    state: GpuState


def test_our_own_messages_come_back_as_they_were():
    turn = Turn(latency_ns={Scope.COMPUTE: np.arange(3.0)}, gpu=GpuState(throttled=("a",)))
    found = read(bytes(ForkingPickler.dumps(turn)))
    assert found.gpu == turn.gpu
    assert found.latency_ns[Scope.COMPUTE].tolist() == [0.0, 1.0, 2.0]


def test_what_accounts_and_builds_are_made_of_comes_back():
    counts: Any = Counter(fp32=3)
    flops: Any = defaultdict(float, fp32=2.0)
    executed = replace(EXECUTED, compute_nodes_by_precision=counts, flops_by_precision=flops)
    built = ({"of": OrderedDict(a=1)}, 0.5)
    bounds = ProcessBounds(cpus=frozenset({1}), os_threads=2, variables={"OMP_NUM_THREADS": "1"})
    sent = (executed, built, bounds, NotRun(NotRunKind.BROKEN, "why"), {1, 2}, np.float64(3.0), Device.CPU)
    for protocol in (4, 5):
        found = read(bytes(ForkingPickler.dumps(sent, protocol)))
        assert found == sent


@pytest.mark.parametrize("theirs", [Strange(GpuState()), {"notes": Strange}])
def test_a_library_s_object_is_refused_without_an_import(theirs: object):
    with pytest.raises(pickle.UnpicklingError, match=r"it holds a .*test_messages\.Strange"):
        read(pickle.dumps(theirs))
