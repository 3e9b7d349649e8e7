"""Files that branch: one network for each size that they take, as voice detectors do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from shootout.backends._onnxruntime.account import open_session, optimize
from shootout.contract import Arm, Target
from tests.support.onnx_made import branching

ORT = Arm(target=Target(backend="onnxruntime"), model="file")


def test_a_branch_that_fixed_sizes_never_take_breaks_no_optimization(tmp_path: Path):
    source = branching(tmp_path / "source.onnx")
    with pytest.raises(Exception, match="InferenceError"):
        onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    session = open_session(optimize(source, ORT, tmp_path), ORT)
    x = np.linspace(-1, 1, 8, dtype=np.float32)[None]
    (y,) = session.run(None, {"x": x, "is_large": np.array(True)})
    assert np.array_equal(y, np.maximum(x, 0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "source.onnx"]
