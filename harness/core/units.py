"""Write and read figures by their unit: durations, sizes, counts a second."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

from shootout.core.errors import UsageError

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?")
_UNIT_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_LIMIT = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s)")
_UNIT_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


def duration(ns: float, digits: int = 3) -> str:
    """Write nanoseconds with a unit that keeps the number readable."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= scale:
            return f"{ns / scale:.{digits}g} {unit}" if ns / scale < 1000 else f"{ns / scale:.0f} {unit}"
    return f"{ns:.0f} ns"


def size(count: int, digits: int = 3) -> str:
    """Write bytes with a decimal unit."""
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{count / scale:.{digits}g} {unit}"
    return f"{count} B"


def seconds(value: float) -> str:
    """Write seconds with two digits."""
    return f"{value:.2g} s"


def span(seconds: float) -> str:
    """Write seconds as a wait: whole, from two minutes on in minutes, from two hours on in hours; 0 once it is over."""
    seconds = max(0.0, seconds)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3600:.1f} h"


def counted(count: int, what: str) -> str:
    """Write `1 pair`, `2 pairs`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def number(value: float, digits: int = 3) -> str:
    """Write a number in three digits or more, whole from 100 on."""
    return f"{value:,.{max(digits - len(str(int(value))), 0)}f}" if value >= 100 else f"{value:.{digits}g}"


def round_limit(value: float, *, up: bool = True) -> str:
    """Round a figure to a limit of two digits that it meets: `1.9e-3` for 1.87e-3, `13` for 12.2.

    Args:
        up: the limit is an upper one, so round up; else round down.
    """
    # in decimals, since the binary 1.9e-3 ÷ 1e-4 is more than 19
    limit = Context(prec=2, rounding=ROUND_CEILING if up else ROUND_FLOOR).create_decimal(repr(value)).normalize()
    return f"{limit:f}" if float(limit) >= 0.01 else f"{limit:e}"


def points(share: float) -> str:
    """Write a change of a share in percentage points, with its sign."""
    return f"{100 * share:+.1f}"


def read_seconds(flag: str, text: str) -> float:
    """Read `90s`, `2m`, `1h` or plain seconds → seconds.

    Raises:
        UsageError: it is none of these, or no time at all.
    """
    match = _TIME.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{flag} {text!r} is not a time: write 90s, 2m or 1h")
    if not float(match[1]):
        raise UsageError(f"{flag} {text!r} leaves no time to measure anything; --dry-run shows what a run would do")
    return float(match[1]) * _UNIT_S[match[2] or "s"]


def read_milliseconds(flag: str, text: str) -> float:
    """Read `5ms`, `800us` or `1s` → milliseconds.

    Raises:
        UsageError: it is none of these.
    """
    match = _LIMIT.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise UsageError(f"{flag} {text!r} is not a time: write 5ms, 800us or 1s")
    return float(match[1]) * _UNIT_MS[match[2]]
