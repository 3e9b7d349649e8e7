"""The bias floor that `selftest` measured on this machine; later verdicts on this machine use it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from shootout import environment
from shootout.constants import BIAS_FLOOR
from shootout.errors import UsageError


def bias_floor() -> float:
    """This machine's bias floor as a share (0.005 = ±0.5 %): what `selftest` stored, else the default."""
    try:
        return max(0.0, float(_read()[environment.machine_key()]))
    except (KeyError, TypeError, ValueError):
        return BIAS_FLOOR


def store(floor: float) -> Path:
    """Remember this machine's bias floor.

    Raises:
        UsageError: the file can't be written.
    """
    path = _path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps({**_read(), environment.machine_key(): floor}))
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"can't store the bias floor in {str(path)!r}: {error.strerror}; set SHOOTOUT_CACHE") from None
    return path


def _read() -> dict[str, float]:
    try:
        found = json.loads(_path().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _path() -> Path:
    from shootout import cache

    return cache.root().parent / "bias-floor.json"
