"""Tensors without names are matched by what they hold."""

from __future__ import annotations

import numpy as np
import pytest

from shootout.backends.optional import Inside
from shootout.core.contract import Array
from shootout.models.onnx.layers import Layer
from shootout.quantize import layer_errors as errors
from shootout.quantize.layer_errors import Outline, match_by_value

LAYERS = 40
SHAPE = (1, 3, 8, 8)


def _make_outline() -> Outline:
    layers = [
        Layer(number=number, name="", operator="Conv", node="", output=f"v{number}", weight="", block="")
        for number in range(LAYERS)
    ]
    return Outline(
        layers=tuple(layers),
        values=tuple((f"v{number}",) for number in range(LAYERS)),
        before=((),) * LAYERS,
        owners={},
        modules={},
    )


@pytest.fixture
def values() -> list[Array]:
    random = np.random.default_rng(0)
    return [random.standard_normal(SHAPE).astype(np.float32) for _ in range(LAYERS)]


def test_turned_and_rounded_tensors_are_found(values: list[Array]) -> None:
    random = np.random.default_rng(1)
    turned = [(one + 0.2 * random.standard_normal(SHAPE)).transpose(0, 2, 3, 1) for one in values]
    inside = Inside(
        tensors={f"t{number}": (one.astype(np.float32),) for number, one in enumerate(turned)},
        names="lost",
        outputs=(),
    )
    reference = [{f"v{number}": one for number, one in enumerate(values)}]
    found = match_by_value(_make_outline(), inside, reference, {})
    assert found == {number: (f"v{number}", f"t{number}") for number in range(LAYERS)}


def test_a_tensor_that_has_a_value_s_name_is_no_other_layer_s(values: list[Array]) -> None:
    inside = Inside(tensors={"v0": (values[1],), "odd": (values[2],)}, names="values", outputs=())
    reference = [{f"v{number}": one for number, one in enumerate(values)}]
    assert errors.match_by_value(_make_outline(), inside, reference, {0: ("v0", "v0")}) == {2: ("v2", "odd")}
