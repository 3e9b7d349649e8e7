"""Skips and failures as people read them."""

from __future__ import annotations

from shootout.report.setback_lines import Told, folded


def test_arms_that_have_the_same_to_tell_share_a_line():
    told = [
        Told("skipped", "a:cuda:fp32", "no driver", "get one"),
        Told("failed", "b:cpu:fp32", "no driver", "get one"),
        Told("skipped", "c:cpu:fp32", "not installed", ""),
        Told("skipped", "d:cuda:fp16 (built: 1 MB)", "no driver", "get one"),
    ]
    assert list(folded(told)) == [
        ("skipped", "skipped: a:cuda:fp32, d:cuda:fp16 (built: 1 MB): no driver. Fix: get one"),
        ("failed", "failed: b:cpu:fp32: no driver. Fix: get one"),
        ("skipped", "skipped: c:cpu:fp32: not installed"),
    ]
