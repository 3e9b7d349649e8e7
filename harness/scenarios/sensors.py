"""Read a CPU's clock and temperature from Linux's sysfs. Most virtual machines tell neither."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

SYSTEM = Path("/sys")
_OF_CPU = re.compile(r"cpu|pkg|soc|coretemp|k10temp|zenpower", re.IGNORECASE)
"""A thermal zone's type, or a monitor's name, if its sensor is the CPU's: not a disk's, not the room's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensors:
    """The files that tell, found once: a reading takes some microseconds of the turn that it looks at.

    Attributes:
        clocks: each holds one CPU's clock in kHz.
        temperatures: each holds thousandths of a degree Celsius.
    """

    clocks: tuple[Path, ...]
    temperatures: tuple[Path, ...]

    @classmethod
    def of(cls, cpus: Collection[int], system: Path = SYSTEM) -> Self:
        """Find the sensors of these CPUs; `system` stands in place of /sys."""
        clocks = [system / f"devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq" for cpu in sorted(cpus)]
        return cls(
            clocks=tuple(path for path in clocks if path.exists()), temperatures=tuple(_find_temperatures(system))
        )

    def mhz(self) -> float | None:
        """Return the mean clock (MHz); None if the kernel doesn't tell."""
        found = [*_read_numbers(self.clocks)]
        return sum(found) / len(found) / 1e3 if found else None

    def celsius(self) -> float | None:
        """Return the highest temperature (degrees Celsius); None if the kernel doesn't tell."""
        return max((value / 1e3 for value in _read_numbers(self.temperatures)), default=None)


def _find_temperatures(system: Path) -> Iterator[Path]:
    for pattern, name, values in (
        ("class/thermal/thermal_zone*", "type", "temp"),
        ("class/hwmon/hwmon*", "name", "temp*_input"),
    ):
        for folder in sorted(system.glob(pattern)):
            with suppress(OSError, UnicodeDecodeError):
                if _OF_CPU.search((folder / name).read_text(encoding="utf-8")):
                    yield from sorted(folder.glob(values))


def _read_numbers(paths: Collection[Path]) -> Iterator[int]:
    """Yield what the files hold; a sensor may be asleep, or its reading no number."""
    for path in paths:
        with suppress(OSError, ValueError):
            yield int(path.read_text(encoding="ascii"))
