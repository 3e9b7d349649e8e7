"""Nothing is imported before it is used: neither the package nor any adapter's module brings in a framework."""

from __future__ import annotations

import importlib
import sys

import pytest

from conformance.fresh import run_fresh
from shootout import backends

FRAMEWORKS = {
    "torch", "onnx", "onnxruntime", "jax", "openvino", "tensorrt", "sklearn", "scipy", "ruptures", "pydantic",
    "pyarrow", "pandas", "safetensors", "transformers",
}  # fmt: skip
MODULES = ("shootout", "shootout.backends", *(row.path.partition(":")[0] for row in backends.SHIPPED.values()))


def frameworks_after(module: str, backend: str = "") -> set[str]:
    """The frameworks in this process after importing `module` and making the adapter of `backend`."""
    before = FRAMEWORKS & set(sys.modules)
    importlib.import_module(module)
    if backend:
        importlib.import_module("shootout.backends").get(backend)
    return before | (FRAMEWORKS & set(sys.modules))


@pytest.mark.parametrize("module", MODULES)
def test_importing_brings_in_no_framework(module: str) -> None:
    assert run_fresh(frameworks_after, module) == set()


def test_making_every_adapter_brings_in_no_framework(backend: str) -> None:
    assert run_fresh(frameworks_after, "shootout.backends", backend) == set()
