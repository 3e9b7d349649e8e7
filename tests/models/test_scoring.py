"""Metrics, the user's own and by name: run in a process of their own, on any truth, and what they may not give."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from support import programs
from support.exports import bare_exported
from support.onnx_made import linear

from shootout.core.contract import Arrays
from shootout.core.errors import ShootoutError, UsageError
from shootout.core.exported.calls import Stream, saving
from shootout.core.exported.client import Request, obtain_all
from shootout.core.exported.fidelity import rows
from shootout.core.exported.model import ExportedModel, ReportRows
from shootout.core.host import child
from shootout.core.messages import Scores
from shootout.core.scoring import MetricSpec
from shootout.models.data.data_files import order_clips
from shootout.models.metrics import metrics, scorer, scoring

METRIC = """
import os
print("chatter", flush=True)

def margin(outputs, truth):
    return outputs["y"][:, 0] + truth + (os.getppid() == int(os.environ["TESTS"]))

margin.lower_is_better = True

def by_name(outputs, truth, inputs):
    assert inputs["x"].shape == (len(truth["words"]), 4)
    return [len(word) + shift for word, shift in zip(truth["words"], truth["shift"])]

def own(outputs, truth):
    return abs(outputs["y"] - truth["y"]).max(axis=1)

def error_rate(outputs, truth):
    import numpy as np
    return np.stack([truth, truth + 1 + outputs["y"][:, 0]], axis=1)

error_rate.lower_is_better = True
error_rate.reduce = lambda rows: rows[:, 0].sum() / rows[:, 1].sum()

def plain(outputs, truth): return error_rate(outputs, truth)
def unset(outputs, truth): return error_rate(outputs, truth)
def pair(outputs, truth): return error_rate(outputs, truth)
def lost(outputs, truth): return error_rate(outputs, truth)
def breaks(outputs, truth): return error_rate(outputs, truth)
def wide(outputs, truth): return error_rate(outputs, truth)[:, : len(truth)]

unset.reduce = 1
pair.reduce = lambda rows: rows.sum(axis=0)
lost.reduce = lambda rows: 1.0 if len(rows) == 5 else float("nan")
breaks.reduce = lambda rows: rows["edits"]
wide.reduce = error_rate.reduce

def few(outputs, truth): return [1.0]
def nan(outputs, truth): return truth * float("nan")
def huge(outputs, truth): return truth * 1e200
def word(outputs, truth): return ["good"] * len(truth)
def late(outputs, truth): return 1 / 0
def leaves(outputs, truth): os._exit(3)
"""
ROWS = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
TRUTH = np.arange(5.0)


@pytest.fixture
def metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TESTS", str(os.getpid()))
    (tmp_path / "metric.py").write_text(METRIC)
    return tmp_path / "metric.py"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> ExportedModel:
    """Of 5 rows in batches of 2, with the model's own outputs for them."""
    folder = tmp_path_factory.mktemp("scored")
    path = linear(folder / "mine.onnx", ("n", 4), ("n", 3))
    np.savez(folder / "data.npz", x=ROWS)
    (found,) = obtain_all(
        [Request(model=str(path), parameters={"n": 2}, inputs_npz=folder / "data.npz", scored="outputs")]
    )
    assert not isinstance(found, ShootoutError), found
    return found


@pytest.fixture
def outputs(tmp_path: Path, exported: ExportedModel) -> Path:
    """What a worker leaves: zeros for each call, the last one filled up with row 0."""
    folder, report = tmp_path / "outputs", exported.report()
    folder.mkdir()
    assert report is not None

    def run(inputs: Arrays) -> Arrays:
        return {"y": np.zeros((len(inputs["x"]), 3), np.float32)}

    call = saving(run, folder)
    for first in range(0, 5, 2):
        call({name: rows(array, first, 2) for name, array in report.inputs.items()})
    return folder


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    np.save(tmp_path / "truth.npy", TRUTH)
    return tmp_path / "truth.npy"


def test_every_row_is_scored_once_in_a_process_of_its_own(
    metric: Path, outputs: Path, exported: ExportedModel, truth: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(child, "run", programs.RUN)
    found = scorer.score(MetricSpec(metric=f"{metric}:margin", truth=str(truth)), outputs, exported, 60.0)
    assert found == Scores(name="metric.py:margin", rows=(1.0, 2.0, 3.0, 4.0, 5.0), lower_is_better=True)


def test_ragged_truth_and_inputs_reach_a_metric_by_name(
    metric: Path, outputs: Path, exported: ExportedModel, tmp_path: Path
):
    lines = [{"words": "x" * number, "shift": 10 * number} for number in range(5)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(lines), tmp_path / "truth.parquet")
    spec = MetricSpec(metric=f"{metric}:by_name", truth=str(tmp_path / "truth.parquet"))
    assert scoring.score_report(spec, outputs, exported).rows == (0.0, 11.0, 22.0, 33.0, 44.0)


def test_without_truth_outputs_are_scored_against_the_models_own(metric: Path, outputs: Path, exported: ExportedModel):
    found = scoring.score_report(MetricSpec(metric=f"{metric}:own"), outputs, exported)
    assert found.against == "outputs"
    own = scoring.report_outputs(exported)
    assert own
    assert found.rows == pytest.approx(np.abs(own["y"]).max(axis=1).tolist())


def test_a_metric_by_name_scores_against_truth(outputs: Path, exported: ExportedModel, tmp_path: Path):
    np.savez(tmp_path / "truth.npz", target=np.full((5, 3), 2.0))
    found = scoring.score_report(MetricSpec(metric="mae", truth=str(tmp_path / "truth.npz")), outputs, exported)
    assert (found.rows, found.name, found.lower_is_better) == ((2.0,) * 5, "mae", True)


@pytest.fixture
def two_outputs(outputs: Path) -> Path:
    """As `outputs`, of a model with two: zeros, and class scores whose first class is the highest."""
    scores = np.zeros((2, 3), np.float32)
    scores[:, 0] = 1
    call = saving(lambda _: {"load": np.zeros((2, 3), np.float32), "price": scores}, outputs)
    for _ in range(3):
        call({})
    return outputs


def test_each_output_that_the_truth_names_is_scored(two_outputs: Path, exported: ExportedModel, tmp_path: Path):
    """A model's second output may be broken, whatever the first one's score."""
    np.savez(tmp_path / "truth.npz", load=np.full((5, 3), 2.0), price=np.full((5, 3), 4.0))
    spec = MetricSpec(metric="mae", truth=str(tmp_path / "truth.npz"))
    found = scorer.score(spec, two_outputs, exported, 60.0)
    (other,) = found.other_outputs
    assert (found.output, other.output, other.name) == ("load", "price", "mae")
    assert (found.rows, other.rows) == ((2.0,) * 5, pytest.approx((11 / 3,) * 5))
    alone = scoring.score_report(replace(spec, scores="price"), two_outputs, exported)
    assert (alone.output, alone.rows, alone.other_outputs) == ("price", other.rows, ())


def test_an_output_that_the_metric_cannot_score_is_named(two_outputs: Path, exported: ExportedModel, tmp_path: Path):
    np.savez(tmp_path / "truth.npz", load=np.zeros((5, 3)), price=np.zeros((5, 2)))
    spec = MetricSpec(metric="mae", truth=str(tmp_path / "truth.npz"))
    with pytest.raises(UsageError, match=r"output price: mae: expected truth.*; --scores NAME scores one output alone"):
        scoring.score_report(spec, two_outputs, exported)


def test_a_metric_of_the_whole_set_has_what_each_row_adds_to_it(
    metric: Path, outputs: Path, exported: ExportedModel, truth: Path
):
    found = scorer.score(MetricSpec(metric=f"{metric}:error_rate", truth=str(truth)), outputs, exported, 60.0)
    assert (found.name, found.fault, found.unit, found.worst) == ("metric.py:error_rate", "", "row", 0.0)
    assert np.mean(found.rows) == pytest.approx(10 / 15)
    added = [5 * 10 / 15 - 4 * (10 - row) / (15 - row - 1) for row in range(5)]
    assert np.subtract(found.rows, found.rows[0]) == pytest.approx(np.subtract(added, added[0]))


@pytest.mark.parametrize(("name", "unit"), [("speakers.npy", "speaker"), ("ids_2.npy", "unit")])
def test_rows_that_belong_together_are_one_score(
    metric: Path, outputs: Path, exported: ExportedModel, truth: Path, name: str, unit: str
):
    np.save(truth.parent / name, np.array(["a", "b", "a", "b", "b"]))
    spec = MetricSpec(metric=f"{metric}:margin", truth=str(truth), rows_by=str(truth.parent / name))
    found = scoring.score_report(spec, outputs, exported)
    assert (found.unit, len(found.rows), found.worst) == (unit, 2, 4.0)
    assert np.mean(found.rows) == pytest.approx(2.0), "of all rows alike"
    assert found.rows[1] - found.rows[0] == pytest.approx((2 * 2 - 1.0) - (2 * 2 - 8 / 3))


def test_one_unit_alone_is_told(metric: Path, outputs: Path, exported: ExportedModel, truth: Path):
    np.save(truth.parent / "speaker.npy", np.zeros(5, int))
    spec = MetricSpec(metric=f"{metric}:margin", truth=str(truth), rows_by=str(truth.parent / "speaker.npy"))
    with pytest.raises(UsageError, match="all 5 rows are of one speaker, and at least two are needed"):
        scoring.score_report(spec, outputs, exported)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        ("plain", r"gave float64\[2, 2\] for 2 rows: statistics of a row need a function .* set plain.reduce"),
        ("unset", "unset.reduce: expected a function of the statistics, received 1"),
        ("pair", r"pair.reduce gave float64\[2\]: expected one number of all the rows that it gets"),
        ("lost", "lost can't score the whole set: nan for all rows but those of unit 0"),
        ("breaks", r"breaks raised IndexError.*\(metric.py line 34\)"),
        ("wide", r"gave statistics of several shapes, \[2, 2\] and \[1, 1\]: expected as many for each row"),
        ("few", r"gave float64\[1\] for 2 rows: expected score\(outputs, truth\)"),
        ("nan", "gave nan for row 0 of the inputs, which is not a score"),
        ("huge", r"gave 1e\+200 for row 1 of the inputs, which is not a score"),
        ("word", r"gave <U4\[2\] for 2 rows"),
        ("late", r"raised ZeroDivisionError: division by zero \(metric.py line 41\) \(rows 0 to 1 of the inputs\)"),
    ],
)
def test_what_is_no_score_is_a_fault_that_says_so(
    metric: Path, outputs: Path, exported: ExportedModel, truth: Path, function: str, fault: str
):
    with pytest.raises(UsageError, match=fault):
        scoring.score_report(MetricSpec(metric=f"{metric}:{function}", truth=str(truth)), outputs, exported)


def test_one_that_ends_its_process_is_a_fault(metric: Path, outputs: Path, exported: ExportedModel, truth: Path):
    found = scorer.score(MetricSpec(metric=f"{metric}:leaves", truth=str(truth)), outputs, exported, 60.0)
    assert (found.rows, found.fault) == ((), "metric.py:leaves exited with code 3; its last words: chatter")


def test_a_metric_is_found_without_running_it_and_told_from_a_changed_one(metric: Path):
    before = scorer.check_metric(f"{metric}:margin")
    metric.write_text(METRIC.replace("+ truth +", "- truth +"))
    assert scorer.check_metric(f"{metric}:margin") != before
    with pytest.raises(UsageError, match="did you mean 'margin'"):
        scorer.check_metric(f"{metric}:margn")


@pytest.mark.parametrize(
    ("metric", "package"), [("mae", "scikit-learn"), ("iou", "scikit-learn"), ("map", "pycocotools"), ("wer", "jiwer")]
)
def test_a_missing_library_is_told_with_the_command_that_installs_it(
    metric: str, package: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(metrics, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=f"metric '{metric}' needs {package}: python -m pip install {package}"):
        scorer.check_metric(metric)
    assert scorer.check_metric("accuracy") == "accuracy"


def test_an_option_that_has_no_effect_on_a_metric_is_refused(metric: Path):
    with pytest.raises(UsageError, match="--min-agreement 99% doesn't apply to rmse, of which lower is better"):
        scorer.check_metric("rmse", min_agreement="99%")
    with pytest.raises(UsageError, match=r"--scores y is for a metric by name; .*margin gets all outputs"):
        scorer.check_metric(f"{metric}:margin", scores="y")
    assert scorer.check_metric("cosine", scores="y", min_agreement="99%") == "cosine"


class Clips(ExportedModel):
    """Four clips of three calls, each call one row of each of two clips; `x` has the number of its row."""

    __slots__ = ()

    def report(self) -> ReportRows:
        order = order_clips(Stream(steps=3), np.arange(12), 2)
        inputs = {"x": order[:, None].astype(np.float32), "h": np.zeros((1, 2), np.float32)}
        return ReportRows(inputs=inputs, rows=order, other_rows=order, labels=None, shared=frozenset({"h"}))


@pytest.fixture
def clips(tmp_path: Path) -> tuple[Path, ExportedModel]:
    """Return what a worker leaves of a model that gives its input back, and the model."""
    plain = bare_exported({}, batch=2, stream=Stream(steps=3))
    made = Clips(**{name: getattr(plain, name) for name in plain.__dataclass_fields__})
    folder = tmp_path / "clips"
    folder.mkdir()
    call = saving(lambda inputs: {"y": inputs["x"]}, folder)
    for first in range(0, 12, 2):
        call(made.report().take(np.arange(first, first + 2)))
    return folder, made


def test_truth_of_rows_counts_a_clip_once(clips: tuple[Path, ExportedModel], tmp_path: Path):
    np.save(tmp_path / "truth.npy", np.arange(12.0) + np.array([0, 0, 3] * 4))
    found = scoring.score_report(MetricSpec(metric="mae", truth=str(tmp_path / "truth.npy")), *clips)
    assert (found.unit, found.rows) == ("clip", pytest.approx((1.0,) * 4))


def test_truth_of_clips_is_scored_once_a_clip(clips: tuple[Path, ExportedModel], tmp_path: Path):
    """By name by what the last call gave; a function gets all steps."""
    np.save(tmp_path / "truth.npy", np.array([2.0, 5.0, 8.0, 10.0]))
    truth = str(tmp_path / "truth.npy")
    found = scoring.score_report(MetricSpec(metric="mae", truth=truth), *clips)
    assert (found.unit, found.rows) == ("clip", pytest.approx((0.0, 0.0, 0.0, 1.0)))
    (tmp_path / "metric.py").write_text(
        "def first(outputs, truth, inputs):\n"
        "    assert outputs['y'].shape == inputs['x'].shape == (2, 3, 1)\n"
        "    return outputs['y'][:, 0, 0] - truth\n"
    )
    own = scoring.score_report(MetricSpec(metric=f"{tmp_path / 'metric.py'}:first", truth=truth), *clips)
    assert own.rows == pytest.approx((-2.0, -2.0, -2.0, -1.0))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("own", ""),
        ("by_name", "raised"),
        ("leaves", ""),
        (
            "late",
            "ZeroDivisionError: division by zero (metric.py line 41) (rows 0 to 1 of the inputs). Outputs",
        ),
        ("map", "boxes"),
    ],
)
def test_the_reference_outputs_of_the_first_call_are_scored(
    metric: Path, exported: ExportedModel, name: str, says: str
):
    found = scorer.try_first_call(MetricSpec(metric=name if name == "map" else f"{metric}:{name}"), exported, 60.0)
    assert says in found
    assert bool(found) is bool(says)
