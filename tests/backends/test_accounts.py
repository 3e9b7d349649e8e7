"""`executed` is read from the runtime: what the suite's small models don't show (casts, flags, int8, providers)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

from shootout.backends._numpy.session import nodes_of
from shootout.backends._onnxruntime import account as onnxruntime_account
from shootout.backends.common_numpy import blas_threads, products_of
from shootout.core import backends
from shootout.core.contract import Arm, Arrays, Device, Target
from shootout.models.onnx.layers import COMPUTE_OPS
from shootout.testing.checks import ConformanceCase, case_of, warm_of
from shootout.testing.fresh import run_fresh

TORCH = warm_of(Target(backend="torch-eager"))
ORT = Arm(target=Target(backend="onnxruntime"), model="file")
MATRIX = np.eye(4, dtype=np.float32)


@pytest.mark.parametrize(
    ("names", "counted"),
    [
        (
            "MatMul Gemm FusedGemm QGemm Conv QLinearConv ConvInteger QLinearMatMul DynamicQuantizeMatMul LSTM Einsum",
            True,
        ),
        ("mm addmm bmm baddbmm _int_mm _scaled_mm convolution linear bilinear mkldnn_rnn_layer mv dot", True),
        ("_scaled_dot_product_flash_attention_for_cpu MultiHeadAttention", True),
        ("QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearAdd Add Relu Dropout Reorder", False),
        ("upsample_bilinear2d relu add view _to_copy convert_element_type native_layer_norm group_norm", False),
    ],
)
def test_compute_operations_are_known_by_name(names: str, counted: bool):
    for name in names.split():
        assert bool(re.search(COMPUTE_OPS, name)) == counted, name


def onnx_model(nodes: list[Any], output: int = TensorProto.FLOAT, **weights: np.ndarray) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "account",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])],
        [helper.make_tensor_value_info("y", output, [4, 4])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def slipping_model() -> ModelProto:
    """One product in float32 and one in float64."""
    return onnx_model(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("Cast", ["a"], ["wide"], to=TensorProto.DOUBLE),
            helper.make_node("MatMul", ["wide", "wide"], ["b"]),
            helper.make_node("Cast", ["b"], ["y"], to=TensorProto.FLOAT),
        ],
        w=np.full((4, 4), 0.5, np.float32),
    )


def test_numpy_counts_a_product_that_slipped_into_float64():
    def forward(inputs: Arrays) -> Any:
        hidden = np.maximum(inputs["x"] @ MATRIX, 0)
        wide = np.dot(hidden, np.eye(4))
        return np.einsum("ij,jk->ik", wide.astype(np.float32), MATRIX) + np.add(wide, 1, out=wide)

    assert products_of(forward, {"x": MATRIX}) == {"fp32": 2, "fp64": 1}
    assert products_of(lambda inputs: inputs["x"] + 1, {"x": MATRIX}) == {}


def test_numpy_counts_onnx_nodes_by_the_dtype_they_had():
    from onnx.reference import ReferenceEvaluator

    assert nodes_of(ReferenceEvaluator(slipping_model()), {"x": MATRIX}) == {"fp32": 1, "fp64": 1}


def test_blas_threads_are_the_library_s_own():
    assert run_fresh(blas_threads, threads=1) == 1
    assert run_fresh(blas_threads, threads=2) == 2


def test_onnxruntime_counts_what_each_kernel_was_given(tmp_path: Path):
    save(slipping_model(), tmp_path / "source.onnx")
    path = onnxruntime_account.optimize(tmp_path / "source.onnx", ORT, tmp_path)
    assert onnxruntime_account.count_kernels(path, ORT, {"x": MATRIX})["compute_nodes_by_precision"] == {
        "fp32": 1,
        "fp64": 1,
    }


def test_onnxruntime_lists_the_nodes_that_another_provider_runs():
    session = onnxruntime_account.open_session(slipping_model().SerializeToString(), ORT)
    assert onnxruntime_account.fallbacks(session, "CPUExecutionProvider") == ()
    elsewhere = onnxruntime_account.fallbacks(session, "CUDAExecutionProvider")
    assert len(elsewhere) == 4
    assert all("CPUExecutionProvider" in line for line in elsewhere)


def torch_counts(settings: list[tuple[str, bool]]) -> list[dict[str, int]]:
    """Counts of a convolution and a linear layer under each of torch's own settings (flag, autocast)."""
    import torch

    from shootout.backends._torch.account import count_operations, float32_flags

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.linear, self.autocast = torch.nn.Conv2d(1, 1, 2), torch.nn.Linear(9, 2), False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", enabled=self.autocast):
                hidden = self.conv(x).flatten(1)
            return self.linear(hidden.float())

    net, counts = Net().eval(), []
    for policy, net.autocast in settings:
        float32_flags(Device.CPU)["matmul"].fp32_precision = policy
        counts.append(dict(count_operations(net, [torch.zeros(1, 1, 4, 4)], Device.CPU).products))
    return counts


def test_torch_counts_follow_autocast_and_the_flags():
    plain, autocast, rounded = run_fresh(torch_counts, [("ieee", False), ("ieee", True), ("bf16", False)], warm=TORCH)
    assert plain == {"fp32": 2}
    assert autocast == {"bf16": 1, "fp32": 1}
    assert rounded == {"fp32": 1, "bf16": 1}


def flags_after_load(case: ConformanceCase) -> list[str]:
    """What torch's flags say after loading a session in a process that had them at bf16."""
    import torch

    from shootout.backends._torch.account import float32_flags

    torch.backends.fp32_precision = "bf16"
    adapter = backends.get("torch-eager")
    adapter.load(adapter.build(case.exported, case.arm, Path()))
    return [flag.fp32_precision for flag in float32_flags(Device.CPU).values()]


def test_torch_is_set_to_ieee_whatever_it_was():
    assert run_fresh(flags_after_load, case_of(Target(backend="torch-eager")), warm=TORCH) == ["ieee"] * 3
