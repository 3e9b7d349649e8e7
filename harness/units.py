"""Figures as people read them, by the unit that ends their name: durations, sizes, counts a second."""

from __future__ import annotations


def duration(ns: float) -> str:
    """Nanoseconds with a unit that keeps the number readable."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= scale:
            return f"{ns / scale:.3g} {unit}" if ns / scale < 1000 else f"{ns / scale:.0f} {unit}"
    return f"{ns:.0f} ns"


def size(count: int) -> str:
    """Bytes with a decimal unit."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count} B"


def seconds(value: float) -> str:
    """Seconds with two digits."""
    return f"{value:.2g} s"


def span(seconds: float) -> str:
    """Seconds as one waits for them: whole, from two minutes on in minutes, from two hours on in hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3600:.1f} h"


def counted(count: int, what: str) -> str:
    """`1 pair`, `2 pairs`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def number(value: float) -> str:
    """Three digits, whole from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def points(share: float) -> str:
    """A change of a share in percentage points, with its sign."""
    return f"{100 * share:+.1f}"
