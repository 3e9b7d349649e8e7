"""An ONNX file is raced where neither torch nor pyarrow is: what the extra `onnx` installs does it alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import onnx_made
from support.console import call, deaf, environment, here

LEFT_OUT = ("torch", "torchao", "torchvision", "pyarrow", "pandas", "jax", "nncf", "iree", "ncnn", "onnx2fx")
SITE = f"""
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {LEFT_OUT} else PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [Without if one is PathFinder else one for one in sys.meta_path]
"""
"""Runs as any Python of ours starts, workers among them."""


@pytest.mark.long
def test_an_onnx_file_is_raced_where_torch_is_not(tmp_path: Path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    there = environment(SHOOTOUT_CACHE=str(tmp_path / "cache"))
    there["PYTHONPATH"] = f"{tmp_path / 'site'}:{there['PYTHONPATH']}"
    onnx_made.linear(tmp_path / "net.onnx")
    targets = ["onnxruntime", "openvino", "torch-eager", "iree"]
    study = f'model = "net.onnx"\ntargets = {targets}\nmax_restarts = 1\n'
    (tmp_path / "study.toml").write_text(study)
    done = call(deaf("run", "study.toml", "--out", "run", "--to", "rows.csv", "--json"), tmp_path, env=there)
    assert done.code == 0, done.err
    found = done.data
    outcomes = {row["backend"]: row["outcome"] for row in found["rows"]}
    assert outcomes == dict.fromkeys(("onnxruntime", "openvino"), "measured") | dict.fromkeys(
        ("torch-eager", "iree"), "skipped"
    )
    assert (tmp_path / "rows.csv").read_text().startswith("group,arm,")
    shown = here("show", "run", cwd=tmp_path).out
    assert "not installed: torch-eager, iree" in shown
