"""What comes out of a worker's pipe is made of known types only."""

from __future__ import annotations

import pickle
from collections import Counter, OrderedDict, defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
from support.races.made import EXECUTED

from shootout.contract import Device, NotRun, NotRunKind
from shootout.errors import printable
from shootout.host.child import Child
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
        assert (type(found[0].flops_by_precision), type(found[-1])) == (dict, Device)


class _ByName:
    """A member of an enum as Python 3.11.2 writes it."""

    def __reduce__(self) -> Any:
        return getattr, (Device, "CUDA")


def test_a_member_may_be_written_by_its_name():
    assert read(pickle.dumps(_ByName())) is Device.CUDA


class _Calls:
    """An answer that calls a function where it is read."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize(
    "calls",
    [
        _Calls(exec, "raise SystemExit"),
        _Calls(eval, "exit()"),
        _Calls(__import__, "this"),
        _Calls(np.load, "file"),
        _Calls(np.memmap, "file"),
        _Calls(Child, "shootout.backends"),
        _Calls(printable, "text"),
        _Calls(read, b""),
    ],
)
def test_no_function_is_called_but_what_makes_records_and_arrays(calls: _Calls):
    with pytest.raises(pickle.UnpicklingError, match="it holds a "):
        read(pickle.dumps(calls))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("shootout.messages", "Fault.__init__"),
        ("shootout.messages", "pickle"),
        ("shootout.messages", "dataclass"),
        ("shootout.errors", "ArmFailed"),
        ("shootout.contract", "StrEnum"),
    ],
)
def test_a_name_reaches_no_further_than_our_own_records(module: str, name: str):
    words = b"".join(b"\x8c%c%b" % (len(word), word.encode()) for word in (module, name))
    with pytest.raises(pickle.UnpicklingError, match=f"it holds a {module}.{name}"):
        read(b"\x80\x04" + words + b"\x93.")


@pytest.mark.parametrize("kind", [Device, GpuState])
def test_an_answer_changes_none_of_our_classes(kind: type):
    words = b"".join(b"\x8c%c%b" % (len(word), word.encode()) for word in (kind.__module__, kind.__name__))
    state = pickle.dumps((None, {"is_gpu": True}), 2)[2:-1]
    with suppress(TypeError, AttributeError):
        read(b"\x80\x04" + words + b"\x93" + state + b"b.")
    assert kind.__dict__.get("is_gpu") is not True


@pytest.mark.parametrize("theirs", [Strange(GpuState()), {"notes": Strange}])
def test_a_type_of_somebody_else_is_not_made(theirs: object):
    with pytest.raises(pickle.UnpicklingError, match=r"it holds a .*test_messages\.Strange"):
        read(pickle.dumps(theirs))
