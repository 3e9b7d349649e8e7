"""The user's own metric: found without being run, run in a process of its own, and what it may not give."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from shootout.errors import UsageError
from shootout.exported.fidelity import rightly
from shootout.exported.model import LabelledRows
from shootout.messages import Scores
from shootout.models.user import scoring

METRIC = """
import os
print("chatter")

def margin(outputs, labels):
    assert list(outputs) == ["scores", "boxes/0"] and len(outputs["boxes/0"]) == len(labels)
    return outputs["scores"][:, 0] + labels + (os.getppid() == int(os.environ["TESTS"]))

margin.lower_is_better = True

def few(outputs, labels): return [1.0]
def nan(outputs, labels): return labels * float("nan")
def huge(outputs, labels): return labels * 1e200
def word(outputs, labels): return ["good"] * len(labels)
def late(outputs, labels): return 1 / 0
def leaves(outputs, labels): os._exit(3)
"""
LABELS = np.arange(5)


@pytest.fixture
def metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TESTS", str(os.getpid()))
    (tmp_path / "metric.py").write_text(METRIC)
    return tmp_path / "metric.py"


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    """Of 5 rows in batches of 2, the last one filled up with row 0; what is kept is what the accuracy is of."""
    folder = tmp_path / "outputs"
    folder.mkdir()
    report = LabelledRows(inputs={"x": np.arange(10.0, 15.0)[:, None]}, labels=LABELS)
    rightly(scoring.saving(lambda inputs: {"scores": inputs["x"], "boxes/0": inputs["x"]}, folder), report, 2)
    return folder


def test_every_row_is_scored_once_in_a_process_of_its_own(metric: Path, outputs: Path):
    found = scoring.score(f"{metric}:margin", outputs, LABELS, 60.0)
    assert found == Scores(name="metric.py:margin", rows=(11.0, 13.0, 15.0, 17.0, 19.0), lower_is_better=True)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        ("few", r"gave float64\[1\] for 2 rows: expected score\(outputs, labels\)"),
        ("nan", "gave nan for a row"),
        ("huge", r"gave 1e\+200 for a row, which is no score"),
        ("word", r"gave <U4\[2\] for 2 rows"),
        ("late", r"raised ZeroDivisionError: division by zero \(metric.py line 15\)"),
    ],
)
def test_what_is_no_score_is_a_fault_that_says_so(metric: Path, outputs: Path, function: str, fault: str):
    np.save(outputs / scoring.LABELS, LABELS)
    with pytest.raises(UsageError, match=fault):
        scoring.score_rows(f"{metric}:{function}", outputs)


def test_one_that_ends_its_process_is_a_fault(metric: Path, outputs: Path):
    found = scoring.score(f"{metric}:leaves", outputs, LABELS, 60.0)
    assert (found.rows, found.fault) == ((), "metric.py:leaves exited with code 3; its last words: chatter")


def test_a_metric_is_found_without_running_it_and_told_from_a_changed_one(metric: Path):
    before = scoring.check(f"{metric}:margin")
    metric.write_text(METRIC.replace("+ labels", "- labels"))
    assert scoring.check(f"{metric}:margin") != before
    with pytest.raises(UsageError, match="did you mean 'margin'"):
        scoring.check(f"{metric}:margn")
    with pytest.raises(UsageError, match=r"say which function scores the rows, as in metric\.py:margin"):
        scoring.check(str(metric))
