"""The suite itself: each check on each target of each backend that the registry knows."""

from __future__ import annotations

import re
from functools import cache

import pytest

from conformance.cases import FIXTURES, case_of, has_gpu, lacks, probe_everywhere
from conformance.checks import CHECKS, run_checks
from conformance.fresh import run_fresh
from shootout import backends
from shootout.contract import Device, Target


@cache
def faults(target: Target) -> dict[str, str]:
    """All checks on one target, in one fresh process."""
    found: dict[str, str] = run_fresh(run_checks, case_of(target))
    return found


@pytest.mark.parametrize("check", CHECKS)
def test_conforms(target: Target, check: str) -> None:
    fault = faults(target)[check]
    if lacks(target):
        assert re.fullmatch(r"SkippedArm: .+; fix: .+", fault), f"this CPU can't do {target.precision}: {fault}"
    else:
        assert not fault, fault


def test_probe_explains_where_it_cannot_run(backend: str) -> None:
    devices = {device for device, _ in backends.get(backend).capabilities.targets}
    for device, found in run_fresh(probe_everywhere, backend).items():
        assert found.ok or (found.reason and found.fix), f"{device}: no reason or no fix: {found}"
        if device not in devices or (device is Device.CUDA and not has_gpu()):
            assert not found.ok, f"{device}: can't be right: {found}"


def test_every_shipped_backend_has_a_fixture() -> None:
    assert set(FIXTURES) == set(backends.SHIPPED)
