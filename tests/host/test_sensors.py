"""The CPU's clock and temperature, as psutil reads them of Linux."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from shootout.scenarios.sustained import read_sensors


def tell(patch: pytest.MonkeyPatch, mhz: list[tuple[float, float]], celsius: dict[str, list[float]]) -> None:
    """Let the machine have these clocks, each with its highest, and temperatures by chip."""
    clocks = [SimpleNamespace(current=now, max=most) for now, most in mhz]
    chips = {name: [SimpleNamespace(current=one) for one in some] for name, some in celsius.items()}
    read: dict[str, Any] = {"cpu_freq": lambda percpu: clocks, "sensors_temperatures": lambda: chips}
    for name, function in read.items():
        patch.setattr(psutil, name, function)


def test_the_clock_is_the_mean_of_the_asked_cpus_and_the_temperature_the_cpus_own(monkeypatch: pytest.MonkeyPatch):
    chips = {"acpitz": [99.0], "nvme": [98.0], "cpu_thermal": [61.5], "coretemp": [70.0, 72.0]}
    tell(monkeypatch, [(800.0, 4e3), (3e3, 4e3), (2e3, 4e3)], chips)
    assert read_sensors({1, 2}) == (2_500.0, 72.0)


@pytest.mark.parametrize("mhz", [[], [(2_800.0, 0.0)]], ids=["nothing", "a nominal clock"])
def test_a_virtual_machine_that_tells_nothing_gives_none(
    monkeypatch: pytest.MonkeyPatch, mhz: list[tuple[float, float]]
):
    tell(monkeypatch, mhz, {})
    assert read_sensors({0}) == (None, None)
