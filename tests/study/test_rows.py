"""A user's rows and their truth, checked as a run is planned: before any lock, export, or look at a backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import numpy as np
import pytest
from support.onnx_made import linear

from shootout.core.contract import Availability
from shootout.core.errors import UsageError
from shootout.core.messages import Progress
from shootout.core.study import plan as planning
from shootout.core.study.plan import make_plan
from shootout.core.study.schema import checked

PREP = """
import numpy as np
def load(path):
    return {"x": np.load(path)}
def pairs(path):
    return {"x": np.load(path)}, {"y": np.zeros(3)}
"""
METRIC = """
def score(outputs, truth): return [1.0] * len(outputs["y"])
def given(outputs, truth): return outputs["x"][:, 0] - truth["y"][:, 0]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows of a linear model, as a file and as a folder for a function, and some truth."""
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        planning, "known_available", lambda pairs, *_, **__: dict.fromkeys(pairs, Availability(version="1"))
    )
    monkeypatch.chdir(tmp_path)
    linear(tmp_path / "m.onnx")
    rows = np.arange(160, dtype=np.float32).reshape(40, 4)
    np.savez("rows.npz", x=rows)
    Path("files").mkdir()
    for number in range(3):
        np.save(f"files/{number}.npy", rows[number])
    Path("prep.py").write_text(PREP)
    Path("metric.py").write_text(METRIC)
    return tmp_path


def plan(**fields: Any) -> planning.Plan:
    return make_plan(checked({"name": "s", "model": "m.onnx", "targets": ["numpy"], **fields}))


@pytest.mark.parametrize(
    ("truth", "fields", "says"),
    [
        ({"y": np.zeros((39, 3))}, {}, "'y': expected an entry for each of the 40 rows of the inputs, got 39 entries"),
        (
            {"z": np.zeros((40, 3)), "w": np.zeros((40, 3))},
            {},
            "no truth for mae: the truth has z, w; the outputs are y",
        ),
        ({"y": np.array([*[0.0] * 39, np.nan])}, {}, "none or NaN in 1 rows, the first is 39"),
        ({"y": np.zeros((40, 3))}, {"scores": "z"}, "unknown output 'z': known: y"),
        ({"y": np.zeros((40, 3))}, {"metric": "meen"}, "unknown metric 'meen'"),
        ({"y": np.zeros((40, 3))}, {"metric": "metric.py:scores"}, "did you mean 'score'"),
    ],
)
def test_truth_that_does_not_fit_is_told_before_anything_is_looked_at(
    here: Path, monkeypatch: pytest.MonkeyPatch, truth: dict[str, np.ndarray], fields: dict[str, str], says: str
):
    monkeypatch.setattr(planning, "known_available", None)
    np.savez("truth.npz", **truth)  # type: ignore[arg-type]
    with pytest.raises(UsageError) as caught:
        plan(**{"inputs": "rows.npz", "truth": "truth.npz", "metric": "mae", **fields})
    assert says in str(caught.value)


def test_the_output_that_is_scored_is_no_target_that_was_named(here: Path):
    """What a run ends with depends on the targets of --backends alone."""
    np.savez("truth.npz", y=np.zeros((40, 3)))
    fields = {"name": "s", "model": "m.onnx", "targets": ["numpy"], "inputs": "rows.npz", "truth": "truth.npz"}
    assert make_plan(checked({**fields, "metric": "mae", "scores": "y"}), ["numpy"]).named == ("numpy",)


def test_truth_of_a_function_of_ones_own_may_have_any_names_and_texts(here: Path):
    np.savez("truth.npz", word=np.array(["a"] * 40), place=np.zeros(40))
    assert plan(inputs="rows.npz", truth="truth.npz", metric="metric.py:score").groups


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"read": "prep.py:pairs", "truth": "rows.npz", "metric": "mae"}, "what is right: pass only one of them"),
        ({"read": "prep.py:pairs", "min_agreement": "99%", "metric": "mae"}, "already: leave --min-agreement out"),
        ({"read": "prep.py:lod"}, "unknown function in prep.py 'lod': did you mean 'load'"),
        ({}, "files is a folder: name a function that reads its files"),
    ],
)
def test_files_that_can_not_be_read_so_are_refused(here: Path, fields: dict[str, str], says: str):
    with pytest.raises(UsageError) as caught:
        plan(inputs="files", **fields)
    assert says in str(caught.value)


def test_a_function_that_reads_needs_files():
    with pytest.raises(UsageError, match=r"read \(--read\) is for rows of your own: give those too"):
        checked({"name": "s", "model": "m.onnx", "targets": ["numpy"], "read": "prep.py:load"})


def test_other_rows_are_another_question(here: Path):
    first = plan(inputs="files", read="prep.py:pairs", metric="mae").identity
    Path("prep.py").write_text(PREP.replace("zeros", "ones"))
    other = plan(inputs="files", read="prep.py:pairs", metric="mae").identity
    Path("prep.py").write_text(PREP)
    assert plan(inputs="files", read="prep.py:pairs", metric="mae").identity == first != other


@pytest.mark.parametrize("metric", ["iou", "top-5", "auc", "wer@32"])
def test_a_drop_without_its_percent_sign_is_refused_if_any_loss_would_keep_it(here: Path, metric: str):
    np.save("right.npy", np.zeros(40, np.int64))
    with pytest.raises(UsageError, match=f"{metric} is 1 at most, .* did you mean 2%?"):
        plan(inputs="rows.npz", truth="right.npy", metric=metric, max_drop="2")


@pytest.mark.parametrize("metric", ["mae", "rmse"])
def test_a_drop_of_two_units_is_taken_of_what_has_a_unit(here: Path, metric: str):
    np.save("right.npy", np.zeros((40, 3), np.float32))
    assert plan(inputs="rows.npz", truth="right.npy", metric=metric, max_drop="2").groups


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"max_drop": "2%"}, ["20 are scored: give 366 rows or more, or --max-drop 17%"]),
        ({"max_drop": "17%"}, []),
        ({"max_drop": "0.02"}, ["--max-drop 0.02 takes 183 scored rows"]),
        ({"metric": "mae", "truth": "right.npy", "max_drop": "0.02"}, []),
        ({"metric": "metric.py:score", "max_drop": "2%"}, []),
        ({"targets": ["numpy"]}, []),
    ],
)
def test_rows_too_few_for_a_limit_are_told_before_anything_runs(here: Path, fields: dict[str, Any], told: list[str]):
    np.save("right.npy", np.zeros((40, 3), np.float32))
    np.save("labels.npy", np.zeros(40, np.int64))
    asked = {
        "inputs": "rows.npz",
        "truth": "labels.npy",
        "metric": "accuracy",
        "targets": ["onnxruntime:cpu:int8"],
    }
    progress = create_autospec(Progress)
    make_plan(checked({"name": "s", "model": "m.onnx", **asked, **fields}), progress=progress)
    said = [call.args[0] for call in progress.say.call_args_list]
    assert len(said) == len(told)
    assert all(words in line for words, line in zip(told, said, strict=True))


@pytest.mark.parametrize(
    ("targets", "calibration", "scores_all"),
    [
        (["numpy"], None, True),
        (["onnxruntime:cpu:int8-dynamic", "litert:cpu:int8/weights-only"], None, True),
        (["numpy", "onnxruntime:cpu:int8"], None, False),
        (["openvino:cpu:int4"], None, False),
        (["onnxruntime:cpu:int8"], "rows.npz", True),
        (["onnxruntime:cpu:int8", "openvino:cpu:int8/accuracy-control"], "rows.npz", False),
        (["onnxruntime:cpu:int8/shared"], "rows.npz", False),
    ],
)
def test_all_rows_are_scored_if_none_calibrates_a_target_or_chooses_one(
    here: Path, targets: list[str], calibration: str | None, scores_all: bool
):
    np.save("labels.npy", np.zeros(40, np.int64))
    made = plan(inputs="rows.npz", truth="labels.npy", metric="accuracy", calibration=calibration, targets=targets)
    (group,) = made.groups
    assert group.request.scores_all is group.record.scores_all is scores_all
    again = plan(inputs="rows.npz", truth="labels.npy", metric="accuracy", calibration=calibration, targets=targets)
    assert (again.identity, again.groups[0].request) == (made.identity, group.request), "a run goes on with its split"
