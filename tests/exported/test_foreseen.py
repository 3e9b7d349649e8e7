"""The time that a model of some size is foreseen to take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shootout.core.exported.calls import Work
from shootout.models.onnx import effort
from shootout.models.onnx.effort import ModelSize, module_s

WORK = Work(
    flops=1e11,
    elementwise_ops=1e8,
    weight_bytes=10**9,
    input_bytes=0,
    output_bytes=0,
    activation_bytes=0,
    widest_bytes=0,
)


@pytest.fixture(autouse=True)
def _rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "PRODUCTS_S", 1e11)


def test_a_call_takes_its_products_or_the_reading_of_its_weights_and_all_else_besides():
    whole = ModelSize(weight_bytes=10**9, work=WORK)
    assert whole.call_s == pytest.approx(1.0 + 0.1)
    step = replace(whole, work=replace(WORK, flops=1e9, elementwise_ops=0))
    assert step.call_s == pytest.approx(0.1), "a decoder's step reads each weight once"
    assert ModelSize(weight_bytes=10**9).call_s == 0.0, "nothing is known of its calls"


def test_a_module_takes_time_for_each_node_and_byte():
    small, deep = ModelSize(weight_bytes=0), ModelSize(weight_bytes=0, nodes=1_000)
    assert module_s(small) < module_s(deep) < module_s(replace(deep, weight_bytes=10**9))
