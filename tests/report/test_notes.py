"""Skips and failures as people read them."""

from __future__ import annotations

from shootout.report.notes import Reason, fold_reasons


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
