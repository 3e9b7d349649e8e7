"""The build matrix of `make bench`, with recorded builds: what a row says, and that none costs the others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.common import Bench
from lab.coverage import tensorrt_builds
from shootout.contract import Arm
from shootout.errors import ArmFailed, ModelError, SkippedArm
from shootout.host.placement import place

FACTS = {
    "library": "tensorrt_rtx",
    "version": "1.0",
    "artifact_bytes": 4_096,
    "compute_capabilities": ["portable"],
    "conversion_nodes": 1,
}


def exported() -> Any:
    return SimpleNamespace(model="linear", parameters={})


def row(label: str, made: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, found: Any = None) -> dict[str, Any]:
    """A row of a build that ends as `found`: facts, or an error."""

    def built(bench: Bench, arm: Arm, taken: Any) -> tuple[Any, float]:
        assert str(arm.target) == f"tensorrt:cuda:{label}"
        assert taken is made
        if isinstance(found, Exception):
            raise found
        return {**FACTS, **found}, 0.5

    monkeypatch.setattr(tensorrt_builds, "_built", built)
    return tensorrt_builds._row(Bench(quick=True, placement=place(None), folder=folder), label, made)


def test_a_built_row_says_what_share_is_as_labelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    facts = {"compute_nodes_by_precision": {"int8": 3, "fp32": 1}, "flops_by_precision": {"int8": 90.0, "fp32": 10.0}}
    found = row("int8/shared", exported(), tmp_path, monkeypatch, facts)
    assert found == {
        "outcome": "built",
        "build s": 0.5,
        "engine bytes": 4_096,
        "compute layers": "1 fp32, 3 int8",
        "layers as labelled": 0.75,
        "operations as labelled": 0.9,
        "conversion layers": 1,
        "library": "tensorrt_rtx 1.0",
        "targets": "portable",
        "reason": "",
    }


@pytest.mark.parametrize(("label", "share"), [("tf32", 1.0), ("fp32", 1.0), ("fp16", 0.0), ("int4", 0.0)])
def test_rounding_to_tf32_shows_in_no_type(label: str, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = row(label, exported(), tmp_path, monkeypatch, {"compute_nodes_by_precision": {"fp32": 2}})
    assert found["layers as labelled"] == share
    assert found["operations as labelled"] is None, "not told"


def test_a_model_without_products_has_no_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = row("fp16", exported(), tmp_path, monkeypatch, {"compute_nodes_by_precision": {}})
    assert (found["compute layers"], found["layers as labelled"]) == ("none", None)


def test_failed_and_skipped_rows_say_why_without_our_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    failed = row("fp16", exported(), tmp_path, monkeypatch, ArmFailed(f"can't parse\n  {tmp_path}/made.onnx"))
    assert failed == {"outcome": "failed", "reason": "can't parse /made.onnx"}
    skipped = row("fp16", exported(), tmp_path, monkeypatch, SkippedArm("not installed", "pip install it"))
    assert skipped["outcome"] == "skipped"
    assert "not installed" in skipped["reason"]
    unmade = row("int8/shared", ModelError("nothing to quantize"), tmp_path, monkeypatch)
    assert unmade == {"outcome": "failed", "reason": "nothing to quantize"}


def test_each_kind_of_a_model_has_a_row_for_each_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tensorrt_builds, "QUICK", ("linear", "recurrent"))
    monkeypatch.setattr(
        tensorrt_builds, "obtain_all", lambda asked: [ModelError(f"{one.parameters} {one.variant}") for one in asked]
    )
    bench = Bench(quick=True, placement=place(None), folder=tmp_path)
    tables = tensorrt_builds.figures(bench)
    rows = tables["TensorRT builds"]
    assert [one["model"] for one in rows[:: len(tensorrt_builds.LABELS)]] == [
        "linear", "recurrent (kind=rnn)", "recurrent (kind=gru)", "recurrent (kind=lstm)",
    ]  # fmt: skip
    assert [one["reason"] for one in rows if one["model"] == "linear"] == ["{}"] * 5 + ["{} shared", "{}"]
    counts = tables["TensorRT builds by precision"]
    assert counts == [
        {"label": label, "models": 4, "built": 0, "not built": 4, "skipped": 0} for label in tensorrt_builds.LABELS
    ]
