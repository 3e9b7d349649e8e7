"""Skips, failures and noise as people read them."""

from __future__ import annotations

import pytest

from shootout.report.notes import Reason, fold_reasons, tell_noise
from shootout.results.document import GroupSummary, Sentinel


def test_arms_that_have_the_same_to_tell_share_a_line():
    reasons = [
        Reason("skipped", "a:cuda:fp32", "no driver", "get one"),
        Reason("failed", "b:cpu:fp32", "no driver", "get one"),
        Reason("skipped", "c:cpu:fp32", "not installed", ""),
        Reason("skipped", "d:cuda:fp16 (built: 1 MB)", "no driver", "get one"),
    ]
    assert list(fold_reasons(reasons)) == [
        ("skipped", "skipped: a:cuda:fp32, d:cuda:fp16 (built: 1 MB): no driver. Fix: get one"),
        ("failed", "failed: b:cpu:fp32: no driver. Fix: get one"),
        ("skipped", "skipped: c:cpu:fp32: not installed"),
    ]


def group(*, void_share: float = 0.0, sd: float | None = 0.03, **void_reasons: int) -> GroupSummary:
    reasons = {name.replace("_", " "): count for name, count in void_reasons.items()}
    holds = Sentinel(ratio=None, holds=True)
    shares = {"void_share": void_share, "void_reasons": reasons, "sd": sd}
    return GroupSummary(name="g", baseline="a", sentinel=holds, generations=5, **shares)


@pytest.mark.parametrize(
    ("groups", "line"),
    [
        ([group(void_share=0.04, steal=2)], None),
        (
            [group(void_share=0.12, steal=2, foreign_CPU_time=5)],
            "Noise: 12% of the rounds met other programs on the arms' CPUs: times are wider for it; close them, or "
            "give more time.",
        ),
        (
            [group(void_share=0.12, steal=2), group(void_share=0.3, cgroup_throttled=9)],
            "Noise: up to 30% of the rounds were throttled by the container: times are wider for it; raise its CPU "
            "quota, or give more time.",
        ),
        (
            [group(void_share=1.0, foreign_CPU_time=60)],
            "Noise: 100% of the rounds met other programs on the arms' CPUs: times and ratios are those of a busy "
            "machine; close them.",
        ),
        (
            [group(void_share=0.65, canary=9)],
            "Noise: 65% of the rounds were thrown away by the older version that made this run.",
        ),
        ([group(sd=0.12)], "Noise: generations differ by 12% (SD): give more time, or a quieter machine."),
        ([group(sd=None)], None),
    ],
    ids=["little", "others", "groups", "most", "older", "unseen", "one generation"],
)
def test_noise_that_matters_is_told_in_one_line_with_what_helps(groups: list[GroupSummary], line: str | None):
    assert tell_noise(groups) == ([line] if line else [])
