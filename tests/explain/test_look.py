"""Outputs are compared as what they are: floats by distance, whole numbers by equality, and NaN with NaN."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shootout.apps.explain.look import choose_sets
from shootout.apps.explain.measure import Explanation, LayerPair, LayerSide, SideSummary
from shootout.apps.explain.screen import tell_answer
from shootout.core.contract import Array
from shootout.core.exported.fidelity import worst_error

NAN = np.array([1.0, np.nan, 2.0], np.float32)


@pytest.mark.parametrize(
    ("shown", "raced", "apart"),
    [
        pytest.param(NAN, NAN, 0.0, id="alike"),
        pytest.param(NAN, np.nan_to_num(NAN), None, id="of one alone"),
        pytest.param(np.nan_to_num(NAN), NAN, None, id="of the other"),
        pytest.param(NAN * np.float32(1.1), NAN, 0.1, id="beside what differs"),
    ],
)
def test_what_is_not_finite_in_both_is_no_difference(shown: Array, raced: Array, apart: float | None) -> None:
    found = worst_error([{"y": shown}], [{"y": raced}])
    assert found == (apart if apart is None else pytest.approx(apart, rel=1e-5))


def test_the_rows_that_err_most_are_among_those_that_are_read() -> None:
    reference: Any = SimpleNamespace(batch=2, number_row=lambda at: 100 + at)
    assert choose_sets(reference, [115, 109], 8) == [0, 4, 7]
    assert choose_sets(reference, [999], 8) == [0, 1, 2]
    assert choose_sets(reference, [103], 2) == [0, 1]


@pytest.mark.parametrize(
    ("raced", "read", "apart", "is_fused"),
    [
        (4.4, 0.015, 1.1, True),
        (None, 0.015, None, True),  # NaN as raced
        (0.2, 0.18, 0.05, False),  # both err alike
        (1.6, 0.06, 0.0, False),  # the same outputs: other rows err more
    ],
)
def test_what_is_right_with_its_tensors_shown_is_fused_wrong(
    raced: float | None, read: float, apart: float | None, is_fused: bool
) -> None:
    option = "--option openvino.SNIPPETS_MODE=DISABLE"
    layer = LayerSide(value="v", error=0.01, own=0.01, explained=0.05)
    pair = LayerPair(number=0, name="m0", block="m0", operator="MatMul", output="v", sides=(layer, layer))
    side = SideSummary(
        arm="openvino:cpu:int8", read=1, output_error=raced, read_error=read, instrumented=apart, fuses_less=option
    )
    plain = SideSummary(arm="openvino:cpu:fp32", output_error=0.0, read_error=0.0, instrumented=0.0)
    found = Explanation(run="r", group="g", model="m", sides=(plain, side), layers=(pair,))
    answer, *_ = tell_answer(found)
    assert answer.endswith(f"report that to the runtime, and try {option}") == is_fused
    assert answer.startswith("no layer of openvino:cpu:int8 errs beyond") != is_fused


def test_outputs_that_were_refused_though_no_layer_errs_are_told() -> None:
    layer = LayerSide(value="v", error=0.01, own=0.01, explained=0.05)
    pair = LayerPair(number=0, name="m0", block="m0", operator="MatMul", output="v", sides=(layer, layer))
    plain, refused = (
        SideSummary(arm=f"onnxruntime:cpu:{name}", read=1, output_error=0.009, read_error=0.009, error_bound=bound)
        for name, bound in (("fp32", None), ("int8", 0.0023))
    )
    none, told = tell_answer(Explanation(run="r", group="g", model="m", sides=(plain, refused), layers=(pair,)))
    assert none.startswith("no layer of onnxruntime:cpu:int8 errs beyond")
    begins = "the outputs of onnxruntime:cpu:int8 err by 9.0e-03 all the same, beyond their bound of 2.3e-03: "
    assert told == begins + "no layer alone errs beyond its own"
