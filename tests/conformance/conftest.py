"""Fills in `backend` and `target` wherever a conformance test asks for them."""

from __future__ import annotations

import pytest

from conformance.cases import has_gpu, targets
from shootout import backends
from shootout.contract import Device


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The asked-for backends, and their targets: CUDA ones where there is a GPU (elsewhere they have to explain)."""
    asked = metafunc.config.getoption("--backend") or backends.names(hidden=True)
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", asked)
    if "target" in metafunc.fixturenames:
        found = [target for target in targets(asked) if target.device is Device.CPU or has_gpu()]
        metafunc.parametrize("target", found, ids=str)
