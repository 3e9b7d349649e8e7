"""The arms that race each other: as they are planned, and as the journal stores them. Imports no backend."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, model_validator

from shootout.core.contract import Arm
from shootout.core.schemes import FULL, is_exact
from shootout.core.stats.goals import Goal


class GroupRecord(BaseModel):
    """The arms that race each other.

    Attributes:
        baseline: the label of the arm that ratios refer to; None where no arm can run.
        goal: what must be known before the race ends.
        comparisons: how many pairs α is shared by; see `count_comparisons`.
        arms: the baseline first, its control last; arms that are skipped are among them.
        references: arm → the plain FP32 arm of the same backend, by label: what quantization costs and buys is
            measured against it.
        selects_for: the arms are settings of which each target's best is to be found, and measured again in a group
            with this baseline; null in a group of which verdicts are asked.
        least_restarts: that each arm plays, whatever is known before.
        scores_all: all of a user's rows are scored (see `Request.scores_all`); else half are.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    name: str
    baseline: str | None
    comparisons: int
    arms: tuple[Arm, ...]
    goal: Goal = Goal()
    references: dict[str, str] = {}
    selects_for: str | None = None
    least_restarts: int = 0
    scores_all: bool = False

    @model_validator(mode="after")
    def _has_arms(self) -> GroupRecord:
        labels = [arm.label for arm in self.arms]
        if all(arm.control for arm in self.arms) or len(set(labels)) < len(labels):
            raise ValueError("a group has arms, each label once")
        return self


def with_control(baseline: Arm, arms: Iterable[Arm]) -> tuple[Arm, ...]:
    """Order a group's arms: the baseline, the others, the baseline's hidden copy."""
    others = (arm for arm in arms if arm is not baseline)
    return (baseline, *others, copy_of(baseline))


def copy_of(arm: Arm) -> Arm:
    """Return an arm's hidden copy, which vouches for it as the baseline."""
    return replace(arm, ordinal=1, control=True)


def with_next_baseline(record: GroupRecord, out: Collection[str], measured: Collection[str]) -> GroupRecord:
    """Return a group whose baseline was refused, or came too late, with the next plain target as baseline and control.

    A verdict needs a control that lives. It is the first measured target in full precision, or the one whose copy has
    played already. A group that asks how much slower than its baseline others are keeps it.

    Args:
        out: labels of the arms that can't be the baseline.
        measured: labels of those that have played.
    """
    if record.baseline not in out or record.goal.aim == "limit":
        return record
    arms, exact = [arm for arm in record.arms if not arm.control], exact_of(record.arms)
    plain = [arm for arm in arms if arm.label in exact and arm.label in measured and arm.label not in out]
    copied = [arm for arm in plain if copy_of(arm).label in measured]
    if not plain:
        return record
    chosen = (copied or plain)[0]
    return record.model_copy(update={"baseline": chosen.label, "arms": with_control(chosen, arms)})


def confirming_name(name: str) -> str:
    """Name the group that measures again the settings which the group `name` selected."""
    return f"{name}, confirmed"


def exact_of(arms: Iterable[Arm]) -> frozenset[str]:
    """Return the labels of the arms that compute in full precision, which is a narrowed file's own precision."""
    return frozenset(arm.label for arm in arms if is_exact(arm.target.precision, arm.target.scheme, arm.file))


def own_fp32(arms: Sequence[Arm], arm: Arm) -> Arm | None:
    """Return the group's full-precision arm of the same backend, mode and device, on its first file.

    It is None for that arm itself.
    """
    if is_exact(arm.target.precision, arm.target.scheme, arm.file):
        return None
    full = [replace(arm.target, precision=precision, scheme="") for precision in FULL]
    return next((other for other in arms if other.target in full and other.ordinal == 1 and not other.file), None)


def count_comparisons(baseline: str | None, runnable: Sequence[Arm], references: Mapping[str, str], goal: Goal) -> int:
    """Count the pairs that may err, so that all of them share α: each pair once, whatever asks for it.

    They are each arm's pair with the baseline and with its reference. If the fastest is looked for, each other arm's
    pair with that counts, too; the baseline's is there already.

    Args:
        baseline: the label that each runnable arm is compared with.
        runnable: the arms that can run, without the control.
        references: arm → its own backend's FP32.
    """
    there = {arm.label for arm in runnable}
    wanted = {frozenset((label, baseline)) for label in there if baseline is not None}
    wanted |= {frozenset(pair) for pair in references.items()}
    known = sum(len(pair) == 2 for pair in wanted)
    if goal.aim != "best":
        return known
    return known + max(len(there) - 1 - (baseline in there), 0)
