"""Labels in a column of a table, and options of rows that contradict each other: said before anything is planned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shootout.commands.selection import take_rows
from shootout.core.errors import UsageError


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("text,label\ngood,1\nbad,0\ngood,1\n")
    return path


def test_labels_may_be_a_column_of_a_table(table: Path):
    found = take_rows("net.onnx", {"labels": f"{table}:label"})
    assert np.load(found["labels"]).tolist() == [1, 0, 1]
    assert take_rows("net.onnx", {"labels": f"{table}:label"}) == found, "read once"
    assert take_rows("net.onnx", {"labels": "labels.npz"}) == {}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"labels": "{table}:lable"}, "column of .*'lable'.*did you mean 'label'"),
        ({"labels": "{table}:text"}, "expected a whole number for each row, its class; got values such as 'good'"),
        ({"target": "price"}, "--target names a column of a table: give the table too, with --data"),
        ({"texts": "a.txt", "inputs": "b.npz"}, "--texts and --inputs both give the model's inputs"),
        ({"texts": "a.txt", "images": "b"}, "--texts and --images both give"),
    ],
)
def test_what_doesnt_fit_is_said(table: Path, given: dict[str, str], says: str):
    with pytest.raises(UsageError, match=says):
        take_rows("net.onnx", {name: value.format(table=table) for name, value in given.items()})
