"""A user's function that reads files into rows: run once in a process of its own, and what is no row."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shootout.core.contract import TensorSpec
from shootout.core.errors import UsageError
from shootout.models.data import data_files, reading, truth_files
from shootout.models.data.reading import read_files, read_rows

PREP = """
import os
import time
from pathlib import Path
import numpy as np
print("chatter")

def load(path):
    with open(Path(__file__).with_name("calls.txt"), "a") as file:
        file.write(path.name + "\\n")
    for value in np.load(path):
        yield {"x": np.full(3, value, np.float32), "length": np.int64(3)}

def pairs(path):
    return {"x": np.zeros((2, 2), np.uint8)}, {"mask": np.ones((2, 2), bool), "weight": 0.5}

def boxes(path): return {"x": np.zeros(1)}, [[0, 1]] * (path.stem == "a")
def skips(path): return [] if path.stem == "a" else [{"x": np.zeros(1)}]
def ragged(path): return {"x": np.zeros(2 + (path.stem == "b"))}
def wide(path): return {"x": np.zeros(2, "f8" if path.stem == "b" else "f4")}
def renamed(path): return {path.stem: np.zeros(2)}
def half(path): return ({"x": np.zeros(1)}, 1) if path.stem == "a" else {"x": np.zeros(1)}
def other(path): return {"x": np.zeros(1)}, {path.stem: 1}
def array(path): return np.zeros(3)
def nothing(path): pass
def words(path): return {"x": ["a", "b"]}
def lists(path): return {"x": [[1], [2, 3]]}
def nan(path): return {"x": np.array([1.0, np.nan])}
def no_truth(path): return {"x": np.zeros(1)}, {"y": [1.0, None]}
def odd_truth(path): return {"x": np.zeros(1)}, ["a", {1}]
def raises(path):
    yield {"x": np.zeros(1)}
    raise ValueError("no image")
def hangs(path):
    yield {"x": np.zeros(1)}
    time.sleep(60)
def leaves(path): os._exit(3)
def endless(path):
    while True:
        yield {"x": np.zeros(1000)}
"""


@pytest.fixture
def prep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "prep.py").write_text(PREP)
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    for name, values in {"b": [2, 3], "a": [0, 1], "sub/c": [4]}.items():
        np.save(folder / f"{name}.npy", np.array(values, np.float32))
    (folder / ".hidden").write_text("")
    return tmp_path / "prep.py"


def test_files_are_read_once_in_the_order_of_their_names(prep: Path, tmp_path: Path):
    for _ in range(2):
        found = read_rows(tmp_path / "data", f"{prep}:load")
    assert (tmp_path / "calls.txt").read_text().split() == ["a.npy", "b.npy", "c.npy"]
    x = TensorSpec(name="x", shape=(2, 3), dtype="float32")
    specs = (x, TensorSpec(name="length", shape=(2,), dtype="int64"))
    assert data_files.check(found.inputs, specs) == 5
    assert data_files.read_rows(found.inputs, specs)["x"][:, 0].tolist() == [0, 1, 2, 3, 4]
    assert found.truth is None
    assert data_files.title(found.inputs) == "data, read by prep.py:load (3 files, 5 rows)"
    assert [*map(str, (one.shape for one in data_files.read_headers(found.inputs).values()))] == ["(5, 3)", "(5,)"]
    with pytest.raises(UsageError, match=r"data, read by prep\.py:load \(3 files, 5 rows\): expected inputs \['z'\]"):
        data_files.check(found.inputs, (TensorSpec(name="z", shape=(1, 3), dtype="float32"),))


def test_other_files_and_another_function_are_read_anew(prep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reading, "_read_now", lambda *given: given[-1].mkdir())
    kept = [read_rows(tmp_path / "data", f"{prep}:load").inputs for _ in range(2)]
    np.save(tmp_path / "data" / "a.npy", np.zeros(1, np.float32))
    kept.append(read_rows(tmp_path / "data", f"{prep}:load").inputs)
    (tmp_path / "data" / "a.npy").rename(tmp_path / "data" / "z.npy")
    kept.append(read_rows(tmp_path / "data", f"{prep}:load").inputs)
    prep.write_text(PREP.replace("np.int64(3)", "np.int64(4)"))
    kept.append(read_rows(tmp_path / "data", f"{prep}:load").inputs)
    kept.append(read_rows(tmp_path / "data", f"{prep}:pairs").inputs)
    assert len(set(kept)) == len(kept) - 1


def test_rows_may_carry_their_truth(prep: Path, tmp_path: Path):
    found = read_rows(tmp_path / "data", f"{prep}:pairs")
    assert found.truth is not None
    truth_files.check(found.truth, {3})
    assert {name: array.shape for name, array in data_files.read_arrays(found.truth).items()} == {
        "mask": (3, 2, 2),
        "weight": (3,),
    }


def test_truth_may_be_ragged_and_a_file_may_have_no_rows(prep: Path, tmp_path: Path):
    files = reading.list_files(tmp_path / "data")
    found = read_rows(tmp_path / "data", f"{prep}:boxes")
    assert found.truth is not None
    assert truth_files.check(found.truth, {3}) == [[[0, 1]], [], []]
    assert len(truth_files.read(found.truth)) == 3
    assert read_files(f"{prep}:skips", files, tmp_path / "data", tmp_path) == 2


def test_missing_values_are_read_and_refused_for_models_that_do_not_look_for_them(prep: Path, tmp_path: Path):
    assert read_files(f"{prep}:nan", reading.list_files(tmp_path / "data"), tmp_path / "data", tmp_path) == 3
    spec = TensorSpec(name="x", shape=(3, 2), dtype="float64")
    with pytest.raises(UsageError, match=r"got NaN in 3 places, the first in row 0: fill them in"):
        data_files.refuse_nan(tmp_path / reading.INPUTS)
    assert len(data_files.read_sets(tmp_path / reading.INPUTS, (spec,), takes_nan=True)) == 1


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (
            "ragged",
            r"b\.npy, row 0: prep\.py:ragged: input 'x' is float64\[3\], the rows before are float64\[2\]; rows",
        ),
        ("wide", r"input 'x' is float64\[2\], the rows before are float32\[2\]"),
        ("renamed", r"b\.npy, row 0: .*got inputs \['b'\], the rows before have \['a'\]"),
        ("half", "some rows have truth, others none"),
        ("other", "the truth has other names in some rows"),
        ("array", r"a\.npy, row 0: .*got an array float64\[3\], expected a dict with an array for each input"),
        ("nothing", "got None, expected a dict"),
        ("words", "input 'x' is <U1: expected numbers"),
        ("lists", "input 'x' is a list, which is not an array"),
        ("no_truth", "the truth holds NaN or None"),
        ("odd_truth", "the truth holds a set: give numbers, texts"),
        ("raises", r"a\.npy, row 1: prep\.py:raises raised ValueError: no image \(prep.py line 3\d\)"),
    ],
)
def test_what_is_no_row_is_told_with_its_file(prep: Path, tmp_path: Path, function: str, says: str):
    files, made = reading.list_files(tmp_path / "data"), tmp_path / "made"
    made.mkdir()
    with pytest.raises(UsageError, match=says):
        read_files(f"{prep}:{function}", files, tmp_path / "data", made)


def test_rows_without_end_are_ended(prep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reading, "MOST_BYTES", 1 << 20)
    with pytest.raises(UsageError, match=r"more than 1 MB in 132 rows: give fewer"):
        read_files(f"{prep}:endless", reading.list_files(tmp_path / "data"), tmp_path / "data", tmp_path)


def test_one_that_hangs_is_ended_and_nothing_is_kept(prep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr(reading, "WHOLE_S", 1.0)
        with pytest.raises(UsageError, match="the process that reads it took longer than 1 s and was killed"):
            read_rows(tmp_path / "data", f"{prep}:hangs")
    with pytest.raises(UsageError, match=r"read by prep\.py:leaves: the process that reads it exited with code 3"):
        read_rows(tmp_path / "data", f"{prep}:leaves")
    assert not list((tmp_path / "cache" / "exported").glob("rows-*"))


def test_what_is_not_there_is_told_before_any_process(prep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reading, "_read_now", None)
    (tmp_path / "none").mkdir()
    for given, reader, says in (
        ("missing", "load", "there is no such file"),
        ("none", "load", "holds no files for prep.py:load to read"),
        ("data", "lod", "unknown function in prep.py 'lod': did you mean 'load'"),
    ):
        with pytest.raises(UsageError, match=says):
            read_rows(tmp_path / given, f"{prep}:{reader}")


def test_a_folder_of_the_users_with_such_a_name_is_a_folder(tmp_path: Path):
    (tmp_path / "rows-1").mkdir()
    (tmp_path / "rows-1" / "facts.json").write_text(json.dumps([1]))
    assert data_files.title(tmp_path / "rows-1" / "x.npz") == str(tmp_path / "rows-1" / "x.npz")
