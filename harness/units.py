"""Figures as people read them: durations, sizes, ratios, with units that keep the numbers short."""

from __future__ import annotations

from rich.text import Text

from shootout.results.document import Ratio
from shootout.stats.verdicts import Verdict

_STYLES = {Verdict.FASTER: "green", Verdict.SLOWER: "red", Verdict.SAME: "cyan", Verdict.CANT_TELL: "yellow"}


def verdict(ratio: Ratio) -> Text:
    """The verdict in words, with how much, or with what it would take."""
    words = {
        Verdict.FASTER: f"{1 / ratio.value:.3g}x faster",
        Verdict.SLOWER: f"{ratio.value:.3g}x slower",
        Verdict.SAME: "same (within 1 %)",
        Verdict.CANT_TELL: "can't tell" + (f" (needs ~{ratio.generations_needed})" if ratio.generations_needed else ""),
    }
    return Text(words[ratio.verdict], style=_STYLES[ratio.verdict])


def interval(ratio: Ratio) -> str:
    """The ratio's interval; an infinite end is shown as such."""
    low = f"{ratio.low:.3g}" if ratio.low is not None else "0"
    high = f"{ratio.high:.3g}" if ratio.high is not None else "inf"
    return f"[{low}, {high}]"


def judged(ratio: Ratio) -> Text:
    """A ratio with its interval and its verdict, in one cell."""
    return Text(f"{ratio.value:.3g} {interval(ratio)} {ratio.verdict}", style=_STYLES[ratio.verdict])


def points(share: float) -> str:
    """A change of a share in percentage points, with its sign."""
    return f"{100 * share:+.1f}"


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


def seconds(value: float | None) -> str:
    """Seconds with two digits; "" where they aren't known."""
    return "" if value is None else f"{value:.2g} s"
