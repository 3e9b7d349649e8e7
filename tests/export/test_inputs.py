"""Real inputs for a user's own model: one set or many, what doesn't fit, and what is no file of arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shootout.contract import TensorSpec
from shootout.errors import UsageError
from shootout.export.inputs import read_inputs
from shootout.models.base import draw

SPECS = (TensorSpec(name="x", shape=(2, 3), dtype="float32"), TensorSpec(name="input.1", shape=(2,), dtype="int64"))
X, IDS = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 2])


def test_real_inputs_come_as_one_set_or_as_many(tmp_path: Path):
    path = tmp_path / "d.npz"
    np.savez(path, **{"input.1": IDS, "x": X})
    (only,) = read_inputs(path, SPECS)
    assert list(only) == ["x", "input.1"]
    assert np.array_equal(only["x"], X)
    np.savez(path, **{"input.1": np.stack([IDS, IDS + 1, IDS]), "x": np.stack([X, X + 1, X + 2])})
    three = read_inputs(path, SPECS)
    assert [one["x"][0, 0] for one in three] == [0, 1, 2]
    assert np.array_equal(three[1]["input.1"], IDS + 1)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": X}, "expected inputs ['input.1', 'x'], got ['x']"),
        ({"x": X, "input.1": IDS, "z": X}, "got ['input.1', 'x', 'z']"),
        (
            {"x": X.T, "input.1": IDS},
            "expected float32[2, 3], or K of them along a leading axis; got float32[3, 2]",
        ),
        ({"x": X[0], "input.1": IDS}, "got float32[3]"),
        ({"x": X[None, None], "input.1": IDS}, "got float32[1, 1, 2, 3]"),
        ({"x": X.astype(np.float64), "input.1": IDS}, "got float64[2, 3]"),
        ({"x": X, "input.1": IDS.astype(np.int32)}, "input 'input.1': expected int64[2]"),
        (
            {"x": np.where(X == 4, np.nan, X).astype(np.float32), "input.1": IDS},
            "got NaN in 1 places",
        ),
        ({"x": np.stack([X, X]), "input.1": np.stack([IDS] * 3)}, "the same number of sets, at least one"),
        ({"x": np.stack([X, X]), "input.1": IDS}, "the same number of sets, at least one"),
        ({"x": np.empty((0, 2, 3), np.float32), "input.1": np.empty((0, 2), np.int64)}, "at least one"),
        ({"x": np.array([{"a": 1}]), "input.1": IDS}, "is not an .npz of plain arrays"),
    ],
)
def test_real_inputs_that_do_not_fit_are_named(tmp_path: Path, arrays: Any, says: str):
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(UsageError) as error:
        read_inputs(tmp_path / "d.npz", SPECS)
    assert says in str(error.value)


def npy(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, X)


def torn(path: Path) -> None:
    np.savez(path, x=X)
    path.write_bytes(path.read_bytes()[:50])


@pytest.mark.parametrize("write_", [npy, torn, lambda path: path.write_bytes(b""), lambda path: path.write_text("x,y")])
def test_a_file_that_is_no_npz_is_refused(tmp_path: Path, write_: Callable[[Path], object]):
    write_(tmp_path / "d.npz")
    with pytest.raises(UsageError, match=r"d\.npz is not an \.npz of plain arrays"):
        read_inputs(tmp_path / "d.npz", SPECS)


def test_draws_are_seeded():
    one, same, other = (draw(SPECS, 2, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a["x"], b["x"]) for a, b in zip(one, same, strict=True))
    assert not np.array_equal(one[0]["x"], one[1]["x"])
    assert not np.array_equal(one[0]["x"], other[0]["x"])
