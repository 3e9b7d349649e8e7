"""Write figures by their unit: durations, sizes, counts a second."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context

UNITS_OF_TIME = (("s", 1e9), ("ms", 1e6), ("us", 1e3))
"""The units from the largest on, and the nanoseconds of each."""


def duration(ns: float, digits: int = 3) -> str:
    """Write nanoseconds with a unit that keeps the number readable."""
    for unit, scale in UNITS_OF_TIME:
        if ns >= scale:
            return f"{ns / scale:.{digits}g} {unit}" if ns / scale < 1000 else f"{ns / scale:.0f} {unit}"
    return f"{ns:.0f} ns"


def measured(ns: float) -> str:
    """Write a time that was measured, as tables do: always in three digits, `88.0 us`."""
    unit, scale = next((one for one in UNITS_OF_TIME if ns >= one[1]), ("ns", 1.0))
    return f"{three_digits(ns / scale)} {unit}"


def three_digits(figure: float) -> str:
    """Write a positive figure in three digits, whole from 100 on."""
    return f"{figure:#.3g}".rstrip(".") if figure < 999.5 else f"{float(f'{figure:.3g}'):,.0f}"


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
    told = f"{value:.{digits}g}"
    is_large = value >= 100 or "e+" in told  # 99.99 in two digits is 100, not 1e+02
    return f"{value:,.{max(digits - len(str(int(value))), 0)}f}" if is_large else told


def round_limit(value: float, *, up: bool = True) -> str:
    """Round a figure to a limit of two digits that it meets: `1.9e-3` for 1.87e-3, `13` for 12.2.

    Args:
        up: the limit is an upper one, so round up; else round down.
    """
    # in decimals, since the binary 1.9e-3 ÷ 1e-4 is more than 19
    limit = Context(prec=2, rounding=ROUND_CEILING if up else ROUND_FLOOR).create_decimal(repr(value)).normalize()
    return f"{limit:f}" if float(limit) >= 0.01 else f"{limit:e}"
