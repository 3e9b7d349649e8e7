"""Rows of inputs in Parquet: columns by name, features in order, and what is no row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from shootout.core.contract import TensorSpec
from shootout.core.errors import UsageError
from shootout.models.data import data_files

X = TensorSpec(name="x", shape=(2, 3), dtype="float32")
IDS = TensorSpec(name="ids", shape=(2,), dtype="int32")
ROWS = [{"id": f"r{at}", "x": [at, 0.5, 1], "ids": at} for at in range(4)]


def write(path: Path, rows: list[dict[str, Any]], schema: Any = None) -> Path:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema), path)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.parquet"


def test_columns_become_the_inputs_of_their_names(path: Path):
    write(path, ROWS)
    assert data_files.check(path, (X, IDS)) == 4
    sets = data_files.read_sets(path, (X, IDS))
    assert [(one["x"].dtype.name, one["ids"].dtype.name) for one in sets] == [("float32", "int32")] * 2
    assert sets[1]["x"].tolist() == [[2, 0.5, 1], [3, 0.5, 1]]
    assert data_files.possible_rows(path) == {4}


def test_columns_of_a_number_are_the_features_of_the_only_input_in_order(path: Path):
    write(path, [{"size": 3, "age": 0.5, "open": True, "labels": at} for at in range(4)])
    assert data_files.read_rows(path, (X,))["x"].tolist() == [[3, 0.5, 1]] * 4
    assert data_files.holds_labels(path)
    with pytest.raises(UsageError, match=r"or 4 columns of a number, its features in order; got 3 columns: size, age"):
        data_files.check(path, (TensorSpec(name="x", shape=(1, 4), dtype="float32"),))


@pytest.mark.parametrize(
    ("third", "says"),
    [
        ({"x": [1.0, 2.0]}, r"column 'x': row 2 is \[2\], row 0 is \[3\]; expected \[3\] in every row"),
        (
            {"x": [1.0, None, 3.0]},
            "column 'x': expected a value for each row, got none or NaN in 1 rows, the first is 2",
        ),
        ({"x": None}, "the first is 2"),
        ({"ids": None}, "column 'ids': expected a value for each row, got none or NaN in 1 rows, the first is 2"),
        ({"ids": 2**40}, "column 'ids': expected int32, got whole numbers from 0 to 1099511627776"),
        ([{"x": [1, 2, 3], "id": 1}], r"expected columns \['x', 'ids'\]; \['ids'\] missing, got x, id"),
        ([{"x": ["1", "2", "3"], "ids": 1}], r"column 'x': expected numbers, got .* in row 0"),
        ([{"x": "abc", "ids": 1}], "column 'x': expected numbers, got 'abc' in row 0"),
        ([{"x": [1, 2, 3], "ids": 1.5}], "column 'ids': expected int32, got float64"),
        ([{"x": [1, 2], "ids": 1}], r"column 'x': expected \[3\] in every row, got \[2\]"),
    ],
)
def test_columns_and_rows_that_do_not_fit_are_named(
    path: Path, third: dict[str, Any] | list[dict[str, Any]], says: str
):
    """A third row beside whole ones, or all rows."""
    rows = third if isinstance(third, list) else [*ROWS[:2], {**ROWS[2], **third}, ROWS[3]]
    with pytest.raises(UsageError, match=says):
        data_files.check(write(path, rows), (X, IDS))


def test_a_missing_number_is_nan_for_a_model_that_takes_it(path: Path):
    write(path, [*ROWS[:2], {**ROWS[2], "x": [1.0, None, 3.0]}, ROWS[3]])
    assert data_files.check(path, (X, IDS), takes_nan=True) == 4
    found = data_files.read_rows(path, (X, IDS), takes_nan=True)
    np.testing.assert_array_equal(found["x"][2], [1, np.nan, 3])
    write(path, [{"a": 1.0, "b": None, "c": 0.0}, {"a": None, "b": 2.0, "c": 1.0}])  # features, a column each
    np.testing.assert_array_equal(
        data_files.read_rows(path, (X,), takes_nan=True)["x"], [[1, np.nan, 0], [np.nan, 2, 1]]
    )
    write(path, [{**row, "ids": None} for row in ROWS])
    with pytest.raises(UsageError, match="column 'ids': expected int32, got float64"):
        data_files.check(path, (X, IDS), takes_nan=True)


def test_what_is_no_table_is_refused(tmp_path: Path):
    (tmp_path / "rows.parquet").touch()
    for size in (0, 10**10):
        (tmp_path / "rows.parquet").touch()
        with (tmp_path / "rows.parquet").open("r+b") as file:
            file.truncate(size)
        with pytest.raises(UsageError, match="as Parquet"):
            data_files.read_table(tmp_path / "rows.parquet")
    with pytest.raises(UsageError, match=r"can't read .*none\.parquet: No such file"):
        data_files.read_table(tmp_path / "none.parquet")
