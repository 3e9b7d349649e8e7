"""Truth of any type and shape: read, taken by rows, and refused with the place of what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from shootout.core.errors import UsageError
from shootout.models.data import truth_files


def test_arrays_keep_their_names_and_a_single_file_has_none(tmp_path: Path):
    np.savez(tmp_path / "truth.npz", boxes=np.zeros((3, 2, 4)), names=np.array(["a", "b", "c"]))
    np.save(tmp_path / "truth.npy", np.arange(3))
    truth_files.check(tmp_path / "truth.npz", {3})
    found = truth_files.take_rows(truth_files.read(tmp_path / "truth.npz"), np.array([2, 0]))
    assert (found["boxes"].shape, found["names"].tolist()) == ((2, 2, 4), ["c", "a"])
    assert truth_files.take_rows(truth_files.read(tmp_path / "truth.npy"), np.array([1])).tolist() == [1]


@pytest.mark.parametrize(
    ("name", "unit"), [("speaker", "speaker"), ("patients", "patient"), ("Scene", "scene"), ("id_2", "unit")]
)
def test_what_rows_belong_to_has_the_name_of_its_array(tmp_path: Path, name: str, unit: str):
    np.savez(tmp_path / "groups.npz", **{name: np.array(["x", "y", "x"])})
    found, ids = truth_files.read_ids(tmp_path / "groups.npz")
    assert (found, ids.tolist()) == (unit, ["x", "y", "x"])


@pytest.mark.parametrize(
    ("arrays", "fault"),
    [
        ({"a": np.zeros(2), "b": np.zeros(2)}, "expected one array, the unit of each row; got a, b"),
        ({"a": np.zeros((2, 2))}, r"expected one number or text for each row, its unit; got float64\[2, 2\]"),
        ({"scene": np.zeros(2)}, "all 2 rows are of one scene, and at least two are needed"),
    ],
)
def test_what_names_no_unit_is_refused(tmp_path: Path, arrays: dict[str, np.ndarray], fault: str):
    np.savez(tmp_path / "groups.npz", **arrays)
    with pytest.raises(UsageError, match=fault):
        truth_files.read_ids(tmp_path / "groups.npz")


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"mask": np.zeros((4, 2))}, "'mask': expected an entry for each of the 3 rows of the inputs, got 4 entries"),
        ({"mask": np.float64(1)}, "got a single number"),
        ({"mask": np.array([[1.0, 2], [3, np.nan], [5, 6]])}, "none or NaN in 1 rows, the first is 1"),
        (
            {"mask": np.array([{}, {}, {}], dtype=object)},
            "not an .npz of plain arrays (Object arrays cannot be loaded when allow_pickle=False); write it with "
            "numpy.savez, or as .parquet",
        ),
    ],
)
def test_truth_that_does_not_fit_is_refused(tmp_path: Path, arrays: dict[str, np.ndarray], says: str):
    np.savez(tmp_path / "truth.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(UsageError) as caught:
        truth_files.check(tmp_path / "truth.npz", {3})
    assert says in str(caught.value)


def test_truth_may_be_columns_of_a_parquet_file(tmp_path: Path):
    rows = [{"text": "ab", "boxes": [[0.0, 1.0]]}, {"text": "", "boxes": []}, {"text": "c", "boxes": [[2.0, 3.0]]}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "truth.parquet")
    truth_files.check(tmp_path / "truth.parquet", {3})
    found = truth_files.take_rows(truth_files.read(tmp_path / "truth.parquet"), np.array([1, 2]))
    assert found == {"text": ["", "c"], "boxes": [[], [[2.0, 3.0]]]}
