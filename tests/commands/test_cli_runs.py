"""Whole runs through the command line: what they print, where they write, and what stands in their way."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from support.adapters.third_party import install
from support.console import Ended, call, deaf, deaf_here, environment, here, spin_study, without_privileges
from support.deaf import own_lock
from support.onnx_made import linear

from shootout.commands.machine_lock import machine_lock
from shootout.testing.checks import has_gpu


def test_a_run_prints_one_document_and_nothing_else_on_stdout(tmp_path: Path):
    study = spin_study(tmp_path, restarts=1)
    command = deaf("run", study, "--out", "out", "--json", forked=True)
    first = call(command, cwd=tmp_path)  # a process: C libraries print to 1
    assert first.code == 0
    assert [row["outcome"] for row in first.data["rows"]] == ["measured", "measured"]
    assert "exporting and building, 2 targets" in first.err
    assert "\x1b" not in first.err
    assert first.data == here("show", "out", "--json", cwd=tmp_path).data
    again = deaf_here("run", study, "--out", "out", "--full", cwd=tmp_path)
    assert again.code == 0
    assert "--full adds" not in again.out
    # One restart of a noisy machine may tell the two apart, and then the run is finished.
    goes_on = "going on with out" in again.err
    assert goes_on or "out already holds this run, finished" in again.err
    assert "spin#2" in again.out


def test_what_does_not_fit_in_memory_is_skipped_and_nothing_is_measured(tmp_path: Path):
    (tmp_path / "big.toml").write_text(
        'model = "residual_mlp"\ntargets = ["numpy"]\n[parameters]\nd_model = [65536]\nn_layers = [4096]\n'
    )
    done = deaf_here("run", "big.toml", "--out", "out", "--json", cwd=tmp_path)
    assert done.code == 3
    (row,) = done.data["rows"]
    assert re.fullmatch(r"needs \S+ TB of memory, has \S+ GB", row["reason"])
    named = deaf_here("run", "big.toml", "--backends", "numpy", "--out", "named", cwd=tmp_path)
    assert named.code == 6


def test_a_named_backend_that_cannot_run_here_is_an_error_but_the_others_are_measured(tmp_path: Path):
    install(tmp_path / "third", "half-installed", {"absent": "nowhere:Adapter"})
    study = spin_study(tmp_path, restarts=1)
    words = ["run", study, "--backends", "spin,absent", "--out", "out", "--json"]
    done = deaf_here(*words, cwd=tmp_path, modules=tmp_path / "third")
    assert done.code == 6
    spin, absent = done.data["rows"]
    assert (spin["outcome"], absent["outcome"]) == ("measured", "skipped")
    assert "nowhere:Adapter can't be loaded: ModuleNotFoundError" in absent["reason"]
    assert absent["fix"] == "pip install --upgrade half-installed"


@pytest.mark.long  # it builds for 10 s
def test_tensorrt_without_a_gpu_is_built_and_skipped_and_the_others_are_measured(tmp_path: Path):
    if has_gpu():
        pytest.skip("with a GPU it runs")
    (tmp_path / "two.toml").write_text('model = "digits"\ntargets = ["numpy"]\nmax_restarts = 1\n')
    done = deaf_here("run", "two.toml", "--backends", "numpy,tensorrt", "--out", "out", "--json", cwd=tmp_path)
    assert done.code == 6
    measured, skipped = done.data["rows"]
    assert (measured["outcome"], skipped["outcome"]) == ("measured", "skipped")
    assert "no NVIDIA driver" in skipped["reason"]
    assert skipped["artifact_bytes"] > 10_000
    assert skipped["built_nodes_by_precision"] == {"fp16": 3}


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_while_waiting_for_the_machine(tmp_path: Path):
    command = deaf("run", spin_study(tmp_path), "--out", "out")
    with machine_lock("another run", pytest.fail, own_lock()):
        process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        holder = f"process {os.getpid()} (another run)"
        assert process.stderr.readline() == f"waiting for another run on this machine: {holder}\n"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert "Traceback" not in process.stderr.read()
    assert not (tmp_path / "out").exists(), "nothing was written into it"


@pytest.mark.parametrize("out", ["locked/out", "locked", "file", "file/out"])
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, out: str):
    (tmp_path / "file").touch()
    (tmp_path / "locked").mkdir(mode=0o555)
    words = ("run", spin_study(tmp_path), "--out", out)
    if out.startswith("locked"):
        done = call(deaf(*words), tmp_path, preexec_fn=without_privileges)
    else:
        done = deaf_here(*words, cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert out in done.err
    assert re.search(r"Permission denied|File exists|Not a directory", done.err)


def test_a_folder_of_other_things_is_left_alone_even_when_fresh(tmp_path: Path):
    precious = tmp_path / "mine" / "samples" / "precious"
    precious.parent.mkdir(parents=True)
    precious.write_text("keep me")
    (tmp_path / "mine" / "notes.txt").touch()
    for fresh in ([], ["--fresh"]):
        done = deaf_here("run", spin_study(tmp_path), "--out", "mine", *fresh, cwd=tmp_path)
        assert done.code == 2
        assert "'mine' is not a run folder (it holds 'notes.txt'): choose another --out" in done.err
    assert precious.read_text() == "keep me"


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file that this process writes grows beyond `size` bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_told_and_the_run_goes_on_once_there_is_room(tmp_path: Path):
    one = spin_study(tmp_path, restarts=1, work=500, name="one")
    deaf_here("run", one, "--out", "other", cwd=tmp_path)  # exports, too
    lines = (tmp_path / "other" / "journal.jsonl").read_bytes().splitlines(keepends=True)
    played = sum(len(line) for line in lines if b'"kind":"played"' in line)
    samples = [file.stat().st_size for file in (tmp_path / "other" / "samples").iterdir()]
    limit = max(sum(map(len, lines)) + played // 2, 2 * max(samples))  # one or two restarts fit
    study = spin_study(tmp_path, restarts=20, work=500)
    with files_up_to(limit):
        full = deaf_here("run", study, "--out", "out", "--max-time", "60s", "--json", cwd=tmp_path)
    assert (full.code, full.out) == (1, "")
    assert re.search(
        r"shootout: can't write 'out/.*': File too large\. Everything measured .* kept; run the same", full.err
    )
    before = (tmp_path / "out" / "journal.jsonl").read_bytes()
    assert len(before) <= limit
    again = deaf_here("run", "tiny.toml", "--out", "out", "--max-time", "1s", cwd=tmp_path)
    assert again.code == 0
    assert (tmp_path / "out" / "journal.jsonl").read_bytes().startswith(before)
    assert json.loads(before.splitlines()[-1])["kind"] == "rounds"


def run(folder: Path, *words: str) -> Ended:
    more = ("--out", "out", "--json", "--max-time", "10m")
    return deaf_here("run", "--model", "mine.onnx", *more, *words, cwd=folder)


@pytest.fixture
def study(tmp_path: Path) -> str:
    """One restart of a backend on a file that isn't there yet."""
    (tmp_path / "one.toml").write_text('model = "mine.onnx"\ntargets = ["onnxruntime"]\nmax_restarts = 1\n')
    return "one.toml"


@pytest.mark.long  # beside test_a_run_prints_one_document_and_nothing_else_on_stdout, and test_user_onnx.py
def test_it_is_measured_by_those_who_read_it(tmp_path: Path):
    linear(tmp_path / "mine.onnx", ("n", 4), ("n", 3))
    (tmp_path / "all.toml").write_text('model = "mine.onnx"\ntargets = ["numpy", "onnxruntime"]\nmax_restarts = 1\n')
    done = run(tmp_path, "all.toml", "--set", "n=2")
    assert done.code == 0
    rows = {row["backend"]: row for row in done.data["rows"]}
    assert {name: row["outcome"] for name, row in rows.items()} == {"numpy": "measured", "onnxruntime": "measured"}
    assert {rows[name]["fidelity"]["probe"] for name in ("numpy", "onnxruntime")} == {"fp32"}
    assert rows["numpy"]["parameters"] == {"n": 2}


def refused(done: Ended, *says: str) -> None:
    assert (done.code, done.out) == (2, "")
    (line,) = [line for line in done.err.splitlines() if line.startswith("shootout: ")]
    for words in says:
        assert words in line


@pytest.mark.parametrize(
    ("array", "says"),
    [(np.ones((1, 5), np.float32), "[1, 5]"), (np.ones((1, 4), np.int64), "int64"), (None, "x")],
)
def test_inputs_that_do_not_fit_are_refused(tmp_path: Path, study: str, array: np.ndarray | None, says: str):
    linear(tmp_path / "mine.onnx")
    np.savez(tmp_path / "data.npz", **({"other": np.ones(3)} if array is None else {"x": array}))
    refused(run(tmp_path, study, "--inputs", "data.npz"), says)
