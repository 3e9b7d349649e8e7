"""The user's own ONNX file through the command line: it runs, and whatever is wrong with it is one clear line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from support.console import Ended, deaf_here
from support.onnx_made import linear, value, write


def run(folder: Path, *words: str) -> Ended:
    more = ("--out", "out", "--json", "--max-time", "10m")
    return deaf_here("run", "--model", "mine.onnx", *more, *words, cwd=folder)


@pytest.fixture
def study(tmp_path: Path) -> str:
    """One restart of a backend on a file that isn't there yet."""
    (tmp_path / "one.toml").write_text('model = "mine.onnx"\ntargets = ["onnxruntime"]\nmax_restarts = 1\n')
    return "one.toml"


def test_it_is_measured_by_those_who_read_it(tmp_path: Path):
    linear(tmp_path / "mine.onnx", ("n", 4), ("n", 3))
    (tmp_path / "all.toml").write_text('model = "mine.onnx"\ntargets = ["numpy", "onnxruntime"]\nmax_restarts = 1\n')
    done = run(tmp_path, "all.toml", "--set", "n=2")
    assert done.code == 0
    rows = {row["backend"]: row for row in done.data["rows"]}
    assert {name: row["outcome"] for name, row in rows.items()} == {"numpy": "measured", "onnxruntime": "measured"}
    assert {rows[name]["fidelity"]["probe"] for name in ("numpy", "onnxruntime")} == {"fp32"}
    assert rows["numpy"]["parameters"] == {"n": 2}


def test_real_inputs_of_the_right_shape_are_taken(tmp_path: Path, study: str):
    linear(tmp_path / "mine.onnx")
    np.savez(tmp_path / "data.npz", x=np.ones((1, 4), np.float32))
    done = run(tmp_path, study, "--inputs", "data.npz")
    assert done.code == 0
    assert {row["outcome"] for row in done.data["rows"]} == {"measured"}


def refused(done: Ended, *says: str) -> None:
    assert (done.code, done.out) == (2, "")
    (line,) = [line for line in done.err.splitlines() if line.startswith("shootout: ")]
    for words in says:
        assert words in line


def test_an_axis_without_a_size_is_refused_and_the_folder_stays_free(tmp_path: Path, study: str):
    linear(tmp_path / "mine.onnx", ("n", "seq"), ("n", 3))
    refused(run(tmp_path, study), "mine.onnx has axes without a size: seq. Its inputs:")
    assert not (tmp_path / "out").exists(), "it is refused before anything is made or waited for"
    linear(tmp_path / "mine.onnx")
    assert run(tmp_path, study).code == 0, "the same folder, once the file is right"


@pytest.mark.parametrize("content", [b"", b"not an ONNX file", b"\x00" * 100])
def test_a_broken_file_is_refused(tmp_path: Path, study: str, content: bytes):
    (tmp_path / "mine.onnx").write_bytes(content)
    refused(run(tmp_path, study), "mine.onnx is not an ONNX model")
    assert not (tmp_path / "out").exists()


def test_a_file_cut_short_is_refused(tmp_path: Path, study: str):
    linear(tmp_path / "mine.onnx")
    whole = (tmp_path / "mine.onnx").read_bytes()
    (tmp_path / "mine.onnx").write_bytes(whole[: len(whole) // 2])
    refused(run(tmp_path, study), "mine.onnx")


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd"])
def test_weights_outside_its_folder_are_never_opened(tmp_path: Path, study: str, location: str):
    model = onnx.load(linear(tmp_path / "mine.onnx"))
    tensor = model.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    (tmp_path / "mine.onnx").write_bytes(model.SerializeToString())
    refused(run(tmp_path, study), f"mine.onnx reads its weights from {location!r}, outside its own folder: refused")


@pytest.mark.parametrize(
    ("array", "says"),
    [(np.ones((1, 5), np.float32), "[1, 5]"), (np.ones((1, 4), np.int64), "int64"), (None, "x")],
)
def test_inputs_that_do_not_fit_are_refused(tmp_path: Path, study: str, array: np.ndarray | None, says: str):
    linear(tmp_path / "mine.onnx")
    np.savez(tmp_path / "data.npz", **({"other": np.ones(3)} if array is None else {"x": array}))
    refused(run(tmp_path, study, "--inputs", "data.npz"), says)


def test_an_axis_that_the_file_does_not_have_is_refused(tmp_path: Path, study: str):
    linear(tmp_path / "mine.onnx")
    refused(run(tmp_path, study, "--set", "nope=3"), "nope")


def test_an_operator_that_nobody_knows_is_refused(tmp_path: Path, study: str):
    nodes = [onnx.helper.make_node("Wobble", ["x"], ["y"], domain="acme")]
    write(tmp_path / "mine.onnx", nodes, [value("x", (1, 4))], [value("y", (1, 4))])
    refused(run(tmp_path, study), "mine.onnx")
