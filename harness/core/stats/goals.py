"""The aims of a race, as people say them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

from shootout.core.constants import BIAS_FLOOR
from shootout.core.errors import UsageError, unknown

_WITH_SHARE = re.compile(r"(resolve|limit)[ =]*(\d+(?:\.\d+)?)\s*%")
MOST_PERCENT = 50


Aim = Literal["baseline", "best", "resolve", "limit"]
"""The knowledge that ends a race: a verdict on every arm against the baseline; the fastest arm, up to arms that
are as good; every ratio to the baseline, so closely; of every arm, whether it is slower by more than so much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Say what a race is for; `within` belongs to `resolve` (0.03 is ±3 %) and `limit` (0.05 is 5 % slower)."""

    aim: Aim = "baseline"
    within: float | None = None

    def __str__(self) -> str:
        return self.aim if self.within is None else f"{self.aim} {100 * self.within:g}%"


def read_goal(text: str) -> Goal:
    """Read `baseline`, `best`, `resolve 3%` or `limit 5%`.

    Raises:
        UsageError: it is none of these, or its share is one that no race can tell.
    """
    word = text.strip()
    if word in ("baseline", "best"):
        return Goal(aim=cast("Aim", word))
    if not word.startswith(("resolve", "limit")):
        raise unknown("goal", text, ["baseline", "best", "resolve 3%", "limit 5%"])
    if not (match := _WITH_SHARE.fullmatch(word)):
        lacks = "how closely: write 'resolve 3%'" if word.startswith("resolve") else "by how much: write 'limit 5%'"
        raise UsageError(f"goal {text!r} doesn't say {lacks}, in quotes")
    percent = float(match[2])
    if not 100 * BIAS_FLOOR <= percent <= MOST_PERCENT:
        least = f"{100 * BIAS_FLOOR:g}%"
        why = f"differences below {least} could be the harness's own" if percent < 1 else "that says next to nothing"
        raise UsageError(f"invalid goal {text!r}: {why}; use a value from {least} to {MOST_PERCENT}%")
    return Goal(aim=cast("Aim", match[1]), within=percent / 100)
