"""A user's rows of many lengths: which a size is for, and what is timed, calibrates and is scored at each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.onnx_made import value, write

from shootout.commands.selection import choose
from shootout.core.contract import TensorSpec
from shootout.core.errors import ShootoutError, UsageError
from shootout.core.exported.client import obtain_all
from shootout.core.exported.model import ExportedModel, load_sets
from shootout.core.exported.request import Request
from shootout.models.data import sized_rows
from shootout.models.data.sized_rows import SIZES, SizedRows
from shootout.models.sources import input_sets
from shootout.models.sources.packing import pack_files

LENGTHS = np.resize([3, 3, 7, 8, 16], 90)


def rows_in(folder: Path, **told: Any) -> Path:
    """Write rows whose numbers are their own plus 1, and 0 for padding at the right."""
    ids = np.where(np.arange(16) < LENGTHS[:, None], np.arange(1, len(LENGTHS) + 1)[:, None], 0)
    np.savez(folder / "inputs.npz", ids=ids.astype(np.int64), mask=(ids > 0).astype(np.int64))
    facts = {"axis": "tokens", "largest": 16, "padding_side": "right", "lengths": LENGTHS.tolist(), **told}
    (folder / SIZES).write_text(json.dumps(facts))
    return folder / "inputs.npz"


def net(folder: Path) -> Path:
    """Write a file that adds up the numbers that its mask keeps."""
    from onnx import TensorProto, helper

    inputs = [value(name, (1, "tokens"), TensorProto.INT64) for name in ("ids", "mask")]
    nodes = [
        helper.make_node("Mul", ["ids", "mask"], ["kept"]),
        helper.make_node("Cast", ["kept"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["float", "axes"], ["y"]),
    ]
    return write(folder / "net.onnx", nodes, inputs, [value("y", (1, 1))], {"axes": np.array([1], np.int64)})


def test_a_size_is_for_rows_that_fill_half_of_it_or_else_for_all_that_it_holds():
    rows = SizedRows(axis="tokens", largest=16, lengths=np.array([3, 7, 8, 16]))
    assert [rows.of(size).tolist() for size in (4, 8, 16, 100, 2)] == [[0], [1, 2], [3], [0, 1, 2, 3], [0, 1, 2, 3]]


@pytest.mark.parametrize(("is_left", "short", "long"), [(False, [1, 2], [1, 2, 3, 0]), (True, [2, 3], [0, 1, 2, 3])])
def test_rows_are_cut_and_padded_where_their_padding_is(is_left: bool, short: list[int], long: list[int]):
    rows = SizedRows(axis="tokens", largest=3, lengths=np.array([3]), is_left=is_left)
    given = {"ids": np.array([[1, 2, 3]]), "more": np.ones((1, 5))}
    assert rows.cut(given, 2)["ids"].tolist() == [short]
    assert rows.cut(given, 4)["ids"].tolist() == [long]
    assert rows.cut(given, 2)["more"].shape == (1, 5)


def given_at(size: int, path: Path, **asked: Any) -> input_sets.GivenSets:
    specs = tuple(TensorSpec(name=name, shape=(1, size), dtype="int64") for name in ("ids", "mask"))
    request = Request(model="m.onnx", parameters={"tokens": size}, inputs_npz=path, **asked)
    found = input_sets.read_given(request, specs, 1, None)
    assert found
    return found


def test_what_is_scored_calibrates_at_no_size(tmp_path: Path):
    path = rows_in(tmp_path)
    short, long = given_at(3, path, scored="outputs"), given_at(16, path, scored="outputs")
    assert long.split
    assert short.split is None
    scored = {int(row) + 1 for row in long.split.report_rows}
    assert len(scored) == 45
    for found, length in ((short, 3), (long, 16)):
        assert {int((one["ids"] > 0).sum()) for one in found.buffers} == {length}
        assert found.rows is not None
        assert [int(one["ids"].max()) for one in found.buffers] == [row + 1 for row in found.rows]
        calibrating = {int(one["ids"].max()) for one in found.calibration}
        assert not calibrating & scored
        assert len(calibrating) >= 16, "if a size has few rows of its own, others are cut or padded"
    assert {int((one["ids"] > 0).sum()) for one in short.calibration} == {3}


def test_copies_of_a_row_are_called_once(tmp_path: Path):
    """A log of queries has copies, and the right outputs of copies alone would be the same for all inputs."""
    path = rows_in(tmp_path)
    with np.load(path) as stored:
        rows = {name: stored[name] for name in stored.files}
    rows["ids"][LENGTHS == 3] = 9 * rows["mask"][LENGTHS == 3]
    np.savez(path, **rows)  # type: ignore[arg-type] # as in save_sets
    for asked in ({}, {"scored": "outputs"}):
        found = given_at(3, path, **asked)
        assert [one["ids"].tolist() for one in found.buffers] == [[[9, 9, 9]]]
        assert found.rows is not None
        assert found.rows.tolist() == [0]
        assert len(found.calibration) >= 16
    assert len(given_at(16, path).buffers) > 1


def export_sizes(folder: Path, *sizes: int) -> list[ExportedModel]:
    asked = Request(model=str(net(folder)), inputs_npz=rows_in(folder), scored="outputs", sweep={"tokens": (3, 16)})
    found = obtain_all([replace(asked, parameters={"tokens": size}) for size in sizes])
    assert not [one for one in found if isinstance(one, ShootoutError)], found
    return [one for one in found if isinstance(one, ExportedModel)]


@pytest.mark.long
def test_a_file_is_exported_with_the_rows_of_each_size(tmp_path: Path):
    short, odd, long = export_sizes(tmp_path, 3, 5, 16)
    assert [one.has_report for one in (short, odd, long)] == [False, False, True]
    for one, length in ((short, 3), (odd, 3), (long, 16)):
        first, right = one.input_buffers()[0], one.reference_outputs()[0]
        assert int(first["mask"].sum()) == length
        assert right["y"].item() == first["ids"].sum()
    report = long.report()
    assert report
    assert len(report.rows) == 45
    assert {*report.inputs["mask"].sum(axis=1)} == {3, 7, 8, 16}
    own = np.load(long.folder / "report-outputs.npz")["0"]
    np.testing.assert_array_equal(own[:, 0], report.inputs["ids"].sum(axis=1))
    assert load_sets(short.folder / "calibration.npz", ["ids"])[0]["ids"].shape == (1, 3)


def test_rows_of_many_lengths_are_raced_as_a_mix(tmp_path: Path):
    path, model = rows_in(tmp_path), str(net(tmp_path))
    study = choose(model, {"mix": "tokens=3:50,16:20", "inputs": str(path), "metric": "cosine"})
    assert study.scenario == ("varying",)
    packed, fields = pack_files(study, weights=True)
    there = Path(fields["inputs"])
    assert {str(there), str(there.with_name(SIZES))} <= {*packed}, "another machine needs how long rows are"
    choose("residual_mlp", {"mix": "batch=1:9,8:1", "inputs": "elsewhere.npz"})


@pytest.mark.parametrize(
    ("mix", "told"),
    [
        ("tokens=3:50,8:20", r"sizes up to tokens=16, and the mix up to tokens=8: give a mix whose largest size holds"),
        ("batch=1:50,8:20", r"sizes up to tokens=16, and the mix up to batch=8"),
    ],
)
def test_a_mix_that_does_not_hold_the_rows_is_refused(mix: str, told: str, tmp_path: Path):
    with pytest.raises(UsageError, match=told):
        choose(str(net(tmp_path)), {"mix": mix, "inputs": str(rows_in(tmp_path))})


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"lengths": [0, 3]}, "expected a length from 1 to the largest, 16, for each row"),
        ({"lengths": [3, 17]}, "expected a length from 1 to the largest, 16, for each row"),
        ({"lengths": ["a"]}, r"doesn't say how long rows are \(ValueError\): expected {\"axis\""),
        (
            {"lengths": [3, 16]},
            r"is of 2 rows of size 16, and .*inputs.npz holds \[90, 16\], \[90, 16\]: give",
        ),
        ({"largest": 20}, r"is of 90 rows of size 20, and .*inputs.npz holds"),
        ({"padding_side": "up"}, r"doesn't say how long rows are \(KeyError\)"),
    ],
)
def test_sizes_that_say_nothing_are_refused(fields: dict[str, Any], told: str, tmp_path: Path):
    with pytest.raises(UsageError, match=told):
        sized_rows.find(rows_in(tmp_path, **fields))


@pytest.mark.parametrize("text", ['{"small": 3}', "[3]", "no JSON"])
def test_another_file_of_that_name_is_left_alone(text: str, tmp_path: Path):
    path = rows_in(tmp_path)
    (tmp_path / SIZES).write_text(text)
    assert sized_rows.find(path) is None
