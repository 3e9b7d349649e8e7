"""Run each check on each target of each backend that is asked for, or that the registry knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from shootout.core import backends
from shootout.core.contract import Availability, Device, Target
from shootout.tell.cache_limit import in_use
from shootout.testing.checks import (
    CHECKS,
    case_of,
    conform,
    export_for,
    has_gpu,
    is_slow,
    probe_everywhere,
    targets,
    warm_of,
)
from shootout.testing.fresh import run_fresh


@pytest.fixture(scope="module", autouse=True)
def cache_in_use() -> Iterator[None]:
    """Keep what was exported until the last fresh process has had it."""
    with in_use():
        yield


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the backends asked for and their targets; CUDA ones if they can run, else they have to explain."""
    chosen = metafunc.config.getoption("--backend", default=None)
    asked = chosen or backends.names(hidden=True)
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", asked)
    if "target" in metafunc.fixturenames:
        found = [target for target in targets(asked) if _is_tested(target, must=bool(chosen))]
        asked_of = [(case, check) for case in found for check in CHECKS]
        params = [pytest.param(*one, marks=_marks_of(*one), id="-".join(map(str, one))) for one in asked_of]
        metafunc.parametrize(("target", "check"), params)


def _is_tested(target: Target, *, must: bool) -> bool:
    """Choose all targets but CUDA's, which need a GPU and either their name on the command line or their library.

    Those of other vendors' devices are skipped as they run.
    """
    if target.device is not Device.CUDA:
        return True
    return has_gpu() and (must or answers(target.backend)[target.device].ok)


@cache
def answers(backend: str) -> dict[Device, Availability]:
    """Return what the backend's probe says on each device.

    Where there is a GPU, no process is forked for it: libraries that have begun to use one don't after a fork.
    """
    warm = "" if has_gpu() else warm_of(Target(backend=backend))
    found: dict[Device, Availability] = run_fresh(probe_everywhere, backend, warm=warm)
    return found


def lacking(target: Target) -> str:
    """Return why a target on another vendor's device can't run here, "" if it can."""
    sure = target.device in (Device.CPU, Device.CUDA)
    found = Availability() if sure else answers(target.backend)[target.device]
    return "" if found.ok else f"nothing to run on: {found.reason}; {found.fix}"


def _marks_of(target: Target, check: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if is_slow(target, check) else []


def _asked_of(session: pytest.Session) -> list[tuple[Target, str]]:
    """Return the targets and checks that this run chose."""
    items = (item for item in session.items if isinstance(item, pytest.Function))
    chosen: list[Any] = [item.callspec.params for item in items if item.originalname == test_conforms.__name__]
    return [(params["target"], params["check"]) for params in chosen]


@cache
def _export_cases(session: pytest.Session) -> None:
    """Export what all targets of this run need together, since each export alone imports its framework again."""
    export_for(target for target in dict(_asked_of(session)) if not lacking(target))


@cache
def faults(target: Target, session: pytest.Session) -> tuple[dict[str, str], bool]:
    """Run all checks of one target in one fresh process; return the faults, and True if it has to be a skip here."""
    _export_cases(session)
    asked = {check for one, check in _asked_of(session) if one == target}
    names = [name for name in CHECKS if name in asked]
    found: tuple[dict[str, str], bool] = run_fresh(conform, case_of(target), names, warm=warm_of(target))
    return found


def test_conforms(target: Target, check: str, request: pytest.FixtureRequest) -> None:
    """Check that the target keeps the promise, or explains what this machine lacks."""
    if why := lacking(target):
        pytest.skip(why)
    found, is_lacking = faults(target, request.session)
    fault = found[check]
    if is_lacking:
        assert re.fullmatch(r"SkippedArm: .+; fix: .+", fault), f"this CPU can't do {target.precision}: {fault}"
    else:
        assert not fault, fault


def test_probe_explains_where_it_cannot_run(backend: str) -> None:
    """Check that on every device the probe finds the backend able, or gives a reason and a fix."""
    devices = {device for device, _ in backends.capabilities(backend).targets}
    for device, found in answers(backend).items():
        assert found.ok or (found.reason and found.fix), f"{device}: no reason or no fix: {found}"
        if device not in devices or (device is Device.CUDA and not has_gpu()):
            assert not found.ok, f"{device}: can't be right: {found}"
