"""Skips, failures and noise as people read them."""

from __future__ import annotations

from support.kept_screen import hold

from shootout.tell.document import Control, GroupSummary
from shootout.tell.notes import tell_noise


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
