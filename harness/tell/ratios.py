"""Put a comparison into words: one direction, at most two digits where the interval is wide, brackets for it.

Everything that a person reads goes through `tell_ratio`: the terminal's screens, the page, Markdown, JUnit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar

from shootout.core.stats.verdicts import LEAST_RESTARTS, Comparison, Verdict

WIDE = 1.2
"""An interval whose high end is more than so many times its low end bears two digits."""
STYLES = {Verdict.FASTER: "green", Verdict.SLOWER: "red", Verdict.SAME: "cyan", Verdict.CANT_TELL: "yellow"}
"""Color of a comparison, by its verdict."""
LEAST_SHOWN = 5e-4
"""A difference that four digits of a ratio don't show."""
EQUAL = "equal"
"""Stands in place of a direction whose difference isn't shown."""
OPEN = "open"
"""Follows a ratio that has no verdict yet."""
Told = TypeVar("Told", bound=Comparison)
NEVER_TOGETHER = "not measured together"
"""Stands in place of a ratio of two targets that share no restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Name the two directions of a ratio, and what equals are; `is_exact`: of figures without an interval."""

    less: str
    more: str
    even: str
    is_exact: bool = False


SPEED = Words(less="faster", more="slower", even="as fast")
PRICE = Words(less="cheaper", more="dearer", even="as cheap")
SMALLNESS = Words(less="smaller", more="larger", even="as small", is_exact=True)


def inverse(ratio: Told) -> Told:
    """Return the same comparison seen from the other arm: its time over this one's."""
    turned = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    low, high = (None if end is None else 1 / end for end in (ratio.high, ratio.low))
    verdict = turned.get(ratio.verdict, ratio.verdict)
    return replace(ratio, value=1 / ratio.value, low=low, high=high, verdict=verdict)


def tell_ratio(ratio: Comparison, than: str = "", words: Words = SPEED) -> str:
    """Write a ratio in its direction, with the interval that decides: `1.7x slower (1.1 to 2.7)`.

    - `2.0x faster than onnxruntime (1.3 to 3.2)` if `than` names what it is compared with;
    - `same (within 0.6 %)`;
    - `about 1.4x faster, open` if there is no verdict, or `about 1.4x faster, too few restarts (2)`;
    - `about 1.4x faster, no verdict` if a verdict is withheld; the caller tells the reason once.

    Args:
        ratio: this target's time ÷ the other one's, or its price or size; `inverse` turns it over.
        than: the other one's name; "" if a header or the sentence names it.
        words: how the quantity's directions are called.
    """
    low, high = ratio.ends
    if ratio.verdict is Verdict.CANT_TELL:
        return f"about {_name_direction(ratio.value, than, words, 2 * WIDE)}, {_tell_why_open(ratio)}"
    if low == high == 1:
        return f"{words.even} as {than}" if than else "the same"
    if ratio.verdict is Verdict.SAME and low and high:
        reach = f"(within {_percent(max(high, 1 / low) - 1)} %)"
        return f"{words.even} as {than} {reach}" if than else f"same {reach}"
    told = _name_direction(ratio.value, than, words, high / low if low and high else 1.0)
    if low == high and low is not None:
        return told
    return told + tell_ends(
        *((1 / high if high else None, 1 / low if low else None) if ratio.value < 1 else (low, high))
    )


def _name_direction(value: float, than: str, words: Words, spread: float) -> str:
    told = tell_direction(value, words, spread)
    if not than:
        return told
    return f"{words.even} as {than}" if told == EQUAL else f"{told} than {than}"


def _tell_why_open(ratio: Comparison) -> str:
    if ratio.reason:
        return "no verdict"
    return f"too few restarts ({ratio.restarts})" if 0 < ratio.restarts <= LEAST_RESTARTS else OPEN


def tell_close_ratio(ratio: Comparison, than: str) -> str:
    """Write a ratio to the thousandth, with the interval that its verdict rests on, for limits of a few percent.

    For example `1.200x slower than the reference (1.176 to 1.224)`. If it is neither significantly faster nor slower:
    `about 1.003x slower than the reference, between 1.009x faster and 1.014x slower`.
    """

    def tell(value: float | None) -> str:
        if value is None:
            return "?"
        return f"{1 / value:.3f}x {SPEED.less}" if value < 1 else f"{value:.3f}x {SPEED.more}"

    if ratio.verdict not in (Verdict.FASTER, Verdict.SLOWER):
        return f"about {tell(ratio.value)} than {than}, between {tell(ratio.low)} and {tell(ratio.high)}"
    ends = f"{tell(ratio.low)} to {tell(ratio.high)}"
    if ratio.low is not None and ratio.high is not None and (ratio.low >= 1 or ratio.high < 1):
        low, high = sorted(max(end, 1 / end) for end in (ratio.low, ratio.high))
        ends = f"{low:.3f} to {high:.3f}"
    return f"{tell(ratio.value)} than {than} ({ends})"


def tell_direction(value: float, words: Words = SPEED, spread: float = 1.0) -> str:
    """Write `1.7x slower`, or `2.3x faster` of a ratio below 1; `equal` if four digits show no difference.

    Args:
        spread: the interval's high ÷ low end.
    """
    if value == 0 or math.isinf(value):  # beside what takes nothing, there is no factor
        return words.more if value else words.less
    factor, direction = (1 / value, words.less) if value < 1 else (value, words.more)
    return EQUAL if factor - 1 < LEAST_SHOWN else f"{tell_factor(factor, spread)}x {direction}"


def tell_ends(low: float | None, high: float | None) -> str:
    """Write ` (1.1 to 2.7)` to follow a factor; None is an unknown end, and without both nothing is written."""
    if low is not None and high is not None:
        spread = high / low if low else 2 * WIDE
        ends = tell_factor(low, spread), tell_factor(high, spread)
        if low < high and ends[0] == ends[1]:  # no interval looks like a point: both ends are rounded outwards
            half = 0.5 * 10.0 ** -len(ends[0].partition(".")[2])
            ends = tell_factor(low - half), tell_factor(high + half)
        return f" ({ends[0]} to {ends[1]})"
    if low is not None:
        return f" (over {tell_factor(low, 2 * WIDE)})"
    return f" (under {tell_factor(high, 2 * WIDE)})" if high is not None else ""


def tell_factor(value: float, spread: float = 1.0) -> str:
    """Write a factor in three digits, or in two if its interval is wide; in more if it would look like 1 and isn't."""
    text = ""
    for digits in range(2 if spread > WIDE else 3, 5):
        text = f"{value:#.{digits}g}" if value < 10**digits else f"{float(f'{value:.{digits}g}'):,.0f}"
        if value == 1 or float(text.replace(",", "")) != 1:
            break
    return text.rstrip(".")


def _percent(share: float) -> str:
    return f"{100 * share:.{int(share < 0.0995)}f}"
