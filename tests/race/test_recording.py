"""What a row says of a quantized model before it has run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from shootout.bundle.bundle import ModelBundle
from shootout.constants import BAND_CEILING
from shootout.contract import Arm, Device, Precision, Target
from shootout.race.recording import _doubts

REST, CEILING = "what isn't quantized computes in", "its error proves little: the band is at its ceiling"


def doubts(target: Target, **bands: float) -> tuple[str, ...]:
    bundle = SimpleNamespace(bands={"fp32": 1e-5, "fp16": 2e-3, "bf16": 2e-2, **bands})
    bundle.band = lambda *given: ModelBundle.band(bundle, *given)  # type: ignore[arg-type]
    found: Any = SimpleNamespace(built=SimpleNamespace(bundle=bundle), probe="int4")
    return _doubts(Arm(target=target, model="m"), found, runs=True)


@pytest.mark.parametrize(
    ("backend", "device", "rest"),
    [
        ("torch-eager", Device.CPU, "bf16"),
        ("torch-compile", Device.CPU, "bf16"),
        ("onnxruntime", Device.CPU, ""),
        ("tensorrt", Device.CUDA, "fp16"),
    ],
)
def test_a_row_says_what_its_backend_declares_of_the_rest(backend: str, device: Device, rest: str):
    target = Target(backend=backend, device=device, precision=Precision.INT4)
    assert doubts(target, int4=0.2) == ((f"{REST} {rest}",) if rest else ())


def test_the_band_has_what_the_rest_errs_by():
    bundle: Any = SimpleNamespace(bands={"fp32": 1e-5, "bf16": 0.02, "int4": 0.3})
    target = Target(backend="torch-eager", precision=Precision.INT4)
    declared = {(Device.CPU, Precision.INT4): Precision.BF16}
    assert ModelBundle.band(bundle, target)[0] == 0.3
    assert ModelBundle.band(bundle, target, declared)[0] == 0.32


@pytest.mark.parametrize(
    ("backend", "int4", "told"),
    [
        ("onnxruntime", BAND_CEILING, True),
        ("onnxruntime", 0.49, False),
        ("torch-eager", 0.49, True),  # with BF16's on top
    ],
)
def test_an_error_at_the_bands_ceiling_proves_little_and_the_row_says_so(backend: str, int4: float, told: bool):
    assert (CEILING in doubts(Target(backend=backend, precision=Precision.INT4), int4=int4)) is told
    assert CEILING not in doubts(Target(backend=backend, precision=Precision.FP32), fp32=int4)
