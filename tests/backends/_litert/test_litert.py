"""LiteRT's own traps: what its files say of themselves, kernels outside the delegate, a converter that must be had."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shootout import backends
from shootout.backends._litert import converter
from shootout.backends.code import code_of
from shootout.errors import NotRunKind, SkippedArm
from shootout.host import store


@pytest.fixture
def missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without the converter, and an empty cache."""
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path))
    monkeypatch.setattr(converter, "MODULES", ("no_such_converter",))
    monkeypatch.setattr(sys, "path", [*sys.path])
    return store.cache_folder().parent


def test_the_converter_is_installed_once_and_says_so(missing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def install(command: list[str], **_: Any) -> None:
        asked.append(command)
        folder = Path(command[command.index("--target") + 1])
        folder.mkdir()
        (folder / "no_such_converter.py").write_bytes(b"#" * 2_000_000)

    monkeypatch.setattr(subprocess, "run", install)
    first, second = converter.require_converter(), converter.require_converter()
    assert first == "LiteRT's converter was installed into the cache once: 2 MB, 0 s"
    assert second == ""
    (command,) = asked
    assert "--no-deps" in command
    assert command[-len(converter.pins()) :] == converter.pins()
    assert [path for path in missing.iterdir() if path.name.startswith("making-")] == []


def test_without_a_network_the_arm_is_a_skip_with_the_command(missing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[str], **_: Any) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="WARNING: trying again\nERROR: no network\n")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(SkippedArm) as caught:
        converter.require_converter()
    assert caught.value.why.kind is NotRunKind.NOT_INSTALLED
    assert caught.value.reason.endswith("pip could not get it: ERROR: no network")
    assert caught.value.fix == f"pip install --no-deps {' '.join(converter.pins())}"
    assert [path for path in missing.iterdir() if path.is_dir() and path.name != "bundles"] == []


def test_another_converter_makes_another_build() -> None:
    assert converter.PINS.resolve() in {path.resolve() for path in code_of(backends.get("litert"))}
