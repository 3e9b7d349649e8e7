"""A user's data: rows, sets or one set, labels among them; what doesn't fit, and what is no file of arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shootout.core.contract import TensorSpec
from shootout.core.errors import UsageError
from shootout.models.data.data_files import (
    check,
    holds_labels,
    read_labels,
    read_rows,
    read_sets,
)

SPECS = (TensorSpec(name="x", shape=(2, 3), dtype="float32"), TensorSpec(name="input.1", shape=(2,), dtype="int64"))
X, IDS = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 2])


def test_real_inputs_come_as_one_set_or_as_many(tmp_path: Path):
    path = tmp_path / "d.npz"
    np.savez(path, **{"input.1": IDS, "x": X})
    (only,) = read_sets(path, SPECS)
    assert list(only) == ["x", "input.1"]
    assert np.array_equal(only["x"], X)
    np.savez(path, **{"input.1": np.stack([IDS, IDS + 1, IDS]), "x": np.stack([X, X + 1, X + 2])})
    three = read_sets(path, SPECS)
    assert [one["x"][0, 0] for one in three] == [0, 1, 2]
    assert np.array_equal(three[1]["input.1"], IDS + 1)


def test_the_only_array_is_the_only_input_whatever_its_name(tmp_path: Path):
    path, (spec, _) = tmp_path / "d.npz", SPECS
    for arrays in ({"features": X}, {"features": X, "labels": IDS}):
        np.savez(path, **arrays)
        (one,) = read_sets(path, [spec])
        assert np.array_equal(one["x"], X)
    np.savez(path, a=X, b=X)
    with pytest.raises(UsageError, match=r'got \[.a., .b.\]: write them with np.savez\("new.npz", x=ROWS\)'):
        read_sets(path, [spec])


def test_a_file_of_another_kind_says_what_is_taken(tmp_path: Path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match=r"not an \.npz of plain arrays .* as \.parquet, such as a table"):
        read_sets(tmp_path / "a.csv", SPECS)
    with pytest.raises(UsageError, match="is a folder: name a function that reads its files, as in --read"):
        read_sets(tmp_path, SPECS)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": X}, "expected inputs ['input.1', 'x'], got ['x']"),
        ({"labels": X}, "got ['labels']"),
        ({"x": X, "input.1": IDS, "z": X}, "got ['input.1', 'x', 'z']"),
        (
            {"x": X.T, "input.1": IDS},
            "expected float32[2, 3], or K of them along a leading axis, or rows [rows, 3]; got float32[3, 2]",
        ),
        ({"x": X[0], "input.1": IDS}, "got float32[3]"),
        ({"x": X[None, None], "input.1": IDS}, "got float32[1, 1, 2, 3]"),
        ({"x": X.astype(np.float64), "input.1": IDS}, "got float64[2, 3]; convert it with .astype('float32')"),
        ({"x": X.astype(str), "input.1": IDS}, "got str1024[2, 3]; expected numbers"),
        ({"x": X[:, None], "input.1": IDS}, "got float32[2, 1, 3]"),
        ({"x": np.concatenate([X, X]), "input.1": np.arange(3)}, "got {'x': '4 rows', 'input.1': '3 rows'}"),
        ({"x": X, "input.1": IDS.astype(np.int32)}, "input 'input.1': expected int64[2]"),
        (
            {"x": np.where(X == 4, np.nan, X).astype(np.float32), "input.1": IDS},
            "got NaN in 1 places, the first in row 1",
        ),
        ({"x": np.stack([X, X]), "input.1": np.stack([IDS] * 3)}, "the same number of rows or sets, at least one"),
        ({"x": np.stack([X, X]), "input.1": IDS}, "the same number of rows or sets, at least one"),
        ({"x": np.empty((0, 2, 3), np.float32), "input.1": np.empty((0, 2), np.int64)}, "at least one"),
        ({"x": X[:, :0], "input.1": IDS}, "input 'x' has the shape [2, 0], but a size of 0 can't be measured"),
        ({"x": np.array([{"a": 1}]), "input.1": IDS}, "is not an .npz of plain arrays"),
    ],
)
def test_real_inputs_that_do_not_fit_are_named(tmp_path: Path, arrays: Any, says: str):
    np.savez(tmp_path / "d.npz", **arrays)
    for look in (read_sets, check):
        if look is check and "NaN" in says:
            continue  # headers don't tell
        with pytest.raises(UsageError) as error:
            look(tmp_path / "d.npz", SPECS)
        assert says in str(error.value)


def test_rows_become_sets_and_the_last_is_filled_up(tmp_path: Path):
    rows = np.arange(15, dtype=np.float32).reshape(5, 3)
    np.savez(tmp_path / "d.npz", **{"x": rows, "input.1": np.arange(5)})
    sets = read_sets(tmp_path / "d.npz", SPECS)
    assert [one["input.1"].tolist() for one in sets] == [[0, 1], [2, 3], [4, 0]]
    assert np.array_equal(sets[2]["x"], rows[[4, 0]])
    assert np.array_equal(read_rows(tmp_path / "d.npz", SPECS)["x"], rows)


def test_what_has_no_rows_may_be_given_once(tmp_path: Path):
    specs = (
        TensorSpec(name="x", shape=(1, 4), dtype="float32"),
        TensorSpec(name="state", shape=(2, 1), dtype="float32"),
        TensorSpec(name="rate", shape=(), dtype="int64"),
    )
    state = np.ones((2, 1), np.float32)
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 4), np.float32), state=state, rate=16_000)
    sets = read_sets(tmp_path / "d.npz", specs)
    assert [(one["rate"].item(), one["state"].tolist()) for one in sets] == [(16_000, [[1], [1]])] * 3
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 4), np.float32), state=np.stack([state] * 2), rate=16_000)
    with pytest.raises(UsageError, match="'state': '2 sets', 'rate': '1 sets'"):
        read_sets(tmp_path / "d.npz", specs)


def test_labels_may_lie_among_the_data_or_by_themselves(tmp_path: Path):
    rows, classes = np.zeros((4, 3), np.float32), np.array([1, 0, 2, 1])
    np.savez(tmp_path / "d.npz", **{"x": rows, "input.1": np.arange(4), "labels": classes[:, None]})
    assert len(read_sets(tmp_path / "d.npz", SPECS)) == 2
    np.save(tmp_path / "l.npy", classes)
    for file in ("d.npz", "l.npy"):
        assert np.array_equal(read_labels(tmp_path / file), classes)
    assert holds_labels(tmp_path / "d.npz")
    assert not holds_labels(tmp_path / "l.npy")


def test_arrays_without_names_are_taken_in_order(tmp_path: Path):
    np.savez(tmp_path / "d.npz", X, IDS)
    assert np.array_equal(read_sets(tmp_path / "d.npz", SPECS)[0]["input.1"], IDS)
    np.save(tmp_path / "x.npy", X)
    assert np.array_equal(read_sets(tmp_path / "x.npy", SPECS[:1])[0]["x"], X)


def npy(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, X)


def torn(path: Path) -> None:
    np.savez(path, x=X)
    path.write_bytes(path.read_bytes()[:50])


def marked(path: Path, at: int, byte: int) -> None:
    """With a byte of its member's headers another: of the flags at 6, of the compression at 8."""
    np.savez(path, x=X)
    stored = bytearray(path.read_bytes())
    stored[at] = stored[stored.rindex(b"PK\1\2") + 2 + at] = byte
    path.write_bytes(stored)


def encrypted(path: Path) -> None:
    marked(path, 6, 1)


def packed_as_nobody_does(path: Path) -> None:
    marked(path, 8, 99)


@pytest.mark.parametrize(
    "write_",
    [
        *(npy, torn, encrypted, packed_as_nobody_does),
        *(lambda path: path.write_bytes(b""), lambda path: path.write_text("x,y")),
    ],
)
def test_a_file_that_is_no_npz_is_refused(tmp_path: Path, write_: Callable[[Path], object]):
    write_(tmp_path / "d.npz")
    with pytest.raises(UsageError, match=r"d\.npz is not an \.npz of plain arrays"):
        read_sets(tmp_path / "d.npz", SPECS)
    with pytest.raises(UsageError, match=r"d\.npz is not an \.npz of plain arrays"):
        check(tmp_path / "d.npz", SPECS)
