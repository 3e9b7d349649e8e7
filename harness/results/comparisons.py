"""How the document shows a comparison of two arms, in time and in accuracy; rows and answers are made of these."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from shootout.stats.paired import Change
from shootout.stats.verdicts import Comparison, Verdict


class Part(BaseModel):
    """Any part of the document: frozen, and without a key that isn't declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __str__(self) -> str:
        """As `repr`, which is short for what holds much."""
        return repr(self)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Ratio(Comparison):
    """This arm's time ÷ another one's; bounds are null while infinite, `reason` says why a verdict was withheld."""

    generations: Annotated[int, Field(exclude=True)] = 0
    reason: str | None = None

    def __repr__(self) -> str:
        """`<Ratio 0.111 [0.0873, 0.15] faster>`."""
        low, high = ("?" if end is None else f"{end:.3g}" for end in (self.low, self.high))
        return f"<Ratio {self.value:.3g} [{low}, {high}] {self.verdict}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyChange(Change):
    """Accuracy on the report split less that of the arm `against`, row by row."""

    against: str


def ratio_of(found: Comparison, withheld: str | None = None) -> Ratio:
    """A comparison as the document shows it; `withheld` says why its verdict may not be given."""
    verdict = Verdict.CANT_TELL if withheld else found.verdict
    return Ratio(**asdict(replace(found, verdict=verdict)), reason=withheld)
