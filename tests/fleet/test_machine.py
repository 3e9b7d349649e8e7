"""What runs on a node: it refuses what was changed on the way, starts the job, tells what it writes, and cleans up."""

from __future__ import annotations

import ast
import fcntl
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shootout.fleet import machine, shipment
from shootout.fleet.machine import LOCK, OLD_S, Machine
from shootout.host import store

WAITS_S = 60.0
"""Of a test, for a process that ends by itself at once."""


def archive(**contents: str) -> tuple[bytes, str]:
    made = shipment._archive({name.replace("__", "."): text.encode() for name, text in contents.items()})
    return made.data, made.sha256


def begun(job: str, *, told: Mapping[str, Any] | None = None, folder: Mapping[str, bytes] | None = None) -> Machine:
    """A node at work, with a module `job` and beside it a file of the user's."""
    one = Machine()
    one.begin("job", dict(told or {}), dict(folder or {}), *archive(job__py=job), *archive(data__txt="mine"))
    return one


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fleet"


def waited(one: Machine) -> dict[str, Any]:
    """What came until its end: pieces of all looks, and the answer."""
    pieces, limit = list[tuple[str, int, bytes]](), time.monotonic() + WAITS_S
    while time.monotonic() < limit:
        found = one.poll()
        pieces += found["pieces"]
        if found["answer"] is not None:
            return {**found, "pieces": pieces}
        time.sleep(0.02)
    raise AssertionError("it never ended")


def test_a_changed_byte_is_refused_and_leaves_nothing(cache: Path):
    data, digest = archive(job__py="")
    spoilt = data[:-1] + bytes([data[-1] ^ 1])
    with pytest.raises(ValueError, match="isn't what was sent"):
        Machine().begin("job", {}, {}, spoilt, digest, data, digest)
    assert list(cache.iterdir()) == []


def test_what_was_unpacked_counts_as_cache_and_a_job_at_work_does_not(cache: Path):
    one = begun("")
    assert len([each for each in store.kept() if "cluster" in each.kind]) == 2
    one.close()


def test_files_come_before_the_lines_that_name_them_and_only_whole_lines(cache: Path):
    job = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
run = folder / "run"
(run / "samples").mkdir(parents=True)
(run / "samples" / "g.parquet").write_bytes(b"s")
(run / "journal.jsonl").write_bytes(b"one\\ntwo\\nthr")
(run / "logs").mkdir()
(run / "logs" / "arm.log").write_text("l")
(folder / "answer.json").write_text(json.dumps({"code": 0, "told": json.loads((folder / "job.json").read_text())["n"]}))
"""
    one = begun(job, told={"n": 3})
    found = waited(one)
    assert found["answer"] == {"code": 0, "told": 3}
    assert ("journal.jsonl", 0, b"one\ntwo\n") in found["pieces"]
    assert [name for name, _, _ in found["pieces"]].index("samples/g.parquet") < [
        name for name, _, _ in found["pieces"]
    ].index("journal.jsonl")
    one.close()
    assert not any(path.name.startswith("job-") for path in cache.iterdir())


def test_a_process_that_dies_says_its_last_words(cache: Path):
    one = begun("import sys; sys.exit('no such thing')")
    answer = waited(one)["answer"]
    assert answer["code"] == 1
    assert "no such thing" in answer["error"]
    one.close()


def test_a_job_starts_in_the_folder_of_the_files_with_the_whole_node(cache: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("OMP_NUM_THREADS", "RAY_JOB_ID"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # as the node's owner limits it
    job = """
import json, os, pathlib, sys
answer = {"code": 0, "seen": sorted(os.environ), "here": pathlib.Path("data.txt").read_text(), "me": __file__}
(pathlib.Path(sys.argv[1]) / "answer.json").write_text(json.dumps(answer))
"""
    one = begun(job)
    answer = waited(one)["answer"]
    assert not {"OMP_NUM_THREADS", "RAY_JOB_ID"} & {*answer["seen"]}
    assert "CUDA_VISIBLE_DEVICES" in answer["seen"]
    assert answer["here"] == "mine"
    assert str(cache) in answer["me"]
    one.close()


def test_a_job_goes_on_behind_what_was_there(cache: Path):
    job = """
import pathlib, sys
with (pathlib.Path(sys.argv[1]) / "run" / "journal.jsonl").open("ab") as file:
    file.write(b"more\\n")
"""
    one = begun(job, folder={"journal.jsonl": b"one\n", "samples/g.parquet": b"s"})
    assert waited(one)["pieces"] == [("journal.jsonl", 4, b"more\n")]
    one.close()


def test_a_job_is_asked_to_end(cache: Path):
    job = """
import json, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    (folder / "run").mkdir()
    (folder / "run" / "journal.jsonl").write_text("begun\\n")
    time.sleep(60)
except KeyboardInterrupt:
    (folder / "answer.json").write_text(json.dumps({"code": 130}))
"""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # as Ray's processes have it
    try:
        one = begun(job)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    limit = time.monotonic() + WAITS_S
    while not (found := one.poll())["pieces"]:
        assert found["answer"] is None, found["answer"]
        assert time.monotonic() < limit
        time.sleep(0.02)
    one.stop()
    assert waited(one)["answer"] == {"code": 130}
    one.close()


def test_a_folder_that_others_can_write_is_refused_with_what_to_do(cache: Path):
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    with pytest.raises(PermissionError, match="chmod 700 it, or set SHOOTOUT_CACHE"):
        begun("")


def test_what_killed_jobs_left_is_removed_and_what_works_is_not(cache: Path):
    kept = [cache / name for name in ("job-at-work", "job-begins")]
    gone = [cache / name for name in ("job-killed", "new-half")]
    for folder in (*kept, *gone):
        folder.mkdir(parents=True, mode=0o700)
        (folder / LOCK).touch()
    for folder in (kept[0], *gone):
        os.utime(folder, (0.0, time.time() - OLD_S - 60.0))
    with (kept[0] / LOCK).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        begun("").close()
    assert {path.name for path in kept} <= {path.name for path in cache.iterdir()}
    assert not [path for path in gone if path.exists()]


def test_nodes_need_the_standard_library_alone_to_run_it():
    tree = ast.parse(Path(machine.__file__).read_text())
    found = {alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names}
    found |= {str(each.module) for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in found} <= sys.stdlib_module_names
