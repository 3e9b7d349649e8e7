"""An emulated ARM board, reached by ssh: each backend is proven on it, none is timed, and what is shipped runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.arm import BOARD, Board, start_board
from shootout.backends.shipped import open_shipped
from shootout.core.errors import ExitCode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # minutes: each instruction is one of QEMU's first
PROVEN = (
    "numpy:cpu:fp32",
    *("onnxruntime:cpu:fp32", "onnxruntime:cpu:int8", "onnxruntime:cpu:int8-dynamic"),
    *("litert:cpu:fp32", "litert:cpu:int8", "litert:cpu:int8-dynamic"),
    *("ncnn:cpu:fp32", "ncnn:cpu:bf16", "ncnn:cpu:fp16"),
    "iree:cpu:fp32",
)
MODELS = ("residual_mlp", "digits_cnn")
FAULTS = {("digits_cnn", "litert:cpu:int8"): "above the error bound"}
"""On any CPU: LiteRT's own calibration errs there."""
WINOGRAD = '[options."ncnn:cpu:fp16"]\nuse_winograd_convolution = "0"\n'
"""ncnn's FP16 arithmetic, which most x86 CPUs lack, makes Winograd's sums lose six times as much as FP16 explains."""


@pytest.fixture(scope="module")
def board() -> Iterator[Board]:
    with start_board(BOARD) as started:
        yield started


@pytest.fixture(scope="module")
def run(board: Board, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of both models on the board; its one part."""
    folder = tmp_path_factory.mktemp("arm")
    study = folder / "arm.toml"
    study.write_text(f"model = {[*MODELS]}\ntargets = {[*PROVEN]}\n{WINOGRAD}")
    done = shootout(board, folder, "run", study, "--on", board.address, "--out", folder / "out")
    assert done.returncode == ExitCode.NOTHING, done.stderr
    (part,) = [place for place in (folder / "out").iterdir() if place.is_dir()]
    return part


def shootout(board: Board, folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "from shootout.cli import main; main()"]
    path = f"{board.ssh}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [*program, *map(str, words)],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def document(board: Board, run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shootout(board, run, "show", run, "--json").stdout)
    return found


def test_the_board_says_what_it_is_and_what_works_there(board: Board, tmp_path: Path):
    told = shootout(board, tmp_path, "doctor", "--on", board.address, "--json")
    assert told.returncode == 0, told.stderr
    findings = json.loads(told.stdout)["findings"]
    works = {one["backend"] for one in findings if one["device"] == "cpu" and one["availability"]["ok"]}
    assert works >= {text.split(":")[0] for text in PROVEN}


def test_every_target_is_proven_and_none_is_timed(board: Board, run: Path):
    told = document(board, run)
    assert told["environment"]["cpu"]["model"] == "Cortex-A76"
    assert any("emulated CPU" in sign for sign in told["environment"]["virtualisation"])
    rows = {(row["model"], row["arm"]): row for row in told["rows"]}
    assert {arm for _, arm in rows} == {*PROVEN}
    wrong = {key: row["reason"] for key, row in rows.items() if row["reason"] != "emulated CPU: not timed"}
    assert wrong.keys() == FAULTS.keys(), "a row fails if its error is beyond its bound, or another precision ran"
    assert all(said in wrong[key] for key, said in FAULTS.items())
    for key, row in rows.items():
        assert row["fidelity"]["relative_l2"] is not None, key
        assert row["end_to_end"] is None, key


@pytest.mark.parametrize("target", ["litert:cpu:int8", "onnxruntime:cpu:fp32", "ncnn:cpu:fp16"])
def test_what_is_shipped_runs_there(board: Board, run: Path, tmp_path: Path, target: str):
    group = next(row["group"] for row in document(board, run)["rows"] if row["model"] == MODELS[0])
    named = ("--target", target, "--group", group)
    done = shootout(board, tmp_path, "ship", run, *named, "--on", board.address, "-o", tmp_path / "shipped")
    assert done.returncode == 0, done.stderr
    assert "relative L2 error" in done.stderr, "its own check.py ran on the board"
    assert str(open_shipped(tmp_path / "shipped").target) == target
