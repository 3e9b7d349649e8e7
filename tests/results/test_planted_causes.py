"""Why a lower precision isn't faster: what was planted in a model is what a run of it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper
from support.console import deaf_here
from support.onnx_made import value, write

pytestmark = pytest.mark.slow  # each races real processes for some seconds
WIDTH, ROWS = 256, 16


def mlp(path: Path, width: int = WIDTH, *, pairs: bool = False, einsum: int = -1) -> Path:
    """Write four layers.

    Args:
        pairs: each layer's input is rounded with a scale that the graph computes, which no runtime fuses.
        einsum: the layer that is no MatMul, which no quantizer takes.
    """
    rng, last, nodes = np.random.default_rng(0), "x", list[NodeProto]()
    weights: dict[str, Any] = {"step": np.float32(1 / 127), "zero": np.int8(0)} if pairs else {}
    for layer in range(4):
        weights[f"layer.{layer}.weight"] = (1.4 / width**0.5 * rng.standard_normal((width, width))).astype(np.float32)
        if pairs:
            nodes += round_at_run_time(last, f"{layer}")
            last = f"widened{layer}"
        read, made, name = [last, f"layer.{layer}.weight"], [f"product{layer}"], f"/layer.{layer}/MatMul"
        if layer == einsum:
            nodes.append(helper.make_node("Einsum", read, made, name=name, equation="bi,io->bo"))
        else:
            nodes.append(helper.make_node("MatMul", read, made, name=name))
        last = "y" if layer == 3 else f"h{layer}"
        nodes.append(helper.make_node("Relu", made, [last]))
    return write(path, nodes, [value("x", (ROWS, width))], [value("y", (ROWS, width))], weights)


def round_at_run_time(source: str, name: str) -> list[NodeProto]:
    return [
        helper.make_node("Abs", [source], [f"size{name}"]),
        helper.make_node("ReduceMax", [f"size{name}"], [f"most{name}"], keepdims=0),
        helper.make_node("Mul", [f"most{name}", "step"], [f"scale{name}"]),
        helper.make_node("QuantizeLinear", [source, f"scale{name}", "zero"], [f"rounded{name}"]),
        helper.make_node("DequantizeLinear", [f"rounded{name}", f"scale{name}", "zero"], [f"widened{name}"]),
    ]


def race(folder: Path, files: str, targets: Sequence[str]) -> dict[str, Any]:
    """Return the rows by target."""
    words = ("run", files, "--backends", ",".join(targets), "--max-time", "25s", "--out", "out", "--json")
    done = deaf_here(*words, cwd=folder)
    assert done.code == 0, done.err
    return {row["arm"]: row for row in done.data["rows"]}


def test_scales_that_no_kernel_takes_in_are_the_cause(tmp_path: Path):
    mlp(tmp_path / "plain.onnx")
    mlp(tmp_path / "pairs.onnx", pairs=True)
    found = race(tmp_path, "plain.onnx,pairs.onnx", ["onnxruntime", "openvino"])
    why = found["onnxruntime:cpu:native(pairs.onnx)"]["why"]
    assert why["cause"] == "unfused scales"
    assert why["text"].endswith("nodes more than in FP32 only convert, next to 4 products (fp32)")
    other = found["openvino:cpu:native(pairs.onnx)"]["why"]["cause"]  # it has no node for such a pair
    assert other in ("other nodes", "float layers"), "the first if it is slower, the second if it is as fast"


def test_a_layer_that_no_quantizer_takes_is_named(tmp_path: Path):
    mlp(tmp_path / "model.onnx", einsum=2)
    targets = [
        f"{backend}:cpu:{precision}" for backend in ("onnxruntime", "openvino") for precision in ("fp32", "int8")
    ]
    found = race(tmp_path, "model.onnx", targets)
    for target in targets:
        wanted = ["layer.2"] if target.endswith("int8") else []
        assert found[target]["executed"]["layers_in_float"] == wanted, target


def test_a_call_that_is_mostly_overhead_is_told_as_such(tmp_path: Path):
    mlp(tmp_path / "model.onnx", width=4)
    found = race(tmp_path, "model.onnx", ["openvino:cpu:fp32", "openvino:cpu:int8"])
    why = found["openvino:cpu:int8"]["why"]
    assert why["cause"] == "overhead"
    assert "its FP32 does" in why["text"]
