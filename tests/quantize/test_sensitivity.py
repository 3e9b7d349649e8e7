from __future__ import annotations

import math
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from shootout.clock import Deadline
from shootout.contract import Artifact
from shootout.errors import ModelError, OutOfTime, ShootoutError, UsageError
from shootout.export.client import Request, obtain, obtain_all
from shootout.export.sensitivity import measure_sensitivity, rank_layers
from shootout.exported import onnx_files
from shootout.exported.fidelity import compare
from shootout.exported.model import ExportedModel
from shootout.host import environment
from shootout.quantize import qdq, sensitivity, variants
from shootout.quantize.sensitivity import LayerSensitivity, Wanted
from shootout.testing.cases import exported_models

DIGITS = Request(model="digits", batch=9)
RESIDUAL = {"model": "residual_mlp", "parameters": {"d_model": 64, "n_layers": 4}}


@cache
def of_digits() -> list[LayerSensitivity]:
    return [*rank_layers(obtain(DIGITS), Deadline(None)).parts]


def test_every_layer_is_there_once_the_worst_first():
    found = of_digits()
    assert {one.layer.weight for one in found} == {f"layers.{index}.weight" for index in range(3)}
    assert {(one.name, one.layer.number) for one in found} == {(f"layers.{index}", index) for index in range(3)}
    assert [layer.sqnr_db for layer in found] == sorted(layer.sqnr_db for layer in found)
    by_weight = {one.layer.weight: one for one in found}
    assert by_weight["layers.0.weight"].weight_bytes == 64 * 128 * 4
    assert by_weight["layers.0.weight"].flops_share == pytest.approx(64 * 128 / (64 * 128 + 128 * 128 + 128 * 10))
    assert math.fsum(layer.flops_share for layer in found) == pytest.approx(1)


def test_a_layers_figure_is_what_its_own_weight_and_input_cost():
    """Worked out beside the quantizer, in NumPy."""
    most = 64 if environment.saturates() else 127
    (exported,) = exported_models(DIGITS)
    weights, sets = exported.weights(), [one["x"] for one in exported.calibration()]

    def forward(x: np.ndarray, only: int) -> tuple[np.ndarray, float]:
        largest = 0.0
        for layer in range(3):
            weight = weights[f"layers.{layer}.weight"].astype(np.float64)
            if layer == only:
                scale = np.abs(weight).max(axis=1, keepdims=True) / most
                weight = np.round(weight / scale) * scale
                largest = float(np.abs(x).max())
                if only in ranges:
                    step = ranges[only] / 127
                    x = np.clip(np.round(x / step), -127, 127) * step
            x = x @ weight.T + weights[f"layers.{layer}.bias"]
            x = np.maximum(x, 0) if layer < 2 else x
        return x, largest

    for only in range(3):
        ranges: dict[int, float] = {}
        ranges[only] = max(forward(x.astype(np.float64), only)[1] for x in sets)
        got = [{"y": forward(one["x"].astype(np.float64), only)[0]} for one in exported.input_buffers()]
        right = compare(got, exported.reference_outputs()).sqnr_db
        (found,) = (one for one in of_digits() if one.layer.weight == f"layers.{only}.weight")
        assert found.sqnr_db == pytest.approx(right, abs=0.2)


def reached(exported: ExportedModel) -> tuple[float, float]:
    """SQNR, and percent of the float model's weight bytes, of an exported model's own file."""
    found = compare(
        onnx_files.run(exported.path(Artifact.ONNX), exported.input_buffers(), "m"), exported.reference_outputs()
    )
    return found.sqnr_db or math.inf, exported.path(Artifact.ONNX).stat().st_size


@pytest.fixture
def whole_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights have 8 bits, as on a CPU with VNNI: the limits below are for these."""
    monkeypatch.setattr(environment, "saturates", lambda: False)


@pytest.mark.usefixtures("whole_bytes")
def test_mixed_precision_keeps_its_limit_with_as_few_float_layers_as_it_can(tmp_path: Path):
    variants = ("", "shared", "mixed-sqnr-48", "mixed-size-50")
    plain, shared, quality, size = exported_models(*(Request(**RESIDUAL, variant=one) for one in variants))
    limit = 48.0
    quantizer = qdq.Quantizer(plain.path(Artifact.ONNX), plain.calibration())
    order = [one.layer.node for one in sensitivity.rank_in_int8(quantizer, plain)]

    def sqnr_db(layers: list[str]) -> float:
        quantizer.write(tmp_path / "mixed.onnx", layers)
        return sensitivity.sqnr_of(tmp_path / "mixed.onnx", plain)

    fewest = next(kept for kept in range(4) if sqnr_db(order[kept:]) >= limit)
    assert 0 < fewest < 4
    assert reached(shared)[0] < limit <= reached(quality)[0]
    assert quality.notes[0].startswith(f"{fewest} of 4 layers float: ")
    assert f"SQNR {reached(quality)[0]:.1f} dB" in quality.notes[1]
    assert reached(shared)[0] <= reached(size)[0]
    assert reached(size)[1] <= 0.5 * plain.path(Artifact.ONNX).stat().st_size
    assert quality.artifacts == (Artifact.ONNX,)


@pytest.mark.usefixtures("whole_bytes")
def test_accuracy_on_the_selection_split_is_a_limit_too():
    (found,) = exported_models(Request(model="digits", batch=9, variant="mixed-drop-1"))
    assert "points on the selection split" in found.notes[1]
    assert found.notes[0] == "0 of 3 layers float"


@pytest.mark.usefixtures("whole_bytes")
@pytest.mark.parametrize(
    ("request_", "kind", "says"),
    [
        (Request(model="digits", batch=9, variant="mixed-sqnr-200"), ModelError, "the best reaches SQNR 5"),
        (Request(model="digits", batch=9, variant="mixed-size-5"), ModelError, "% of the float file's size"),
        (Request(**RESIDUAL, variant="mixed-drop-1"), UsageError, "residual_mlp has no labeled data"),
    ],
)
def test_a_limit_that_cannot_be_kept_says_the_best(request_: Request, kind: type[ShootoutError], says: str):
    (error,) = obtain_all([request_])
    assert isinstance(error, kind)
    assert str(error).startswith(f"{request_.variant}: ")
    assert says in str(error)


@pytest.mark.parametrize(
    ("kind", "limit", "kept"),
    [("sqnr", 33, 3), ("sqnr", 30, 0), ("drop", 0.5, 5), ("size", 60, 6), ("size", 35, 1), ("size", 99, 9)],
)
def test_the_bisection_finds_the_count(kind: str, limit: float, kept: int):
    def measure(count: int) -> variants.MixedModel:
        return variants.MixedModel(kept=count, sqnr_db=30.0 + count, size=30.0 + 5 * count, drop=1 - count / 10)

    assert variants._bisect_mix(kind, limit, measure, 9, "v").kept == kept


def test_sensitivity_is_asked_of_a_float_model():
    with pytest.raises(UsageError, match="'shared' is quantized already"):
        measure_sensitivity(Request(model="digits", variant="shared"), Wanted())


def test_the_time_holds_for_the_whole_command():
    """The process is ended at the limit, whatever it does."""
    obtain(DIGITS)
    with pytest.raises(OutOfTime, match="--max-time 0 s was over before what one layer does to digits was"):
        measure_sensitivity(DIGITS, Wanted(limit_s=0.05))


def test_calibration_data_that_cannot_be_used_are_an_error(tmp_path: Path):
    np.savez(tmp_path / "one.npz", x=np.ones((6, 256), np.float32))
    with pytest.raises(UsageError, match="1 calibration set"):
        measure_sensitivity(Request(model="permutation_probe", batch=6, calibration_npz=tmp_path / "one.npz"), Wanted())


def test_asking_imports_no_framework():
    code = """if True:
        import sys
        import shootout.export.sensitivity
        assert not {"torch", "onnx", "onnxruntime"} & set(sys.modules)
        """
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("reduced", [False, True])
def test_layers_are_rounded_to_as_many_bits_as_the_mixed_file_gets(reduced: bool, tmp_path: Path):
    (exported,) = exported_models(Request(model="digits", batch=2))
    quantizer = qdq.Quantizer(exported.path(Artifact.ONNX), exported.calibration(), reduced=reduced)
    for one in sensitivity.rank_in_int8(quantizer, exported):
        quantizer.write(tmp_path / "one.onnx", [one.layer.node])
        assert one.sqnr_db == pytest.approx(sensitivity.sqnr_of(tmp_path / "one.onnx", exported), abs=0.3)
