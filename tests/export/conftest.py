"""What tests of exports share: a cache that nobody has filled."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
