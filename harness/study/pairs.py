"""Which pairs of arms a study wants the crossover of. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from shootout.contract import Arm
from shootout.errors import UsageError, unknown
from shootout.study.group import Pair, size_of
from shootout.study.points import describe
from shootout.study.schema import Study
from shootout.study.target import Describe, parse_targets


def asked_pairs(
    study: Study, arms: Sequence[Arm], runnable: Sequence[Arm], first: Describe = describe
) -> tuple[Pair, ...]:
    """The pairs of one group; those named by the study are among them even where they can't run.

    Args:
        arms: of the group, without its control.
        runnable: those that can run here; where the study names no pair, all pairs of them.
        first: what a target is that is named without a device or precision.

    Raises:
        UsageError: the study names an arm that isn't there, an arm beside itself, or an axis that no arm has.
    """
    if study.crossover is None:
        return ()
    for arm in arms[:1]:
        size_of(arm, study.crossover.axis)
    if not study.crossover.pairs:
        return tuple(combinations([arm.label for arm in runnable], 2))
    labels = [arm.label for arm in arms]
    pairs = study.crossover.pairs
    named = [(_label(study, a, labels, first), _label(study, b, labels, first)) for a, b in pairs]
    for a, b in named:
        if a == b:
            raise UsageError(f"a crossover needs two targets, got {a!r} twice; to race one against itself, name it #2")
    return tuple(dict.fromkeys(named))


def _label(study: Study, text: str, labels: Sequence[str], first: Describe) -> str:
    if text in labels:
        return text
    found = parse_targets(text, first, study.pythons) if "#" not in text else []
    for label in map(str, found):
        if label in labels:
            return label
    raise unknown("target in the crossover's pairs", text, labels)
