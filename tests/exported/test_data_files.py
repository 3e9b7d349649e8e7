"""A user's data: rows, sets or one set, labels among them; what doesn't fit, and what is no file of arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shootout.core.contract import TensorSpec
from shootout.core.errors import UsageError
from shootout.models.base import draw
from shootout.models.data.data_files import (
    check,
    digest,
    holds_labels,
    note_renamed,
    note_repeated,
    read_arrays,
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
        (note,) = note_renamed(path, [spec])
        assert note.endswith("is taken for the input 'x', since each is the only one")
    for arrays in ({"x": X}, {"arr_0": X}):
        np.savez(path, **arrays)
        assert [*note_renamed(path, [spec])] == []
    np.savez(path, a=X, b=X)
    with pytest.raises(UsageError, match=r'got \[.a., .b.\]: write them with np.savez\("new.npz", x=ROWS\)'):
        read_sets(path, [spec])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "a.csv",
            "taken as .npz, .npy, .parquet or a folder of .npy files; write it with "
            "pandas.read_csv('{0}a.csv').to_parquet('{0}a.parquet')",
        ),
        ("a.tsv", "read_csv('{0}a.tsv', sep='\\\\t').to_parquet("),
        ("a.xlsx", "write it with numpy.savez"),
    ],
)
def test_a_file_of_another_kind_says_what_is_taken(tmp_path: Path, name: str, says: str):
    (tmp_path / name).write_text("a,b\n1,2\n")
    with pytest.raises(UsageError) as error:
        read_sets(tmp_path / name, SPECS)
    assert says.format(f"{tmp_path}/").replace("\\\\", "\\") in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "rows", "kind"),
    [
        ("a.csv", "1,2.5\n3,nan\n", [[1, 2.5], [3, math.nan]], "float32"),
        ("a.csv", "1.5,\r\n3,4\r\n", [[1.5, math.nan], [3, 4]], "float32"),
        ("a.tsv", "-1e3\t2\n3\t4\n", [[-1e3, 2], [3, 4]], "float32"),
        ("labels.csv", "0\n2\n", [0, 2], "int64"),
    ],
)
def test_a_text_table_without_names_keeps_its_first_row(
    tmp_path: Path, name: str, text: str, rows: list[Any], kind: str
):
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as error:
        read_sets(tmp_path / name, SPECS)
    exec(str(error.value).rpartition("write it with ")[2], {"numpy": np})
    (found,) = read_arrays(tmp_path / Path(name).with_suffix(".npz")).values()
    assert found.dtype == kind
    assert np.array_equal(found, np.array(rows, kind), equal_nan=True)


@pytest.mark.parametrize(("batch", "told"), [(2_000, ["2,000 rows and the data hold 1,000 rows"]), (64, [])])
def test_rows_that_dont_fill_a_call_are_repeated_and_that_is_told(tmp_path: Path, batch: int, told: list[str]):
    np.savez(tmp_path / "a.npz", x=np.zeros((1_000, 4), np.float32))
    spec = TensorSpec(name="x", shape=(batch, 4), dtype="float32")
    assert [*note_repeated(tmp_path / "a.npz", [spec])] == [
        f"a call takes {one}: they are repeated to fill it" for one in told
    ]
    assert [*note_repeated(None, [spec])] == []


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": X}, "expected inputs ['input.1', 'x'], got ['x']"),
        ({"labels": X}, "got ['labels']: these look like labels: give them with --labels, and the rows with --inputs"),
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


def test_a_folder_of_arrays_is_a_file_of_them(tmp_path: Path):
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(UsageError, match=r"expected inputs \['input\.1', 'x'\], got \['x'\]"):
        check(tmp_path, SPECS)
    np.save(tmp_path / "input.1.npy", IDS)
    check(tmp_path, SPECS)
    assert np.array_equal(read_sets(tmp_path, SPECS)[0]["x"], X)
    before = digest(tmp_path)
    np.save(tmp_path / "x.npy", X + 1)
    assert digest(tmp_path) != before
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"holds no \.npy files"):
        read_sets(tmp_path / "empty", SPECS)


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


def test_draws_are_seeded():
    one, same, other = (draw(SPECS, 2, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a["x"], b["x"]) for a, b in zip(one, same, strict=True))
    assert not np.array_equal(one[0]["x"], one[1]["x"])
    assert not np.array_equal(one[0]["x"], other[0]["x"])
