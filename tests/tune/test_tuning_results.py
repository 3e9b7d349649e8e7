"""What became of a target, from rows made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from shootout.contract import Arm, Device, NotRunKind, Target
from shootout.tune.results import ALONE, TunedTarget, TuneOutcome


def found(**row: Any) -> TunedTarget:
    """A target of which nothing but its default was tried, and this came of it."""
    arm = Arm(target=Target(backend="ncnn", device=Device.VULKAN), model="m")
    target = str(arm.target)
    group, rows = SimpleNamespace(arms=(arm,)), {arm.label: SimpleNamespace(**row)}
    return TunedTarget(
        target, cast("Any", {ALONE: SimpleNamespace(groups={target: group}, rows=lambda _: rows, ratios=lambda _: {})})
    )


@pytest.mark.parametrize(
    ("outcome", "cause", "told"),
    [
        ("not timed", NotRunKind.SOFTWARE, TuneOutcome.SKIPPED),
        ("skipped", NotRunKind.UNAVAILABLE, TuneOutcome.SKIPPED),
        ("failed", NotRunKind.FAILED, TuneOutcome.FAILED),
    ],
)
def test_a_target_without_figures_has_an_outcome(outcome: str, cause: NotRunKind, told: TuneOutcome) -> None:
    assert found(outcome=outcome, cause=cause, reason="why", fix=None).conclusion == (told, "why", "")
