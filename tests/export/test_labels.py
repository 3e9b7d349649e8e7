"""Labels of a user's own rows: read, shared out between report and calibration, and an accuracy in the row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.console import here
from support.onnx_made import linear

from shootout.core.contract import TensorSpec
from shootout.core.errors import ShootoutError, UsageError
from shootout.core.exported import client
from shootout.core.exported.calls import saving
from shootout.core.exported.client import Request, obtain_all
from shootout.core.exported.model import BUFFER_ROWS, ExportedModel
from shootout.core.scoring import MetricSpec
from shootout.core.study import plan
from shootout.models.data.data_files import HALF_ROWS
from shootout.models.metrics import scorer
from shootout.models.sources import input_sets

SPECS = (TensorSpec(name="x", shape=(2, 4), dtype="float32"),)
RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((50, 4)).astype(np.float32)
CLASSES = RNG.integers(0, 3, 50)


def files(folder: Path, rows: np.ndarray, classes: np.ndarray, name: str = "labels") -> tuple[Path, Path]:
    np.savez(folder / "data.npz", x=rows)
    np.savez(folder / "labels.npz", **{name: classes})
    return folder / "data.npz", folder / "labels.npz"


def test_report_and_calibration_share_no_row_where_there_are_enough():
    split = input_sets.split_rows({"x": ROWS}, CLASSES, SPECS)
    reported, other = ({row.tobytes() for row in part["x"]} for part in (split.report, split.other))
    assert (len(reported), len(other), reported & other) == (25, 25, set())
    assert np.array_equal(split.report_labels, CLASSES[::2])
    assert split.notes == ("the metric is of 25 of your 50 rows; the other 25 are for calibration and `tune`",)
    sets = split.sets()
    assert [one["x"].shape for one in sets] == [(2, 4)] * 13
    assert np.array_equal(sets[-1]["x"], np.stack([ROWS[49], ROWS[1]])), "filled up from the first"


def test_rows_that_belong_together_stay_on_one_side(tmp_path: Path):
    units = RNG.permutation(np.arange(400) % 40)
    rows = RNG.standard_normal((400, 4)).astype(np.float32)
    split = input_sets.split_rows({"x": rows}, None, SPECS, units)
    assert not {*units[split.report_rows]} & {*units[split.other_rows]}
    assert len({*units[split.report_rows]}) == len({*units[split.other_rows]}) == 20
    split.save(tmp_path)
    exported: Any = SimpleNamespace(folder=tmp_path, has_report=True)
    timed = split.given(SPECS)
    np.save(tmp_path / BUFFER_ROWS, timed.rows)
    first = timed.buffers[0]["x"]
    assert all(np.array_equal(rows[ExportedModel.number_row(exported, at)], row) for at, row in enumerate(first))


def test_few_rows_serve_both():
    split = input_sets.split_rows({"x": ROWS[:5]}, CLASSES[:5], SPECS)
    assert np.array_equal(split.report["x"], split.other["x"])
    least = 2 * max(HALF_ROWS, 2 * split.batch)
    assert split.notes[0].endswith(f"too few to share out; {least} would do")
    enough = {"x": np.resize(ROWS, (least, *ROWS.shape[1:]))}
    assert "share out" not in input_sets.split_rows(enough, np.resize(CLASSES, least), SPECS).notes[0]
    assert "share out" in input_sets.split_rows({"x": enough["x"][1:]}, np.resize(CLASSES, least - 1), SPECS).notes[0]


def test_rows_that_only_chance_gets_right_are_doubted(tmp_path: Path):
    classes, rows = np.arange(40) % 4, np.zeros((40, 4), np.float32)
    split = input_sets.split_rows({"x": rows}, classes, SPECS)
    split.save(tmp_path)
    np.save(tmp_path / BUFFER_ROWS, split.given(SPECS).rows)
    exported: Any = SimpleNamespace(folder=tmp_path, has_report=True, stream=None)

    def doubt(guessed: np.ndarray, metric: str = "accuracy") -> list[str]:
        scores = np.eye(4)[guessed][np.load(tmp_path / BUFFER_ROWS)].reshape(-1, 2, 4)
        exported.reference_outputs = lambda: [{"other": np.zeros(2), "scores": one} for one in scores]
        return list(scorer.find_misfits(MetricSpec(metric=metric), exported))

    (said,) = doubt((classes + 1) % 4)
    assert said.startswith("FP32 finds the right class of 0 of 40 rows, no more than one class for all would (25%)")
    assert doubt(np.zeros(40, int))[0].startswith("FP32 finds the right class of 10 of 40 rows")
    assert doubt(np.where(np.arange(40) < 14, classes, 0)) == [], "half of them right is more than chance"
    assert doubt((classes + 1) % 4, "f1") == []


def test_timed_rows_may_be_scored_and_those_that_calibrate_may_not():
    split = input_sets.split_rows({"x": ROWS}, CLASSES, SPECS)
    timed = split.given(SPECS)
    assert {*timed.rows} == {*range(50)}
    scored = {row.tobytes() for row in split.report["x"]}
    assert not scored & {row.tobytes() for one in timed.calibration for row in one["x"]}


@pytest.mark.parametrize("model", ["mine.onnx", "mine.py:make"])
@pytest.mark.parametrize(
    ("rows", "classes", "says"),
    [
        (np.where(ROWS > 0.5, np.nan, ROWS).astype("float32"), CLASSES, "input 'x': expected numbers, got NaN in"),
        (ROWS, CLASSES[:-1], "rows of the inputs, got int64[49]"),
        (ROWS, CLASSES.astype(float), "one whole number for each of"),
        (ROWS.reshape(25, 2, 4), CLASSES[:30], "rows of the inputs, got int64[30]"),
    ],
)
def test_data_that_no_model_could_use_are_refused_by_the_plan(
    tmp_path: Path, model: str, rows: np.ndarray, classes: np.ndarray, says: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(plan, "known_available", None)  # not so far: this takes seconds
    (tmp_path / "mine.py").write_text(FACTORY)
    linear(tmp_path / "mine.onnx", ("n", 4), ("n", 3))
    files(tmp_path, rows, classes)
    words = ["--inputs", "data.npz", "--labels", "labels.npz", "--batch", "2", "--backends", "onnxruntime", "--dry-run"]
    done = here("run", model, *words, cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_inputs_without_a_common_batch_axis_have_no_rows():
    specs = (*SPECS, TensorSpec(name="t", shape=(), dtype="int64"))
    with pytest.raises(UsageError, match="first axis is the batch"):
        input_sets.common_batch(specs)


LABEL, SCORES = (
    TensorSpec(name="label", shape=(2,), dtype="int64"),
    TensorSpec(name="probabilities", shape=(2, 3), dtype="float32"),
)


def test_a_search_is_measured_on_the_rows_that_it_may_look_at(tmp_path: Path):
    path = linear(tmp_path / "mine.onnx", ("n", 4), ("n", 3))
    data, given = files(tmp_path, ROWS[:49], CLASSES[:49])
    (plain,) = obtain_all([Request(model=str(path), parameters={"n": 4}, inputs_npz=data, labels_npz=given)])
    assert not isinstance(plain, ShootoutError), plain
    seen, unseen = plain.for_selection().report(), plain.report()
    assert seen is not None
    assert unseen is not None
    assert np.array_equal(seen.rows, np.arange(1, 49, 2))
    assert np.array_equal(unseen.rows, np.arange(0, 49, 2))
    assert np.array_equal(seen.labels, CLASSES[1:49:2])
    assert (plain.for_selection().report_calls, plain.report_calls) == (6, 7)
    assert plain.for_selection().notes[-1].startswith("this search goes by the 24 rows that calibration sees")
    truth = tmp_path / "truth.npy"
    np.save(truth, np.arange(49.0))
    (tmp_path / "metric.py").write_text("def number(outputs, truth): return truth")
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    call = saving(lambda inputs: {"y": np.zeros((len(inputs["x"]), 3), np.float32)}, outputs)
    for first in range(0, 24, 4):
        call({"x": seen.inputs["x"][first : first + 4]})
    spec = MetricSpec(metric=f"{tmp_path}/metric.py:number", truth=str(truth))
    assert scorer.score(spec, outputs, plain.for_selection(), 60.0).rows == tuple(range(1, 49, 2))


FACTORY = """
import torch
from torch import nn

def make():
    torch.manual_seed(1)
    x = torch.randn(64, 4)
    net = nn.Linear(4, 3)
    return net, x, net(x).argmax(-1)
"""


def test_the_exported_models_report_is_of_these_rows(tmp_path: Path):
    """An ONNX file with two files, and a factory that brings its own labels: at a batch that its data isn't made in."""
    (tmp_path / "mine.py").write_text(FACTORY)
    path = linear(tmp_path / "mine.onnx", ("n", 4), ("n", 3))
    data, given = files(tmp_path, ROWS, CLASSES)
    wanted = [
        Request(model=str(path), parameters={"n": 5}, inputs_npz=data, labels_npz=given),
        Request(model=f"{tmp_path}/mine.py:make", batch=3),
    ]
    wanted += [replace(one, scores_all=True) for one in wanted]
    onnx, torch, *whole = obtain_all(wanted)
    for one, count in zip(whole, (50, 64), strict=True):
        assert not isinstance(one, ShootoutError), one
        assert (all_rows := one.report()) is not None
        assert np.array_equal(all_rows.rows, np.arange(count)), "nothing is calibrated"
    assert not isinstance(onnx, ShootoutError), onnx
    assert not isinstance(torch, ShootoutError), torch
    assert (onnx.batch, torch.batch) == (5, 3)
    assert (len(onnx.input_buffers()), len(torch.input_buffers())) == (10, 22), "of all rows, scored or not"
    report = onnx.report()
    assert report is not None
    assert np.array_equal(report.inputs["x"], ROWS[::2])
    assert np.array_equal(report.labels, CLASSES[::2])
    assert any("rows; the other" in note for note in onnx.notes)
    weights, found = torch.weights(), torch.report()
    assert found is not None
    classes = [(one["input"] @ weights["weight"].T + weights["bias"]).argmax(1) for one in found.calls(3)]
    assert np.array_equal(np.concatenate(classes)[:32], found.labels)


def test_labels_among_the_inputs_need_no_file_of_their_own(tmp_path: Path):
    path = linear(tmp_path / "mine.onnx", ("n", 4), ("n", 3))
    np.savez(tmp_path / "both.npz", x=ROWS, labels=CLASSES)
    asked = Request(model=str(path), batch=2, inputs_npz=tmp_path / "both.npz")
    assert asked.source.labels(asked) == tmp_path / "both.npz"
    split = input_sets.read_split(tmp_path / "both.npz", tmp_path / "both.npz", SPECS)
    assert np.array_equal(split.report_labels, CLASSES[::2])
    _, given = files(tmp_path, ROWS, CLASSES)
    with pytest.raises(UsageError, match=r"both\.npz holds labels, and --labels gives some too"):
        client.check(replace(asked, labels_npz=given))
    linear(path, ("n", 4), ("n", 3), name="labels")
    assert asked.source.labels(asked) is None, "an input may be called so"


def test_labels_need_inputs_and_a_model_of_the_users_own(tmp_path: Path):
    _, given = files(tmp_path, ROWS, CLASSES)
    with pytest.raises(UsageError, match="--inputs"):
        client.check(Request(model="residual_mlp", labels_npz=given))
    with pytest.raises(UsageError, match="--inputs"):
        client.check(Request(model=str(linear(tmp_path / "mine.onnx")), labels_npz=given))
