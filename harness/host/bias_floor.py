"""The bias floor that `selftest` measured on this machine; later verdicts on this machine use it."""

from __future__ import annotations

from pathlib import Path

from shootout.constants import BIAS_FLOOR
from shootout.host import environment
from shootout.host import store as remembered

_NAME = "bias-floor.json"


def bias_floor() -> float:
    """This machine's bias floor as a share (0.005 = ±0.5 %): what `selftest` stored, else the default."""
    try:
        return max(0.0, float(remembered.read(_NAME)[environment.machine_key()]))
    except (KeyError, TypeError, ValueError):
        return BIAS_FLOOR


def store(floor: float) -> Path:
    """Remember this machine's bias floor.

    Raises:
        UsageError: the file can't be written.
    """
    return remembered.store(_NAME, {environment.machine_key(): floor})
