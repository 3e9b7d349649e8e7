"""Put a comparison into words: one direction, at most two digits where the interval is wide, brackets for the interval.

Everything that a person reads goes through `tell_ratio`: the terminal's screens, the page, Markdown, JUnit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from shootout.results.document import Ratio
from shootout.stats.verdicts import Comparison, Verdict
from shootout.units import counted

WIDE = 1.2
"""An interval whose high end is more than so many times its low end bears two digits."""
STYLES = {Verdict.FASTER: "green", Verdict.SLOWER: "red", Verdict.SAME: "cyan", Verdict.CANT_TELL: "yellow"}
"""Color of a comparison, by its verdict."""
NOT_SURE = ", not sure yet"
"""Follows a comparison whose own interval excludes 1, but which has no verdict yet."""
NEVER_TOGETHER = "not measured together"
"""Stands in place of a ratio of two targets that share no restart."""
CONTROL_OPEN = "not different"
"""Of a control whose interval holds 1 and is wider than what it must lie within to be equal."""
NOT_COMPARED = "not compared yet"
"""Of a control that shares no two restarts with its baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Name the two directions of a ratio, and what equals are."""

    less: str
    more: str
    even: str


SPEED = Words(less="faster", more="slower", even="as fast")
PRICE = Words(less="cheaper", more="dearer", even="as cheap")
SMALLNESS = Words(less="smaller", more="larger", even="as small")


def tell_ratio(ratio: Comparison, than: str = "", words: Words = SPEED) -> str:
    """Write a ratio in its direction, with the 95 % interval of this comparison: `1.7x slower (1.1 to 2.7)`.

    - `2.0x faster than onnxruntime (1.3 to 3.2)` if `than` names what it is compared with;
    - `1.4x faster (1.2 to 1.7), not sure yet` if the interval excludes 1 and there is no verdict;
    - `can't tell (1.1x faster to 1.3x slower)` if the interval holds 1 and there is no verdict;
    - `same (within 0.6 %)`;
    - `1.3x slower, can't tell: 1 restart` if there is no interval;
    - `1.4x faster (1.2 to 1.7), no verdict` if a verdict is withheld; the caller tells the reason once.

    Args:
        ratio: this target's time ÷ the other one's, or its price or size; `Comparison.inverse` turns it over.
        than: the other one's name; "" if a header or the sentence names it.
        words: how the quantity's directions are called.
    """
    low, high = ratio.reading
    holds_one = not ((low is not None and low > 1) or (high is not None and high < 1))
    withheld = ratio.reason if isinstance(ratio, Ratio) else None
    if low == high == 1:
        return f"{words.even} as {than}" if than else "the same"
    if ratio.verdict is Verdict.SAME and low and high:
        reach = f"(within {_percent(max(high, 1 / low) - 1)} %)"
        return f"{words.even} as {than} {reach}" if than else f"same {reach}"
    if ratio.verdict is Verdict.CANT_TELL and holds_one and (end := high or low):
        opening = f"may be {words.even} as {than}" if than else "can't tell"
        reach = f"at most {tell_direction(end, words)}"
        if low and high:
            reach = f"{tell_direction(low, words, high / low)} to {tell_direction(high, words, high / low)}"
        return f"{opening} ({reach})" + (", no verdict" if withheld else "")
    told = tell_direction(ratio.value, words, high / low if low and high else 1.0)
    told += f" than {than}" if than else ""
    if low != high or low is None:
        told += tell_ends(*((1 / high if high else None, 1 / low if low else None) if ratio.value < 1 else (low, high)))
    if ratio.verdict is not Verdict.CANT_TELL:
        return told
    if withheld:
        return f"{told}, no verdict"
    if low is None and high is None:
        return f"{told}, can't tell: 1 restart" if ratio.restarts == 1 else f"{told}, can't tell"
    return f"{told}{NOT_SURE}"


def tell_close_ratio(ratio: Comparison, than: str) -> str:
    """Write a ratio to the thousandth, with the interval that its verdict rests on, for limits of a few percent.

    For example `1.003x slower than the reference (1.009x faster to 1.014x slower)`.
    """

    def tell(value: float | None) -> str:
        if value is None:
            return "?"
        return f"{1 / value:.3f}x {SPEED.less}" if value < 1 else f"{value:.3f}x {SPEED.more}"

    return f"{tell(ratio.value)} than {than} ({tell(ratio.low)} to {tell(ratio.high)})"


def tell_reach(ratio: Comparison | None) -> str:
    """Write how far from 1 a control's ratio may lie: ` (within 6 %)`; "" if that isn't known."""
    low, high = ratio.reading if ratio else (None, None)
    return f" (within {100 * (max(high, 1 / low) - 1):.2g} %)" if low and high else ""


def tell_direction(value: float, words: Words = SPEED, spread: float = 1.0) -> str:
    """Write `1.7x slower`, or `2.3x faster` of a ratio below 1; `spread` is the interval's high ÷ low end."""
    if value == 1:
        return "equal"
    factor, direction = (1 / value, words.less) if value < 1 else (value, words.more)
    return f"{tell_factor(factor, spread)}x {direction}"


def tell_ends(low: float | None, high: float | None) -> str:
    """Write ` (1.1 to 2.7)` to follow a factor; None is an unknown end, and without both nothing is written."""
    if low is not None and high is not None:
        spread = high / low if low else 2 * WIDE
        return f" ({tell_factor(low, spread)} to {tell_factor(high, spread)})"
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


def tell_cpus(cpu: Mapping[str, Any]) -> str:
    """Write how many CPUs a process sees, and the quota if there is one: `2 CPUs, quota 1 CPU`."""
    seen = counted(len(cpu.get("cpuset") or cpu.get("allowed_cpus", ())), "CPU")
    quota = cpu.get("quota_cpus")
    return seen if quota is None else f"{seen}, quota {float(quota):.3g} {'CPU' if quota == 1 else 'CPUs'}"


def tell_threads(counts: Collection[int]) -> str:
    """Write thread counts: `1 thread`, `1/2 threads`; `default threads` if each library took its own number."""
    told = "/".join(str(count or "default") for count in sorted(counts))
    return f"{told} thread{'' if {*counts} == {1} else 's'}"
