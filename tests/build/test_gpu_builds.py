"""What is built for a GPU is kept under that GPU's name: code for another one would not run, or run slower."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.gpus.fake_nvidia import FakeDriver, install

from shootout.backends.devices import cuda_driver
from shootout.core.build.builder import Builder
from shootout.core.contract import Arm, Device, Target
from shootout.core.host.placement import Placement


class NamedDriver(FakeDriver):
    """A driver that also tells its GPU's name and compute capability."""

    def __init__(self, name: bytes, capability: tuple[int, int], **known: Any) -> None:
        super().__init__(**known)
        self.name, self.told = name, {75: capability[0], 76: capability[1]}

    def cuDeviceGetName(self, text: Any, size: int, device: Any) -> int:  # noqa: N802 - NVIDIA's own name
        assert len(self.name) < size
        text.value = self.name
        return 0

    def cuDeviceGetAttribute(self, told: Any, attribute: int, device: Any) -> int:  # noqa: N802
        told._obj.value = self.told[attribute]
        return 0


H200, B200 = (b"NVIDIA H200", (9, 0)), (b"NVIDIA B200", (10, 0))


def test_a_gpu_is_its_name_and_compute_capability(monkeypatch: pytest.MonkeyPatch):
    install(monkeypatch, NamedDriver(*H200), None)
    assert cuda_driver.model() == "NVIDIA H200 9.0"
    install(monkeypatch, NamedDriver(*H200, shown=[]), None)
    assert cuda_driver.model() is None
    install(monkeypatch, None, None)
    assert cuda_driver.model() is None


def keys(device: Device, folder: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Under what one arm's build is kept on two machines that differ in their GPU only."""
    placement = Placement(parent=frozenset({0}), arms=frozenset({1}), threads=1)
    builder = Builder(cache=folder, placement=placement, probes={}, machine="same", logs=folder)
    arm, exported = Arm(target=Target(backend="onnxruntime", device=device), model="m"), SimpleNamespace(key="k")
    found = set()
    for gpu in (H200, B200):
        install(monkeypatch, NamedDriver(*gpu), None)
        found.add(builder._cache_key(arm, exported, "1", True))  # type: ignore[arg-type]
    return found


def test_another_gpu_is_another_build_and_the_cpu_s_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert len(keys(Device.CUDA, tmp_path, monkeypatch)) == 2
    assert len(keys(Device.CPU, tmp_path, monkeypatch)) == 1
