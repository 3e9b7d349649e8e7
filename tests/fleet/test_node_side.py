"""What runs on a node: it starts the job, returns what the job wrote, and cleans up."""

from __future__ import annotations

import ast
import io
import os
import signal
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shootout.apps.fleet import node_side
from shootout.apps.fleet.node_side import run_sent, run_task, zip_folder
from shootout.apps.fleet.parcel import write_tar

PACKAGE, FILES = f"fleet/{'a' * 32}", f"fleet/{'b' * 32}"


def make_tar(**contents: str) -> bytes:
    made = io.BytesIO()
    write_tar(made, {name.replace("__", "."): text.encode() for name, text in contents.items()})
    return made.getvalue()


def ran(job: str, *, folder: bytes = b"") -> dict[str, Any]:
    """The answer of a node of a cluster to a module `job`, with a file of the user's beside it."""
    sent = [(PACKAGE, 1, make_tar(job__py=job)), (FILES, 1, make_tar(data__txt="mine"))]
    return run_sent("one", ["job", "{run}", "{not run}"], folder, sent, is_new=False)


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


def test_the_answer_comes_with_all_files_and_the_journal_last(cache: Path):
    job = """
import pathlib, sys
run = pathlib.Path(sys.argv[1])
(run / "samples").mkdir(parents=True)
(run / "samples" / "g.npz").write_bytes(b"s")
(run / "journal.jsonl").write_bytes(b"one\\n")
(run / ".lock").touch()
(run / "logs").mkdir()
(run / "logs" / "arm.log").write_text("l")
print(sys.argv[2])
sys.exit("no such thing")
"""
    found = ran(job)
    assert (found["code"], found["printed"], found["said"]) == (1, "{not run}\n", "no such thing")
    assert [*files(found["folder"])] == ["logs/arm.log", "samples/g.npz", "journal.jsonl"]


def test_a_task_starts_in_the_folder_of_the_files_with_the_whole_node(cache: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("OMP_NUM_THREADS", "RAY_JOB_ID"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # as the node's owner limits it
    seen, here, me = ran("import os; print(*os.environ); print(open('data.txt').read()); print(__file__)")[
        "printed"
    ].splitlines()
    assert not {"OMP_NUM_THREADS", "RAY_JOB_ID"} & {*seen.split()}
    assert "CUDA_VISIBLE_DEVICES" in seen
    assert here == "mine"
    assert str(cache) in me


def test_a_task_goes_on_with_what_is_sent_where_that_has_measured_more(cache: Path, tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "journal.jsonl").write_bytes(b"one\n")
    (run / "old").touch()
    ran("", folder=zip_folder(run))
    (run / "journal.jsonl").write_bytes(b"one\nmore\n")
    (run / "old").rename(run / "new")
    assert files(ran("", folder=zip_folder(run))["folder"]) == {"new": b"", "journal.jsonl": b"one\nmore\n"}
    (run / "journal.jsonl").write_bytes(b"two\n")
    assert files(ran("", folder=zip_folder(run))["folder"])["journal.jsonl"] == b"one\nmore\n"
    assert not [*cache.glob("new-*")]


def test_a_task_that_is_asked_to_end_returns_what_it_has(cache: Path):
    job = """
import pathlib, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    (pathlib.Path(sys.argv[1]) / "journal.jsonl").write_text("begun\\n")
    print("begun", file=sys.stderr, flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(130)
"""
    ran("")
    (cache.parent / PACKAGE / "job.py").write_text(job)

    def stop(_: bytes) -> None:
        process[0].send_signal(signal.SIGINT)

    process = list[Any]()
    found = run_task("two", ["job", "{run}"], b"", PACKAGE, FILES, is_new=True, begun=process.append, hear=stop)
    assert (found["code"], files(found["folder"])) == (130, {"journal.jsonl": b"begun\n"})


@pytest.mark.parametrize("cut", [lambda data: data[:1536], lambda data: data[:700]], ids=["between files", "in a file"])
def test_what_came_in_part_is_refused_and_leaves_nothing(cache: Path, cut: Callable[[bytes], bytes]):
    data = make_tar(one="1" * 300, two="2" * 300)
    with pytest.raises((OSError, tarfile.ReadError)):
        node_side.receive(FILES, io.BytesIO(cut(data)), 2)
    assert [*cache.iterdir()] == []
    node_side.receive(FILES, io.BytesIO(data), 2)
    assert node_side.find_lacking({FILES: ["one", "three"]}) == {FILES: ["three"]}


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
