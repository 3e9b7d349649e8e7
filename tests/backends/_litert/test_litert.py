"""LiteRT's own traps: what its files say of themselves, kernels outside the delegate, a converter that must be had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shootout.backends._litert import converter
from shootout.core.host import store
from shootout.core.host.folders import NAME
from shootout.tell import cache_limit


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
    monkeypatch.setattr(os, "sync", lambda: None)
    first, second = converter.require_converter(), converter.require_converter()
    assert first.startswith("LiteRT's converter was installed into the cache once: 2 MB, ")
    assert second == ""
    (command,) = asked
    assert "--no-deps" in command
    assert command[-len(converter.pins()) :] == converter.pins()
    (folder,) = (path for path in missing.iterdir() if path.is_dir() and path.name != "exported")
    assert [(one.kind, one.path) for one in cache_limit.kept()] == [("converters", folder)]
    assert Path(command[command.index("--target") + 1]).parent.name.startswith(NAME), "a killed one's is swept"
    assert list((missing / "exported").iterdir()) == []
