"""The spin backend: its options, and that what it does is what it was told."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from shootout.backends import _spin as spin
from shootout.core.clock import now_ns
from shootout.core.contract import Arm, Device, Target


def arm(**options: str) -> Arm:
    return Arm(target=Target(backend="spin"), model="identity", options=options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one"),
        ({"work": "1", "duration_us": "1"}, "exactly one"),
        ({"work": "1.5"}, "'work': expected a whole number of at least 0, got '1.5'"),
        ({"work": "-1"}, "at least 0"),
        ({"duration_us": "inf"}, "at least 0"),
        ({"duration_us": "nan"}, "at least 0"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], message: str):
    with pytest.raises(ValueError, match=message):
        spin.SpinAdapter().build(Mock(), arm(**options), Path())


def test_it_waits_at_least_as_long_as_it_was_told():
    wait = spin._make_burden(arm(duration_us="2000"))
    start_ns = now_ns()
    wait()
    assert now_ns() - start_ns >= 2_000_000


def test_it_does_as_many_steps_as_it_was_told(monkeypatch: pytest.MonkeyPatch):
    step = Mock()
    monkeypatch.setattr(np, "dot", step)
    spin._make_burden(arm(work="51"))()
    assert step.call_count == 51


def test_it_says_where_it_has_no_code():
    found = spin.SpinAdapter().probe(Device.VULKAN)
    assert (found.reason, found.fix) == (
        "this backend has no code for vulkan",
        "choose cpu, cuda, or another backend for vulkan",
    )
