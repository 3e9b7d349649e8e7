"""The bench's runs of the field's own tools: one that fails costs its arm's row, not the section."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from lab.common import attempt
from lab.parity import tools


def test_a_tool_that_ends_badly_is_a_row_with_its_words(monkeypatch: pytest.MonkeyPatch):
    command = [sys.executable, "-S", "-c", "import sys; sys.exit('no function named main_graph')"]
    found, why = attempt(lambda: tools._run(command, {**os.environ}))
    assert found is None
    assert why["failed"].endswith("exited with code 1; its last words: no function named main_graph")

    def never_ends(*_: object, **__: Any) -> None:
        raise subprocess.TimeoutExpired("tool", 1)

    monkeypatch.setattr(tools.subprocess, "run", never_ends)
    assert "took longer than" in attempt(lambda: tools._run(["tool"], {}))[1]["failed"]
