"""ExecuTorch's files: what stands in them, and what XNNPACK's words for its operators mean."""

from __future__ import annotations

from typing import Any

import pytest

from shootout.backends._executorch import account
from shootout.backends._executorch.account import (
    MethodStep,
    Operand,
    _count_flops,
    _label_in_file,
    label_of,
    labels_of,
    steps_of,
)
from shootout.backends._executorch.backend import TINY


def step(name: str, *operands: tuple[str, tuple[int, ...]], is_delegated: bool = True) -> MethodStep:
    found = tuple(Operand(kind=kind, shape=shape) for kind, shape in operands)
    return MethodStep(name=name, operands=found, is_delegated=is_delegated)


def test_a_file_tells_the_steps_that_it_hands_to_xnnpack() -> None:
    two = Operand(kind="fp32", shape=(1, 2))
    assert [*steps_of(TINY)] == [MethodStep(name="XNNAdd", operands=(two, two, two), is_delegated=True)]


def test_operators_that_call_their_tensors_otherwise_have_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [{"datatype": "xnn_datatype_fp32", "id_out": place, "dims": [place, 8]} for place in range(4)]
    nodes = {
        "XNNScaledDotProductAttention": {"query_id": 0, "key_id": 1, "value_id": 2, "mask_id": 0, "output_id": 3},
        "XNNArgMaxPooling2d": {"input_id": 1, "output_value_id": 2, "output_index_id": 3},
    }
    graph = {
        "xvalues": [{"xvalue_union": one} for one in tensors],
        "xnodes": [{"xnode_union_type": name, "xnode_union": node} for name, node in nodes.items()],
    }
    monkeypatch.setattr(account, "read_flatbuffer", lambda *_: graph)
    attention, pooling = account._xnn_steps(bytes(account.XNN_HEADER.size))
    assert [one.shape[0] for one in attention.operands] == [0, 1, 2, 3]
    assert [one.shape[0] for one in pooling.operands] == [1, 2]
    assert (_count_flops(attention), _label_in_file(attention)) == (None, "fp32")


def test_a_step_on_numbers_alone_is_no_tensor_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "steps_of", lambda _: [step("executorch_prim::add", is_delegated=False)])
    monkeypatch.setattr(account, "record_calls", lambda *_: [[]])
    found = account.read_executed(TINY, 1, [])
    assert found["other_nodes_by_precision"] == {}
    assert found["undelegated"] == {"add": 1}


@pytest.mark.parametrize(
    ("types", "meant"),
    [
        ("F32", "fp32"),
        ("PF32", "fp32"),
        ("F16", "fp16"),
        ("QS8", "int8"),
        ("QS8, QC8W", "int8"),
        ("PQS8, QS8, QC8W", "int8"),
        ("QC8", "int8"),
        ("QDU8, F32, QC8W", "int8"),
        ("QD8, F32, QC4W", "int4-activations-8"),
        ("QP8, F32, QB4W", "int4-activations-8"),
        ("F32, QC4W", "int4"),
        ("F32, QC8W", "int8-weights"),
        ("BF16_F32", "bf16"),
        ("BF16, F32", "bf16"),
    ],
)
def test_the_types_in_an_operator_s_name_tell_its_precision(types: str, meant: str) -> None:
    assert label_of(types) == meant


def test_a_record_s_products_are_those_that_multiply() -> None:
    ran = [
        "Fully Connected (NC, F32) GEMM #1",
        "Convolution (NHWC, QC8) IGEMM #1",
        "Convert (NC, F32, QD8) #1",
        "Add (ND)",
    ]
    parts: list[dict[str, Any]] = [{"delegate_debug_id_str": name} for name in ran]
    assert labels_of([*parts, {"name": "DELEGATE_CALL", "delegate_debug_id_str": None}]) == ["fp32", "int8"]


@pytest.mark.parametrize(
    ("one", "flops", "meant"),
    [
        (step("XNNFullyConnected", ("fp32", (2, 8)), ("fp32", (5, 8)), ("fp32", (2, 5))), 160, "fp32"),
        (step("XNNFullyConnected", ("qdint8", (2, 8)), ("qcint8", (5, 8)), ("fp32", (2, 5))), 160, "int8"),
        (step("XNNFullyConnected", ("fp32", (2, 8)), ("qcint4", (5, 8)), ("fp32", (2, 5))), 160, "int4"),
        (step("XNNBatchMatrixMultiply", ("fp32", (3, 2, 8)), ("fp32", (3, 8, 5)), ("fp32", (3, 2, 5))), 480, "fp32"),
        (step("XNNConv2d", ("qint8", (1, 4, 4, 3)), ("qcint8", (6, 2, 2, 3)), ("qint8", (1, 3, 3, 6))), 1296, "int8"),
        (
            step("XNNDepthwiseConv2d", ("fp32", (1, 4, 4, 6)), ("fp32", (1, 2, 2, 6)), ("fp32", (1, 3, 3, 6))),
            432,
            "fp32",
        ),
        (
            step("XNNConvTranspose2d", ("fp32", (1, 3, 3, 6)), ("fp32", (4, 2, 2, 6)), ("fp32", (1, 4, 4, 4))),
            1728,
            "fp32",
        ),
        (step("XNNScaledDotProductAttention", ("fp32", (2, 8)), ("fp32", (2, 8)), ("fp32", (2, 8))), None, "fp32"),
        (
            step(
                "aten::addmm",
                ("FLOAT", (5,)),
                ("FLOAT", (2, 8)),
                ("FLOAT", (8, 5)),
                ("FLOAT", (2, 5)),
                is_delegated=False,
            ),
            160,
            "fp32",
        ),
        (step("aten::mm", ("HALF", (2, 8)), ("HALF", (8, 5)), ("HALF", (2, 5)), is_delegated=False), 160, "fp16"),
    ],
)
def test_operations_and_precisions_follow_from_shapes_and_types(
    one: MethodStep, flops: float | None, meant: str
) -> None:
    assert _count_flops(one) == flops
    assert _label_in_file(one) == meant
