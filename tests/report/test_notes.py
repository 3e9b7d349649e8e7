"""Skips, failures and noise as people read them."""

from __future__ import annotations

import pytest
from support.races.cells import fidelity, row

from shootout.core.contract import OutputError
from shootout.tell.document import Control, GroupSummary
from shootout.tell.notes import tell_errors_by_output, tell_noise


def test_the_share_of_whole_numbers_that_differ_is_told():
    errors = (
        OutputError(name="classes", relative_l2=0.0, mismatches=2, elements=3_276_800),
        OutputError(name="logits", relative_l2=None, mismatches=7, elements=80),
    )
    rows = [row("a:cpu:fp32", 1.0, fidelity=fidelity(by_output=errors)), row("b:cpu:fp32", 1.0)]
    classes = "classes 2 of 3,276,800 elements differ (row 0)"
    told = f"a:cpu:fp32, error by output: logits NaN or infinity (row 0), {classes}."
    assert [*tell_errors_by_output(rows)] == [told]
    alone = row("a:cpu:fp32", 1.0, fidelity=fidelity(by_output=errors[:1]))
    assert [*tell_errors_by_output([alone])] == [f"a:cpu:fp32, error by output: {classes}."]
    assert not [*tell_errors_by_output(rows[1:])]


def group(*, void_share: float = 0.0, sd: float | None = 0.03, throttled: int = 0, **void_reasons: int) -> GroupSummary:
    reasons = {name.replace("_", " "): count for name, count in void_reasons.items()}
    holds = Control(ratio=None, holds=True)
    shares = {"void_share": void_share, "void_reasons": reasons, "sd": sd}
    return GroupSummary(name="g", baseline="a", control=holds, restarts=5, throttled=throttled, **shares)


@pytest.mark.parametrize(
    ("group", "line"),
    [
        (group(void_share=0.04, steal=2), None),
        (
            group(void_share=0.12, steal=2, foreign_CPU_time=5),
            "Noise: 12 % of the rounds met other programs on the same CPUs: intervals are wider because of it; close "
            "them.",
        ),
        (
            group(void_share=1.0, foreign_CPU_time=60),
            "Noise: 100 % of the rounds met other programs on the same CPUs: times and ratios are those of a busy "
            "machine; close them.",
        ),
        (group(sd=0.5), None),
        (group(sd=None), None),
    ],
    ids=["little", "others", "most", "the answer tells it", "one restart"],
)
def test_noise_that_matters_is_told_in_one_line_with_what_helps(group: GroupSummary, line: str | None):
    assert [*tell_noise(group)] == ([line] if line else [])


def test_a_quota_that_held_the_race_back_is_told_with_its_count():
    rare = group(void_share=0.02, throttled=3, cgroup_throttled=2)
    assert [*tell_noise(rare)] == ["The CPU quota throttled the race 3 times, in 2 rounds; calls waited."]
    first, second = tell_noise(group(void_share=0.9, throttled=41, cgroup_throttled=9))
    assert "90 % of the rounds were throttled by the container: times and ratios are those under this quota" in first
    assert second == "The CPU quota throttled the race 41 times, in 9 rounds; calls waited."
