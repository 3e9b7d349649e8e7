"""Truth of any type and shape: read, taken by rows, and refused with the place of what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas
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
            "numpy.savez, or rows of several lengths as .parquet",
        ),
    ],
)
def test_truth_that_does_not_fit_is_refused(tmp_path: Path, arrays: dict[str, np.ndarray], says: str):
    np.savez(tmp_path / "truth.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(UsageError) as caught:
        truth_files.check(tmp_path / "truth.npz", {3})
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("truth.json", "write it with pandas.read_json('{0}/truth.json').to_parquet('{0}/truth.parquet')"),
        (
            "truth.jsonl",
            "write it with pandas.read_json('{0}/truth.jsonl', lines=True).to_parquet('{0}/truth.parquet')",
        ),
        ("truth.csv", "write it with pandas.read_csv('{0}/truth.csv').to_parquet('{0}/truth.parquet')"),
        ("truth.tsv", "write it with pandas.read_csv('{0}/truth.tsv', sep='\\t').to_parquet('{0}/truth.parquet')"),
        ("truth.txt", "write it with numpy.savez; a list of lengths goes to --mix"),
        ("truth", "write it with numpy.savez"),
    ],
)
def test_a_file_of_another_kind_is_told_what_is_taken(tmp_path: Path, name: str, fix: str):
    (tmp_path / name).write_text('{"000": [[1, 2, 3, 4, 0]]}')
    for look in (lambda path: truth_files.check(path, {3}), truth_files.read):
        with pytest.raises(UsageError) as caught:
            look(tmp_path / name)
        taken = "data are taken as .npz, .npy, .parquet or a folder of .npy files"
        assert str(caught.value) == f"{tmp_path / name}: {taken}; {fix.format(tmp_path)}"


def test_lines_of_json_without_names_are_told_how_to_become_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "boxes.jsonl").write_text("[[0, 0, 1, 1, 0]]\n[]\n")
    with pytest.raises(UsageError) as caught:
        truth_files.check(tmp_path / "boxes.jsonl", {2})
    monkeypatch.chdir(tmp_path)
    exec(str(caught.value).rpartition("write it with ")[2], {"pandas": pandas, "json": json})
    truth_files.check(tmp_path / "boxes.parquet", {2})
    assert truth_files.read(tmp_path / "boxes.parquet") == {"boxes": [[[0, 0, 1, 1, 0]], []]}


def test_too_much_truth_is_refused_by_its_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    np.save(tmp_path / "truth.npy", np.zeros((3, 100)))
    monkeypatch.setattr(truth_files, "MOST_BYTES", 1000)
    monkeypatch.setattr(truth_files, "read", None)
    with pytest.raises(UsageError, match="give fewer rows"):
        truth_files.check(tmp_path / "truth.npy", {3})


def test_ten_gigabytes_of_truth_are_refused_at_once(tmp_path: Path):
    """A sparse file: only the header is on the disk, and nothing may be read."""
    array = tmp_path / "truth.npy"
    with array.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (3, 10**9)})
        file.truncate(12 * 10**9)
    with pytest.raises(UsageError, match=r"at most .* MB"):
        truth_files.check(array, {3})


def test_truth_may_be_columns_of_a_parquet_file(tmp_path: Path):
    rows = [{"text": "ab", "boxes": [[0.0, 1.0]]}, {"text": "", "boxes": []}, {"text": "c", "boxes": [[2.0, 3.0]]}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "truth.parquet")
    truth_files.check(tmp_path / "truth.parquet", {3})
    found = truth_files.take_rows(truth_files.read(tmp_path / "truth.parquet"), np.array([1, 2]))
    assert found == {"text": ["", "c"], "boxes": [[], [[2.0, 3.0]]]}


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ([1, 2], "'a': expected an entry for each of the 3 rows of the inputs, got 2 entries"),
        ([[1.0], [2.0, float("nan")], [3.0]], "none or NaN in 1 rows, the first is 1"),
        ([[[1], None], [[2]], []], "none or NaN in 1 rows, the first is 0"),
    ],
)
def test_a_column_that_does_not_fit_is_refused(tmp_path: Path, column: list[object], says: str):
    pyarrow.parquet.write_table(pyarrow.table({"a": column}), tmp_path / "truth.parquet")
    with pytest.raises(UsageError, match=says):
        truth_files.check(tmp_path / "truth.parquet", {3})
