"""What runs on a node: it starts the job, returns what the job wrote, and cleans up."""

from __future__ import annotations

import ast
import io
import os
import signal
import sys
import threading
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shootout.fleet import node_side, parcel
from shootout.fleet.node_side import NodeJob, zip_folder
from shootout.host import store

WAITS_S = 60.0
"""Of a test, for a process that ends by itself at once."""


def packed(**contents: str) -> bytes:
    return parcel._zip_contents({name.replace("__", "."): text.encode() for name, text in contents.items()})


def ran(job: str, *, words: Mapping[str, Any] | None = None, folder: bytes = b"", on: NodeJob | None = None) -> Any:
    """What a node returns of a module `job`, with a file of the user's beside it."""
    node = on or NodeJob()
    return node.run("job", dict(words or {}), folder, packed(job__py=job), packed(data__txt="mine"))


def files(data: bytes) -> dict[str, bytes]:
    archive = zipfile.ZipFile(io.BytesIO(data))
    return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fleet"


def test_files_of_before_1980_are_zipped_since_a_board_may_have_no_clock(tmp_path: Path):
    (tmp_path / "journal.jsonl").write_text("one")
    os.utime(tmp_path / "journal.jsonl", (0, 0))
    assert files(zip_folder(tmp_path)) == {"journal.jsonl": b"one"}


def test_what_was_unpacked_counts_as_cache(cache: Path):
    ran("")
    ran("")
    assert len([each for each in store.kept() if "other machines" in each.kind]) == len([*cache.iterdir()]) == 2


def test_the_answer_comes_with_all_files_and_the_journal_last(cache: Path):
    job = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
run = folder / "run"
(run / "samples").mkdir(parents=True)
(run / "samples" / "g.parquet").write_bytes(b"s")
(run / "journal.jsonl").write_bytes(b"one\\n")
(run / ".lock").touch()
(run / "logs").mkdir()
(run / "logs" / "arm.log").write_text("l")
(folder / "answer.json").write_text(json.dumps({"code": 0, "told": json.loads((folder / "job.json").read_text())["n"]}))
"""
    found = ran(job, words={"n": 3})
    assert (found["code"], found["told"]) == (0, 3)
    assert [*files(found["folder"])] == ["logs/arm.log", "samples/g.parquet", "journal.jsonl"]


def test_a_process_that_dies_says_its_last_words(cache: Path):
    found = ran("import sys; sys.exit('no such thing')")
    assert found["code"] == 1
    assert "no such thing" in found["error"]


def test_a_job_starts_in_the_folder_of_the_files_with_the_whole_node(cache: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("OMP_NUM_THREADS", "RAY_JOB_ID"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # as the node's owner limits it
    job = """
import json, os, pathlib, sys
answer = {"code": 0, "seen": sorted(os.environ), "here": pathlib.Path("data.txt").read_text(), "me": __file__}
(pathlib.Path(sys.argv[1]) / "answer.json").write_text(json.dumps(answer))
"""
    answer = ran(job)
    assert not {"OMP_NUM_THREADS", "RAY_JOB_ID"} & {*answer["seen"]}
    assert "CUDA_VISIBLE_DEVICES" in answer["seen"]
    assert answer["here"] == "mine"
    assert str(cache) in answer["me"]


def test_a_job_goes_on_behind_what_was_there(cache: Path, tmp_path: Path):
    run = tmp_path / "run"
    (run / "samples").mkdir(parents=True)
    (run / "journal.jsonl").write_bytes(b"one\n")
    (run / "samples" / "g.parquet").write_bytes(b"s")
    job = """
import pathlib, sys
with (pathlib.Path(sys.argv[1]) / "run" / "journal.jsonl").open("ab") as file:
    file.write(b"more\\n")
"""
    found = ran(job, folder=zip_folder(run))
    assert files(found["folder"]) == {"samples/g.parquet": b"s", "journal.jsonl": b"one\nmore\n"}


def test_a_job_that_is_asked_to_end_returns_what_it_has(cache: Path, tmp_path: Path):
    begun = tmp_path / "begun"
    job = f"""
import json, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    (folder / "run").mkdir()
    (folder / "run" / "journal.jsonl").write_text("begun\\n")
    pathlib.Path({str(begun)!r}).touch()
    time.sleep(60)
except KeyboardInterrupt:
    (folder / "answer.json").write_text(json.dumps({{"code": 130}}))
"""
    node = NodeJob()

    def stop() -> None:
        limit = time.monotonic() + WAITS_S
        while not begun.exists() and time.monotonic() < limit:
            time.sleep(0.02)
        node.stop()

    other = threading.Thread(target=stop)
    other.start()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # as Ray's processes have it
    try:
        found = ran(job, on=node)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        other.join()
    assert (found["code"], files(found["folder"])) == (130, {"journal.jsonl": b"begun\n"})


def test_a_folder_that_others_can_write_is_refused_with_what_to_do(cache: Path):
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    with pytest.raises(PermissionError, match="chmod 700 it, or set SHOOTOUT_CACHE"):
        ran("")


def test_nodes_need_the_standard_library_alone_to_run_it():
    tree = ast.parse(Path(node_side.__file__).read_text())
    found = {alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names}
    found |= {str(each.module) for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in found} <= sys.stdlib_module_names
