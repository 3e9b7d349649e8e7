"""Every model that ships, small, as TensorRT engines: really built in FP16 and the shared INT8, their layers read.

Where TensorRT-RTX builds nothing of a model, its own reason is what is asserted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from test_tensorrt import without_gpu

from shootout import backends, models
from shootout.contract import Arm, Device, Precision, Target, Value
from shootout.errors import ShootoutError
from shootout.export.client import Request, obtain_all
from shootout.exported.model import ExportedModel

FP16, INT8 = Precision.FP16, Precision.INT8


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """A small form of a model, and what the engines made of it must be.

    Attributes:
        half: products of the FP16 engine, all of them half.
        integers: products of the INT8 engine by precision; or why there is none.
        products: of the network, where the engine makes one of several (attention, a step of a recurrent layer).
        flops: of one call, where that is easily said.
    """

    model: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    half: int
    integers: Mapping[str, int] | str
    products: int = 0
    flops: float = 0.0


STEPS = 4
RECURRENT: dict[str, Value] = {"inputs": 8, "hidden": 16, "steps": STEPS}
DECODER: dict[str, Value] = {"n_layers": 1, "d_model": 64, "vocabulary": 50}
NOTHING = "nothing to quantize: no matrix product or convolution in float32"
"""Also of a recurrent layer that ONNX has an operator for: the quantizer knows products alone."""
CASES = {
    "residual_mlp": Small(
        model="residual_mlp", parameters={"d_model": 32, "n_layers": 2}, half=2, integers={"int8": 2}
    ),
    "digits": Small(model="digits", parameters={"hidden": 32, "n_layers": 1}, half=2, integers={"int8": 2}),
    "digits_cnn": Small(model="digits_cnn", parameters={"channels": 8, "n_blocks": 2}, half=3, integers={"int8": 3}),
    "efficientnet": Small(
        model="efficientnet",
        parameters={"variant": "b0", "image_size": 32, "classes": 8},
        half=82,
        integers={"int8": 81, "unknown": 1},
    ),
    "resnet": Small(
        model="resnet", parameters={"variant": "14", "image_size": 32, "classes": 8}, half=18, integers={"int8": 18}
    ),
    "bert": Small(
        model="bert",
        parameters={"layers": 1, "hidden": 64, "tokens": 8, "vocabulary": 50},
        half=6,
        integers={"int8": 6},
        products=8,
    ),
    "decoder_prefill": Small(
        model="decoder_prefill", parameters={**DECODER, "tokens": 8}, half=7, integers={"int8": 7}, flops=809_216
    ),
    "decoder_step": Small(
        model="decoder_step",
        parameters={**DECODER, "context": 8},
        half=8,
        integers={"int8": 9},
        products=9,
        flops=107_008,
    ),
    "linear": Small(model="linear", parameters={"inputs": 64, "outputs": 32}, half=1, integers={"int8": 1}),
    "matmul": Small(model="matmul", parameters={"n": 32}, half=1, integers={"int8": 1}),
    "mlp": Small(model="mlp", parameters={"inputs": 16, "hidden": 32}, half=2, integers={"int8": 2}),
    "nested_sin": Small(model="nested_sin", parameters={"elements": 256}, half=0, integers=NOTHING),
    "rnn": Small(model="recurrent", parameters={"kind": "rnn", **RECURRENT}, half=4, integers={"int8": 4}, flops=2_560),
    "gru": Small(
        model="recurrent",
        parameters={"kind": "gru", **RECURRENT},
        half=1,
        integers=NOTHING,
        products=4,
        flops=STEPS * 2 * 3 * 16 * (8 + 16),
    ),
    "lstm": Small(
        model="recurrent",
        parameters={"kind": "lstm", **RECURRENT},
        half=1,
        integers=NOTHING,
        products=2,
        flops=STEPS * 2 * 4 * 16 * (8 + 16),
    ),
}


SLOW = {"efficientnet", "resnet", "decoder_prefill", "decoder_step"}
"""Their exports take longer than those of all others. What those of images tell of an engine's layers, the digits' CNN
(convolutions) and BERT (sums around them) do, and what the decoder's, BERT.
"""
NAMES = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in CASES]


@cache
def made(slow: bool) -> dict[tuple[str, str], ExportedModel | ShootoutError]:
    """Every case, the slow ones apart, as it is and as the shared quantized model, exported in one process."""
    asked = [(name, variant) for name in CASES if (name in SLOW) is slow for variant in ("", "shared")]
    small = [Request(model=CASES[n].model, parameters=CASES[n].parameters, variant=v) for n, v in asked]
    return dict(zip(asked, obtain_all(small), strict=True))


def build(name: str, precision: Precision, folder: Path, scheme: str = "") -> dict[str, Any]:
    """The facts of a build.

    Raises:
        ShootoutError: there is nothing to build from.
        RuntimeError: TensorRT can't; in its words.
    """
    exported = made(name in SLOW)[name, scheme]
    if isinstance(exported, ShootoutError):
        raise exported
    target = Target(backend="tensorrt", device=Device.CUDA, precision=precision, scheme=scheme)
    arm = Arm(target=target, model=exported.model, parameters=exported.parameters)
    return dict(backends.get("tensorrt").build(exported, arm, folder).facts)


def test_no_model_is_left_out():
    assert {case.model for case in CASES.values()} == set(models.names())


@without_gpu
@pytest.mark.parametrize("name", NAMES)
def test_a_half_engine_of_every_model_has_half_products_alone(name: str, tmp_path: Path):
    facts = build(name, FP16, tmp_path)
    assert facts["compute_nodes_by_precision"] == ({"fp16": CASES[name].half} if CASES[name].half else {})
    products = CASES[name].products or CASES[name].half
    assert facts["network_nodes_by_precision"] == ({"fp16": products} if products else {})
    if CASES[name].flops:
        assert facts["flops_by_precision"] == {"fp16": CASES[name].flops}
    assert facts["artifact_bytes"] == (tmp_path / "engine.plan").stat().st_size


@without_gpu
@pytest.mark.parametrize("name", NAMES)
def test_an_int8_engine_of_every_model_has_integer_products_or_a_reason(name: str, tmp_path: Path):
    expected = CASES[name].integers
    if isinstance(expected, str):
        with pytest.raises((ShootoutError, RuntimeError), match=expected):
            build(name, INT8, tmp_path, "shared")
        return
    facts = build(name, INT8, tmp_path, "shared")
    assert facts["compute_nodes_by_precision"] == expected
    assert facts["artifact_bytes"] == (tmp_path / "engine.plan").stat().st_size


@without_gpu
def test_what_tensorrt_can_t_parse_fails_for_its_own_reason_and_not_for_want_of_a_gpu(tmp_path: Path):
    with pytest.raises(RuntimeError, match=r"can't parse the model: GRU .*must have same input types") as caught:
        build("gru", Precision.BF16, tmp_path)
    assert "cudaError" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
