"""Every misbehaving adapter raced beside two that behave: its row says what it did, theirs are measured."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from support.adapters.misbehaving import ALL, FAULTS, installed
from support.console import Ended, deaf_here

from shootout.core.clock import Deadline
from shootout.core.worker.process import WorkerProcess


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one run of all of them lies, with a study that names them and asks for one restart."""
    made = tmp_path_factory.mktemp("misbehaving")
    targets = ", ".join(f'"{name}"' for name in ("well", "numpy", "stops-time", *FAULTS))
    (made / "all.toml").write_text(f'model = "identity"\ntargets = [{targets}]\nmax_restarts = 1\n')
    installed(made / "third")
    return made


def run(folder: Path, *words: str) -> Ended:
    """A run in which one that hangs is given up as soon as it does, and all others have the time that users' have."""
    is_answered = WorkerProcess._is_answered

    def impatient(process: WorkerProcess, timeout_s: float) -> bool:
        limit, log = Deadline(timeout_s), process._words.fileno()
        while not is_answered(process, min(0.2, max(0.0, limit.left_s))):
            if not limit.allows(0.0) or b"license" in os.pread(log, os.fstat(log).st_size, 0):
                return False
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkerProcess, "_is_answered", impatient)
        return deaf_here("run", *words, "--json", cwd=folder, modules=folder / "third", probed_here=ALL)


@pytest.fixture(scope="module")
def ended(folder: Path) -> Ended:
    return run(folder, "all.toml", "--out", "all")


@pytest.fixture(scope="module")
def rows(ended: Ended) -> dict[str, dict[str, Any]]:
    return {row["backend"]: row for row in ended.data["rows"]}


@pytest.mark.parametrize("backend", FAULTS)
def test_the_row_of_a_misbehaving_adapter_says_what_it_did(rows: dict[str, dict[str, Any]], backend: str):
    assert rows[backend]["outcome"] == "failed"
    assert re.search(FAULTS[backend][1], rows[backend]["reason"]), rows[backend]["reason"]


@pytest.mark.parametrize("backend", ["well", "numpy", "stops-time"])
def test_the_others_are_measured(rows: dict[str, dict[str, Any]], backend: str):
    assert rows[backend]["outcome"] == "measured"
    assert rows[backend]["end_to_end"]["samples"] > 0


def test_failures_of_backends_that_only_a_study_names_are_no_error(ended: Ended):
    assert ended.code == 0


def test_a_failure_is_told_while_it_happens(ended: Ended):
    assert "failed: lies:cpu:fp32: labeled fp32" in ended.err


def test_a_failure_of_a_named_backend_is_an_error_and_strict_makes_any_failure_one(folder: Path):
    (folder / "two.toml").write_text('model = "identity"\ntargets = ["well", "raises-in-load"]\nmax_restarts = 1\n')
    named = ("--backends", "well,raises-in-load")
    measured = "--strict"  # by the first; the second and third are shown its run
    for words, code in (((measured,), 4), ((), 0), (named, 4)):
        ended = run(folder, "two.toml", "--out", "two", *words)
        assert ended.code == code
        assert [row["outcome"] for row in ended.data["rows"]] == ["measured", "failed"]
        assert ("already holds this run, finished" in ended.err) == (measured not in words)


def test_a_model_that_fills_the_gpu_fails_by_how_much_and_the_others_are_measured(folder: Path):
    ended = run(folder, "all.toml", "--out", "full", "--backends", "well,fills-the-gpu:cuda:fp32,numpy")
    assert ended.code == 4
    assert [row["outcome"] for row in ended.data["rows"]] == ["measured", "failed", "measured"]
    reason = ended.data["rows"][1]["reason"]
    assert reason.startswith("build raised OutOfMemoryError: needs more device memory than there is")


def test_when_all_fail_nothing_was_measured_and_the_run_ends(folder: Path):
    ended = run(folder, "all.toml", "--out", "none", "--backends", "exits,killed")
    assert ended.code == 4
    assert not any(row["outcome"] == "measured" for row in ended.data["rows"])


def test_what_can_be_built_but_not_run_is_skipped_with_what_was_built(folder: Path):
    ended = run(folder, "all.toml", "--out", "built", "--backends", "well,builds-only")
    row = ended.data["rows"][1]
    assert ended.code == 6
    assert (row["outcome"], row["reason"], row["fix"]) == ("skipped", "no such chip", "buy one")
    assert (row["artifact_bytes"], row["built_nodes_by_precision"]) == (5, {"fp32": 7})
    assert row["build_s"] > 0
    assert row["executed"] is None


@pytest.mark.long  # beside tests/build/test_builder.py
def test_the_same_target_twice_is_built_once(folder: Path):
    ended = run(folder, "all.toml", "--out", "twice", "--backends", "counts,counts", "--fresh")
    assert [row["outcome"] for row in ended.data["rows"]] == ["measured", "measured"]
    assert sorted(row["build_cached"] for row in ended.data["rows"]) == [False, True]


def test_where_nothing_can_run_what_can_be_built_still_is(folder: Path):
    ended = run(folder, "all.toml", "--out", "only-built", "--backends", "builds-only")
    assert ended.code == 6
    assert ended.data["rows"][0]["artifact_bytes"] == 5
