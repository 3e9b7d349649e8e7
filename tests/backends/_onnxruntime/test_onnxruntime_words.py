"""Words of a scheme beside each other: each is asked of ONNX Runtime's quantizer, or the pair is refused."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from onnxruntime import quantization
from onnxruntime.quantization import matmul_nbits_quantizer

from shootout.backends._onnxruntime import backend, quantize
from shootout.core.contract import Arm, Precision, Target
from shootout.core.errors import SkippedArm, UsageError
from shootout.core.schemes import parse
from shootout.models.onnx import onnx_files

DEFAULTS = {"per-channel", "asymmetric", "minmax", "rest-fp32"}
"""Words for what is done without them."""
NUMBERS = {"samples-*": "samples-3", "float-*": "float-1"}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What quantizers are asked, none of which runs."""
    made: list[str] = []

    def record(name: str, *given: Any, **named: Any) -> Any:
        config = named.pop("algo_config", None)
        sets = [one.rows for one in given if hasattr(one, "rows")]
        made.append(f"{name} {sets} {named} {type(config).__name__}")
        return SimpleNamespace(process=list, model=SimpleNamespace(topological_sort=list, model=None))

    for module, name in (
        (quantization, "quantize_static"),
        (quantization, "quantize_dynamic"),
        (matmul_nbits_quantizer, "MatMulNBitsQuantizer"),
    ):
        monkeypatch.setattr(module, name, lambda *given, _name=name, **named: record(_name, *given, **named))
    for name in ("_require_operations", "_restore_order", "_rewrite_gemm", "_flatten_biases"):
        monkeypatch.setattr(quantize, name, lambda *_: None)
    for name in ("saturates", "prefers_signed"):
        monkeypatch.setattr(quantize, name, lambda: False)
    for name in ("_take_passed_on", "_name_read_inside"):
        monkeypatch.setattr(quantize, name, lambda _: [])
    monkeypatch.setattr(quantize, "_release_reads", lambda *_: None)
    monkeypatch.setattr(quantize, "_name_floats", lambda _, __, scheme: [*map(str, scheme.floats)])
    monkeypatch.setattr(quantize, "calibration_of", lambda _, scheme: [{}] * (scheme.samples or 0))
    monkeypatch.setattr(quantize, "CalibrationReader", lambda sets: SimpleNamespace(rows=len(sets)))
    monkeypatch.setattr(quantize.ort, "prepared", lambda source, _: source)
    monkeypatch.setattr(onnx_files, "is_big", lambda _: False)
    monkeypatch.setattr(onnx_files, "save", lambda *_: None)
    return made


def asked(precision: Precision, text: str, calls: list[str]) -> str:
    """What the quantizer is asked for a scheme; "" where it is refused."""
    target = Target(backend="onnxruntime", precision=precision, scheme=text)
    try:
        scheme = parse(text, own=quantize.OWN)
        backend._refuse_target(target)
    except (UsageError, SkippedArm):
        return ""
    if scheme.is_quantized:
        return f"{scheme.made}, made before"
    exported: Any = None
    quantize.quantize(Path("m.onnx"), exported, Arm(target=target, model="m"), scheme, Path())
    return calls[-1]


@pytest.mark.parametrize("precision", quantize.SCHEMES)
def test_no_word_is_taken_and_ignored(precision: Precision, calls: list[str]):
    words = sorted(NUMBERS.get(word, word) for word in quantize.SCHEMES[precision])
    for pair in combinations(words, 2):
        both = asked(precision, "+".join(pair), calls)
        for word, other in (pair, pair[::-1]):
            if both and word not in DEFAULTS:
                assert both != asked(precision, other, calls), f"{word} changes nothing beside {other}"
            if both and {word, other} <= DEFAULTS:
                assert both == asked(precision, "", calls), pair
