"""Every model that ships, small, as TensorRT engines: really built in FP16 and the shared INT8, their layers read.

Where TensorRT-RTX builds nothing of a model, its own reason is what is asserted.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from test_tensorrt import without_gpu

from shootout import models
from shootout.core import backends
from shootout.core.contract import Arm, Device, Precision, Target, Value
from shootout.core.errors import ShootoutError
from shootout.core.exported.client import Request, obtain_all
from shootout.core.exported.model import ExportedModel

pytestmark = pytest.mark.long  # builds every model; a run in commands/test_cli_runs.py builds one

FP16, INT8 = Precision.FP16, Precision.INT8


STEPS = 4
RECURRENT: dict[str, Value] = {"inputs": 8, "hidden": 16, "steps": STEPS}
IMAGES: dict[str, Value] = {"image_size": 32, "classes": 8}
CASES: dict[str, tuple[str, dict[str, Value]]] = {
    "residual_mlp": ("residual_mlp", {"d_model": 32, "n_layers": 2}),
    "digits": ("digits", {"hidden": 32, "n_layers": 1}),
    "digits_cnn": ("digits_cnn", {"channels": 8, "n_blocks": 2}),
    "efficientnet": ("efficientnet", {"variant": "b0", **IMAGES}),
    "resnet": ("resnet", {"variant": "14", **IMAGES}),
    "bert": ("bert", {"layers": 1, "hidden": 64, "tokens": 8, "vocabulary": 50}),
    "linear": ("linear", {"inputs": 64, "outputs": 32}),
    "matmul": ("matmul", {"n": 32}),
    "mlp": ("mlp", {"inputs": 16, "hidden": 32}),
    "nested_sin": ("nested_sin", {"elements": 256}),
    "attention": ("attention", {"heads": 1, "tokens": 32}),
    "detector": ("detector", {"kind": "yolo", **IMAGES}),
    "rnn": ("recurrent", {"kind": "rnn", **RECURRENT}),
    "gru": ("recurrent", {"kind": "gru", **RECURRENT}),
    "lstm": ("recurrent", {"kind": "lstm", **RECURRENT}),
}
"""A small form of every model, by a name."""
WITHOUT_PRODUCTS = {"nested_sin"}
NOTHING_TO_QUANTIZE = {"nested_sin", "gru", "lstm"}
"""Also a recurrent layer that ONNX has an operator for: the quantizer knows products alone."""
FLOPS = {
    "rnn": STEPS * 2 * 16 * (8 + 16) - 2 * 16 * 16,  # the first step has no state yet
    "gru": STEPS * 2 * 3 * 16 * (8 + 16),
    "lstm": STEPS * 2 * 4 * 16 * (8 + 16),
}
"""Of one call, where that is easily said."""


SLOW = {"efficientnet", "resnet", "detector"}
"""Their exports take longer than those of all others. What those of images tell of an engine's layers, the digits' CNN
(convolutions) and BERT (sums around them) do.
"""
NAMES = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in CASES]


@cache
def made(slow: bool) -> dict[tuple[str, str], ExportedModel | ShootoutError]:
    """Every case, the slow ones apart, as it is and as the shared quantized model, exported in one process."""
    asked = [(name, variant) for name in CASES if (name in SLOW) is slow for variant in ("", "shared")]
    small = [Request(model=CASES[name][0], parameters=CASES[name][1], variant=variant) for name, variant in asked]
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
    assert {model for model, _ in CASES.values()} == set(models.names())


@without_gpu
@pytest.mark.parametrize("name", NAMES)
def test_a_half_engine_of_every_model_has_half_products_alone(name: str, tmp_path: Path):
    facts = build(name, FP16, tmp_path)
    wanted = set() if name in WITHOUT_PRODUCTS else {"fp16"}
    assert set(facts["compute_nodes_by_precision"]) == set(facts["network_nodes_by_precision"]) == wanted
    if name in FLOPS:
        assert facts["flops_by_precision"] == {"fp16": FLOPS[name]}
    assert facts["artifact_bytes"] == (tmp_path / "engine.plan").stat().st_size


@without_gpu
@pytest.mark.parametrize("name", NAMES)
def test_an_int8_engine_of_every_model_has_integer_products_or_a_reason(name: str, tmp_path: Path):
    if name in NOTHING_TO_QUANTIZE:
        with pytest.raises(ShootoutError, match="nothing to quantize: no matrix product or convolution in float32"):
            build(name, INT8, tmp_path, "shared")
        return
    facts = build(name, INT8, tmp_path, "shared")
    unreadable = facts["compute_nodes_by_precision"].pop("unknown", 0)
    assert unreadable <= (name == "efficientnet"), "one of its 82 layers doesn't show its operands"
    assert set(facts["compute_nodes_by_precision"]) == {"int8"}
    assert facts["artifact_bytes"] == (tmp_path / "engine.plan").stat().st_size


@without_gpu
def test_what_tensorrt_can_t_parse_fails_for_its_own_reason_and_not_for_want_of_a_gpu(tmp_path: Path):
    with pytest.raises(RuntimeError, match=r"can't parse the model: GRU .*must have same input types") as caught:
        build("gru", Precision.BF16, tmp_path)
    assert "cudaError" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
