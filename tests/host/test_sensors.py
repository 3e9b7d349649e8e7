"""The CPU's clock and temperature, from folders laid out as Linux lays out /sys."""

from __future__ import annotations

from pathlib import Path

from shootout.scenarios.sustained import Sensors


def put(system: Path, **files: str) -> None:
    for name, text in files.items():
        path = system / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def machine(system: Path) -> Path:
    put(
        system,
        **{
            "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "800000\n",
            "devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "3000000\n",
            "devices/system/cpu/cpu2/cpufreq/scaling_cur_freq": "2000000\n",
            "class/thermal/thermal_zone0/type": "acpitz\n",
            "class/thermal/thermal_zone0/temp": "99000\n",
            "class/thermal/thermal_zone1/type": "cpu-thermal\n",
            "class/thermal/thermal_zone1/temp": "61500\n",
            "class/hwmon/hwmon0/name": "nvme\n",
            "class/hwmon/hwmon0/temp1_input": "98000\n",
            "class/hwmon/hwmon1/name": "coretemp\n",
            "class/hwmon/hwmon1/temp1_input": "70000\n",
            "class/hwmon/hwmon1/temp2_input": "72000\n",
        },
    )
    return system


def test_the_clock_is_the_mean_of_the_asked_cpus_alone(tmp_path: Path):
    assert Sensors.of({1, 2}, machine(tmp_path)).mhz() == 2_500


def test_the_temperature_is_the_hottest_of_the_cpus_own_sensors(tmp_path: Path):
    assert Sensors.of({1}, machine(tmp_path)).celsius() == 72


def test_a_sensor_that_sleeps_leaves_the_others(tmp_path: Path):
    sensors = Sensors.of({1, 2}, machine(tmp_path))
    put(tmp_path, **{"class/hwmon/hwmon1/temp2_input": "", "class/hwmon/hwmon1/temp1_input": "no number"})
    sensors.clocks[0].unlink()
    assert (sensors.mhz(), sensors.celsius()) == (2_000, 61.5)


def test_a_virtual_machine_that_tells_nothing_gives_none(tmp_path: Path):
    sensors = Sensors.of({0}, tmp_path)
    assert (sensors.mhz(), sensors.celsius()) == (None, None)
