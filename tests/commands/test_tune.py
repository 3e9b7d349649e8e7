"""`shootout tune` as a command: what it gives the search, and what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.console import deaf_here, here

from shootout.core.errors import ExitCode


def test_a_tuning_run_from_the_command_line(tmp_path: Path):
    words = ["tune", "--model", "identity", "--backends", "spin", "--option", "spin.work=20", "--out", "out", "--json"]
    done = deaf_here(*words, cwd=tmp_path, apps__tune__search__MORE_TO_SEARCH=-1, apps__tune__search__MAX_RESTARTS=1)
    assert done.code == 0, done.err
    (only,) = done.data["targets"]
    assert only["target"] == "spin:cpu:fp32"
    assert here("show", "out", "--json", cwd=tmp_path).data == done.data


def test_a_time_that_is_over_before_the_first_stage_is_said_in_one_line(tmp_path: Path):
    words = ["tune", "--model", "identity", "--backends", "spin", "--option", "spin.work=20", "--out", "out"]
    done = here(*words, "--max-time", "0.01s", cwd=tmp_path)
    assert done.code == ExitCode.NOTHING
    assert done.err == "shootout: --max-time 0.01 s was over before anything was measured: give more\n"


@pytest.mark.slow  # quantizes each layer, builds six models and races them
def test_a_mix_of_precisions_is_found_confirmed_and_shipped_from_the_command_line(tmp_path: Path):
    words = [
        "tune",
        "digits",
        "--set",
        "hidden=64",
        "--backends",
        "onnxruntime",
        "--threads",
        "1",
        "--out",
        "out",
        "--json",
    ]
    limit = ["--precision", "int8", "--max-drop", "20pp"]
    done = deaf_here(*words, *limit, cwd=tmp_path, apps__tune__search__MORE_TO_SEARCH=0)
    assert done.code == 0, done.err
    assert done.data["limits"] == {}
    (target,) = done.data["targets"]
    tried = {one["setting"]: one for one in target["tried"]}
    mixes = [setting for setting in tried if setting.startswith("int8/float-")]
    assert mixes
    for setting in ("int8", *mixes):
        assert [one["limit"] for one in tried[setting]["limits"]] == ["max-drop"], tried[setting]
        assert tried[setting]["limits"][0]["standing"] == "met"
    assert here("show", "out", "--json", cwd=tmp_path).data == done.data
    label = f"onnxruntime:cpu:{mixes[0]}"
    shipped = here("ship", "out/alone", "-o", "shipped", "--target", label, cwd=tmp_path)
    assert shipped.code == 0, shipped.err
    assert [*(tmp_path / "shipped").rglob("model.onnx")]


def test_a_limit_without_labels_is_refused_before_anything_is_built(tmp_path: Path):
    words = ["tune", "residual_mlp", "--backends", "onnxruntime", "--precision", "int8", "--max-drop", "1pp"]
    done = here(*words, "--out", "out", cwd=tmp_path)
    assert done.code == 2
    assert "--max-drop 1pp can't be judged: residual_mlp has no labels here: give --inputs" in done.err
    assert not (tmp_path / "out").exists()
