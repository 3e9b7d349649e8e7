"""Skips, failures and noise as people read them."""

from __future__ import annotations

from support.kept_screen import hold
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


NOISE = {
    "little": group(void_share=0.04, steal=2),
    "others": group(void_share=0.12, steal=2, foreign_CPU_time=5),
    "most": group(void_share=1.0, foreign_CPU_time=60),
    "restarts differ, which the answer tells": group(sd=0.5),
    "one restart": group(sd=None),
    "a quota, seldom": group(void_share=0.02, throttled=3, cgroup_throttled=2),
    "a quota that held the race back": group(void_share=0.9, throttled=41, cgroup_throttled=9),
}


def test_what_is_told_of_noise_is_what_is_kept():
    told = ["\n".join([f"== {name}", *tell_noise(group), ""]) for name, group in NOISE.items()]
    hold("noise", "\n".join(told))
