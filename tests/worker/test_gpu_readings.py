"""What a GPU tells beside the verdict: the right steps between the right waits, on a device whose work is queued."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.gpus.queued import (
    CALL_MJ,
    COPY_NS,
    FETCH_NS,
    IDLE_W,
    KERNELS_NS,
    QUEUE_NS,
    STAGE_NS,
    Device,
    Nvml,
    Plain,
    Session,
    inputs,
    plugged_in,
)

from shootout.backends.devices import readings
from shootout.backends.devices.cuda import Cuda
from shootout.core.errors import ArmFailed
from shootout.core.messages import OnGpu


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    found = Device()
    plugged_in(monkeypatch, found, Nvml(found))
    return found


def look(session: Any, **how: Any) -> OnGpu:
    asked = {"unsynchronized": False, "energy_s": 0.0} | how
    return readings.read_gpu(session, inputs(3), **asked)


def test_each_step_of_a_call_is_waited_for(device: Device):
    found = look(Session(device))
    assert found.stage_ns == STAGE_NS + COPY_NS
    assert found.compute_ns == QUEUE_NS + KERNELS_NS
    assert found.fetch_ns == FETCH_NS
    assert not device.queue


def test_the_device_s_own_clock_and_allocator_are_asked(device: Device):
    found = look(Session(device))
    assert found.event_ns == KERNELS_NS + 1.5, "the median of four in a row"
    assert (found.allocator_held_bytes, found.allocator_peak_bytes) == (30, 44)
    assert found.copies == "pinned"
    assert found.faults == ()


def test_what_a_session_does_not_offer_is_unknown(device: Device):
    found = look(Plain(device), energy_s=0.0)
    assert (found.event_ns, found.allocator_held_bytes, found.allocator_peak_bytes) == (None, None, None)
    assert (found.copies, found.energy, found.faults) == ("", None, ())
    assert found.compute_ns == QUEUE_NS + KERNELS_NS


def test_what_breaks_is_named_and_the_rest_is_told(device: Device, capfd: pytest.CaptureFixture[str]):
    class Broken(Session):
        def event_ns(self, staged: Any, calls: int) -> list[float]:
            raise RuntimeError("no such event")

    found = look(Broken(device))
    assert found.event_ns is None
    assert found.faults == ("events: RuntimeError: no such event",)
    assert found.allocator_held_bytes == 30
    assert "no such event" in capfd.readouterr().err


def test_an_unsynchronized_timer_sees_the_queueing_alone_and_only_where_it_is_asked_for(device: Device):
    assert look(Session(device)).dispatch_ns is None
    found = look(Session(device), unsynchronized=True)
    assert found.dispatch_ns == QUEUE_NS
    assert found.compute_ns == QUEUE_NS + KERNELS_NS
    assert not device.queue, "nothing is left running"


def test_no_call_is_dispatched_while_another_one_runs(device: Device):
    class Alone(Session):
        def execute(self, staged: Any) -> Any:
            assert all(what != "kernels" for what, _ in device.queue)
            return super().execute(staged)

    look(Alone(device), unsynchronized=True)


def test_long_calls_are_few(device: Device):
    class Slow(Plain):
        def execute(self, staged: Any) -> Any:
            device.now_ns += 10**9
            return super().execute(staged)

    look(Slow(device))
    assert device.log.count("execute") == 1 + readings.FEWEST, "one to lead in"


def test_energy_is_that_of_the_calls_and_less_what_an_idle_gpu_takes(device: Device):
    found = look(Session(device), energy_s=2.0).energy
    assert found is not None
    call_s = (STAGE_NS + COPY_NS + QUEUE_NS + KERNELS_NS + FETCH_NS) / 1e9
    assert found.seconds == pytest.approx(2.0, abs=2 * call_s)
    assert found.calls == pytest.approx(2.0 / call_s, abs=2)
    assert found.idle_w == IDLE_W
    idle_mj = 1e3 * IDLE_W * found.seconds
    assert found.total_mj - idle_mj == pytest.approx(CALL_MJ * found.calls, rel=1e-3)


def test_energy_is_unknown_where_the_driver_does_not_count(device: Device, monkeypatch: pytest.MonkeyPatch):
    device.power_w = None
    assert look(Session(device), energy_s=2.0).energy is None
    plugged_in(monkeypatch, device, None)
    assert look(Session(device), energy_s=2.0).energy is None


def test_what_an_arm_takes_is_told_apart_from_its_context(device: Device):
    taken = Cuda().begin_load()
    Session(device)
    cost = taken()
    assert (cost.context_s, cost.context_bytes, cost.loaded_bytes) == (0.3, 500, 30)


@pytest.mark.parametrize("wrong", [math.inf, -1.0, "soon", None])
def test_what_is_no_amount_is_none(wrong: Any):
    assert readings.check_amounts(iter([1, 2.5])) == [1.0, 2.5]
    with pytest.raises(ArmFailed):
        readings.check_amounts([1.0, wrong])
