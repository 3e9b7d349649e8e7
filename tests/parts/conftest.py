"""A program of two small nets with a known share of inference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.onnx_made import linear

APP = """
import time

import numpy as np


def read(page, find, rec):
    x = np.load(page)
    found = find(x[:1])[0]
    time.sleep(0.002)
    rows = x[: 1 + int(page[-5]) % 3]
    (scores,) = rec.run(None, {"x": rows})
    return [found, {"best": float(scores.max())}, rec.get_inputs()[0].name]


def score(results, usual):
    return sum(one[2] == "x" for one in results) / len(results)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the program, its two models and three pages; `rec` is called with 1, 2 and 3 rows."""
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("shootout.commands.machine_lock.machine_lock_path", lambda: tmp_path / "lock")
    monkeypatch.chdir(tmp_path)
    Path("app.py").write_text(APP)
    linear(tmp_path / "find.onnx", (1, 4), (1, 3))
    linear(tmp_path / "rec.onnx")
    Path("pages").mkdir()
    for number in range(3):
        np.save(f"pages/p{number}.npy", np.random.default_rng(number).standard_normal((4, 4)).astype(np.float32))
    return tmp_path
