"""The GPU in use, on recorded machines: which one it is and what it tells."""

from __future__ import annotations

import os
import re
from typing import Any
from uuid import UUID

import pytest
from support.gpus.fake_nvidia import H200_BYTES, IDS, FakeDriver, FakeNvml, install

from shootout.backends import chosen_gpu
from shootout.backends.devices import cuda, cuda_driver
from shootout.backends.devices.cuda import UsedGpu, explain_error
from shootout.core.contract import Device
from shootout.core.errors import SkippedArm, Unavailable, UsageError
from shootout.core.host import environment
from shootout.core.messages import GpuState

PART = UUID(int=0xA5)


@pytest.fixture(autouse=True)
def _no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody chose a GPU; what a test chooses is undone."""
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", chosen_gpu.CHOSEN):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


NONE_FOUND = "the NVIDIA driver finds no GPU on this machine"


@pytest.mark.parametrize(
    ("driver", "reason", "fix"),
    [
        (
            None,
            "no NVIDIA driver on this machine (libcuda.so.1 is not found)",
            "run on a machine with an NVIDIA GPU and its driver (nvidia-smi lists it)",
        ),
        (FakeDriver(shown=[]), NONE_FOUND, cuda_driver.GET_ONE),
        (FakeDriver(shown=[], init=0), NONE_FOUND, cuda_driver.GET_ONE),
        (
            FakeDriver(version=11_040),
            "the NVIDIA driver knows CUDA 11.4 at most, and the least needed is 12.0",
            "update the NVIDIA driver",
        ),
        (FakeDriver(init=803), "unsupported display driver / cuda driver combination (CUDA error 803)", "reboot"),
    ],
    ids=["no driver", "no GPU, told at the start", "no GPU, counted", "too old", "broken"],
)
def test_a_machine_whose_gpu_can_t_be_used_says_why_and_what_to_do(
    driver: FakeDriver | None, reason: str, fix: str, monkeypatch: pytest.MonkeyPatch
):
    install(monkeypatch, driver, None)
    with pytest.raises(SkippedArm) as caught:
        chosen_gpu.require_gpu()
    assert reason in caught.value.reason
    assert fix in caught.value.fix


def test_a_gpu_that_is_hidden_says_by_what_and_names_no_machine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"GPU-{IDS[1]}")
    install(monkeypatch, FakeDriver(shown=[]), None)
    with pytest.raises(SkippedArm) as caught:
        chosen_gpu.require_gpu()
    assert caught.value.reason == f"{NONE_FOUND} (CUDA_VISIBLE_DEVICES is 'GPU-…')"
    assert caught.value.fix.startswith("unset CUDA_VISIBLE_DEVICES, or ")


def test_the_context_is_the_primary_one_and_becomes_current(monkeypatch: pytest.MonkeyPatch):
    driver = FakeDriver()
    install(monkeypatch, driver, None)
    cuda_driver.make_context()
    assert driver.current == 0x7F00_0000_0001, "a pointer is not cut to 32 bits"


def test_a_context_that_does_not_fit_is_out_of_memory(monkeypatch: pytest.MonkeyPatch):
    install(monkeypatch, FakeDriver(retain=2), FakeNvml())
    with pytest.raises(RuntimeError, match=r"cuDevicePrimaryCtxRetain failed: out of memory") as caught:
        cuda_driver.make_context()
    assert explain_error(caught.value) == "needs more device memory than there is, has 140.0 GiB free"


CUDA = {Device.CUDA}


class TestChoosing:
    def test_another_vendors_device_needs_no_nvidia_driver(self, monkeypatch: pytest.MonkeyPatch):
        install(monkeypatch, None, None)
        assert chosen_gpu.chosen() is None
        for devices in ({Device.CPU, Device.VULKAN}, {Device.CUDA, Device.XPU}, {Device.NPU, Device.XPU}):
            chosen_gpu.choose_gpu(2, devices)
            assert chosen_gpu.chosen() == 2
        assert "CUDA_VISIBLE_DEVICES" not in os.environ

    def test_one_number_is_not_taken_for_two_things(self, monkeypatch: pytest.MonkeyPatch):
        install(monkeypatch, FakeDriver(), FakeNvml(gpus=IDS))
        with pytest.raises(
            UsageError, match=r"--gpu 1: CUDA and Vulkan count GPUs .*: run their targets one kind at a time"
        ):
            chosen_gpu.choose_gpu(1, {Device.CUDA, Device.VULKAN})
        with pytest.raises(UsageError, match=r"--gpu 1: Vulkan and OpenVINO count GPUs each in its own way"):
            chosen_gpu.choose_gpu(1, {Device.VULKAN, Device.XPU})
        chosen_gpu.choose_gpu(None, {Device.CUDA, Device.VULKAN})
        assert chosen_gpu.chosen() is None

    def test_a_gpu_by_its_number_on_the_bus(self, monkeypatch: pytest.MonkeyPatch):
        install(monkeypatch, FakeDriver(), FakeNvml(gpus=IDS))
        chosen_gpu.choose_gpu(1, CUDA)
        assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"

    def test_among_those_that_the_user_left(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"5, MIG-{PART}")
        install(monkeypatch, FakeDriver(), FakeNvml(gpus=IDS))
        chosen_gpu.choose_gpu(1, CUDA)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == f"MIG-{PART}"
        assert "CUDA_DEVICE_ORDER" not in os.environ, "their numbers mean what they meant"

    def test_a_number_beyond_the_last_finds_no_gpu(self, monkeypatch: pytest.MonkeyPatch):
        install(monkeypatch, FakeDriver(shown=()), None)
        with pytest.raises(Unavailable, match="gpu 7: the NVIDIA driver finds no GPU on this machine") as caught:
            chosen_gpu.choose_gpu(7, CUDA)
        assert caught.value.exit_code == 6


def opened(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml | None = None, **driver: Any) -> UsedGpu:
    """The GPU in use on a machine with this NVML and this driver."""
    install(monkeypatch, FakeDriver(**driver), nvml or FakeNvml())
    return UsedGpu.open()


class TestWhatItTells:
    def test_everything(self, monkeypatch: pytest.MonkeyPatch):
        card = opened(monkeypatch)
        assert card.state() == GpuState(sm_clock_mhz=1755, throttled=())
        assert (card.used_bytes(), card.free_bytes()) == (2**30, H200_BYTES - 2**30)
        assert (card.energy_mj(), card.power_w()) == (987_654_321, 123.4)
        assert card.processes() == 2, "their number: the ids may be of another namespace"
        assert card.evidence() == ("GPU clock", "GPU throttling", "GPU processes")

    def test_the_power_limit_is_told_and_is_no_throttling(self, monkeypatch: pytest.MonkeyPatch):
        told = FakeNvml()
        told.answers["nvmlDeviceGetCurrentClocksEventReasons"] = cuda.POWER_CAP
        card = opened(monkeypatch, told)
        assert card.state() == GpuState(sm_clock_mhz=1755, power_capped=True)

    def test_this_process_is_no_other_one(self, monkeypatch: pytest.MonkeyPatch):
        card = opened(monkeypatch)
        assert card.processes() == 2
        cuda_driver.make_context()
        assert card.processes() == 1, "one of the two is this one"

    def test_it_is_the_one_that_the_driver_leaves_and_not_the_first(self, monkeypatch: pytest.MonkeyPatch):
        assert opened(monkeypatch, FakeNvml(gpus=IDS), shown=[IDS[1]]).index() == 1

    @pytest.mark.parametrize(
        ("driver", "told"),
        [
            (None, FakeNvml()),
            (FakeDriver(), None),
            (FakeDriver(), FakeNvml(["nvmlInit"])),
            (FakeDriver(shown=[]), FakeNvml()),
        ],
        ids=["no driver", "no package", "NVML doesn't start", "no GPU"],
    )
    def test_without_a_gpu_or_nvml_nothing_is_told(
        self, monkeypatch: pytest.MonkeyPatch, driver: FakeDriver | None, told: FakeNvml | None
    ):
        install(monkeypatch, driver, told)
        card = UsedGpu.open()
        assert (card.state(), card.evidence()) == (GpuState(), ())
        assert [card.index(), card.free_bytes(), card.processes(), card.energy_mj(), card.power_w()] == [None] * 5

    def test_a_part_of_a_gpu_has_memory_and_processes_and_its_chip_the_rest(self, monkeypatch: pytest.MonkeyPatch):
        told = FakeNvml(mig=PART)
        card = opened(monkeypatch, told, shown=[PART])
        told.calls.clear()
        card.state()
        assert {handle for _, handle in told.calls} == {f"GPU-{IDS[0]}"}
        told.calls.clear()
        assert (card.used_bytes(), card.processes()) == (2**30, 2)
        assert {handle for _, handle in told.calls} == {f"MIG-{PART}"}
        assert (card.energy_mj(), card.power_w()) == (None, None), "its neighbors' energy is in the counter too"


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        (0x0, ()),
        (0x1 | 0x2 | 0x10 | 0x100, ()),  # idle, a clock that was set, sync boost, display
        (0x4, ()),  # the power cap
        (0x8 | 0x40, ("hw_slowdown", "hw_thermal_slowdown")),
        (0x20 | 0x80 | 0x1, ("sw_thermal_slowdown", "hw_power_brake_slowdown")),
    ],
)
def test_only_harmful_reasons_count(mask: int, names: tuple[str, ...]):
    assert cuda.harmful(mask) == names


def test_no_record_names_a_gpu():
    given = {"CUDA_VISIBLE_DEVICES": f"GPU-{IDS[0]},1,MIG-GPU-{IDS[1]}/1/0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert environment.variables(given) == {
        "CUDA_VISIBLE_DEVICES": "GPU-…,1,MIG-GPU-…",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


ASKED = [
    *("nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByUUID"),
    *("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", "nvmlDeviceGetIndex", "nvmlSystemGetDriverVersion"),
    *[name for name in FakeNvml().answers if name.startswith("nvmlDevice")],
]


def test_the_real_package_has_every_function_that_is_asked():
    import pynvml

    assert [name for name in ASKED if not callable(getattr(pynvml, name, None))] == []
    assert (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM) == (cuda.NVML_SM_CLOCK, cuda.NVML_MEMORY_CLOCK)
    assert issubclass(pynvml.NVMLError, Exception)


def test_the_reasons_have_the_real_package_s_numbers():
    import pynvml

    names = {
        value: name for name, value in vars(pynvml).items() if re.match("nvmlClocks(Event|Throttle)Reason[SH]w", name)
    }
    real = {bit: name.partition("Reason")[2].lower() for bit, name in names.items()}
    assert real.pop(0x4) == "swpowercap"
    assert real == {bit: name.replace("_", "") for bit, name in cuda.HARMFUL.items()}
