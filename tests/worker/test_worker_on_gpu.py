"""The worker's commands for an arm on a GPU: what comes first, what is asked when, and that nothing is left running."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.gpus.queued import (
    CONTEXT_BYTES,
    KERNELS_NS,
    MODEL_BYTES,
    QUEUE_NS,
    Device,
    Nvml,
    Session,
    inputs,
    plugged_in,
)

from shootout.backends import HIDDEN
from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.constants import GPU_LEAD_IN_NS, LEAD_IN_CALLS
from shootout.core.contract import Arm, Target
from shootout.core.contract import Device as Kind
from shootout.core.messages import SCOPES, Ask, Fault, GpuState, Loaded, Turn
from shootout.core.worker.worker import Worker, answer
from shootout.scenarios.concurrent import WINDOW_NS

ON_GPU = Arm(target=Target(backend="queued", device=Kind.CUDA), model="identity")
ON_CPU = replace(ON_GPU, target=replace(ON_GPU.target, device=Kind.CPU))


class Adapter:
    """Makes sessions on `device`; `fails` is raised instead."""

    def __init__(self, device: Device, made: type[Session] = Session) -> None:
        self.device, self.made = device, made
        self.fails: Exception | None = None

    def build(self, exported: Any, arm: Arm, folder: Path) -> Built:
        return self._done(Built(arm=arm, exported=exported, folder=folder))

    def load(self, built: Built) -> Session:
        self.device.log.append("load")
        return self._done(self.made(self.device))

    def _done(self, found: Any) -> Any:
        if self.fails:
            raise self.fails
        return found


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    found = Device()
    plugged_in(monkeypatch, found, Nvml(found))
    return found


@pytest.fixture
def adapter(device: Device, monkeypatch: pytest.MonkeyPatch) -> Adapter:
    found = Adapter(device)
    monkeypatch.setattr(backends, "get", lambda name: found)
    monkeypatch.setitem(HIDDEN, "queued", HIDDEN["spin"])
    return found


def built(arm: Arm = ON_GPU) -> Built:
    exported: Any = SimpleNamespace(
        source_sha256="", input_buffers=lambda: inputs(3), pick=list, stream=None, varying=None
    )
    return Built(arm=arm, exported=exported, folder=Path())


def loaded(arm: Arm = ON_GPU) -> Worker:
    found = Worker()
    assert isinstance(answer(found, "load", {"built": built(arm)}), Loaded)
    return found


def test_the_context_comes_first_and_its_cost_apart(device: Device, adapter: Adapter):
    found = Worker().load(built())
    assert found.gpu is not None
    assert (found.gpu.context_s, found.gpu.context_bytes, found.gpu.loaded_bytes) == (0.3, CONTEXT_BYTES, MODEL_BYTES)
    assert found.load_s == 0.0, "the context's time is not among the loading's"


def test_all_instances_are_among_what_was_loaded(adapter: Adapter):
    serving = replace(ON_GPU, scenario="throughput", instances=3)
    found = Worker().load(built(serving))
    assert found.gpu is not None
    assert found.gpu.loaded_bytes == 3 * MODEL_BYTES


def test_an_arm_on_the_cpu_hears_nothing_of_gpus(device: Device, adapter: Adapter):
    found = Worker()
    assert found.load(built(ON_CPU)).gpu is None
    found.tune()
    assert found.turn(Ask(scopes=("compute",))).gpu is None
    assert {"context", "state"}.isdisjoint(device.log)


def test_the_clock_is_asked_for_right_after_the_last_block(device: Device, adapter: Adapter):
    found = loaded()
    found.tune()
    turn = found.turn(Ask(scopes=("compute", "end_to_end")))
    assert turn.gpu == GpuState(sm_clock_mhz=1_980)
    assert device.log[-2:] == ["fetch", "state"], "once, and not between the calls"
    assert device.log.count("state") == 1


class Late(Session):
    """Begins a copy that nobody waits for."""

    def fetch(self, raw: Any) -> Any:
        found = super().fetch(raw)
        self.stage({}, 0)
        return found


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("load", {"built": built()}, Loaded),
        ("warm", {"calls": 3, "ns": 10**9}, np.ndarray),
        ("turn", {"ask": Ask(scopes=("compute", "end_to_end"))}, Turn),
    ],
)
def test_nothing_is_pending_when_a_command_is_answered(
    device: Device, adapter: Adapter, name: str, arguments: dict[str, Any], kind: type
):
    adapter.made = Late
    found = loaded()
    found.tune()
    assert isinstance(getattr(found, name)(**arguments), kind)
    assert device.queue, "by itself the command leaves something"
    assert isinstance(answer(found, name, arguments), kind)
    assert not device.queue


def test_a_block_begins_behind_calls_that_nobody_reads(device: Device, adapter: Adapter):
    found = loaded()
    found.tune()
    device.log.clear()
    latency_ns = found.turn(Ask(scopes=("compute",))).latency_ns["compute"]
    ramp = -(-GPU_LEAD_IN_NS // (QUEUE_NS + KERNELS_NS))
    assert device.log.count("execute") == ramp + LEAD_IN_CALLS + len(latency_ns), "its clock had fallen"
    device.log.clear()
    turn = found.turn(Ask(scopes=SCOPES))
    read = sum(len(one) for one in turn.latency_ns.values())
    assert device.log.count("execute") < ramp + 2 * LEAD_IN_CALLS + read, "once in a turn, by its first scope"


def test_several_instances_begin_a_window_behind_as_long_a_lead_in(device: Device, adapter: Adapter):
    found = loaded(replace(ON_GPU, scenario="throughput", instances=1))
    call_ns = found.tune().call_ns["compute"]
    device.log.clear()
    found.turn(Ask(scopes=("compute",)))
    assert device.log.count("execute") * call_ns >= GPU_LEAD_IN_NS + WINDOW_NS


def test_energy_is_of_one_session_that_calls_alone(adapter: Adapter):
    assert loaded().on_gpu(unsynchronized=False, energy_s=0.5).energy is not None
    several = loaded(replace(ON_GPU, scenario="throughput", instances=2))
    assert several.on_gpu(unsynchronized=False, energy_s=0.5).energy is None


class OutOfMemoryError(RuntimeError):
    """As torch's."""


FULL = OutOfMemoryError(
    "CUDA out of memory. Tried to allocate 20.00 GiB. "
    "GPU 0 has a total capacity of 15.00 GiB of which 5.00 GiB is free."
)


@pytest.mark.parametrize("name", ["build", "load"])
def test_out_of_device_memory_says_what_is_needed_and_what_there_is(adapter: Adapter, tmp_path: Path, name: str):
    adapter.fails = FULL
    one = built()
    arguments = {"built": one} if name == "load" else {"exported": one.exported, "arm": one.arm, "folder": tmp_path}
    fault = answer(Worker(), name, arguments)
    assert isinstance(fault, Fault)
    assert fault.kind == "OutOfMemoryError"
    assert fault.message.startswith("needs more device memory than there is")


def test_other_faults_and_other_devices_keep_their_words(adapter: Adapter):
    adapter.fails = RuntimeError("no kernel image")
    assert answer(Worker(), "load", {"built": built()}) == Fault(kind="RuntimeError", message="no kernel image")
    adapter.fails = FULL
    assert answer(Worker(), "load", {"built": built(ON_CPU)}) == Fault(kind="OutOfMemoryError", message=str(FULL))


def test_a_closed_worker_waits_for_nobody(device: Device, adapter: Adapter):
    found = loaded()
    assert answer(found, "close", {}) is None
    assert device.log[-1] == "close", "no session is waited for once it is closed"
