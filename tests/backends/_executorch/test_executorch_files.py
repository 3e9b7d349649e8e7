"""ExecuTorch's files: what stands in them, and what XNNPACK's words for its operators mean."""

from __future__ import annotations

from typing import Any

import pytest

from shootout.backends._executorch.account import (
    MethodStep,
    label_of,
    labels_of,
    steps_of,
)
from shootout.backends._executorch.backend import TINY


def test_a_file_tells_the_steps_that_it_hands_to_xnnpack() -> None:
    assert [*steps_of(TINY)] == [MethodStep(name="XNNAdd", operands=("fp32",) * 3, is_delegated=True)]


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
