"""Why arms were skipped or failed, as lines for people: who has the same to tell shares one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

STYLES = {"skipped": "dim", "failed": "red"}
"""How a line is shown, by outcome."""


class Told(NamedTuple):
    """One arm's reason.

    Attributes:
        outcome: `skipped` or `failed`; it begins the line.
        who: the arm, and whatever of it alone is to be said.
    """

    outcome: str
    who: str
    reason: str
    fix: str


def folded(told: Iterable[Told]) -> Iterator[tuple[str, str]]:
    """(outcome, line) for each reason, in the order in which they first come up."""
    sharing: dict[tuple[str, str, str], list[str]] = {}
    for outcome, who, reason, fix in told:
        sharing.setdefault((outcome, reason, fix), []).append(who)
    for (outcome, reason, fix), arms in sharing.items():
        yield outcome, f"{outcome}: {', '.join(arms)}: {reason}" + (f". Fix: {fix}" if fix else "")
