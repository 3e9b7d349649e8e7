"""Fills in `backend` and `target` wherever a conformance test asks for them."""

from __future__ import annotations

import pytest

from conformance.cases import has_gpu, is_slow, probe_everywhere, targets
from conformance.fresh import run_fresh
from shootout import backends
from shootout.contract import Device, Target


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The asked-for backends, and their targets; CUDA ones where they can run (elsewhere they have to explain)."""
    asked = metafunc.config.getoption("--backend") or backends.names(hidden=True)
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", asked)
    if "target" in metafunc.fixturenames:
        must = bool(metafunc.config.getoption("--backend"))
        found = [target for target in targets(asked) if _is_tested(target, must=must)]
        metafunc.parametrize("target", [pytest.param(one, marks=_marks(one), id=str(one)) for one in found])


def _is_tested(target: Target, *, must: bool) -> bool:
    """CPU targets always; CUDA ones on a GPU machine if they were asked for by name or if their library is there."""
    if target.device is Device.CPU:
        return True
    return has_gpu() and (must or run_fresh(probe_everywhere, target.backend)[target.device].ok)


def _marks(target: Target) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if is_slow(target) else []
