"""What a race is for, as people say it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from shootout.constants import BIAS_FLOOR
from shootout.errors import UsageError, unknown

_RESOLVE = re.compile(r"resolve[ =]*(\d+(?:\.\d+)?)\s*%")
MOST_PERCENT = 50


class Aim(StrEnum):
    """What must be known before a race ends."""

    BASELINE = "baseline"  # a verdict on every arm against the baseline
    BEST = "best"  # who is fastest, up to arms that are as good
    RESOLVE = "resolve"  # every ratio to the baseline, so closely


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a race is for; `within` (0.03 is ±3 %) belongs to `resolve` alone."""

    aim: Aim = Aim.BASELINE
    within: float | None = None

    def __str__(self) -> str:
        return self.aim if self.within is None else f"{self.aim} {100 * self.within:g}%"


def read_goal(text: str) -> Goal:
    """`baseline`, `best` or `resolve 3%`.

    Raises:
        UsageError: it is none of these, or asks for what no race can tell.
    """
    word = text.strip()
    if word in (Aim.BASELINE, Aim.BEST):
        return Goal(aim=Aim(word))
    if not word.startswith(Aim.RESOLVE):
        raise unknown("goal", text, ["baseline", "best", "resolve 3%"])
    if not (match := _RESOLVE.fullmatch(word)):
        raise UsageError(f"goal {text!r} doesn't say how closely: write 'resolve 3%', in quotes")
    percent = float(match[1])
    if not 100 * BIAS_FLOOR <= percent <= MOST_PERCENT:
        least = f"{100 * BIAS_FLOOR:g}%"
        why = f"differences below {least} could be the harness's own" if percent < 1 else "that says next to nothing"
        raise UsageError(f"goal {text!r} can't be: {why}; from {least} to {MOST_PERCENT}% makes sense")
    return Goal(aim=Aim.RESOLVE, within=percent / 100)
