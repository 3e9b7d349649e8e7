"""Quantizers with a planted fault, through the command line: what they broke is named, harmless noise is admitted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from support.adapters import planted
from support.adapters.third_party import install
from support.console import Ended, deaf_here
from support.onnx_made import value, write

pytestmark = pytest.mark.slow  # each races real processes for some seconds
BACKENDS = {
    one.name: f"support.adapters.planted:{one.__name__}"
    for one in (planted.BreaksClass, planted.ScalesOutput, planted.AddsNoise)
}


def classify_digits(folder: Path) -> list[str]:
    """A linear classifier of scikit-learn's digits; half of the 1,797 rows are scored."""
    from sklearn.datasets import load_digits  # here and below: not while tests are collected

    pixels, labels = load_digits(return_X_y=True)
    x = (pixels / 16).astype(np.float32)
    fitted, *_ = np.linalg.lstsq(np.column_stack([x, np.ones(len(x))]), np.eye(10)[labels], rcond=1e-3)
    weights = {"w": fitted[:-1].astype(np.float32), "b": fitted[-1].astype(np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["scores"])]
    write(folder / "model.onnx", nodes, [value("x", ("rows", 64))], [value("scores", ("rows", 10))], weights)
    np.savez(folder / "inputs.npz", x=x)
    np.save(folder / "truth.npy", labels)
    return ["--metric", "accuracy"]


def forecast_twice(folder: Path) -> list[str]:
    """A forecast of two amounts by the pixels of digits, each with an error of its own."""
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(0)
    x = (load_digits().data / 16).astype(np.float32)
    weights: dict[str, Any] = {name: rng.uniform(0, 1, (64, 1)).astype(np.float32) for name in ("price_w", "load_w")}
    nodes = [helper.make_node("MatMul", ["x", f"{name}_w"], [name]) for name in ("price", "load")]
    outputs = [value(name, ("rows", 1)) for name in ("price", "load")]
    write(folder / "model.onnx", nodes, [value("x", ("rows", 64))], outputs, weights)
    np.savez(folder / "inputs.npz", x=x)
    truth = {name: x @ weights[f"{name}_w"] + rng.uniform(-1, 1, (len(x), 1)) for name in ("price", "load")}
    np.savez(folder / "truth.npz", **truth)
    return ["--metric", "mae", "--truth", "truth.npz", "--max-drop", "2%"]


def race(folder: Path, backend: str, make: Callable[[Path], list[str]]) -> Ended:
    given = make(folder)
    truth = () if "--truth" in given else ("--truth", "truth.npy")
    targets = [f"{backend}:cpu:{precision}" for precision in ("fp32", "int8")]
    (folder / "study.toml").write_text(
        f'model = "model.onnx"\ninputs = "inputs.npz"\nbatch = [64]\ntargets = {targets}\nmax_restarts = 2\n'
    )
    words = ("study.toml", *given, *truth, "--max-error", "0.99", "--out", "out", "--json")
    return deaf_here("run", *words, cwd=folder, modules=install(folder / "third", "planted", BACKENDS))


def metric_of(done: Ended) -> Any:
    assert done.code == 0, done.err
    return next(row["fidelity"]["metric"] for row in done.data["rows"] if row["precision"] == "int8")


def test_a_quantizer_that_breaks_a_class_is_refused(tmp_path: Path):
    done = race(tmp_path, "breaks-class", classify_digits)
    metric = metric_of(done)
    assert metric["standing"] == "broken"
    assert done.data["answer"][0]["ship"]["arm"] == "breaks-class:cpu:fp32"


def test_a_quantizer_that_breaks_one_output_is_refused_by_name(tmp_path: Path):
    done = race(tmp_path, "scales-output", forecast_twice)
    metric = metric_of(done)
    assert (metric["standing"], metric["output"]) == ("broken", "load")
    assert [(one["output"], one["change"]["value"]) for one in metric["other_outputs"]] == [("price", 0.0)]
    assert done.data["answer"][0]["ship"]["arm"] == "scales-output:cpu:fp32"


@pytest.mark.parametrize("make", [classify_digits, forecast_twice])
def test_a_quantizer_that_only_adds_noise_is_admitted(tmp_path: Path, make: Callable[[Path], list[str]]):
    done = race(tmp_path, "adds-noise", make)
    metric = metric_of(done)
    assert metric["standing"] == "met"
    assert done.data["answer"][0]["ship"]["arm"] == "adds-noise:cpu:int8"
    assert done.data["answer"][0]["ship"]["admitted"] == "metric"
