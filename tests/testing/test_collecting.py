"""Which targets the suite is run on: pytest's processes must agree, so a device that comes and goes decides nothing."""

from __future__ import annotations

import pytest

from shootout.contract import Availability, Device, NotRun, NotRunKind, Target
from shootout.testing import test_conformance as suite

ON_VULKAN = Target(backend="ncnn", device=Device.VULKAN)


def test_whether_a_vulkan_device_is_here_is_found_out_by_the_test(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(suite, "answers", lambda _: pytest.fail("a probe decides what is collected"))
    assert suite._is_tested(ON_VULKAN, must=False)
    gone = Availability(why=NotRun(NotRunKind.UNAVAILABLE, "no device", "get one"))
    monkeypatch.setattr(suite, "answers", lambda _: {Device.VULKAN: gone})
    assert suite.lacking(ON_VULKAN) == "nothing to run on: no device; get one"
    assert suite.lacking(Target(backend="ncnn")) == ""
    with pytest.raises(pytest.skip.Exception, match="nothing to run on: no device; get one"):
        suite.test_conforms(ON_VULKAN, "any", request)
    monkeypatch.setattr(suite, "answers", lambda _: {Device.VULKAN: Availability(version="1")})
    assert suite.lacking(ON_VULKAN) == ""
