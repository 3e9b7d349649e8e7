"""A shipped folder made by hand, whose `load.py` needs nothing but NumPy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shootout.backends.shipped import (
    CHECK,
    EVIDENCE,
    LOAD,
    REQUIREMENTS,
    ShippedArm,
    ShippedFolder,
    ShippedRuntime,
    seal_shipped,
)
from shootout.core.contract import Target
from shootout.core.exported.model import ExportedModel

COPYING = """
loaded = 0

def load():
    global loaded
    loaded += 1

def predict(inputs):
    return {"y": inputs["x"].copy()}
"""
"""What the model `identity` computes."""
ACCOUNT = {
    "library": "a word of ours",
    "version": "0.0",
    "device": "cpu",
    "threads": 1,
    "compute_nodes_by_precision": {},
}


def make_shipped(folder: Path, exported: ExportedModel, load: str = COPYING, **changes: Any) -> ShippedFolder:
    """Write a folder of an exported model's model.

    Args:
        changes: facts of its manifest, those of its arm among them; `said`: what its run called the model, and the
            `parameters` there.
    """
    target = changes.pop("target", Target(backend="numpy"))
    arm = ShippedArm(
        label=str(target),
        target=str(target),
        backend=target.backend,
        device=target.device,
        precision=target.precision,
        mode=target.mode,
        scheme=target.scheme,
        threads=changes.pop("threads", 1),
        batch=exported.batch,
    )
    options = changes.pop("options", {})
    asked = {"model": changes.pop("said", exported.model), "parameters": changes.pop("parameters", {}), "options": {}}
    facts: dict[str, Any] = {
        "made_with": "shootout 0",
        "model": {"name": exported.model, "sha256": exported.weights_sha256},
        "inputs": exported.inputs,
        "outputs": exported.outputs,
        "versions": {},
        "machine": {"key": "k", "name": "a machine"},
        "median_ns": 1e3,
        "run": "a run",
        "error_limit": 1e-5,
        **changes,
    }
    runtime = ShippedRuntime(
        backend=target.backend, threads=arm.threads, affinity=arm.threads, environment={}, options=options
    )
    (folder / EVIDENCE).mkdir(parents=True)
    (folder / "model").mkdir()
    (folder / "model" / "weights").write_bytes(b"1234")
    (folder / LOAD).write_text(load)
    (folder / CHECK).write_text("")
    (folder / REQUIREMENTS).write_text("")
    row = {"arm": arm.label, "group": "a cell", "batch": arm.batch, "threads": arm.threads, "executed": ACCOUNT}
    row |= {"backend": target.backend, **asked}
    rows = [{"arm": "another", "executed": None}, row, {**row, "group": "another", "executed": {}}]
    (folder / EVIDENCE / "document.json").write_text(json.dumps({"rows": rows}))
    return seal_shipped(ShippedFolder(folder=folder, arm=arm, runtime=runtime, **facts))
