"""What a TensorRT inside ONNX Runtime is counted as: by the graph that it is handed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from made_product import SIZE, WEIGHT, product_file
from onnx import TensorProto, helper, numpy_helper, save

from shootout.backends import common_onnx
from shootout.backends._onnxruntime import tensorrt
from shootout.backends._onnxruntime.account import MODEL
from shootout.core.contract import Artifact, Precision
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel
from shootout.testing.checks import exported_models

RESIDUAL = Request(model="residual_mlp", parameters={"d_model": 64, "n_layers": 4}, batch=2)


def shared() -> ExportedModel:
    (exported,) = exported_models(replace(RESIDUAL, variant="shared"))
    return exported


def test_the_account_of_a_half_graph_is_half(tmp_path: Path):
    (exported,) = exported_models(RESIDUAL)
    for precision in (Precision.FP16, Precision.BF16):
        folder = tmp_path / precision
        folder.mkdir()
        half = common_onnx.write_half(exported.path(Artifact.ONNX), precision, folder)
        found = tensorrt.count_asked_nodes(half, (), tf32=False)
        assert found["compute_nodes_by_precision"] == {precision: 4}
        assert set(found["other_nodes_by_precision"]) == {precision}


def test_the_account_of_the_shared_model_is_int8_where_both_operands_are(tmp_path: Path):
    found = tensorrt.count_asked_nodes(shared().path(Artifact.ONNX), (), tf32=False)
    assert found["compute_nodes_by_precision"] == {"int8": 4}
    assert set(found["other_nodes_by_precision"]) == {"fp32"}


def test_float32_products_are_tf32_where_that_is_allowed_and_nodes_elsewhere_don_t_count(tmp_path: Path):
    path = product_file(tmp_path / MODEL)
    assert tensorrt.count_asked_nodes(path, (), tf32=True)["compute_nodes_by_precision"] == {"tf32": 1}
    found = tensorrt.count_asked_nodes(path, {"product"}, tf32=False)
    assert found["compute_nodes_by_precision"] == {}
    assert found["other_nodes_by_precision"] == {"fp32": 1}


def test_a_weight_alone_that_is_dequantized_makes_no_int8_product(tmp_path: Path):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE, SIZE]) for name in "xy")
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale"], ["wide"]),
        helper.make_node("Transpose", ["wide"], ["turned"]),
        helper.make_node("MatMul", ["x", "turned"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(WEIGHT.astype(np.int8), "w"),
        numpy_helper.from_array(np.array(0.5, np.float32), "scale"),
    ]
    graph = helper.make_graph(nodes, "made", [x], [y], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / MODEL)
    found = tensorrt.count_asked_nodes(tmp_path / MODEL, (), tf32=False)
    assert found["compute_nodes_by_precision"] == {"fp32": 1}
