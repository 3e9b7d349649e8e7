"""What a candidate must keep to, beside a reference and by a policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shootout.constants import BIAS_FLOOR, INDIFFERENT
from shootout.decide.policy import Policy, as_policy
from shootout.decide.quantities import POINTS, SHARE
from shootout.errors import UsageError
from shootout.stats.goals import MOST_PERCENT, Aim, Goal


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What it may do worse than the reference; None: that is told and not limited.

    Attributes:
        slower: as a share of the reference's time.
        accuracy_drop: as a share of the rows.
        size: by which share its artifact may be larger.
        same_proof: whether what ran must be alike.
    """

    slower: float = INDIFFERENT
    accuracy_drop: float | None = None
    size: float | None = None
    same_proof: bool = False
    policy: Policy | None = None

    @property
    def shares(self) -> int:
        """Into how many parts the chance of an error goes: the race's, the accuracy's and the policy's."""
        return 1 + (self.accuracy_drop is not None) + bool(self.policy and self.policy.limits)

    @property
    def goal(self) -> Goal:
        """What the race is for."""
        return Goal(aim=Aim.LIMIT, within=self.slower)


def read_limits(options: Mapping[str, Any]) -> Limits:
    """The limits of a gate's options.

    Raises:
        UsageError: one has no unit, can't be kept or told, or the policy can't be read.
    """
    policy = as_policy(options["policy"]) if options.get("policy") is not None else None
    slower = policy.indifferent if policy else INDIFFERENT
    if "slower" in options:
        slower = SHARE.read("--slower", options["slower"])
    if not BIAS_FLOOR <= slower <= MOST_PERCENT / 100:
        raise UsageError(
            f"--slower {100 * slower:g}% can't be told: from {100 * BIAS_FLOOR:g}%, what the harness may err by, "
            f"to {MOST_PERCENT}%"
        )
    drop, size = options.get("accuracy_drop"), options.get("size")
    return Limits(
        slower=slower,
        accuracy_drop=None if drop is None else POINTS.read("--accuracy-drop", drop),
        size=None if size is None else SHARE.read("--size", size),
        same_proof=options.get("same_proof", False),
        policy=policy,
    )
