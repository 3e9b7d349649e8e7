"""A library that is missing or broken: the probe names it, with the command that installs it, and never raises."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from shootout.backends.common import trial
from shootout.core import backends
from shootout.core.contract import Availability, Device, NotRun, NotRunKind
from shootout.core.install import install
from shootout.testing.fresh import run_fresh

LIBRARIES = [
    *(
        (name, row.loads[""][0])
        for name, row in backends.shipped().items()
        if row.extra and row.default[0] is Device.CPU
    ),
    ("onnxruntime", "onnx"),
]
"""Each backend with the library that it is named for in the registry, and one library beside."""
WARM = "shootout.core.backends"
"""What a fresh process may hold already: no library is among it (test_imports)."""


def probe_without(backend: str, library: str) -> Availability:
    """The adapter's answer where `library` is not installed."""
    sys.modules[library] = None  # type: ignore[assignment]
    return backends.get(backend).probe(Device.CPU)


def probe_broken(backend: str, folder: Path) -> Availability:
    """The adapter's answer where the library in `folder` breaks on import."""
    sys.path.insert(0, str(folder))
    return backends.get(backend).probe(Device.CPU)


@pytest.mark.parametrize(("name", "library"), LIBRARIES)
def test_a_missing_library_is_named_with_the_install_command(name: str, library: str) -> None:
    found = run_fresh(probe_without, name, library, warm=WARM)
    extra = backends.entry(name).extra
    assert found == Availability(why=NotRun(NotRunKind.NOT_INSTALLED, f"{library} is not installed", install(extra)))


@pytest.mark.parametrize(("name", "library"), LIBRARIES)
def test_a_broken_library_is_a_reason_not_a_crash(name: str, library: str, tmp_path: Path) -> None:
    (tmp_path / f"{library}.py").write_text("raise OSError('libbroken.so: cannot open shared object file')")
    found = run_fresh(probe_broken, name, tmp_path, warm=WARM)
    assert not found.ok
    assert "libbroken.so" in found.reason
    assert "pip install" in found.fix


def test_a_third_party_names_its_own_command() -> None:
    missing = trial("", lambda: import_module("no_such_library").__name__, fix="pip install it")
    broken = trial("", lambda: f"{1 / 0}", fix="pip install it")
    assert missing.why == NotRun(NotRunKind.NOT_INSTALLED, "no_such_library is not installed", "pip install it")
    assert broken.fix == "pip install it --force-reinstall"
